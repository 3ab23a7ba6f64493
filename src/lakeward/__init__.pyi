# The public names for type checkers; the table in __init__.py is what runs.

from lakeward.api.diffs import diff_snapshots as diff_snapshots, patch_snapshot as patch_snapshot
from lakeward.api.doctor import Check as Check, doctor as doctor
from lakeward.api.history import History as History
from lakeward.api.inputs import (
    format_setting as format_setting,
    parse_key as parse_key,
    parse_setting as parse_setting,
    read_keys as read_keys,
)
from lakeward.api.points import (
    Point as Point,
    PointTagReport as PointTagReport,
    Points as Points,
    PointsReport as PointsReport,
)
from lakeward.api.snapshots import (
    SnapshotReport as SnapshotReport,
    Snapshots as Snapshots,
    snapshots_exit_code as snapshots_exit_code,
)
from lakeward.cassandra.budget import RateLimits as RateLimits
from lakeward.cassandra.clusters import LiveTable as LiveTable
from lakeward.cassandra.compare import ComparisonReport as ComparisonReport
from lakeward.cassandra.connection import ClusterAddress as ClusterAddress
from lakeward.cassandra.counting import CountReport as CountReport, PartitionsReport as PartitionsReport
from lakeward.cassandra.cql import TableName as TableName
from lakeward.cassandra.edits import EditReport as EditReport
from lakeward.cassandra.export import ExportReport as ExportReport
from lakeward.cassandra.partitions import PartitionSize as PartitionSize
from lakeward.cassandra.sync_rounds import SyncReport as SyncReport, SyncStep as SyncStep
from lakeward.cassandra.sync_steps import SyncAction as SyncAction
from lakeward.cassandra.write_plan import WriteReport as WriteReport, WriteStatus as WriteStatus
from lakeward.cassandra_client import (
    CassandraClient as CassandraClient,
    EditSettings as EditSettings,
    SyncSettings as SyncSettings,
)
from lakeward.columns import Column as Column
from lakeward.config import (
    Config as Config,
    CsvSettings as CsvSettings,
    FilesSettings as FilesSettings,
    LakeSettings as LakeSettings,
    PublishSettings as PublishSettings,
    RetrySettings as RetrySettings,
    SparkSettings as SparkSettings,
    TableDefaults as TableDefaults,
    TableSettings as TableSettings,
    load_config as load_config,
)
from lakeward.config.base import parse_span as parse_span
from lakeward.config.reference import config_reference as config_reference, write_configuration as write_configuration
from lakeward.config.services import (
    ClusterSettings as ClusterSettings,
    MetricsSettings as MetricsSettings,
    NotifySettings as NotifySettings,
    S3Keys as S3Keys,
    S3Settings as S3Settings,
    TlsSettings as TlsSettings,
    WatchSettings as WatchSettings,
)
from lakeward.config.tables import (
    AdoptSettings as AdoptSettings,
    MaintenanceSettings as MaintenanceSettings,
    MetadataColumns as MetadataColumns,
    SnapshotSettings as SnapshotSettings,
)
from lakeward.demo.cassandra.project import (
    CassandraDemo as CassandraDemo,
    CassandraDemoReport as CassandraDemoReport,
    DemoSample as DemoSample,
    DemoStep as DemoStep,
    cassandra_demo_server as cassandra_demo_server,
    write_cassandra_demo as write_cassandra_demo,
)
from lakeward.demo.cassandra.server import LocalCassandra as LocalCassandra
from lakeward.demo.project import (
    DemoReport as DemoReport,
    DemoTable as DemoTable,
    SampleRow as SampleRow,
    TableCheck as TableCheck,
    play_demo as play_demo,
    write_demo as write_demo,
)
from lakeward.diffing.comparison import DiffResult as DiffResult
from lakeward.diffing.examples import Example as Example
from lakeward.diffing.frames.comparators import (
    Bitwise as Bitwise,
    Comparator as Comparator,
    Duration as Duration,
    Epsilon as Epsilon,
    Equality as Equality,
    MapEntries as MapEntries,
    Whitespace as Whitespace,
    parse_comparator as parse_comparator,
)
from lakeward.diffing.frames.joining import diff as diff
from lakeward.diffing.frames.options import (
    DiffMode as DiffMode,
    DiffOptions as DiffOptions,
    DuplicateKeys as DuplicateKeys,
)
from lakeward.diffing.frames.pairs import Summary as Summary
from lakeward.diffing.frames.patching import compose as compose, patch as patch, reverse as reverse
from lakeward.diffing.stored.applying import Applied as Applied
from lakeward.errors import (
    BadRowError as BadRowError,
    BugError as BugError,
    ChangedFileError as ChangedFileError,
    ConfigurationError as ConfigurationError,
    ConflictError as ConflictError,
    CutError as CutError,
    DataError as DataError,
    DeleteShareError as DeleteShareError,
    ErrorFields as ErrorFields,
    LakewardError as LakewardError,
    LeaseHeldError as LeaseHeldError,
    RefusedInputError as RefusedInputError,
    RetriableError as RetriableError,
    SchemaError as SchemaError,
    SparkDiedError as SparkDiedError,
    TimeLimitError as TimeLimitError,
    VanishedError as VanishedError,
)
from lakeward.formats.dms.listing import (
    SkippedFolder as SkippedFolder,
    UnreadFile as UnreadFile,
    UnreadFiles as UnreadFiles,
)
from lakeward.iceberg.rewrite import Debt as Debt
from lakeward.lake import Lakeward as Lakeward
from lakeward.logs import (
    LineHandler as LineHandler,
    event as event,
    log_to_stderr as log_to_stderr,
    logs_messages as logs_messages,
)
from lakeward.mirror.columns_repair import ColumnsRepair as ColumnsRepair
from lakeward.mirror.erase import LandingTrace as LandingTrace
from lakeward.mirror.maintenance import (
    MaintenanceReport as MaintenanceReport,
    TableMaintenance as TableMaintenance,
    WorkKind as WorkKind,
    WorkReport as WorkReport,
)
from lakeward.mirror.op.changelog import LoadDecision as LoadDecision
from lakeward.mirror.op.check import RowChanges as RowChanges
from lakeward.mirror.op.context import RunOptions as RunOptions
from lakeward.mirror.op.report import (
    Marked as Marked,
    OpReport as OpReport,
    Outcome as Outcome,
    RowCounts as RowCounts,
    RunReport as RunReport,
    ScheduledSnapshot as ScheduledSnapshot,
    TablePlan as TablePlan,
    TableReport as TableReport,
)
from lakeward.mirror.op.steps import Step as Step
from lakeward.mirror.quarantine import BadRow as BadRow, QuarantineReport as QuarantineReport
from lakeward.mirror.reset import ResetPlan as ResetPlan, TableReset as TableReset
from lakeward.mirror.undo import ConcernedOp as ConcernedOp, UndoPlan as UndoPlan, Undone as Undone
from lakeward.model import OpKind as OpKind, TableId as TableId
from lakeward.redaction import redact as redact, redact_values as redact_values
from lakeward.runner.declaring import TakenProposal as TakenProposal, WrittenProposals as WrittenProposals
from lakeward.runner.freshness import Freshness as Freshness, FreshnessVerdict as FreshnessVerdict
from lakeward.runner.generator import GeneratorTables as GeneratorTables
from lakeward.runner.history import RunDetail as RunDetail, RunSummary as RunSummary
from lakeward.runner.metrics import Metrics as Metrics
from lakeward.runner.observers import Observer as Observer, SilentObserver as SilentObserver
from lakeward.runner.status import (
    StatusTotals as StatusTotals,
    TableStatus as TableStatus,
    status_totals as status_totals,
)
from lakeward.runner.tables import Discovery as Discovery, KnownTable as KnownTable
from lakeward.runner.proposals import PartitionCandidate as PartitionCandidate, Proposal as Proposal
from lakeward.runner.removing import (
    RemovalPlan as RemovalPlan,
    StoredTable as StoredTable,
    StoredVersion as StoredVersion,
    TableRemoval as TableRemoval,
)
from lakeward.runner.renaming import RenamePlan as RenamePlan
from lakeward.runner.takeover import TakeoverPlan as TakeoverPlan
from lakeward.runner.validation import Finding as Finding, Severity as Severity
from lakeward.runner.walkthrough import ImportOutcome as ImportOutcome, ImportedTable as ImportedTable
from lakeward.runner.watch.watcher import RunObserver as RunObserver, Watcher as Watcher
from lakeward.spark.errors import explain_error as explain_error, query_errors as query_errors
from lakeward.state.base import StateStore as StateStore
from lakeward.testing.simulator import (
    SimulationResult as SimulationResult,
    SimulatorOptions as SimulatorOptions,
    write_simulation as write_simulation,
)
from lakeward.text import count as count, escape_text as escape_text, rate as rate, to_json as to_json
from lakeward.views.erasure import ErasedPlace as ErasedPlace, Receipt as Receipt
from lakeward.views.history.rows import (
    ChangeVerdict as ChangeVerdict,
    HistoryEntry as HistoryEntry,
    RowHistory as RowHistory,
)
from lakeward.views.history.scd2 import HistoryReport as HistoryReport
from lakeward.views.points.rule import Prevented as Prevented
from lakeward.views.verification.report import (
    RowFinding as RowFinding,
    TableVerification as TableVerification,
    Verdict as Verdict,
    Verified as Verified,
    VerifyReport as VerifyReport,
)
from lakeward.views.versions.manage import Version as Version, VersionState as VersionState
from lakeward.views.versions.schedule import SnapshotSchedule as SnapshotSchedule

__version__: str
