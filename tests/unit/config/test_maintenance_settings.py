"""Limits of debt: laid over the defaults key by key, and refused where they make no sense."""

from pathlib import Path

import pytest

from lakeward.config import parse_config
from lakeward.errors import ConfigurationError
from lakeward.model import TableId


def settings(**own):
    data = {"defaults": {"maintain": "auto", "maintenance": {"delete_files": 5, "max_seconds": "2m"}}}
    config = parse_config({**data, "tables": {"a.b": {"maintenance": own}}}, base=Path())
    return config.declared()[TableId("a", "b")]


def test_a_table_changes_single_limits():
    found = settings(small_files=7)
    limits = found.maintenance
    assert (found.maintain, limits.delete_files, limits.small_files, limits.max_seconds) == ("auto", 5, 7, 120.0)


@pytest.mark.parametrize("wrong", [{"orphan_age": "1h"}, {"deleted_share": 0}, {"delete_files": 0}, {"files": 3}])
def test_contradictory_settings_are_refused(wrong):
    with pytest.raises(ConfigurationError, match="maintenance"):
        settings(**wrong)
