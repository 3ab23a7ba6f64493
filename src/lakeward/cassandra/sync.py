"""Keep a copy of a table up to date: export the table, compare with what the copy holds, apply the difference."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lakeward.cassandra import guards
from lakeward.cassandra.apply import ApplyRequest, apply_change_set
from lakeward.cassandra.budget import RateLimits
from lakeward.cassandra.connection import connected
from lakeward.cassandra.cql import TableAddress, quoted
from lakeward.cassandra.diff import diff_exports
from lakeward.cassandra.export import ExportRequest, export_table
from lakeward.cassandra.export_folder import ExportFolder, table_folder
from lakeward.cassandra.imports import ImportRequest, import_snapshot
from lakeward.cassandra.jobs import IMPORT
from lakeward.cassandra.keyspaces import limits_of
from lakeward.cassandra.ledger import Ledger
from lakeward.cassandra.schema import read_table_schema
from lakeward.cassandra.snapshots import LIVE
from lakeward.cassandra.sync_rounds import Interval, NewExport, SyncLoop, SyncReport, SyncRound
from lakeward.cassandra.sync_steps import Rules, SyncAction
from lakeward.cassandra.tables import has_keyspace, has_rows, is_there, require_writable
from lakeward.diffing.stored.open import open_side
from lakeward.errors import ConfigurationError, RefusedInputError
from lakeward.spark.errors import spark_faults, translated
from lakeward.storage.filesystem import open_filesystem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import SparkSession

    from lakeward.cassandra.budget import OnProgress
    from lakeward.cassandra.connection import ClusterAddress
    from lakeward.cassandra.cql import TableName
    from lakeward.cassandra.sync_steps import First, NextStep
    from lakeward.config import Config
    from lakeward.errors import LakewardError


@dataclass(frozen=True)
class SyncRequest:
    """The copy to keep up to date, its source, and how.

    source: the cluster of the table; None: another job puts its exports into the folder.
    table: the table whose exports are in the folder.
    to: folder of exports.
    first: what to do with a target that has rows and no record; None: refuse it.
    any_cluster: follow exports of any cluster.
    keep: how many exports stay; None: all.
    export_limits, limits: rate limits for the source and for the target.
    """

    source: ClusterAddress | None
    table: TableName
    target: ClusterAddress
    into: TableName
    to: str
    first: First | None = None
    any_cluster: bool = False
    keep: int | None = None
    create_table: bool = False
    writetime: bool = False
    ttl: bool = False
    timestamp: str = "snapshot"
    max_delete_share: float | None = None
    export_limits: RateLimits = field(default_factory=RateLimits)
    limits: RateLimits = field(default_factory=RateLimits)
    tasks: int | None = None
    ledger: TableName | None = None
    dead_letters: str | None = None


def sync_once(
    spark: SparkSession, config: Config, request: SyncRequest, *, on_progress: OnProgress | None = None
) -> SyncReport:
    """Bring a copy of a table up to date: finish what is open, then export the source and apply what changed.

    If it is killed at any moment, the next call resumes: complete exports and change sets in the folder and the
    target's ledger are all that is needed.

    Raises:
        RefusedInputError: the target holds something unknown, too much would be deleted, or exports do not fit.
        RetriableError: a cluster did not answer.
    """
    on_progress = on_progress or (lambda _: None)
    source = request.source.name if request.source is not None else None
    with _target(request) as target, translated(*spark_faults(request.to)):
        return SyncRound(
            folder=export_folder(spark, config, request),
            target=target,
            work=_ClusterWork(spark, config, request, target, on_progress),
            rules=Rules(request.first, source, request.any_cluster),
            keep=request.keep,
            on_progress=on_progress,
        ).run()


def sync_forever(
    spark: SparkSession,
    config: Config,
    request: SyncRequest,
    *,
    every: float | None = None,
    poll: float | None = None,
    on_report: Callable[[SyncReport], None] | None = None,
    on_error: Callable[[LakewardError], None] | None = None,
    stop: Callable[[], bool] | None = None,
    on_progress: OnProgress | None = None,
) -> None:
    """Call :func:`sync_once` repeatedly: ``every`` so many seconds, else whenever another job adds an export.

    Errors that pass by themselves go to ``on_error``, and the next round tries again; all others are raised.

    Args:
        spark: a session that counts in UTC and takes column names exactly (``table_session``).
        config: how file systems are reached.
        request: what is kept current.
        every: seconds from the beginning of a round to that of the next.
        poll: without ``every``: seconds between looks into the folder; None: 5 for a local one, else 30.
        on_report: called with the report of every round; None: only its warnings are logged.
        on_error: called with an error that the next round may not have; None: it is logged as a warning.
        stop: called after every round and every wait; true ends the loop.
        on_progress: called with lines about the progress.
    """
    wait = Interval(every) if every is not None else NewExport(export_folder(spark, config, request), poll)
    SyncLoop(lambda: sync_once(spark, config, request, on_progress=on_progress), wait, on_report, on_error, stop).run()


def followed_table(named: str | None, other: TableName) -> TableName:
    """Return the table whose exports are followed: the named one, else ``other``.

    Raises:
        ConfigurationError: a cluster is named too, which would not be used.
    """
    if not named:
        return other
    found = TableAddress.parse(named)
    if found.cluster is not None:
        msg = f"--table {found}: exports are looked up below --to, without a cluster; expected {found.name}"
        raise ConfigurationError(msg)
    return found.name


def export_folder(spark: SparkSession, config: Config, request: SyncRequest) -> ExportFolder:
    """Return the folder of the exports that a sync follows."""
    folder = table_folder(request.to, request.table)
    return ExportFolder(open_filesystem(spark, config, folder), folder)


@contextmanager
def _target(request: SyncRequest) -> Iterator[_LedgerTarget]:
    with connected(request.target) as session:
        _require_target(session, request)
        ledger = Ledger(session, request.into, request.ledger)
        ledger.create()
        yield _LedgerTarget(session, request.into, ledger)


def _require_target(session: Any, request: SyncRequest) -> None:
    """Refuse a target that cannot be written as requested.

    Raises:
        ConfigurationError: the table does not exist and is not to be created, it may not be written, or the timestamp
            is not valid.
        RefusedInputError: it is the source itself; it accepts no timestamps, or none as old as those of cells.
    """
    guards.chosen_timestamp(request.timestamp, None, str(request.into))
    _require_another_table(request)
    limits, is_recorded = limits_of(request.target.settings), request.timestamp == guards.SNAPSHOT_TIME
    if is_recorded and limits.oldest_timestamp is not None and (request.writetime or request.ttl):
        msg = f"{request.into} does not accept the times at which cells were written"
        raise RefusedInputError(msg, hint="without --with-writetime and --with-ttl, or with --timestamp now")
    if is_there(session, request.into):
        require_writable(session, read_table_schema(session, request.into))
        guards.takes_timestamps(session, limits, request.into, request.timestamp, expires=request.ttl)
    else:
        _require_place(session, request)


def _require_another_table(request: SyncRequest) -> None:
    """Refuse to copy a table into itself: its cells would get new timestamps, and expiring ones would stay."""
    if request.source is None or request.into != request.table:
        return
    source, target = request.source.settings, request.target.settings
    is_same_place = set(source.hosts) & set(target.hosts) and source.port == target.port
    if is_same_place or (source.keyspaces is not None and source.keyspaces == target.keyspaces):
        msg = f"{request.into} would be copied into itself: --from and --into are the same table"
        raise RefusedInputError(msg, hint="--into another cluster, keyspace or table")


def _require_place(session: Any, request: SyncRequest) -> None:
    """Refuse a table that does not exist and cannot or must not be created."""
    try:
        read_table_schema(session, request.into)
    except ConfigurationError as error:
        if not has_keyspace(session, request.into):
            make = f"create it first: CREATE KEYSPACE {quoted(request.into.keyspace)} WITH replication = …"
            raise ConfigurationError(error.message, hint=_or_meant(make, error.hint)) from error
        if not request.create_table:
            raise ConfigurationError(error.message, hint=_or_meant("--create-table creates it", error.hint)) from error


def _or_meant(remedy: str, meant: str | None) -> str:
    return f"{remedy}; or did you mean {meant}?" if meant else remedy


@contextmanager
def _own_hints() -> Iterator[None]:
    """Remove options from hints that only the commands of the single steps have."""
    try:
        yield
    except RefusedInputError as error:
        kept = [part for part in (error.hint or "").split("; ") if "--force" not in part]
        raise RefusedInputError(error.message, hint="; ".join(kept) or None) from error


@dataclass(frozen=True)
class _LedgerTarget:
    """The target as its ledger records it."""

    session: Any
    name: TableName
    ledger: Ledger

    def applied(self) -> Mapping[str, Any] | None:
        last = self.ledger.last()
        # A repair comes from live tables: only a person can decide which export the target equals now.
        return last.identity if last is not None and last.identity.get("kind") != LIVE else None

    def under_way(self) -> Mapping[str, Any] | None:
        job = self.ledger.under_way(IMPORT)
        return job.identity if job is not None else None

    def is_empty(self) -> bool:
        return not has_rows(self.session, self.name)

    def lost(self) -> str | None:
        return self.ledger.lost()

    def unknown(self) -> str | None:
        last = self.ledger.last()
        return next(iter(guards.unknown_warnings(last)), None) if last is not None else None


class _ClusterWork:
    def __init__(
        self, spark: SparkSession, config: Config, request: SyncRequest, target: _LedgerTarget, on_progress: OnProgress
    ) -> None:
        self._spark, self._config, self._request, self._on_progress = spark, config, request, on_progress
        self._target = target

    def export(self) -> Mapping[str, Any]:
        sync = self._request
        assert sync.source is not None
        request = ExportRequest(
            table=sync.table,
            to=sync.to,
            writetime=sync.writetime,
            ttl=sync.ttl,
            tasks=sync.tasks,
            limits=sync.export_limits,
            restart_other=True,
        )
        return export_table(self._spark, self._config, sync.source, request, on_progress=self._on_progress).to_dict()

    def perform(self, step: NextStep) -> Mapping[str, Any]:
        done = {SyncAction.IMPORT: self._import, SyncAction.DIFF: self._diff, SyncAction.APPLY: self._apply}.get(
            step.action
        )
        with _own_hints():
            return (done or self._record)(step)

    def _import(self, step: NextStep) -> Mapping[str, Any]:
        sync = self._request
        request = ImportRequest(
            source=step.export.folder,
            into=sync.into,
            create_table=sync.create_table,
            # The target holds a repair or a partial export, which a person chose to overwrite.
            over=True,
            timestamp=sync.timestamp,
            limits=sync.limits,
            ledger=sync.ledger,
            dead_letters=sync.dead_letters,
            tasks=sync.tasks,
        )
        return import_snapshot(self._spark, self._config, sync.target, request, on_progress=self._on_progress).to_dict()

    def _diff(self, step: NextStep) -> Mapping[str, Any]:
        assert step.past is not None
        try:
            result = diff_exports(
                self._spark,
                self._config,
                step.past.folder,
                step.export.folder,
                max_delete_share=self._request.max_delete_share,
                limit=0,
            )
        except RefusedInputError as error:
            hint = f"{error.hint or 'inspect both exports'}; or, if the later one is wrong, remove {step.export.folder}"
            raise RefusedInputError(error.message, hint=hint) from error
        return {"change_set": result.change_set, "summary": result.summary.to_dict()}

    def _apply(self, step: NextStep) -> Mapping[str, Any]:
        sync = self._request
        assert step.change_set is not None
        request = ApplyRequest(
            source=step.change_set.folder,
            into=sync.into,
            timestamp=sync.timestamp,
            # The diff was checked against the same limit.
            max_delete_share=1.0,
            limits=sync.limits,
            ledger=sync.ledger,
            dead_letters=sync.dead_letters,
            tasks=sync.tasks,
        )
        return apply_change_set(
            self._spark, self._config, sync.target, request, on_progress=self._on_progress
        ).to_dict()

    def _record(self, step: NextStep) -> Mapping[str, Any]:
        """Record that the target holds an export without writing anything to it."""
        side, found = open_side(self._spark, self._config, step.export.folder), step.change_set
        is_assumed = step.action is SyncAction.ASSUME
        self._target.ledger.record(side.identity, found.id if found is not None else None, assumed=is_assumed)
        return {"export": step.export.folder, "change_set": found.folder if found is not None else None}
