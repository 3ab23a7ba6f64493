"""The references agree with the code."""

import re
from dataclasses import fields
from pathlib import Path

import pytest
from click.testing import CliRunner

from lakeward import (
    Check,
    Point,
    PointsReport,
    PointTagReport,
    Prevented,
    SnapshotReport,
    TableCheck,
    config_reference,
)  # fmt: skip
from lakeward.cli import docs
from lakeward.iceberg.rewrite import Debt
from lakeward.mirror.columns_repair import ColumnsRepair
from lakeward.mirror.erase import LandingTrace
from lakeward.mirror.maintenance import MaintenanceReport, TableMaintenance, WorkReport
from lakeward.mirror.op.check import RowChanges
from lakeward.mirror.op.report import Marked, OpReport, Outcome, RowCounts, RunReport, TablePlan, TableReport
from lakeward.mirror.quarantine import BadRow, QuarantineReport
from lakeward.mirror.reset import ResetPlan
from lakeward.mirror.undo import ConcernedOp, UndoPlan
from lakeward.runner.freshness import Freshness
from lakeward.runner.history import RunSummary
from lakeward.runner.removing import RemovalPlan, StoredTable, StoredVersion
from lakeward.runner.renaming import RenamePlan
from lakeward.runner.status import StatusTotals, TableStatus
from lakeward.runner.takeover import TakeoverPlan
from lakeward.runner.validation import Finding
from lakeward.runner.walkthrough import ImportedTable
from lakeward.testing.simulator import SimulationResult
from lakeward.views.erasure import ErasedPlace, Receipt
from lakeward.views.history.rows import HistoryEntry, RowHistory
from lakeward.views.history.scd2 import HistoryReport
from lakeward.views.verification.report import RowFinding, TableVerification, Verified
from lakeward.views.versions.manage import Version

DOCS = Path(__file__).parents[3] / "docs"
TABLE = r"^### {name}\n\| field \| meaning \|\n\|---\|---\|\n((?:\|.*\n)+)"


def documented(name: str) -> list[str]:
    text = (DOCS / "json-output.md").read_text(encoding="utf-8")
    section = re.search(TABLE.format(name=name), text, re.MULTILINE)
    assert section is not None, f"docs/json-output.md does not describe {name}"
    return re.findall(r"^\| `(\w+)` \|", section[1], re.MULTILINE)


def names_of(value_type: type) -> list[str]:
    return [field.name for field in fields(value_type)]


def test_the_references_are_up_to_date():
    result = CliRunner().invoke(docs.generate, ["--check", str(DOCS)])
    assert result.exit_code == 0, result.stderr


def test_a_stale_reference_is_reported_and_rewritten(tmp_path):
    file = tmp_path / "cli.md"
    file.write_text("old")
    assert CliRunner().invoke(docs.generate, ["--check", str(tmp_path)]).exit_code == 1
    assert file.read_text() == "old"
    assert CliRunner().invoke(docs.generate, [str(tmp_path)]).exit_code == 0
    assert CliRunner().invoke(docs.generate, ["--check", str(tmp_path)]).exit_code == 0


def test_every_setting_has_a_description():
    assert "None" not in config_reference()
    assert "| `null` | `NULL` | unquoted text that means NULL" in config_reference()


@pytest.mark.parametrize(
    "value_type",
    [
        OpReport, RowCounts, TablePlan, TableStatus, StatusTotals, Freshness, Debt, RunSummary, Check, TableCheck,
        Finding, ImportedTable, TakeoverPlan, SimulationResult, TableMaintenance,
        WorkReport, RowHistory, HistoryEntry, HistoryReport,
        TableVerification, RowFinding, Verified, SnapshotReport, Version, Receipt,
        ErasedPlace, LandingTrace, ColumnsRepair,
        UndoPlan, ConcernedOp, RowChanges, Marked, ResetPlan, RemovalPlan, StoredTable, StoredVersion, RenamePlan,
        PointsReport, Point, Prevented, PointTagReport,
    ],
)  # fmt: skip
def test_every_field_is_described(value_type):
    assert documented(value_type.__name__) == names_of(value_type)


def test_reports_with_totals_are_described():
    table = TableReport("a.b", Outcome.DONE)
    assert documented("TableReport") == list(table.to_dict())
    assert documented("RunReport") == list(RunReport("r").to_dict())
    assert documented("MaintenanceReport") == list(MaintenanceReport().to_dict())
    assert documented("BadRow") == ["id", *names_of(BadRow)]
    assert documented("QuarantineReport") == ["table", *names_of(QuarantineReport)]


def test_small_documents_are_described(project, call_json):
    assert documented("error") == list(call_json("run", "no.table")["error"])
    assert documented("Discovered") == list(call_json("discover"))
    assert documented("Table") == list(call_json("tables", "list")["tables"][0])
    assert [*documented("Table"), "settings"] == list(call_json("tables", "show", "sales.product"))
    assert documented("Initialized") == list(call_json("init", "--config", "new.yaml"))
