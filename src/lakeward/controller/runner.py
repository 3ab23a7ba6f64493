"""Run and plan many tables. One failing, locked or waiting table never stops the others."""

from __future__ import annotations

import logging
import time
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from lakeward.errors import BugError, DataError, LakewardError, LeaseHeldError
from lakeward.lake.iceberg.define import changelog_of, mirror_of
from lakeward.lake.iceberg.session import table_session
from lakeward.lake.iceberg.table import first_line
from lakeward.pipeline.choose import Waiting, pending_files
from lakeward.pipeline.context import RunOptions, TableContext
from lakeward.pipeline.effect import capture
from lakeward.pipeline.ledger import current_progress
from lakeward.pipeline.report import Outcome, RunReport, TablePlan, TableReport, op_report
from lakeward.pipeline.run import next_op, run_table
from lakeward.pipeline.workspace import Workspace
from lakeward.state.base import TableRun
from lakeward.state.leases import HeldLease, current_owner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark.sql import SparkSession

    from lakeward.config import Config
    from lakeward.controller.tables import KnownTable
    from lakeward.pipeline.report import OpReport
    from lakeward.sources.storage import Storage
    from lakeward.state.base import StateStore

logger = logging.getLogger(__name__)


class NoPermissionNeeded:
    """For what does not write."""

    def require(self) -> None:
        """Do nothing."""


class TableRunner:
    """Runs tables of one lake, one after another, on one Spark application."""

    def __init__(
        self,
        config: Config,
        spark: SparkSession,
        storage: Storage,
        state: StateStore,
        *,
        on_step: Callable[[str, str], None] | None = None,
        on_op: Callable[[str, OpReport], None] | None = None,
    ) -> None:
        """Take what all tables share. ``on_step`` hears (table, step), ``on_op`` (table, report)."""
        self._config = config
        self._spark = spark
        self._storage = storage
        self._state = state
        self._on_step = on_step
        self._on_op = on_op

    def run(self, tables: Sequence[KnownTable], options: RunOptions, *, wait: float = 0) -> RunReport:
        """Run every table and report each."""
        started, run_id = time.monotonic(), new_run_id()
        reports = [self._run_one(known, options, run_id, wait) for known in tables]
        return RunReport(run_id, tuple(reports), time.monotonic() - started)

    def plan(self, tables: Iterable[KnownTable], options: RunOptions) -> list[TablePlan]:
        """Say for every table what a run would do next, without writing."""
        return [self._plan_one(known, options) for known in tables]

    def context(self, known: KnownTable, options: RunOptions, permission: HeldLease | None = None) -> TableContext:
        """Give one table's context, with a Spark session of its own."""
        spark, name = table_session(self._spark), str(known.table)
        on_step = self._on_step
        return TableContext(
            table=known.table,
            config=self._config,
            settings=known.settings,
            spark=spark,
            storage=self._storage,
            state=self._state,
            permission=permission or NoPermissionNeeded(),
            mirror=mirror_of(spark, known.table),
            changelog=changelog_of(spark, known.table),
            options=options,
            reached=(lambda step: on_step(name, step)) if on_step else _no_listener,
        )

    def _run_one(self, known: KnownTable, options: RunOptions, run_id: str, wait: float) -> TableReport:
        began, started = datetime.now(UTC), time.monotonic()
        self._state.register(known.table, active=known.active)
        report = self._guarded(known, options, run_id, wait)
        report = replace(report, seconds=time.monotonic() - started)
        self._record(known, run_id, began, report)
        return report

    def _guarded(self, known: KnownTable, options: RunOptions, run_id: str, wait: float) -> TableReport:
        """Run one table and turn whatever stops it into its report."""
        ops: list[OpReport] = []
        name = str(known.table)
        try:
            owner = current_owner(run_id)
            with HeldLease(self._state, known.table, owner, wait=wait) as lease:
                return self._run_leased(known, options, lease, ops)
        except LeaseHeldError as error:
            return TableReport(name, Outcome.LOCKED, tuple(ops), error.message, error.hint)
        except (LakewardError, PySparkException, Py4JError, OSError) as error:
            known_error = as_lakeward_error(error, name)
            return failed(name, known_error, tuple(ops))

    def _run_leased(self, known: KnownTable, options: RunOptions, lease: HeldLease, ops: list[OpReport]) -> TableReport:
        context = self.context(known, options, lease)
        waiting: str | None = None
        for report in run_table(context):
            if isinstance(report, Waiting):
                waiting = report.reason
            else:
                ops.append(report)
                if self._on_op:
                    self._on_op(str(known.table), report)
        head = context.mirror.head() if context.mirror.exists() else None
        outcome = Outcome.WAITING if waiting else Outcome.DONE if ops else Outcome.IDLE
        return TableReport(str(known.table), outcome, tuple(ops), waiting, mirror_rows=head.rows if head else None)

    def _record(self, known: KnownTable, run_id: str, began: datetime, report: TableReport) -> None:
        """Keep history and the error that stopped the table.

        Both are only a cache's content: failing to keep them must not undo what was published, so it is said and
        not raised.
        """
        if report.outcome is Outcome.LOCKED:
            return
        try:
            error = report.message if report.outcome is Outcome.FAILED else None
            self._state.set_error(known.table, error)
            finished = datetime.now(UTC)
            run = TableRun(run_id, known.table, began, finished, report.outcome, report.to_dict())
            self._state.record_run(run)
        except LakewardError as error:
            logger.warning("%s: the run could not be recorded: %s", known.table, error.message)

    def _plan_one(self, known: KnownTable, options: RunOptions) -> TablePlan:
        name = str(known.table)
        try:
            with Workspace() as workspace:
                return self._planned(known, options, workspace)
        except (LakewardError, PySparkException, Py4JError, OSError) as error:
            stopped = as_lakeward_error(error, name)
            return TablePlan(
                name,
                Outcome.FAILED,
                message=stopped.message,
                hint=stopped.hint,
                error_kind=stopped.kind,
                exit_code=stopped.exit_code,
            )

    def _planned(self, known: KnownTable, options: RunOptions, workspace: Workspace) -> TablePlan:
        context, name = self.context(known, options), str(known.table)
        prepared = next_op(context, workspace)
        if prepared is None:
            return TablePlan(name, Outcome.IDLE)
        if isinstance(prepared, Waiting):
            return TablePlan(name, Outcome.WAITING, message=prepared.reason)
        files = tuple(one.path for one in prepared.summaries)
        report = op_report(prepared)
        return TablePlan(name, Outcome.DONE, report, files, files_waiting=waiting_files(context))


