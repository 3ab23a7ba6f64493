"""Run many tables on one Spark application. One failing, slow, locked or waiting table never stops another."""

from __future__ import annotations

import itertools
import logging
import random
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Self

from lakeward.errors import BugError, ConflictError, LakewardError, LeaseHeldError, RetriableError
from lakeward.logs import bind
from lakeward.mirror.op.context import RunBudget
from lakeward.mirror.op.cut import load_warning
from lakeward.mirror.op.loads import undecided_loads
from lakeward.mirror.op.reading import TransactionCache
from lakeward.mirror.op.report import Outcome, RunReport, TableReport
from lakeward.mirror.run import RunEnd, TableOps
from lakeward.model import OpKind
from lakeward.runner.history import is_repeated
from lakeward.runner.maintain import maintain_after_run
from lakeward.runner.slots import Slots, Turn, step_listener
from lakeward.runner.tables import changed_since
from lakeward.runner.workbench import new_run_id
from lakeward.session.sessions import load_catalog, table_session
from lakeward.spark.errors import as_lakeward_error
from lakeward.state.base import TableRun
from lakeward.state.leases import HeldLease, current_owner
from lakeward.views.versions.current import publish_current
from lakeward.views.versions.schedule import now_micros
from lakeward.views.versions.scheduled import make_scheduled

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from lakeward.config import RetrySettings
    from lakeward.mirror.maintenance import TableMaintenance
    from lakeward.mirror.op.context import RunOptions, TableContext
    from lakeward.mirror.op.report import OpReport
    from lakeward.model import TableId
    from lakeward.runner.observers import Observer
    from lakeward.runner.tables import KnownTable
    from lakeward.runner.workbench import Workbench


def may_pass(error: LakewardError) -> bool:
    """Whether the same call may succeed later: after a temporary error, or a conflict with another writer."""
    return isinstance(error, (RetriableError, ConflictError))


def retry_delay(settings: RetrySettings, attempt: int) -> float:
    """Return the seconds to wait before attempt number ``attempt`` + 1: doubled each time, up to a limit.

    Half of it is random, so that tables stopped by the same fault do not all retry at the same moment.
    """
    longest = min(settings.max_delay, settings.first_delay * 2.0 ** (attempt - 1))
    return longest * random.uniform(0.5, 1)


logger = logging.getLogger(__name__)
# Sessions open the catalog one after the other, also those of runs that overlap: the first one on a new lake creates
# the catalog's tables.
_opening = threading.Lock()


def run_tables(
    bench: Workbench,
    tables: Sequence[KnownTable],
    options: RunOptions,
    observer: Observer,
    *,
    wait: float = 0,
    parallel: int | None = None,
    stop: threading.Event | None = None,
) -> RunReport:
    """Run every table, those of the highest priority first, and report them in the order of ``tables``.

    ``wait`` is how many seconds to wait for a table that another writer holds. Setting ``stop`` from another thread
    ends the run as Ctrl-C would: current commits are finished or abandoned, and leases released.

    Raises:
        KeyboardInterrupt: the run was ended early.
    """
    by_priority = sorted(tables, key=lambda known: (-known.settings.priority, known.table))
    with _Run(bench, options, observer, wait, stop or threading.Event()) as run:
        observer.run_started(run.id, [str(known.table) for known in tables])
        found = {table.table: table for table in run.all(by_priority, slots=parallel or bench.config.parallel)}
        report = RunReport(run.id, tuple(found[str(known.table)] for known in tables), time.monotonic() - run.started)
    observer.run_finished(report)
    return report


