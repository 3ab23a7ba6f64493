"""The calls of `lakeward maintain` to the library and how it shows the results."""

import pytest

from lakeward import Lakeward
from lakeward.iceberg.rewrite import Debt
from lakeward.mirror.maintenance import MaintenanceReport, TableMaintenance, WorkKind, WorkReport, summed
from lakeward.mirror.op.report import Outcome, RunReport, TableReport

COMPACTED = WorkReport(
    WorkKind.COMPACT, "mirror", 2, removed_files=9, added_files=1, removed_delete_files=4, removed_deleted_rows=8,
    bytes_read=2048, bytes_written=1024, seconds=1.5,
)  # fmt: skip
CLEARED = WorkReport(WorkKind.ORPHANS, "mirror", removed_files=1, paths=("lake/left.parquet",))
DONE = TableMaintenance(
    "sales.product", Outcome.DONE, (COMPACTED, CLEARED), Debt(5, 4, 8, 0.16, 1000, 10), Debt(1, 0, 0, 0.0, 1400, 11)
)
FAILED = TableMaintenance("sales.customer", Outcome.FAILED, message="it differs", hint="report it", exit_code=3)
LOCKED = TableMaintenance("sales.till", Outcome.LOCKED, message="held by run 7")


@pytest.fixture
def calls(monkeypatch):
    """Return the calls of the library, which answers without Spark."""
    calls = []
    report = MaintenanceReport((DONE, FAILED, LOCKED), 2.0)

    def answer(name):
        def fake(_self, *arguments, **options):
            calls.append((name, arguments, options))
            return report

        return fake

    monkeypatch.setattr(Lakeward, "maintain", answer("maintain"))
    monkeypatch.setattr(Lakeward, "plan_maintenance", answer("plan"))
    return calls


def test_each_kind_of_work_is_a_line_and_failures_are_reported(project, call, call_json, calls):
    result = call("maintain")
    assert result.exit_code == 3
    lines = result.stdout.splitlines()
    assert [line.split() for line in lines if line.startswith("sales.product  ")] == [
        ["sales.product", "done", "compact", "mirror", "2", "9", "1", "8", "0", "2.0", "KiB", "1.0", "KiB", "1.5"],
        ["sales.product", "done", "orphans", "mirror", "1", "1", "0", "0", "0", "0.0"],
    ]
    assert "sales.product: 16% deleted, 9 files, 10 snapshots before; 0% deleted, 1 file, 11 snapshots now" in lines
    assert "  lake/left.parquet" in lines
    assert "error: it differs\ntry: report it" in result.stderr
    assert "note: sales.till: held by run 7" in result.stderr
    document = call_json("maintain")
    assert (document["exit_code"], document["tables"][0]["work"][0]["kind"]) == (3, "compact")


def test_options_reach_the_library(project, call, calls):
    call("maintain", "sales.product", "--only", "expire", "--max-seconds", "10m", "--max-bytes", "2GB", "--wait", "5")
    call("maintain", "--dry-run")
    limits = {"only": "expire", "max_seconds": 600.0, "max_bytes": 2 << 30, "wait": 5.0}
    assert calls == [("maintain", (("sales.product",),), limits), ("plan", ((),), {"only": None})]
    assert call("maintain", "--only", "everything").exit_code == 2
    assert call("maintain", "--max-seconds", "0").exit_code == 2


def test_a_run_reports_the_maintenance_that_followed(project, call, answers):
    table = TableReport("sales.product", Outcome.DONE, maintenance=DONE)
    other = TableReport("sales.customer", Outcome.DONE, maintenance=FAILED)
    answers("run", RunReport("r1", (table, other), 0.7))
    result = call("run")
    assert result.exit_code == 0
    assert "sales.product: maintained: compact mirror, orphans mirror" in result.stdout
    assert "warning: sales.customer: maintenance failed: it differs" in result.stderr


def test_slices_of_one_kind_are_added_up():
    [both] = summed([COMPACTED, COMPACTED])
    assert (both.slices, both.removed_files, both.bytes_read, both.seconds) == (4, 18, 4096, 3.0)
    assert len(summed([COMPACTED, CLEARED])) == 2
