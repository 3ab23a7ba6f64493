"""What of a table's settings is kept with its mirror."""

import json
from types import SimpleNamespace

from lakeward.config import TableSettings
from lakeward.mirror.op.settings import keep_settings
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
    keep_settings(context, {})
    assert json.loads(written["lakeward.settings"]) == {"publish": {"to": "s3://AK:***@bucket/p"}}