class _Run:
    """One run: the state that its tables share, and the work on each of them."""

    def __init__(
        self, bench: Workbench, options: RunOptions, observer: Observer, wait: float, stop: threading.Event
    ) -> None:
        self.id, self.started = new_run_id(), time.monotonic()
        self._bench = bench
        self._options = options
        self._observer = observer
        self._wait = wait
        self._owner = current_owner(self.id)
        self._stop = stop
        self._turns: dict[str, Turn] = {}
        self._sessions = threading.local()
        # Tables that this run has registered itself, and those that were renamed or removed since it began.
        self._registered: set[TableId] = set()
        self._gone: set[TableId] = set()
        self._transactions = TransactionCache(bench.storage)
        self._budget = RunBudget(files=options.max_files, size=options.max_bytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._transactions.close()

    def all(self, tables: Sequence[KnownTable], *, slots: int) -> list[TableReport]:
        """Run every table and return the reports."""
        pool = Slots(self._run_table, stop=self._stop, look=self._look, cancel=self._cancel)
        return pool.run(tables, slots=slots)

    def _run_table(self, known: KnownTable) -> TableReport:
        began, started = datetime.now(UTC), time.monotonic()
        with bind(run=self.id, table=str(known.table)):
            self._observer.table_started(str(known.table))
            report = self._with_retries(known)
            if report.ops and report.outcome is not Outcome.FAILED and known.settings.maintain == "auto":
                report = replace(report, maintenance=self._maintain(known))
            report = replace(report, seconds=time.monotonic() - started)
            self._record(known, began, report)
            self._observer.table_finished(report)
        return report

    def _with_retries(self, known: KnownTable) -> TableReport:
        """Run one table, with retries after temporary errors, and return its report even if it fails."""
        ops: list[OpReport] = []
        name, settings = str(known.table), self._bench.config.retry
        attempts = settings.attempts if self._options.attempts is None else self._options.attempts
        for attempt in itertools.count(1):
            try:
                return self._attempt(known, ops)
            except LakewardError as error:
                if not may_pass(error) or attempt > attempts:
                    return _failed(name, error, ops)
                delay = retry_delay(settings, attempt)
                self._observer.retry(name, attempt, delay, error)
            if self._stop.wait(delay):
                raise KeyboardInterrupt
        msg = f"{name}: no attempts are left, and none ended the run"
        raise BugError(msg)

    def _attempt(self, known: KnownTable, ops: list[OpReport]) -> TableReport:
        """Run one table once, and add published ops to ``ops``.

        Raises:
            LakewardError: the table cannot go on.
        """
        limit = self._options.time_limit or known.settings.time_limit
        turn = Turn(self._bench.spark.sparkContext, str(known.table), self.id, limit, self._stop)
        try:
            seconds = self._bench.config.lease_seconds
            with HeldLease(self._bench.state, known.table, self._owner, seconds=seconds, wait=self._wait) as lease:
                if (gone := self._registered_or_gone(known)) is not None:
                    # Not raised: a retry would find the same.
                    return _failed(turn.table, gone, ops)
                return self._leased(known, lease, turn, ops)
        except LeaseHeldError as error:
            return TableReport(turn.table, Outcome.LOCKED, tuple(ops), error.message, error.hint)
        except Exception as error:
            # Any error, even a bug of this program, must stop this table only.
            stopped = _why_it_stopped(turn, error)
            raise stopped from (error.__cause__ if stopped is error else error)
        finally:
            self._turns.pop(turn.table, None)

    def _registered_or_gone(self, known: KnownTable) -> ConflictError | None:
        """Register a table where it is not, under its lease; return the error for one that changed since it was chosen.

        A table that this run has registered must still be there at a retry.
        """
        state, is_registered = self._bench.state, known.registered or known.table in self._registered
        gone = changed_since(self._bench.config, state, replace(known, registered=is_registered))
        if gone is not None:
            self._gone.add(known.table)
        elif not is_registered:
            state.register(known.table, active=known.active)
            self._registered.add(known.table)
        return gone

    def _leased(self, known: KnownTable, lease: HeldLease, turn: Turn, ops: list[OpReport]) -> TableReport:
        context = self._bench.context(
            known,
            lease,
            options=self._options,
            spark=self._session(),
            transactions=self._transactions,
            budget=self._budget,
            reached=step_listener(turn, self._bench.on_step),
        )
        turn.begin()
        self._turns[turn.table] = turn
        began = now_micros()
        end = self._ops(context, turn, ops)
        # If the copy as files fails, the mirror stays as it is and the next run publishes the copy.
        turn.begin_op()
        publish_current(context)
        turn.begin_op()
        made = make_scheduled(context, is_own_session=self._bench.is_own_session, began=began)
        outcome = Outcome.WAITING if end.reason else Outcome.DONE if ops or made else Outcome.IDLE
        warnings = tuple(_warnings(context, ops))
        return TableReport(
            turn.table, outcome, tuple(ops), end.reason, mirror_rows=end.rows, warnings=warnings, snapshots=made
        )

    def _ops(self, context: TableContext, turn: Turn, ops: list[OpReport]) -> RunEnd:
        """Apply ops until none is due or the table's time is up."""
        table_ops = TableOps(context)
        for report in table_ops:
            ops.append(report)
            self._observer.op_published(turn.table, report)
            if turn.is_over and not report.is_last:
                reason = "the table has used up its time_limit; the rest waits for the next run"
                return RunEnd(report.mirror_rows, reason)
            turn.begin_op()
        return table_ops.end

    def _maintain(self, known: KnownTable) -> TableMaintenance:
        """Maintain the table in its own slot, within its limits."""
        turn = Turn(self._bench.spark.sparkContext, str(known.table), self.id, None, self._stop)
        self._turns[turn.table] = turn
        try:
            turn.begin()
            reached = step_listener(turn, self._bench.on_step)
            return maintain_after_run(self._bench, known, spark=self._session(), reached=reached)
        finally:
            self._turns.pop(turn.table, None)

    def _session(self) -> SparkSession:
        """Return this thread's session: tables that follow one another in a slot share it."""
        session: SparkSession | None = getattr(self._sessions, "session", None)
        if session is None:
            with _opening:
                session = self._sessions.session = table_session(self._bench.spark)
                load_catalog(session)
        return session

    def _look(self) -> None:
        for turn in list(self._turns.values()):
            turn.look()

    def _cancel(self) -> None:
        for turn in list(self._turns.values()):
            turn.cancel()

    def _record(self, known: KnownTable, began: datetime, report: TableReport) -> None:
        """Record the run and the error that stopped the table.

        Both are only cached data: failing to record them must not turn a published op into a failure, so that it is
        logged and not raised.
        """
        if report.outcome is Outcome.LOCKED:
            return
        state, table = self._bench.state, known.table
        try:
            error = report.message if report.outcome is Outcome.FAILED else None
            # An error would register the table, as an inactive one.
            is_registered = known.registered or table in self._registered
            if error != known.error and is_registered and table not in self._gone:
                state.set_error(table, error)
            run = TableRun(self.id, table, began, datetime.now(UTC), report.outcome, report.to_dict())
            if not is_repeated(state, run):
                state.record_run(run)
        except Exception as error:
            reason = as_lakeward_error(error, str(table)).message
            logger.warning("%s: the run could not be recorded: %s", known.table, reason)


def _warnings(context: TableContext, ops: Sequence[OpReport]) -> Iterator[str]:
    """Yield the warnings for a table that did not fail."""
    progress = context.state.progress(context.table)
    if undecided := undecided_loads(context, progress.generation if progress else None):
        yield undecided
    decisions = (op.decision for op in ops if op.decision is not None)
    yield from (warning for decision in decisions if (warning := load_warning(context, decision)))
    if context.options.reload and not any(op.kind == OpKind.LOAD for op in ops):
        yield "--reload was set, but no load file was written since the load was read"


def _why_it_stopped(turn: Turn, error: Exception) -> LakewardError:
    """Return the error that stopped a table: its own, unless its jobs were cancelled from outside."""
    try:
        turn.require_time()
    except LakewardError as cancelled:
        return cancelled
    return as_lakeward_error(error, turn.table)


def _failed(name: str, error: LakewardError, ops: Sequence[OpReport]) -> TableReport:
    return TableReport(name, Outcome.FAILED, tuple(ops), **error.as_fields())
