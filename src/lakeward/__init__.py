"""Lakeward keeps an exact, queryable copy of operational databases in a data lake.

Public names are loaded at first use: Spark tasks and quick commands import parts of the package and need not pay
for all of it. Type checkers read the same names from ``__init__.pyi``; a test compares the two.
"""

from __future__ import annotations

from importlib import import_module

__version__ = "0.1.0"

# Where each public name is defined. Names are public, modules are not: moving one changes this table only.
_NAMES_BY_MODULE = {
    "lakeward.api.diffs": "diff_snapshots patch_snapshot",
    "lakeward.api.doctor": "Check doctor",
    "lakeward.api.history": "History",
    "lakeward.api.inputs": "format_setting parse_key parse_setting read_keys",
    "lakeward.api.points": "Point PointTagReport Points PointsReport",
    "lakeward.api.snapshots": "SnapshotReport Snapshots snapshots_exit_code",
    "lakeward.cassandra.budget": "RateLimits",
    "lakeward.cassandra.clusters": "LiveTable",
    "lakeward.cassandra.compare": "ComparisonReport",
    "lakeward.cassandra.connection": "ClusterAddress",
    "lakeward.cassandra.counting": "CountReport PartitionsReport",
    "lakeward.cassandra.cql": "TableName",
    "lakeward.cassandra.edits": "EditReport",
    "lakeward.cassandra.export": "ExportReport",
    "lakeward.cassandra.partitions": "PartitionSize",
    "lakeward.cassandra.sync_rounds": "SyncReport SyncStep",
    "lakeward.cassandra.sync_steps": "SyncAction",
    "lakeward.cassandra.write_plan": "WriteReport WriteStatus",
    "lakeward.cassandra_client": "CassandraClient EditSettings SyncSettings",
    "lakeward.columns": "Column",
    "lakeward.config": (
        "Config CsvSettings FilesSettings LakeSettings PublishSettings RetrySettings SparkSettings TableDefaults "
        "TableSettings load_config"
    ),
    "lakeward.config.base": "parse_span",
    "lakeward.config.reference": "config_reference write_configuration",
    "lakeward.config.services": (
        "ClusterSettings MetricsSettings NotifySettings S3Keys S3Settings TlsSettings WatchSettings"
    ),
    "lakeward.config.tables": "AdoptSettings MaintenanceSettings MetadataColumns SnapshotSettings",
    "lakeward.demo.cassandra.project": (
        "CassandraDemo CassandraDemoReport DemoSample DemoStep cassandra_demo_server write_cassandra_demo"
    ),
    "lakeward.demo.cassandra.server": "LocalCassandra",
    "lakeward.demo.project": "DemoReport DemoTable SampleRow TableCheck play_demo write_demo",
    "lakeward.diffing.comparison": "DiffResult",
    "lakeward.diffing.examples": "Example",
    "lakeward.diffing.frames.comparators": (
        "Bitwise Comparator Duration Epsilon Equality MapEntries Whitespace parse_comparator"
    ),
    "lakeward.diffing.frames.joining": "diff",
    "lakeward.diffing.frames.options": "DiffMode DiffOptions DuplicateKeys",
    "lakeward.diffing.frames.pairs": "Summary",
    "lakeward.diffing.frames.patching": "compose patch reverse",
    "lakeward.diffing.stored.applying": "Applied",
    "lakeward.errors": (
        "BadRowError BugError ChangedFileError ConfigurationError ConflictError CutError DataError DeleteShareError "
        "ErrorFields LakewardError LeaseHeldError RefusedInputError RetriableError SchemaError SparkDiedError "
        "TimeLimitError VanishedError"
    ),
    "lakeward.formats.dms.listing": "SkippedFolder UnreadFile UnreadFiles",
    "lakeward.iceberg.rewrite": "Debt",
    "lakeward.lake": "Lakeward",
    "lakeward.logs": "LineHandler event log_to_stderr logs_messages",
    "lakeward.mirror.columns_repair": "ColumnsRepair",
    "lakeward.mirror.erase": "LandingTrace",
    "lakeward.mirror.maintenance": "MaintenanceReport TableMaintenance WorkKind WorkReport",
    "lakeward.mirror.op.changelog": "LoadDecision",
    "lakeward.mirror.op.check": "RowChanges",
    "lakeward.mirror.op.context": "RunOptions",
    "lakeward.mirror.op.report": (
        "Marked OpReport Outcome RowCounts RunReport ScheduledSnapshot TablePlan TableReport"
    ),
    "lakeward.mirror.op.steps": "Step",
    "lakeward.mirror.quarantine": "BadRow QuarantineReport",
    "lakeward.mirror.reset": "ResetPlan TableReset",
    "lakeward.mirror.undo": "ConcernedOp UndoPlan Undone",
    "lakeward.model": "OpKind TableId",
    "lakeward.redaction": "redact redact_values",
    "lakeward.runner.declaring": "TakenProposal WrittenProposals",
    "lakeward.runner.freshness": "Freshness FreshnessVerdict",
    "lakeward.runner.generator": "GeneratorTables",
    "lakeward.runner.history": "RunDetail RunSummary",
    "lakeward.runner.metrics": "Metrics",
    "lakeward.runner.observers": "Observer SilentObserver",
    "lakeward.runner.status": "StatusTotals TableStatus status_totals",
    "lakeward.runner.tables": "Discovery KnownTable",
    "lakeward.runner.proposals": "PartitionCandidate Proposal",
    "lakeward.runner.removing": "RemovalPlan StoredTable StoredVersion TableRemoval",
    "lakeward.runner.renaming": "RenamePlan",
    "lakeward.runner.takeover": "TakeoverPlan",
    "lakeward.runner.validation": "Finding Severity",
    "lakeward.runner.walkthrough": "ImportOutcome ImportedTable",
    "lakeward.runner.watch.watcher": "RunObserver Watcher",
    "lakeward.spark.errors": "explain_error query_errors",
    "lakeward.state.base": "StateStore",
    "lakeward.testing.simulator": "SimulationResult SimulatorOptions write_simulation",
    "lakeward.text": "count escape_text rate to_json",
    "lakeward.views.erasure": "ErasedPlace Receipt",
    "lakeward.views.history.rows": "ChangeVerdict HistoryEntry RowHistory",
    "lakeward.views.history.scd2": "HistoryReport",
    "lakeward.views.points.rule": "Prevented",
    "lakeward.views.verification.report": "RowFinding TableVerification Verdict Verified VerifyReport",
    "lakeward.views.versions.manage": "Version VersionState",
    "lakeward.views.versions.schedule": "SnapshotSchedule",
}
_MODULES = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names.split()}

__all__ = sorted(_MODULES)  # noqa: PLE0605 - the table is the list


def __getattr__(name: str) -> object:
    """Load a public name from its module."""
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    msg = f"module 'lakeward' has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return __all__
