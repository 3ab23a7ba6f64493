"""The resources that work on tables of a lake needs, with planning, recording and rebuilding on top of them."""

from __future__ import annotations

import logging
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lakeward.columns import quote_name
from lakeward.iceberg.define import changelog_of, is_complete, mirror_of
from lakeward.iceberg.table import CATALOG
from lakeward.logs import event
from lakeward.mirror.op.check import row_changes
from lakeward.mirror.op.choose import pending_files
from lakeward.mirror.op.context import RunBudget, RunOptions, TableContext, ignore_step
from lakeward.mirror.op.effect import capture
from lakeward.mirror.op.ledger import progress_of
from lakeward.mirror.op.marks import REMOVED_PROPERTY
from lakeward.mirror.op.reading import TransactionCache
from lakeward.mirror.op.report import Outcome, TablePlan, TableReport, op_report
from lakeward.mirror.op.settings import kept_settings
from lakeward.mirror.run import next_op
from lakeward.model import RESERVED_SUFFIXES, TableId
from lakeward.session.sessions import table_session
from lakeward.spark.errors import as_lakeward_error
from lakeward.spark.workspace import Workspace
from lakeward.state.base import TableRun
from lakeward.state.leases import HeldLease, current_owner
from lakeward.storage.landing import with_lake
from lakeward.transforms.columns import conformed
from lakeward.views.versions.scheduled import schedule_of_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import SparkSession

    from lakeward.config import Config
    from lakeward.mirror.op.check import RowChanges
    from lakeward.mirror.op.context import Permission
    from lakeward.mirror.op.effect import PreparedOp
    from lakeward.mirror.op.report import OpReport
    from lakeward.mirror.op.steps import Step
    from lakeward.runner.tables import KnownTable
    from lakeward.state.base import StateStore
    from lakeward.storage.landing import Landing


logger = logging.getLogger(__name__)


def new_run_id() -> str:
    """Return an id that sorts by time."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}"


class NoPermissionNeeded:
    """The permission of work that does not write."""

    def require(self) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class Workbench:
    """Configuration, Spark, landing and state of one lake.

    ``on_step`` is called with table and step for every step passed, in the thread that works on the table; an exception
    of it ends the work. ``is_own_session``: the lake started Spark itself.
    """

    config: Config
    spark: SparkSession
    storage: Landing
    state: StateStore
    on_step: Callable[[str, Step], None] | None = None
    is_own_session: bool = False

    def context(
        self,
        known: KnownTable,
        permission: Permission | None = None,
        *,
        options: RunOptions | None = None,
        spark: SparkSession | None = None,
        transactions: TransactionCache | None = None,
        budget: RunBudget | None = None,
        reached: Callable[[Step], None] | None = None,
    ) -> TableContext:
        """Return a table's context; by default with its own session and transaction cache, and without limits."""
        spark = spark or table_session(self.spark)
        return TableContext(
            table=known.table,
            config=self.config,
            settings=known.settings,
            spark=spark,
            storage=with_lake(self.config, self.storage, known.settings),
            state=self.state,
            permission=permission or NoPermissionNeeded(),
            mirror=mirror_of(spark, known.table),
            changelog=changelog_of(spark, known.table, known.settings.renames),
            transactions=transactions or TransactionCache(self.storage),
            budget=budget or RunBudget(),
            options=options or RunOptions(),
            reached=reached or self._listener(str(known.table)),
        )

    @contextmanager
    def leased(self, known: KnownTable) -> Iterator[TableContext]:
        """Yield a table's context while its lease is held.

        Raises:
            LeaseHeldError: a live writer has the table.
        """
        owner, seconds = current_owner(new_run_id()), self.config.lease_seconds
        with HeldLease(self.state, known.table, owner, seconds=seconds) as lease:
            yield self.context(known, lease)

    def _listener(self, table: str) -> Callable[[Step], None]:
        on_step = self.on_step
        return (lambda step: on_step(table, step)) if on_step else ignore_step


def plan_tables(bench: Workbench, tables: Iterable[KnownTable], options: RunOptions) -> list[TablePlan]:
    """Return what a run would do next for every table, without writing; failures are reported with the reason."""
    transactions = TransactionCache(bench.storage)
    try:
        return [_plan_table(bench, known, options, transactions) for known in tables]
    finally:
        transactions.close()


