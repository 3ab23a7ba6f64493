"""What of a table's settings is kept with its mirror."""

import json
from types import SimpleNamespace

from lakeward.config import TableSettings
from lakeward.mirror.op.settings import describe_ignored, keep_settings
from lakeward.model import TableId


def test_no_password_reaches_the_properties_of_a_mirror():
    written = {}
    own = {"publish": {"to": "s3://AK:hush@bucket/p"}}
    context = SimpleNamespace(
        table=TableId.parse("a.b"),
        settings=TableSettings(primary_key=("id",)),
        state=SimpleNamespace(find_table=lambda table: SimpleNamespace(settings=own)),
        mirror=SimpleNamespace(set_properties=written.update),
    )
    keep_settings(context, {}, ())
    assert json.loads(written["lakeward.settings"]) == {"publish": {"to": "s3://AK:***@bucket/p"}}


def test_a_new_rule_or_key_says_how_many_rows_were_ignored_so_far():
    table, ignoring = TableId.parse("a.b"), TableSettings(without_key="inserts")
    setting_aside, keyed = TableSettings(without_key="quarantine"), TableSettings(primary_key=("id",))
    text = describe_ignored(table, ignoring, setting_aside, 1234) or ""
    assert "1,234 updates and deletes were ignored" in text
    assert "lakeward undo a.b --to-op 0, then lakeward run a.b" in text
    assert "built again" in (describe_ignored(table, ignoring, keyed, 1) or "")
    assert describe_ignored(table, ignoring, setting_aside, 0) is None
    assert describe_ignored(table, ignoring, ignoring, 5) is None