def waiting_files(context: TableContext) -> int:
    """Count the files of a table that no op has taken."""
    head = capture(context).changelog
    progress = current_progress(context, head.id if head else None)
    return sum(1 for _ in pending_files(context, progress))


def failed(name: str, error: LakewardError, ops: tuple[OpReport, ...] = ()) -> TableReport:
    """Report a table that an error stopped."""
    return TableReport(
        name, Outcome.FAILED, ops, error.message, error.hint, error_kind=error.kind, exit_code=error.exit_code
    )


def as_lakeward_error(error: Exception, name: str) -> LakewardError:
    """Give Spark's and the system's errors the type that says what to do about them."""
    if isinstance(error, LakewardError):
        return error
    text = first_line(str(error))
    logger.debug("%s: unexpected error", name, exc_info=error)
    if isinstance(error, OSError):
        return DataError(f"{name}: {error}", hint="check the file or folder it names, then run again")
    if "NotFoundException" in str(error) or "FileNotFoundException" in str(error):
        hint = "restore the missing files from a backup; nothing was written"
        return DataError(f"{name}: files of the lake are missing: {text}", hint=hint)
    return BugError(f"{name}: Spark failed: {text}", hint="run again with --debug for the whole error")


def new_run_id() -> str:
    """Give an id that sorts by time."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}"


def _no_listener(_step: str) -> None:
    """Do nothing."""
