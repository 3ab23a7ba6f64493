"""The steps of a sync, done for real: exports, imports, diffs and applied change sets, and what the target records."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lakeward.cassandra import guards
from lakeward.cassandra.applying import ApplyRequest, apply_change_set
from lakeward.cassandra.budget import Limits
from lakeward.cassandra.comparing.staging import LIVE
from lakeward.cassandra.connecting import connected
from lakeward.cassandra.diffs import diff_exports
from lakeward.cassandra.export_folders import ExportFolder, table_folder
from lakeward.cassandra.exporting import ExportRequest, export_table
from lakeward.cassandra.exports.faults import told_by_spark
from lakeward.cassandra.importing import ImportRequest, import_snapshot
from lakeward.cassandra.jobs import IMPORT
from lakeward.cassandra.ledger import Ledger
from lakeward.cassandra.presence import has_rows
from lakeward.cassandra.sync_steps import Action, Rules
from lakeward.cassandra.sync_target import require_target
from lakeward.cassandra.syncing import SyncReport, SyncRound
from lakeward.diffing.inputs.opening import open_side
from lakeward.errors import RefusedInputError
from lakeward.lake.stores import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

    from lakeward.cassandra.connecting import ClusterAddress
    from lakeward.cassandra.names import TableName
    from lakeward.cassandra.progress import Tell
    from lakeward.cassandra.sync_steps import First, Step
    from lakeward.config import Config


@dataclass(frozen=True)
class SyncRequest:
    """What is kept up to date, from where, and how.

    source: the cluster of the table; None: another job puts its exports into the folder.
    table: the table whose exports are in the folder.
    to: folder of exports.
    first: what happens to a target with rows of which nothing is recorded; None: it is refused.
    any_cluster: follow exports whichever cluster they say they are of.
    keep: how many exports stay; None: all.
    export_limits, limits: what may be asked of the source and of the target.
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
    export_limits: Limits = field(default_factory=Limits)
    limits: Limits = field(default_factory=Limits)
    tasks: int | None = None
    ledger: TableName | None = None
    dead_letters: str | None = None


def sync_once(spark: SparkSession, config: Config, request: SyncRequest, *, tell: Tell | None = None) -> SyncReport:
    """Bring a copy of a table up to date: finish what is open, then export the source and apply what changed.

    Killed at any moment, the next call goes on where this one was: what is complete in the folder and what the
    target's ledger says is all that is needed.

    Raises:
        RefusedInputError: the target holds something unknown, too much would be deleted, or exports do not fit.
        RetriableError: a cluster did not answer.
    """
    tell = tell or (lambda _: None)
    source = request.source.name if request.source is not None else None
    with _target(request) as target, told_by_spark(request.to):
        return SyncRound(
            folder=export_folder(spark, config, request),
            target=target,
            work=_Work(spark, config, request, target, tell),
            rules=Rules(request.first, source, request.any_cluster),
            keep=request.keep,
            tell=tell,
        ).run()


def export_folder(spark: SparkSession, config: Config, request: SyncRequest) -> ExportFolder:
    """Give the folder of the exports that a sync follows."""
    folder = table_folder(request.to, request.table)
    return ExportFolder(open_store(spark, config, folder), folder)


@contextmanager
def _target(request: SyncRequest) -> Iterator[_LedgerTarget]:
    with connected(request.target) as session:
        require_target(session, request)
        ledger = Ledger(session, request.into, request.ledger)
        ledger.create()
        yield _LedgerTarget(session, request.into, ledger)


@contextmanager
def _own_hints() -> Iterator[None]:
    """Leave out of hints what only the commands of the steps can do."""
    try:
        yield
    except RefusedInputError as error:
        kept = [one for one in (error.hint or "").split("; ") if "--force" not in one]
        raise RefusedInputError(error.message, hint="; ".join(kept) or None) from error


@dataclass(frozen=True)
class _LedgerTarget:
    """A target by what its ledger says and what it holds."""

    session: Any
    name: TableName
    ledger: Ledger

    def applied(self) -> Mapping[str, Any] | None:
        last = self.ledger.last()
        # A repair was made of live tables: which export the target equals since is for a person to say.
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
        return next(iter(guards.told_unknown(last)), None) if last is not None else None


class _Work:
    def __init__(
        self, spark: SparkSession, config: Config, request: SyncRequest, target: _LedgerTarget, tell: Tell
    ) -> None:
        self._spark, self._config, self._request, self._tell = spark, config, request, tell
        self._target = target

    def export(self) -> Mapping[str, Any]:
        asked = self._request
        assert asked.source is not None
        request = ExportRequest(
            table=asked.table,
            to=asked.to,
            writetime=asked.writetime,
            ttl=asked.ttl,
            tasks=asked.tasks,
            limits=asked.export_limits,
            restart_other=True,
        )
        return export_table(self._spark, self._config, asked.source, request, tell=self._tell).to_document()

    def perform(self, step: Step) -> Mapping[str, Any]:
        done = {Action.IMPORT: self._import, Action.DIFF: self._diff, Action.APPLY: self._apply}.get(step.action)
        with _own_hints():
            return (done or self._record)(step)

    def _import(self, step: Step) -> Mapping[str, Any]:
        asked = self._request
        request = ImportRequest(
            source=step.export.folder,
            into=asked.into,
            create_table=asked.create_table,
            # Of a repair or a part, which a person said is to be written over.
            over=True,
            timestamp=asked.timestamp,
            limits=asked.limits,
            ledger=asked.ledger,
            dead_letters=asked.dead_letters,
            tasks=asked.tasks,
        )
        return import_snapshot(self._spark, self._config, asked.target, request, tell=self._tell).to_document()

    def _diff(self, step: Step) -> Mapping[str, Any]:
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
            hint = f"{error.hint or 'look at both exports'}; or, if it is wrong, remove {step.export.folder}"
            raise RefusedInputError(error.message, hint=hint) from error
        return {"change_set": result.change_set, "summary": result.summary.to_document()}

    def _apply(self, step: Step) -> Mapping[str, Any]:
        asked = self._request
        assert step.change_set is not None
        request = ApplyRequest(
            source=step.change_set.folder,
            into=asked.into,
            timestamp=asked.timestamp,
            # The diff was held against the same limit.
            max_delete_share=1.0,
            limits=asked.limits,
            ledger=asked.ledger,
            dead_letters=asked.dead_letters,
            tasks=asked.tasks,
        )
        return apply_change_set(self._spark, self._config, asked.target, request, tell=self._tell).to_document()

    def _record(self, step: Step) -> Mapping[str, Any]:
        """Record that the target holds an export without writing anything to it."""
        side, found = open_side(self._spark, self._config, step.export.folder), step.change_set
        is_assumed = step.action is Action.ASSUME
        self._target.ledger.record(side.identity, found.id if found is not None else None, assumed=is_assumed)
        return {"export": step.export.folder, "change_set": found.folder if found is not None else None}
