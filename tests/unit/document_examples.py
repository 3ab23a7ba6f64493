"""A value of every class that is written as a document; ``documents.json`` holds the JSON of each."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from lakeward.api.doctor import Check
from lakeward.api.points import Point, PointsReport, PointTagReport
from lakeward.api.snapshots import SnapshotReport
from lakeward.cassandra.compare import ComparisonReport
from lakeward.cassandra.counting import CountReport, PartitionsReport
from lakeward.cassandra.cql import TableName, parse_cql_type
from lakeward.cassandra.edits import EditReport
from lakeward.cassandra.export import ExportReport
from lakeward.cassandra.export_journal import ExportPlan
from lakeward.cassandra.jobs import AppliedState, Begun, Finished, Job
from lakeward.cassandra.partitions import PartitionSize
from lakeward.cassandra.range_files import ReadGroup
from lakeward.cassandra.read_plan import TokenRange
from lakeward.cassandra.schema import ColumnKind, CqlColumn, TableSchema
from lakeward.cassandra.sync_rounds import SyncReport, SyncStep
from lakeward.cassandra.sync_steps import SyncAction
from lakeward.cassandra.write_plan import WriteReport, WriteStatus
from lakeward.columns import Column
from lakeward.demo.cassandra import project
from lakeward.demo.project import DemoReport, SampleRow, TableCheck
from lakeward.diffing.comparison import DiffResult
from lakeward.diffing.examples import Example
from lakeward.diffing.frames.comparators import Epsilon
from lakeward.diffing.frames.options import DiffMode, DiffOptions
from lakeward.diffing.frames.pairs import Summary
from lakeward.diffing.stored.applying import Applied
from lakeward.diffing.stored.changesets import ChangeSetManifest
from lakeward.formats.base import FileSummary
from lakeward.formats.dms.listing import SkippedFolder
from lakeward.iceberg.rewrite import Debt
from lakeward.mirror.columns_repair import ColumnsRepair
from lakeward.mirror.erase import LandingTrace
from lakeward.mirror.maintenance import MaintenanceRecord, MaintenanceReport, TableMaintenance, WorkKind, WorkReport
from lakeward.mirror.op.changelog import FileRecord, LoadDecision, OpRecord
from lakeward.mirror.op.check import RowChanges
from lakeward.mirror.op.erased import Erasure, UnfinishedErasure
from lakeward.mirror.op.report import (
    Marked,
    OpReport,
    Outcome,
    RowCounts,
    RunReport,
    ScheduledSnapshot,
    TablePlan,
    TableReport,
)
from lakeward.mirror.quarantine import BadRow, QuarantineReport
from lakeward.mirror.reset import ResetPlan, TableReset
from lakeward.mirror.undo import ConcernedOp, Undone, UndoPlan
from lakeward.model import Disposition, FileClass, FileIdentity, Generation, OpKind, OrderBy, Place, Progress, TableId
from lakeward.runner.declaring import TakenProposal, WrittenProposals
from lakeward.runner.freshness import Freshness, FreshnessVerdict
from lakeward.runner.history import RunDetail, RunSummary
from lakeward.runner.notify import Notice, TableNotice
from lakeward.runner.proposals import PartitionCandidate, Proposal
from lakeward.runner.removing import RemovalPlan, StoredTable, StoredVersion, TableRemoval
from lakeward.runner.renaming import RenamePlan
from lakeward.runner.status import StatusTotals, TableStatus
from lakeward.runner.tables import Discovery
from lakeward.runner.validation import Finding, Severity
from lakeward.runner.walkthrough import ImportedTable, ImportOutcome
from lakeward.storage.claims import Writer
from lakeward.storage.sets import Bucket, SetLayout
from lakeward.testing.simulator import SimulationResult
from lakeward.views.erasure import ErasedPlace, Receipt
from lakeward.views.history.rows import ChangeVerdict, HistoryEntry, RowHistory
from lakeward.views.history.scd2 import HistoryReport
from lakeward.views.points.rule import Prevented
from lakeward.views.verification.report import RowFinding, TableVerification, Verdict, Verified, VerifyReport
from lakeward.views.versions.manage import Version, VersionState
from lakeward.views.versions.manifest import Lineage, Manifest, Publication, PublicationKind
from lakeward.views.versions.marks import PointMark
from lakeward.views.versions.places import Pointer
from lakeward.views.versions.schedule import ScheduleState, SnapshotSchedule

_SCHEDULE = SnapshotSchedule(
    "sales.product", "day", "/out", 2, "2020-11-13", ("2020-11-14",), "2020-11-15T00:30:00+00:00", True, "files wait",
    "2020-11-15", "2020-11-16T00:30:00+00:00",
)  # fmt: skip
_MOMENT = datetime(2026, 11, 18, 9, 30, 1, 250_000, tzinfo=UTC)
_PLACE = Place("0001", "20240101000000000000", "sales/product/ü.csv", 3, 1)
_PROGRESS = Progress(
    op=4,
    generations=(Generation(1), Generation(2, "20240105", OrderBy.SEQUENCE, load_from=7, undecided_from="20240104")),
    last_place=_PLACE,
    newest_commit=1_700_000_000_000_000,
    undone=((2, 3), (5, 5)),
    moved_until=9,
)
_DECISION = LoadDecision("user", cut="20240105", before=2, after=1, changed=("a",), kept=("b", "c"), load_from=5)
_ERASURE = Erasure("5a17", ("ab", "cd"), "request №1", 1_700_000_000_000_000, landing=True)
_SUMMARY = FileSummary(
    "sales/product/ü.csv",
    FileClass.CHANGES,
    "20240101000000000000",
    FileIdentity(120, 1_700_000_000_000_000, "tag"),
    "c0ffee",
    rows=3,
    inserts=1,
    updates=1,
    bad=1,
    order_by=OrderBy.TIMESTAMP,
    first=_PLACE,
    last=_PLACE,
    columns=(("id", "int"), ("name", "string")),
)
_PLAIN_SUMMARY = FileSummary("a.csv", FileClass.LOAD, "", FileIdentity(1, 2), "00")
_OP = OpReport(
    4,
    OpKind.LOAD,
    2,
    1,
    120,
    RowCounts(3, 1, 1, 0, 1, 0),
    None,
    None,
    "load",
    "first",
    ("added x",),
    decision=_DECISION,
    mirror_rows=2,
    seconds=1.5,
)
_DEBT = Debt(3, 1, 2, 0.25, 1024, 7)
_MAINTENANCE = TableMaintenance(
    "sales.product", Outcome.DONE, (WorkReport(WorkKind.COMPACT, "mirror", paths=("p",)),), before=_DEBT, seconds=0.5
)
_TABLE = TableReport(
    "sales.product", Outcome.DONE, (_OP,), mirror_rows=2, maintenance=_MAINTENANCE, warnings=("w",), seconds=2.0
)
_VERIFIED = Verified(4, "2026-11-18T09:30:01+00:00", "files", 2, "c0ffee")
_VERIFICATION = TableVerification(
    "sales.product",
    Verdict.DIFFERENT,
    4,
    2,
    columns={"name": 1},
    findings=(RowFinding("different", {"id": "1"}, "name", "a", None),),
    repair=_OP,
    verified=_VERIFIED,
    notes=("n",),
)
_SET = SetLayout(
    ("id",),
    2,
    "spark-murmur3",
    (Bucket(0, "a.parquet", 10, 1, "0" * 31 + "1"), Bucket(1, "b.parquet", 20, 2, "0" * 31 + "2")),
)
_MANIFEST = Manifest(
    "abc",
    "sales.product",
    "op-3",
    "op:3",
    3,
    "c0ffee",
    (Column("id", "int"), Column("größe", "decimal(10,2)")),
    ("id",),
    "parquet",
    "flat",
    "",
    "",
    "UTC",
    Lineage("uuid", 2, 3, 11, 12),
    "2026-11-18T09:30:01+00:00",
    "0.1.0",
    files={"a.parquet": 1, "b.parquet": 2},
    parts={"2024-01-01": "00"},
)
_RESULT_SUMMARY = Summary(3, 4, 2, 1, 1, 1, {"name": 1}, 0)
_EXAMPLES = (
    Example("C", {"id": "1"}, {"id": "1", "name": "a"}, {"id": "1", "name": None}, ("name",)),
    Example("I", {"id": "2"}, None, {"id": "2", "name": "b"}, ()),
)
_RESULT = DiffResult(
    {"kind": "files"},
    {"kind": "mirror", "rows": 4},
    ("id",),
    "join",
    "two sides",
    _RESULT_SUMMARY,
    ("added x",),
    _EXAMPLES,
    "to/changes",
    None,
)
_STRUCT = StructType([StructField("id", IntegerType()), StructField("name", StringType())])
_CHANGE_SET = ChangeSetManifest(
    "abc",
    "2026-11-18T09:30:01+00:00",
    {"rows": 1},
    {"rows": 2},
    ("id",),
    _STRUCT,
    _STRUCT,
    DiffOptions(diff_mode=DiffMode.SIDE_BY_SIDE, ignore_columns=("x",), column_comparators={"price": Epsilon(0.5)}),
    False,
    {"inserted": 1},
    schema=_STRUCT,
    files={"b": 2, "a": 1},
    lakeward="0.1.0",
)
_JOB = Job("id", "apply", 3, 1_700_000_000_000_000, {"rows": 3}, "to/changes")
_UDTS = {"place": (("street", "text"), ("zip", "int"))}
_SCHEMA = TableSchema(
    TableName("shop", "orders"),
    (
        CqlColumn("id", parse_cql_type("uuid", _UDTS), ColumnKind.PARTITION_KEY, 0),
        CqlColumn("at", parse_cql_type("timestamp", _UDTS), ColumnKind.CLUSTERING, 0, descending=True),
        CqlColumn("home", parse_cql_type("frozen<place>", _UDTS), ColumnKind.STATIC, -1),
    ),
    _UDTS,
)
_SIZES = (PartitionSize({"id": "1"}, 5), PartitionSize({"id": "2"}, 1, 9))
_WRITTEN = WriteReport(
    "shop.orders", WriteStatus.REJECTED, 3, 1, rejected=1, dead_letters="dead", units=2.5, warnings=("w",)
)
_EXPORTED = ExportReport(
    "to/export", TableName("shop", "orders"), 3, 2, _MOMENT, _MOMENT, False, "set", "parquet", "00", "abc"
)

_UNDO_PLAN = UndoPlan(
    "sales.product",
    5,
    4,
    2,
    "because",
    2,
    (ConcernedOp(3, "batch", 1, 1, 3),),
    file_count=1,
    files=("a",),
    rows=RowChanges(1),
    marked=(Marked("tag", "v", "l", 3),),
)
_RESET_PLAN = ResetPlan(
    "sales.product", 5, 4, 3, 2, "20240411000000000000", 1, 0, 100, ("a",), ("b",), ("c",), 1, 2, 3,
    (Marked("tag", "v", "l", 3),),
)  # fmt: skip
_VERSION = StoredVersion("files", "v", "l/version=v", 3, "default.product")
_STORED = StoredTable("mirror", "sales.product", "l", 3, 2, 100, 4, ("t",))
_REMOVAL_PLAN = RemovalPlan(
    "sales.product", True, True, False, "lakeward.yaml", 7, ("a:",), (_STORED,), (_VERSION,), 4, 1
)
_SALES = TableId("sales", "product")

EXAMPLES: dict[str, Any] = {
    "applied state": AppliedState({"rows": 3}, "to/changes", _MOMENT, 1, "dead", 5, "id", doubt="some"),
    "applied state of the first version": AppliedState({"rows": 3}, None, _MOMENT),
    "applied": Applied("to", 3, "00", ("id",), True, {"kind": "files"}, ({"id": "abc"},)),
    "begun": Begun(_JOB, 2, True, "2026-11-18", "id", Finished("2026-11-18", 7, True), "some"),
    "begun, ended": Begun(_JOB, 1, False, "2026-11-18"),
    "bad rows": QuarantineReport(1, (BadRow(3, 1, "a.csv", "2024", 7, "not a number", "price", "ü", "I,x"),), (_OP,)),
    "change set": _CHANGE_SET,
    "check": Check("java", "problem", "none found", "install it"),
    "columns repair": ColumnsRepair("sales.product", {"a b": "a_b"}, ("x",)),
    "compared": ComparisonReport("shop.orders", "copy.orders", (3, 4), 8, 1, 2, ("x",), _RESULT, 1.23456),
    "compared, equal": ComparisonReport("shop.orders", "copy.orders", (3, 3), 8, 0, 1, (), None, 1.0),
    "counted": CountReport("prod/shop.orders", 9, None, "total > 1", 2, 8, "Murmur3Partitioner", 1.5, 0.25),
    "demo": project.CassandraDemoReport(
        (project.DemoStep("a", "b", True, 1.0),), (project.DemoSample("r", None, "x"),), "to", 0.12345
    ),
    "largest partitions": PartitionsReport(
        "prod/shop.orders", "rows", _SIZES, 6, 2, 8, "Murmur3Partitioner", 1.5, 0.25
    ),
    "demo of the shop": DemoReport(
        RunReport("a", (), 1.25),
        RunReport("b", (), 2.5),
        (TableCheck("sales.product", 1, 2, 2, True, "1 added"),),
        (SampleRow("1", None, "ü"),),
    ),
    "diff result": _RESULT,
    "discovery": Discovery((_SALES,), (_SALES,), (SkippedFolder("a/b", "odd"),), "c"),
    "edited": EditReport("prod/shop.orders", "total > 1", 9, 3, None, 1.5, _WRITTEN),
    "export plan": ExportPlan(
        "abc", _MOMENT, {"columns": ["ü"]}, ExportPlan.new({}, [[TokenRange(1, 2), TokenRange(3, 4)], []]).groups
    ),
    "exported": _EXPORTED,
    "file record": FileRecord(_SUMMARY, Disposition.CONSUMED, 2),
    "file record of the op's generation": FileRecord(_PLAIN_SUMMARY, Disposition.EMPTY),
    "file summary": _SUMMARY,
    "file summary, short": _PLAIN_SUMMARY,
    "finding": Finding("sales.product", Severity.WARNING, "schema", "odd"),
    "history of a row": RowHistory(
        "sales.product",
        {"id": 1},
        (HistoryEntry("U", "2024", 3, 1, "a.csv", 7, ChangeVerdict.WON, None, {"tags": ["a"]}, {"tags": [{"b": 1}]}),),
        None,
        True,
    ),
    "history table": HistoryReport("sales.product", "lake.h", "built", 3, ("price",), None, 4, 5, 6, "first"),
    "imported table": ImportedTable("a/b", ImportOutcome.IMPORTED, "a.b", True, {"primary_key": ["id"]}),
    "maintained": MaintenanceRecord(1.5, 2.5, 1, 2, 3),
    "maintenance": MaintenanceReport((_MAINTENANCE,), 1.0),
    "manifest": _MANIFEST,
    "manifest of a set": replace(_MANIFEST, set=_SET),
    "manifest of a single file": replace(
        _MANIFEST, format="csv", layout="single", chosen=("größe",), header=False, single_file="final.csv", digest="00"
    ),
    "manifest of folders by value": replace(_MANIFEST, layout="partitioned", partition_by=("größe",)),
    "notice": Notice("failure", "text ü", "run", "now", (TableNotice("a.b", "error", None, "DataError", "then"),), 2),
    "op record": OpRecord(4, OpKind.LOAD, 2, _PROGRESS, starts=True, decision=_DECISION),
    "op record of an erasure": OpRecord(5, OpKind.ERASE, 2, Progress(5), erasure=_ERASURE, reason="ü"),
    "pointer": Pointer(
        "sales.product", "op-3", "../v/version=op-3", "to/v/version=op-3", "final.csv", "00", "a.b", op=3
    ),
    "point mark": PointMark({"bank.ä": "abc"}, "now"),
    "point tags": PointTagReport("point-x", False, (SnapshotReport("a.b", "failed", exit_code=2),), "why", "what", 2),
    "points": PointsReport(
        ("a.b",), (Point("point-x", "then", None, False, "none", (Prevented(None, "it is open"),)),), ("a.b",)
    ),
    "progress": _PROGRESS,
    "partition candidate": PartitionCandidate("months(at)", "from then to now"),
    "proposal": Proposal(
        ("id",), "at", "id int", {"header": True}, (PartitionCandidate("b", "few"),), {"schema": "why"}, ("odd",), True
    ),
    "publication, scheduled": Publication(
        "abc",
        PublicationKind.FILES,
        "2020-11-14",
        "x",
        "to",
        2,
        3,
        3,
        "00",
        "now",
        11,
        "csv",
        "flat",
        period="2020-11-14",
    ),
    "publication": Publication("abc", PublicationKind.TAG, "op-3", "op:3", "tag ü", 2, 3, 3, "00", "now", 11),
    "read group": ReadGroup("abc", 3, "file", 10, (1, 2), "then", "now"),
    "receipt": Receipt(
        "sales.product",
        5,
        "request",
        "now",
        1,
        ("ab",),
        (ErasedPlace("mirror", 1, 0, 1, 0, 0),),
        2,
        (LandingTrace("a.csv", 1, "rewritten"),),
        0,
        True,
    ),
    "run detail": RunDetail(RunSummary("run", "a", "b", 1.0, 1, 1, 0, 0, 0, 1, 1, 3, 2, 1), ({"table": "a.b"},)),
    "run": RunSummary("run", "a", "b", 1.0, 1, 1, 0, 0, 0, 1, 1, 3, 2, 1),
    "run report": RunReport("run", (_TABLE,), 3.0),
    "set": _SET,
    "taken proposal": TakenProposal("a.b", False, "in doubt"),
    "written proposals": WrittenProposals("f.yaml", ("a.b",), ("c.d",), ("e.f",)),
    "simulation": SimulationResult(Path("a"), Path("a/l"), Path("a/t"), Path("a/c.yaml"), 3, 4, {_SALES: 5}),
    "snapshot": SnapshotReport("sales.product", "done", "op-3", "files", "to", 2, 1, 3, dropped=("old",), seconds=0.5),
    "status": TableStatus("sales.product", "current", 2, 4, unknown_files=("x",), debt=_DEBT, verified=_VERIFIED),
    "freshness": Freshness(
        FreshnessVerdict.LATE, 300.0, "because", "2026-11-18T09:30:01+00:00", "commit", 420.5, 400.0
    ),
    "schedule": _SCHEDULE,
    "schedule state": ScheduleState("day", "/out", None, 1_600_000_000_000_000, "2020-11-14", "a.b", "of", ("a.b",)),
    "scheduled snapshot": ScheduledSnapshot("2020-11-14", "made", "/out/version=2020-11-14", 2, 4),
    "status totals": StatusTotals(1, {"current": 1}, 2),
    "summary": _RESULT_SUMMARY,
    "sync report": SyncReport(
        (SyncStep(SyncAction.APPLY, {"rejected": 1, "warnings": ["w"]}),), {"id": "abc"}, ("old",), {"f": "why"}
    ),
    "sync report, nothing": SyncReport((), None),
    "table plan": TablePlan("sales.product", Outcome.DONE, _OP, ("a",), 1, RowChanges(1, 2, 3)),
    "table report": _TABLE,
    "table schema": _SCHEMA,
    "reset plan": _RESET_PLAN,
    "reset": TableReset(_RESET_PLAN, (_OP,), 3, 1.5),
    "removal plan": _REMOVAL_PLAN,
    "removal": TableRemoval(_REMOVAL_PLAN, ("left",)),
    "rename plan": RenamePlan("a.b", "c.d", "a/b", {"a.b": "c.d"}, "lakeward.yaml", 7, (_VERSION,), True),
    "undo plan": _UNDO_PLAN,
    "undone": Undone(_UNDO_PLAN, _OP),
    "undone, nothing": Undone(_UNDO_PLAN),
    "unfinished erasure": UnfinishedErasure(5, True, {"a.csv": "ü"}, {"mirror": (1, 0, 1)}),
    "verified": _VERIFIED,
    "verify report": VerifyReport((_VERIFICATION,)),
    "version": Version(
        "sales.product",
        "op-3",
        "files",
        VersionState.STALE,
        "op:3",
        2,
        1,
        3,
        "now",
        "to",
        "parquet",
        "flat",
        "",
        "00",
        "late",
    ),
    "writer": Writer("host", 12, 1.5, _MOMENT),
    "written": _WRITTEN,
}
