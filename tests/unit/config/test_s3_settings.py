"""The ``s3:`` block: keys come from the environment alone and are never shown."""

import pickle
import re
import sys
from pathlib import Path

import pytest
import yaml

from lakeward.config import Config, parse_config
from lakeward.config.services import S3Settings
from lakeward.errors import ConfigurationError
from lakeward.storage.s3 import S3Location, s3_client


def configured(**s3) -> Config:
    return parse_config({"s3": s3}, base=Path())


def test_no_setting_is_required_on_aws():
    settings = configured().s3
    assert settings.keys() is None and not settings.is_path_style


@pytest.mark.parametrize(
    ("given", "is_path_style"),
    [
        ({"endpoint": "http://h"}, True),
        ({"endpoint": "http://h", "path_style": False}, False),
        ({"path_style": True}, True),
    ],
)
def test_path_style_follows_the_endpoint_unless_it_is_set(given, is_path_style):
    assert configured(**given).s3.is_path_style is is_path_style


@pytest.mark.parametrize("field", ["access_key", "secret_key", "session_token"])
@pytest.mark.parametrize("value", ["AKIAEXAMPLE", "env:", "env:not a name", "environment:NAME"])
def test_a_key_in_the_file_is_refused_and_not_repeated(field, value):
    with pytest.raises(ConfigurationError, match="must be env:NAME") as refused:
        configured(**{field: value})
    assert value not in str(refused.value).replace("env:NAME", "")


def test_keys_come_in_pairs():
    with pytest.raises(ConfigurationError, match="must be set together"):
        configured(access_key="env:KEY")


def test_an_endpoint_is_a_whole_address():
    with pytest.raises(ConfigurationError, match="http:// or https://"):
        configured(endpoint="store:9000")


def test_an_unknown_key_is_refused_with_a_suggestion():
    with pytest.raises(ConfigurationError, match=r"s3\.endpiont: unknown key; did you mean 'endpoint'"):
        configured(endpiont="http://h")


def test_a_variable_that_is_not_set_is_named(monkeypatch):
    monkeypatch.setenv("KEY", "a key")
    with pytest.raises(ConfigurationError, match="'SECRET', which is not set") as refused:
        configured(access_key="env:KEY", secret_key="env:SECRET").s3.keys()
    assert "export SECRET" in (refused.value.hint or "")


def test_keys_are_not_shown_and_reach_tasks(monkeypatch):
    for name in ("KEY", "SECRET", "TOKEN"):
        monkeypatch.setenv(name, f"confidential {name}")
    config = configured(access_key="env:KEY", secret_key="env:SECRET", session_token="env:TOKEN")
    keys = config.s3.keys()
    assert "confidential SECRET" not in f"{keys!r} {config!r}" and "confidential TOKEN" not in f"{keys!r}"
    assert pickle.loads(pickle.dumps(keys)) == keys
    assert keys is not None and (keys.access, keys.secret, keys.token) == (
        "confidential KEY", "confidential SECRET", "confidential TOKEN",
    )  # fmt: skip


def test_environment_overrides_the_file():
    config = parse_config({}, base=Path(), environment={"LAKEWARD_S3__ENDPOINT": "http://other"})
    assert config.s3.endpoint == "http://other"


@pytest.mark.parametrize(
    ("uri", "bucket", "prefix"),
    [("s3://b", "b", ""), ("s3a://b/", "b", ""), ("s3://b/a b%20/ü#?/", "b", "a b%20/ü#?")],
)
def test_a_location_is_a_bucket_and_an_unchanged_prefix(uri, bucket, prefix):
    assert S3Location.parse(uri, "landing") == S3Location(bucket, prefix)


def test_a_location_without_a_bucket_is_refused():
    with pytest.raises(ConfigurationError, match=r"landing 's3:///x' names no bucket"):
        S3Location.parse("s3:///x", "landing")


def test_a_missing_library_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(ConfigurationError, match="boto3") as refused:
        s3_client(configured().s3, None)
    assert refused.value.hint == "pip install 'lakeward[aws]'"


@pytest.mark.parametrize(
    ("given", "style"), [({}, "auto"), ({"path_style": False}, "virtual"), ({"path_style": True}, "path")]
)
def test_the_client_addresses_buckets_as_configured(given, style):
    client = s3_client(configured(**given).s3, None)
    try:
        assert client.meta.config.s3["addressing_style"] == style
    finally:
        client.close()


def test_the_documented_settings_are_valid():
    text = (Path(__file__).parents[3] / "docs" / "s3.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```(\w+)\n(.*?)```", text, re.DOTALL)
    kinds = [kind for kind, _ in blocks]
    assert kinds == ["yaml", "yaml"]
    for _, block in blocks:
        parse_config(yaml.safe_load(block), base=Path())
    for field in S3Settings.model_fields:
        assert f"`{field}`" in text
