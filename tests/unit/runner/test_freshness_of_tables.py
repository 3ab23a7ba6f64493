"""The verdict on a table from its landing files, ledger and registration: what waits, and what stands in the way."""

import time

import pytest
from tests.unit.mirror.plain_table import TABLE, PlainTable

from lakeward.config import TableSettings
from lakeward.mirror.op.choose import Scan
from lakeward.mirror.op.context import RunOptions
from lakeward.model import Progress, time_digits
from lakeward.runner.freshness import Freshness
from lakeward.runner.status import _freshness, _pending
from lakeward.runner.tables import KnownTable

LOAD = "LOAD00000001.csv"


def change_file(age: float) -> str:
    digits = time_digits(int((time.time() - age) * 1e6))
    return f"{digits[:8]}-{digits[8:17]}.csv"


def judge(table: PlainTable, *, active: bool = True, error: str | None = None, **found: object) -> Freshness | None:
    """Return the verdict as status does; ``found`` may hold the op that is not applied yet, and a decision."""
    settings = TableSettings.model_validate({"primary_key": "id", "freshness": "1h"})
    known = KnownTable(TABLE, settings, active=active, declared=True, registered=True, error=error)
    scan = Scan(logged_op=found.get("logged_op"))
    pending = _pending(table._context(RunOptions()), table.progress, scan)
    return _freshness(known, table.progress, pending, scan, found.get("undecided"))


def verdict(table: PlainTable, **found: object) -> str:
    judged = judge(table, **found)
    assert judged is not None
    return judged.verdict.value


@pytest.fixture
def table(tmp_path, monkeypatch) -> PlainTable:
    made = PlainTable(tmp_path, monkeypatch)
    made.land(LOAD, "1,a", at=time.time() - 9000)
    made.run()
    return made


def test_a_table_that_was_never_loaded_is_late_or_unknown(tmp_path, monkeypatch):
    table = PlainTable(tmp_path, monkeypatch)
    assert (table.progress, verdict(table)) == (Progress(), "unknown")
    table.land(LOAD, "1,a", at=time.time() - 60)
    assert verdict(table) == "unknown"
    table.touch(LOAD, time.time() - 3700)
    assert verdict(table) == "late"


def test_a_file_waits_from_the_earlier_of_its_name_and_its_modification(table):
    assert verdict(table) == "on time"
    table.land(change_file(60), "U,1,b", at=time.time() - 60)
    assert verdict(table) == "on time"
    old = change_file(3700)
    table.land(old, "U,1,c", at=time.time())
    assert verdict(table) == "late", "copied now, named long ago"
    (table.root / "sales/product" / old).unlink()
    table.land(change_file(50), "U,1,c", at=time.time() - 3700)
    assert verdict(table) == "late", "named now, written long ago"


def test_files_of_an_op_that_is_not_applied_wait(table):
    name = change_file(3700)
    table.land(name, "U,1,b", at=time.time())
    table.run()
    applied = judge(table)
    assert applied is not None and (applied.verdict, applied.basis) == ("on time", "name")
    op = table.progress.op
    unfinished = judge(table, logged_op=op)
    assert unfinished is not None and (unfinished.verdict, unfinished.newest_change) == ("late", None)
    table.remove(name)
    assert verdict(table, logged_op=op) == "unknown"


def test_a_recent_op_that_is_not_applied_is_on_time(table):
    table.land(change_file(60), "U,1,b", at=time.time() - 60)
    table.run()
    assert verdict(table, logged_op=table.progress.op) == "on time"


def test_a_stopped_or_undecided_table_is_not_on_time_and_an_inactive_one_has_no_verdict(table):
    assert verdict(table, error="3 bad rows") == "unknown"
    assert verdict(table, undecided="decide") == "unknown"
    assert judge(table, active=False) is None
