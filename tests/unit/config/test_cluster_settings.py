"""The settings of clusters."""

from __future__ import annotations

import pytest

from lakeward.config import parse_config
from lakeward.errors import ConfigurationError


def clusters_of(tmp_path, **settings):
    return parse_config({"clusters": {"prod": settings}}, base=tmp_path).clusters["prod"]


def test_optional_settings_have_defaults(tmp_path):
    settings = clusters_of(tmp_path, hosts="10.0.0.1")
    assert (settings.hosts, settings.port, settings.consistency) == (("10.0.0.1",), 9042, "LOCAL_QUORUM")
    assert settings.tls is settings.username is settings.datacenter is None


def test_all_settings_together(tmp_path):
    settings = clusters_of(
        tmp_path,
        hosts=["10.0.0.1", "10.0.0.2"],
        port=9043,
        datacenter="dc1",
        username="app",
        password="env:PW",
        tls={"ca": "ca.pem", "check_host_name": False},
        consistency="LOCAL_ONE",
        page_size=500,
        max_in_flight=8,
        max_requests_per_second=100,
        timeout="1m",
    )
    assert (settings.timeout, settings.tls.check_host_name, settings.page_size) == (60.0, False, 500)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({}, "needs either hosts or keyspaces"),
        ({"hosts": "a", "keyspaces": "eu-west-1"}, "needs either hosts or keyspaces"),
        ({"hosts": "a", "username": "app"}, "username and password must be set together"),
        ({"hosts": "a", "username": "app", "password": "env:"}, "must be env:NAME or secret:NAME"),
        ({"hosts": "a", "pasword": "env:PW"}, "did you mean 'password'"),
        ({"hosts": "a", "consistency": "SOME"}, "Input should be 'LOCAL_QUORUM'"),
    ],
)
def test_settings_that_do_not_fit_are_refused(tmp_path, settings, problem):
    with pytest.raises(ConfigurationError, match=problem):
        clusters_of(tmp_path, **settings)


def test_a_password_in_the_file_is_refused_and_not_repeated(tmp_path):
    with pytest.raises(ConfigurationError, match="passwords do not belong in the file") as caught:
        clusters_of(tmp_path, hosts="a", username="app", password="pa55w0rd")
    assert "pa55w0rd" not in str(caught.value)
