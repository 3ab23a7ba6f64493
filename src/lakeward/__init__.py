"""Lakeward keeps an exact, queryable copy of operational databases in a data lake.

Public names are loaded at first use: Spark tasks and quick commands import parts of the package and need not pay
for all of it. Type checkers read the same names from ``__init__.pyi``; a test compares the two.
"""

from __future__ import annotations

from importlib import import_module

__version__ = "0.1.0"

# Where each public name is defined. Names are public, modules are not: moving one changes this table only.
_NAMES_BY_MODULE = {
    "lakeward.api": "Lakeward",
    "lakeward.api.diffs": "diff_snapshots patch_snapshot",
    "lakeward.api.doctor": "Check doctor",
    "lakeward.api.failures": "explain_error",
    "lakeward.api.history": "History",
    "lakeward.api.inputs": "parse_key parse_setting read_keys",
    "lakeward.api.snapshots": "SnapshotReport Snapshots snapshots_exit_code",
    "lakeward.cassandra.budget": "RateLimits",
    "lakeward.cassandra.compare": "ComparisonReport",
    "lakeward.cassandra.export": "ExportReport",
    "lakeward.cassandra.sync_rounds": "SyncReport SyncStep",
    "lakeward.cassandra.write_plan": "WriteReport WriteStatus",
    "lakeward.cassandra_client": "CassandraClient SyncSettings",
    "lakeward.config": "Config TableDefaults TableSettings load_config",
    "lakeward.config.reference": "config_reference",
    "lakeward.config.spans": "parse_span",
    "lakeward.config.template": "write_configuration",
    "lakeward.config.watching": "WatchSettings",
    "lakeward.controller.discovery": "Discovery",
    "lakeward.controller.history": "RunDetail RunSummary",
    "lakeward.controller.metrics": "Metrics",
    "lakeward.controller.observers": "Observer SilentObserver",
    "lakeward.controller.proposals": "Proposal",
    "lakeward.controller.status": "StatusTotals TableStatus status_totals",
    "lakeward.controller.tables": "KnownTable",
    "lakeward.controller.takeover": "ImportedTable",
    "lakeward.controller.triggers.watcher": "RunObserver Watcher",
    "lakeward.controller.validation": "Finding",
    "lakeward.demo.cassandra.project": "cassandra_demo_server write_cassandra_demo",
    "lakeward.demo.cassandra.story": "CassandraDemo CassandraDemoReport",
    "lakeward.demo.project": "DemoTable write_demo",
    "lakeward.demo.story": "DemoReport SampleRow TableCheck play_demo",
    "lakeward.diffing.changesets.applying": "Applied",
    "lakeward.diffing.comparator_texts": "parse_comparator",
    "lakeward.diffing.comparators": "Bitwise Comparator Duration Epsilon Equality MapEntries Whitespace",
    "lakeward.diffing.composing": "compose",
    "lakeward.diffing.frames": "diff",
    "lakeward.diffing.options": "DiffMode DiffOptions DuplicateKeys",
    "lakeward.diffing.patching": "patch",
    "lakeward.diffing.report.examples": "Example",
    "lakeward.diffing.reversing": "reverse",
    "lakeward.diffing.running": "DiffResult",
    "lakeward.diffing.summary": "Summary",
    "lakeward.errors": (
        "BadRowError BugError ChangedFileError ConfigurationError ConflictError CutError DataError "
        "DeleteShareError LakewardError LeaseHeldError RefusedInputError RetriableError SchemaError "
        "SparkDiedError TimeLimitError VanishedError"
    ),
    "lakeward.lake.iceberg.debt": "Debt",
    "lakeward.logs": "event log_to_stderr logs_messages",
    "lakeward.model": "TableId",
    "lakeward.pipeline.columns_repair": "ColumnsRepair",
    "lakeward.pipeline.context": "RunOptions",
    "lakeward.pipeline.erasing": "LandingTrace",
    "lakeward.pipeline.maintenance.report": "MaintenanceReport TableMaintenance WorkKind WorkReport",
    "lakeward.pipeline.quarantine": "BadRow QuarantineReport",
    "lakeward.pipeline.records": "LoadDecision",
    "lakeward.pipeline.report": "OpReport Outcome RowCounts RunReport TablePlan TableReport",
    "lakeward.pipeline.row_changes": "RowChanges",
    "lakeward.pipeline.steps": "Step",
    "lakeward.pipeline.undoing": "ConcernedOp Marked UndoPlan Undone",
    "lakeward.redaction": "redact redact_values",
    "lakeward.snapshots.erasure.receipts": "ErasedPlace Receipt",
    "lakeward.snapshots.history.row_history": "HistoryEntry RowHistory",
    "lakeward.snapshots.history.scd2_table": "HistoryReport",
    "lakeward.snapshots.verification.report": "RowFinding TableVerification Verified VerifyReport",
    "lakeward.snapshots.versions.listing": "Version",
    "lakeward.sources.dms.listing": "SkippedFolder",
    "lakeward.spark.errors": "query_errors",
    "lakeward.testing.simulator": "SimulationResult SimulatorOptions write_simulation",
    "lakeward.texts": "escape_text to_json",
    "lakeward.words": "count rate",
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