def _plan_table(bench: Workbench, known: KnownTable, options: RunOptions, transactions: TransactionCache) -> TablePlan:
    name = str(known.table)
    try:
        with Workspace() as workspace:
            return _planned(bench.context(known, options=options, transactions=transactions), workspace)
    except Exception as error:
        stopped = as_lakeward_error(error, name)
        return TablePlan(
            name,
            Outcome.FAILED,
            **stopped.as_fields(),
        )


def _planned(context: TableContext, workspace: Workspace) -> TablePlan:
    name = str(context.table)
    following = next_op(context, workspace, capture(context), is_plan=True)
    schedule = schedule_of_table(context)
    due = schedule.due if schedule is not None else ()
    if following.op is None:
        outcome = Outcome.WAITING if following.reason else Outcome.IDLE
        return TablePlan(name, outcome, message=following.reason, snapshots_due=due)
    prepared = following.op
    files = tuple(summary.path for summary in prepared.summaries)
    report = op_report(prepared)
    waiting, replaces = _waiting_files(context), _replaced_rows(context, prepared)
    return TablePlan(name, Outcome.DONE, report, files, files_waiting=waiting, replaces=replaces, snapshots_due=due)


def _replaced_rows(context: TableContext, prepared: PreparedOp) -> RowChanges | None:
    """Count the rows that a reload would insert, update and delete; None where nothing is replaced."""
    load, mirror = prepared.effect.load_rows, prepared.bases.mirror
    if load is None or mirror is None or not prepared.record.starts:
        return None
    before = conformed(context.mirror.read(mirror.id), prepared.columns, context.settings.renames)
    return row_changes(before, load, context.settings.primary_key)


def _waiting_files(context: TableContext) -> int:
    """Count the files of a table that no op has taken."""
    progress = progress_of(context, capture(context))
    return sum(1 for _ in pending_files(context, progress))


def record_op(state: StateStore, table: TableId, began: datetime, op: OpReport) -> None:
    """Record an op that a command published outside of runs as a run of one op, for `runs` and `status`."""
    record_ops(state, table, began, (op,))


def record_ops(state: StateStore, table: TableId, began: datetime, ops: tuple[OpReport, ...]) -> None:
    """Record the ops that a command published together as one run."""
    seconds = (datetime.now(UTC) - began).total_seconds()
    report = TableReport(str(table), Outcome.DONE, ops, mirror_rows=ops[-1].mirror_rows, seconds=seconds)
    state.record_run(TableRun(new_run_id(), table, began, datetime.now(UTC), report.outcome, report.to_dict()))


def rebuild_registry(spark: SparkSession, config: Config, state: StateStore) -> list[TableId]:
    """Register every mirror found in the lake as active, with the settings in its properties; return the tables."""
    spark, declared = table_session(spark), config.declared()
    found = []
    for table in _mirrors(spark):
        mirror = mirror_of(spark, table)
        settings = kept_settings(mirror)
        if settings is None or not is_complete(changelog_of(spark, table)):
            continue
        if mirror.property(REMOVED_PROPERTY) is not None:
            text = "%s was removed from the registry and is left out: lakeward tables set %s --activate brings it back"
            logger.warning(text, table, table, extra=event("table.removed", table=str(table)))
            continue
        found.append(table)
        if table not in declared:
            state.set_table(table, active=True, settings=settings)
    return found


def _mirrors(spark: SparkSession) -> Iterator[TableId]:
    for namespace in spark.sql(f"SHOW NAMESPACES IN {CATALOG}").toLocalIterator():
        schema = _unquoted(namespace[0])
        if not schema.endswith(tuple(RESERVED_SUFFIXES)):
            for row in spark.sql(f"SHOW TABLES IN {CATALOG}.{quote_name(schema)}").toLocalIterator():
                yield TableId(schema, row["tableName"])


def _unquoted(name: str) -> str:
    """Return a namespace without quotes: Spark quotes only names that need it."""
    return name[1:-1].replace("``", "`") if name.startswith("`") else name
