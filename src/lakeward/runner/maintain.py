"""Maintenance of tables in slices: each slice has its own lease, so that a run waits for one slice at most."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lakeward.errors import ConflictError, LakewardError
from lakeward.iceberg.attempt import drop_abandoned
from lakeward.iceberg.rewrite import debt_of
from lakeward.logs import event
from lakeward.mirror.compaction import cluster_slice, compact_slice, planned_clustering, planned_compaction
from lakeward.mirror.maintenance import (
    TableMaintenance,
    WorkKind,
    clear_orphans,
    due_work,
    expire_slice,
    locations,
    planned_expiry,
    record_maintained,
    summed,
)
from lakeward.mirror.op.choose import pending_files
from lakeward.mirror.op.effect import capture, require_expected_rows
from lakeward.mirror.op.ledger import progress_of
from lakeward.mirror.op.report import Outcome
from lakeward.mirror.run import finish_interrupted
from lakeward.redaction import redact
from lakeward.runner.tables import KnownTable, known_tables
from lakeward.runner.workbench import new_run_id
from lakeward.session.sessions import table_session
from lakeward.spark.errors import as_lakeward_error
from lakeward.state.leases import POLL_SECONDS, HeldLease, current_owner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from lakeward.iceberg.metadata import TableMetadata
    from lakeward.iceberg.rewrite import Debt
    from lakeward.mirror.maintenance import WorkReport
    from lakeward.mirror.op.context import Permission, TableContext
    from lakeward.mirror.op.effect import Bases
    from lakeward.mirror.op.steps import Step
    from lakeward.runner.workbench import Workbench

logger = logging.getLogger(__name__)
# A waiting run polls this often: after a slice the table is left free for as long.
_PAUSE_SECONDS = POLL_SECONDS + 0.1
# How long a slice waits for a run that took the table in between.
_PATIENCE_SECONDS = 60.0
_SLICES: dict[WorkKind, Callable[[TableContext, Bases], WorkReport | None]] = {
    WorkKind.COMPACT: compact_slice,
    WorkKind.CLUSTER: cluster_slice,
    WorkKind.EXPIRE: expire_slice,
}


@dataclass
class MaintenanceBudget:
    """Limits for the time that maintenance takes and the bytes that it rewrites; None: no limit."""

    seconds: float | None = None
    size: int | None = None
    _began: float = field(default_factory=time.monotonic)
    _spent: int = 0

    def spend(self, size: int) -> None:
        """Count bytes that were rewritten."""
        self._spent += size

    @property
    def is_used_up(self) -> bool:
        """Whether no further slice may start."""
        out_of_time = self.seconds is not None and time.monotonic() - self._began >= self.seconds
        return out_of_time or (self.size is not None and self._spent >= self.size)


@dataclass(frozen=True)
class MaintenanceRequest:
    """The kinds of work to do; with ``by_debt`` only where the table's limits are exceeded.

    Automatic work (``by_debt``) stops when files wait. ``wait`` is the number of seconds to wait for another writer.
    """

    kinds: Sequence[WorkKind] = tuple(WorkKind)
    by_debt: bool = False
    dry_run: bool = False
    wait: float = 0.0


class TableMaintainer:
    """Maintenance of one table."""

    def __init__(
        self,
        bench: Workbench,
        known: KnownTable,
        request: MaintenanceRequest,
        budget: MaintenanceBudget,
        *,
        others: Sequence[KnownTable] = (),
        spark: SparkSession | None = None,
        reached: Callable[[Step], None] | None = None,
    ) -> None:
        """Prepare the work; orphan removal must not touch the folders of the tables in ``others``."""
        self._bench = bench
        self._known = known
        self._request = request
        self._budget = budget
        self._others = others
        self._spark = spark or table_session(bench.spark)
        self._reached = reached
        self._owner = current_owner(new_run_id())
        self._work: list[WorkReport] = []
        self._remarks: list[str] = []
        self._is_cleared = False
        self._before: tuple[TableMetadata | None, TableMetadata | None] = (None, None)

    def report(self) -> TableMaintenance:
        """Do the work and return its report, even if an error stopped it."""
        started = time.monotonic()
        error: LakewardError | None = None
        try:
            outcome = self._maintained()
        except ConflictError as held:
            outcome, error = Outcome.LOCKED, held
        except Exception as stopped:
            outcome, error = Outcome.FAILED, as_lakeward_error(stopped, str(self._known.table))
        found = self._described(outcome, error)
        if not self._request.dry_run and (found.work or error):
            _log(found)
        return replace(found, seconds=time.monotonic() - started)

    def _maintained(self) -> Outcome:
        context = self._context()
        mirror, changelog = self._before = (context.mirror.find_metadata(), context.changelog.find_metadata())
        if mirror is None or changelog is None or mirror.head() is None:
            self._remarks.append("it has never run")
            return Outcome.IDLE
        if self._request.dry_run:
            self._plan(context, mirror, changelog)
            return Outcome.DONE if self._work else Outcome.IDLE
        due = due_work(context, mirror, changelog) if self._request.by_debt else tuple(WorkKind)
        kinds = [kind for kind in due if kind in self._request.kinds]
        for kind in kinds:
            self._do(kind)
        if kinds:
            record_maintained(context, orphans=self._is_cleared)
        return Outcome.DONE if self._work else Outcome.IDLE

    def _do(self, kind: WorkKind) -> None:
        if kind is WorkKind.ORPHANS:
            self._clear()
            return
        is_more = True
        while is_more and self._may_go_on():
            report = self._slice(kind)
            is_more = report is not None
            if report is not None:
                self._work.append(report)
                self._budget.spend(report.bytes_read)

    def _may_go_on(self) -> bool:
        if self._budget.is_used_up:
            self._remark("the rest waits: the limit of time or bytes is reached")
            return False
        if self._work and self._request.by_debt and self._has_waiting_files():
            self._remark("the rest waits: files have landed")
            return False
        return True

    def _remark(self, text: str) -> None:
        if text not in self._remarks:
            self._remarks.append(text)

    def _slice(self, kind: WorkKind) -> WorkReport | None:
        """Do one slice under its own lease."""
        is_first = not self._work
        if not is_first:
            time.sleep(_PAUSE_SECONDS)
        started, seconds = time.monotonic(), self._bench.config.lease_seconds
        wait = self._request.wait if is_first else max(self._request.wait, _PATIENCE_SECONDS)
        with HeldLease(self._bench.state, self._known.table, self._owner, seconds=seconds, wait=wait) as lease:
            context = self._context(lease)
            drop_abandoned(context.changelog)
            drop_abandoned(context.mirror)
            finish_interrupted(context)
            bases = capture(context)
            require_expected_rows(context, bases)
            report = _SLICES[kind](context, bases)
        return replace(report, seconds=time.monotonic() - started) if report is not None else None

    def _clear(self) -> None:
        if not self._may_go_on():
            return
        started, self._is_cleared = time.monotonic(), True
        others = (other for other in self._others if other.table != self._known.table)
        contexts = (self._bench.context(other, spark=self._spark) for other in others)
        folders = {folder for context in contexts for folder in locations(context)}
        for report, skipped in clear_orphans(self._context(), folders, dry_run=self._request.dry_run):
            if report is not None:
                self._work.append(replace(report, seconds=time.monotonic() - started))
            if skipped is not None:
                self._remark(skipped)

    def _has_waiting_files(self) -> bool:
        context = self._context()
        return next(pending_files(context, progress_of(context, capture(context))), None) is not None

    def _plan(self, context: TableContext, mirror: TableMetadata, changelog: TableMetadata) -> None:
        """Collect what would be done, without writing."""
        head, log = mirror.head(), changelog.head()
        if WorkKind.COMPACT in self._request.kinds and head and (found := planned_compaction(context, head)):
            self._work.append(found)
        if WorkKind.CLUSTER in self._request.kinds and log and (found := planned_clustering(context, log)):
            self._work.append(found)
        if WorkKind.EXPIRE in self._request.kinds:
            self._work += planned_expiry(context)
        if WorkKind.ORPHANS in self._request.kinds:
            self._clear()

    def _described(self, outcome: Outcome, error: LakewardError | None) -> TableMaintenance:
        """Return the report; the debt is computed again if something was done."""
        context = self._context()
        is_changed = self._work and not self._request.dry_run and error is None
        after = (context.mirror.find_metadata(), context.changelog.find_metadata()) if is_changed else self._before
        message = error.message if error else "; ".join(self._remarks) or None
        return TableMaintenance(
            str(self._known.table),
            outcome,
            summed(self._work),
            before=_debt(self._before[0]),
            after=_debt(after[0]),
            changelog_before=_debt(self._before[1]),
            changelog_after=_debt(after[1]),
            dry_run=self._request.dry_run,
            message=message,
            hint=error.hint if error else None,
            exit_code=error.exit_code if error and outcome is Outcome.FAILED else 0,
        )

    def _context(self, lease: Permission | None = None) -> TableContext:
        return self._bench.context(self._known, lease, spark=self._spark, reached=self._reached)


def _debt(metadata: TableMetadata | None) -> Debt | None:
    return debt_of(metadata) if metadata is not None else None


def maintain_tables(
    bench: Workbench,
    tables: Sequence[KnownTable],
    others: Sequence[KnownTable],
    request: MaintenanceRequest,
    budget: MaintenanceBudget,
) -> Iterator[TableMaintenance]:
    """Maintain one table after another, regardless of failures. ``others`` are all tables of the lake."""
    spark = table_session(bench.spark)
    for table in tables:
        yield TableMaintainer(bench, table, request, budget, others=others, spark=spark).report()


def maintain_after_run(
    bench: Workbench, known: KnownTable, *, spark: SparkSession, reached: Callable[[Step], None]
) -> TableMaintenance:
    """Maintain a table that a run has just changed, if its debt exceeds the limits.

    A failure is reported and not raised: it must not turn the run into a failure.
    """
    limits = known.settings.maintenance
    budget = MaintenanceBudget(limits.max_seconds, limits.max_bytes)
    others = known_tables(bench.config, bench.state)
    maintainer = TableMaintainer(
        bench, known, MaintenanceRequest(by_debt=True), budget, others=others, spark=spark, reached=reached
    )
    try:
        return maintainer.report()
    except Exception as error:
        logger.warning("%s: maintenance failed: %s: %s", known.table, type(error).__name__, error, exc_info=error)
        return TableMaintenance(
            str(known.table), Outcome.FAILED, message=redact(f"{type(error).__name__}: {error}"), exit_code=3
        )


def _log(found: TableMaintenance) -> None:
    level = logging.WARNING if found.outcome is Outcome.FAILED else logging.INFO
    read, written = (sum(getattr(work, name) for work in found.work) for name in ("bytes_read", "bytes_written"))
    done = ", ".join(f"{work.kind} {work.target}" for work in found.work) or "nothing done"
    fields = {"outcome": found.outcome, "bytes_read": read, "bytes_written": written, "error": found.message}
    named = event("maintained", table=found.table, **fields)
    reason = f": {found.message}" if found.message else ""
    logger.log(level, "%s: maintenance %s: %s%s", found.table, found.outcome, done, reason, extra=named)
