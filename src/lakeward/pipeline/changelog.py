"""Log an op: its changes, bad rows and control rows become one commit of the changelog, or nothing does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakeward import schemas as S
from lakeward.lake.iceberg.attempt import Attempt
from lakeward.lake.iceberg.define import BAD_ROWS_STAMP, LOGGED_STAMP, empty_snapshot
from lakeward.pipeline.folding import ONE_TASK
from lakeward.pipeline.records import control_rows
from lakeward.pipeline.steps import Step
from lakeward.transforms.columns import column, columns
from lakeward.transforms.standing import is_standing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from lakeward.pipeline.context import TableContext
    from lakeward.pipeline.records import FileRecord, OpRecord, Resolution

# Keep the op's number out of the code that Spark generates: it would compile a large class anew for every op. Numbers
# become part of that code, texts do not, unless constants are folded first.
_SAME_CODE_FOR_EVERY_OP = {
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.ConstantFolding"
}


def log_op(
    context: TableContext,
    record: OpRecord,
    *,
    base: int | None,
    rows: DataFrame | None,
    row_count: int,
    bad_rows: int,
    files: Sequence[FileRecord],
    resolutions: Sequence[Resolution] = (),
) -> int:
    """Commit an op to the changelog on top of snapshot ``base``; give the new snapshot.

    Without ``base`` the changelog is new, and the state store knows nothing of the table. ``bad_rows`` is how many
    wait for a decision once this op is logged.

    Raises:
        ConflictError: the changelog has moved since, or the lease was lost. Nothing was logged.
    """
    control = control_rows(context.spark, record, files, resolutions)
    entry = control if rows is None else rows.unionByName(control, allowMissingColumns=True)
    if row_count <= ONE_TASK:
        entry = entry.coalesce(1)
    numbers = [
        F.lit(str(record.op)).cast("long").alias(S.OP),
        F.lit(str(record.generation)).cast("int").alias(S.GENERATION),
    ]
    start = empty_snapshot(context.changelog) if base is None else base
    with Attempt(context.changelog, op=record.op, base=start) as attempt:
        context.reached(Step.LOG_BRANCH)
        expected = row_count + 1 + len(files) + len(resolutions)
        stamps = {LOGGED_STAMP: str(record.op), BAD_ROWS_STAMP: str(bad_rows)}
        with context.spark_settings(_SAME_CODE_FOR_EVERY_OP):
            attempt.append(entry.select(*numbers, *columns(entry.columns)), stamps, expected=expected)
        context.reached(Step.LOG_APPEND)
        snapshot = attempt.publish(before=context.permission.require).id
        context.reached(Step.LOG_PUBLISH)
    context.reached(Step.LOG_DROP)
    if record.back_to is not None:
        # The cache holds files of ops that no longer stand; only the changelog knows what was there before.
        context.state.forget_ledger(context.table)
    else:
        entries = [one.ledger_entry(record.op, record.generation) for one in files]
        context.state.extend_ledger(
            context.table, after=base, snapshot_id=snapshot, progress=record.progress, entries=entries
        )
    context.reached(Step.LOG_LEDGER)
    return snapshot


def changes_of(log: DataFrame, op: int) -> DataFrame:
    """Give the changes that one op logged."""
    return log.filter((column(S.KIND) == S.KIND_CHANGE) & (column(S.OP) == op)).drop(S.OP, S.GENERATION)


def changes_before(log: DataFrame, record: OpRecord) -> DataFrame:
    """Give the changes of an op's generation that earlier ops logged and that still stand."""
    own = (column(S.KIND) == S.KIND_CHANGE) & (column(S.GENERATION) == record.generation)
    earlier = (column(S.OP) < record.op) & is_standing(record.progress.undone)
    return log.filter(own & earlier).drop(S.OP, S.GENERATION)
