"""What a change of the settings for reading leaves as it is, and the message about it."""

from __future__ import annotations

from lakeward.columns import parse_ddl
from lakeward.config import TableSettings
from lakeward.mirror.op.settings import describe_changed_reading, reading_settings
from lakeward.model import TableId

TABLE = TableId("sales", "product")


def changed(before: TableSettings, after: TableSettings, mirror: str = "id int, ts string") -> str | None:
    return describe_changed_reading(TABLE, reading_settings(before), after, parse_ddl(mirror))


def test_settings_that_do_not_concern_reading_change_nothing() -> None:
    assert changed(TableSettings(), TableSettings(priority=3, on_bad_row="quarantine")) is None
    # Kept by a version that knew fewer settings.
    assert describe_changed_reading(TABLE, {}, TableSettings(timestamp_column="ts")) is None


def test_a_header_that_is_declared_later_is_applied_after_an_undo() -> None:
    message = changed(TableSettings(), TableSettings.model_validate({"csv": {"header": True}})) or ""
    assert "csv.header was False, now True" in message
    assert message.endswith("lakeward undo sales.product --to-op 0, then lakeward run sales.product")
    assert "repair" not in message


def test_a_commit_time_that_became_a_column_leaves_the_mirror_by_a_repair() -> None:
    after = TableSettings(timestamp_column="ts")
    message = changed(TableSettings(), after) or ""
    assert "the mirror keeps ts as a column" in message and "lakeward tables repair sales.product" in message
    assert "repair" not in (changed(TableSettings(), after, "id int") or "")
    # Without the mirror's columns, it is assumed that it may have the column.
    assert "repair" in (describe_changed_reading(TABLE, reading_settings(TableSettings()), after) or "")
