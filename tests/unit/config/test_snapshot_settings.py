"""Settings of snapshots on a schedule: what is accepted, and what is refused with which reason."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from lakeward.config import parse_config
from lakeward.config.tables import SnapshotSettings
from lakeward.errors import ConfigurationError
from lakeward.session.catalog import publishes_to_s3


def parsed(tmp_path: Any, text: dict[str, Any], **more: Any) -> SnapshotSettings:
    return parse_config({"tables": {"a.b": {"snapshots": text}}, **more}, base=tmp_path).tables["a.b"].snapshots


def test_a_schedule_is_merged_over_that_of_defaults_key_by_key(tmp_path):
    defaults = {"defaults": {"snapshots": {"every": "day", "to": "./out", "keep": 30, "at": "00:30"}}}
    found = parsed(tmp_path, {"keep": 7, "register": "shop.{table}", "start": date(2020, 11, 14)}, **defaults)
    assert (found.every, found.to, found.keep, found.at, found.start) == ("day", "./out", 7, "00:30", "2020-11-14")
    assert found.registered == "shop.{table}"
    assert parsed(tmp_path, {"every": None}, **defaults).every is None


def test_without_a_schedule_the_settings_are_what_they_were(tmp_path):
    found = parsed(tmp_path, {"keep": 12, "older_than": "90d"})
    assert (found.every, found.keep, found.older_than) == (None, 12, 90 * 86_400)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ({"every": "day"}, "needs to:"),
        ({"every": "week", "to": "x"}, "'day' or 'hour'"),
        ({"every": "hour", "to": "x", "at": "00:30"}, "settle: sets how long"),
        ({"at": 750}, "in quotes"),
        ({"at": "24:00"}, "not a time of day"),
        ({"at": "0:30"}, "not a time of day"),
        ({"start": "2020-02-30"}, "not a day"),
        ({"start": "2020-11-14T10:00:00"}, "not a day"),
        ({"start": 20201114}, "not a day"),
        ({"layout": "dated"}, "date_column"),
        ({"register": "shop.{tabel}"}, "only {schema} and {table}"),
        ({"register": "a.b", "register_all": "a.b"}, "name the same table"),
        ({"settle": "-1m"}, "span"),
        ({"version_column": ""}, "version_column"),
        ({"version_column": "of the day"}, "version_column"),
    ],
)
def test_what_makes_no_schedule_is_refused(tmp_path, text, reason):
    with pytest.raises(ConfigurationError) as refused:
        parsed(tmp_path, text)
    assert reason in refused.value.message


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        ({"defaults": {"snapshots": {"to": "s3://bucket/out"}}}, True),
        ({"tables": {"a.b": {"snapshots": {"to": "s3a://bucket/out"}}}}, True),
        ({"tables": {"a.b": {"snapshots": {"to": "./out"}}}}, False),
    ],
)
def test_versions_in_s3_need_its_jars(tmp_path, config, wanted):
    assert publishes_to_s3(parse_config(config, base=tmp_path)) is wanted
