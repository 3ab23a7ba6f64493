"""Repair what a verification found, as one recorded op that touches only the differing keys.

A mirror that differs from its own files or changelog gets the rows recomputed from them; the changelog only records
the repair. A mirror that differs from another copy gets that copy's rows as changes in the changelog, placed after
all others, so that every later recomputation includes them.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from lakeward import schemas as S
from lakeward.columns import quote_name
from lakeward.errors import ConfigurationError, DataError
from lakeward.mirror.kinds import handler_of
from lakeward.mirror.op.changelog import OpRecord
from lakeward.mirror.op.effect import Effect, OpInput, PreparedOp, capture, plan_fold
from lakeward.mirror.op.fold import materialize
from lakeward.mirror.op.ledger import progress_of
from lakeward.mirror.op.metadata_columns import source_columns, with_metadata
from lakeward.mirror.op.steps import Step
from lakeward.mirror.run import carry_out, finish_interrupted
from lakeward.model import Operation, OpKind, Place, Progress
from lakeward.schemas import spark_type
from lakeward.spark.workspace import Workspace
from lakeward.text import count as counted
from lakeward.transforms.columns import column, columns, conformed
from lakeward.transforms.fold import having_keys, lacking_keys
from lakeward.views.verification.against import shown_location
from lakeward.views.verification.report import Verdict
from lakeward.views.verification.verify import captured, examine, never_run, recorded, verify_table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from pyspark.sql import DataFrame

    from lakeward.columns import Column
    from lakeward.mirror.op.context import TableContext
    from lakeward.mirror.op.effect import Bases
    from lakeward.mirror.op.report import OpReport
    from lakeward.views.verification.report import Against, TableVerification, VerifyOptions
    from lakeward.views.verification.verify import Examined

_BEFORE_ALL_FILES = "19700101000000000000"


def repair_table(
    context: TableContext, options: VerifyOptions, lease: Callable[[], AbstractContextManager[TableContext]]
) -> TableVerification:
    """Verify a table; where anything is found, take its lease, repair it and verify again.

    Return what was found, with the op that repaired it.

    Raises:
        ConfigurationError: it cannot be repaired from the other copy.
        LeaseHeldError: a live writer has the table.
    """
    started = time.monotonic()
    bases = captured(context)
    if bases.mirror is None or not bases.applied:
        return never_run(context)
    with Workspace() as workspace:
        examined = examine(context, workspace, bases, options)
        if examined.report.verdict is Verdict.CLEAN:
            return replace(recorded(context, bases, examined.report), seconds=time.monotonic() - started)
        with lease() as leased:
            # Keep the session: the frames of the comparison belong to it.
            writing = replace(context, permission=leased.permission)
            report = _repaired(writing, workspace, examined, options)
    return replace(report, seconds=time.monotonic() - started)


def _repaired(
    context: TableContext, workspace: Workspace, examined: Examined, options: VerifyOptions
) -> TableVerification:
    """Repair what was found; where the table has changed since, compare again first."""
    finish_interrupted(context)
    bases = capture(context)
    if (bases.changelog, bases.mirror) != (examined.bases.changelog, examined.bases.mirror):
        examined = examine(context, workspace, bases, options)
    context.reached(Step.REPAIR_COMPARED)
    if examined.report.verdict is Verdict.CLEAN:
        return recorded(context, bases, examined.report)
    op = _apply_repair(context, workspace, examined, options)
    context.reached(Step.REPAIR_APPLIED)
    again = verify_table(context, options)
    left = counted(again.differences, "row still differs", "rows still differ")
    problem = f"{left} after the repair" if again.differences else None
    return replace(examined.report, repair=op, verified=again.verified, message=problem)


def _apply_repair(context: TableContext, workspace: Workspace, examined: Examined, options: VerifyOptions) -> OpReport:
    if examined.bases.changelog is None or examined.bases.mirror is None:
        msg = f"{context.table} has no rows to repair"
        raise DataError(msg)
    if options.against is not None:
        return _from_other_copy(context, workspace, examined, options.against)
    return _from_recomputation(context, workspace, examined)


def _from_recomputation(context: TableContext, workspace: Workspace, examined: Examined) -> OpReport:
    """Write the recomputed rows of every differing key.

    Without a key a row is identified by all its columns: where the number of its copies is wrong, all copies are
    deleted and the right number is written.
    """
    names = tuple(lake_column.name for lake_column in examined.bases.columns)
    keys = context.settings.primary_key or names
    rows = materialize(workspace, _corrections(examined, keys, names), keys)
    count = examined.comparison.left.select(*columns(keys)).distinct().count()
    thing = "key" if context.settings.primary_key else "row"
    reason = f"{counted(count, f'{thing} differs', f'{thing}s differ')} from what its {examined.report.basis} give"
    record = _record(context, examined.bases, keys=count, reason=reason)
    by_key = context.settings.model_copy(update={"primary_key": keys})
    plan = plan_fold(context.mirror, examined.bases.mirror, rows, by_key)
    effect = Effect(replace(plan, reason=f"{reason}; {plan.reason}"), rows)
    return _execute(context, examined.bases, record, effect, None, 0)


def _corrections(examined: Examined, keys: Sequence[str], names: Sequence[str]) -> DataFrame:
    """Return the expected rows of every differing key, and a delete for keys that must have none."""
    comparison = examined.comparison
    touched = comparison.left.select(*columns(keys)).distinct()
    expected = having_keys(comparison.expected.select(*columns(names)), touched, keys=keys)
    writes = expected.withColumn(S.OPERATION, F.lit(Operation.UPDATE.value))
    gone = lacking_keys(touched, expected.select(*columns(keys)), keys=keys)
    deletes = gone.withColumn(S.OPERATION, F.lit(Operation.DELETE.value))
    both = writes.unionByName(deletes, allowMissingColumns=True)
    return both.select(S.OPERATION, *columns(names))


def _from_other_copy(context: TableContext, workspace: Workspace, examined: Examined, against: Against) -> OpReport:
    """Log the other copy's rows as the newest changes of every differing key, and apply them like any others."""
    _require_exact(context, examined)
    bases, keys = examined.bases, context.settings.primary_key
    source = source_columns(bases.columns, context.settings)
    names = tuple(lake_column.name for lake_column in source)
    corrections = workspace.keep(_corrections(examined, keys, names))
    _require_lossless(context, corrections, source)
    rows = conformed(corrections, source, {})
    progress = progress_of(context, bases)
    found = _as_changes(rows, keys, names, progress, _commit_micros(against))
    changes = workspace.keep(with_metadata(found, bases.columns, context.settings, F.lit(progress.op + 1)))
    count = changes.count()
    reason = f"{counted(count, 'key differs', 'keys differ')} from {shown_location(against)}"
    record = _record(context, bases, keys=count, reason=reason)
    record = replace(record, progress=_reached(record.progress, progress, count, _commit_micros(against)))
    effect = handler_of(record.kind).compute_effect(
        context, workspace, OpInput(record, bases, bases.columns, changes, count)
    )
    effect = replace(effect, plan=replace(effect.plan, reason=f"{reason}; {effect.plan.reason}"))
    return _execute(context, bases, record, effect, changes, count)


def _as_changes(
    rows: DataFrame, keys: Sequence[str], names: Sequence[str], progress: Progress, micros: int
) -> DataFrame:
    """Return rows as changes whose place is after every logged change."""
    place = _place(progress, 0)
    by_key = Window.orderBy(*[column(key).asc_nulls_first() for key in keys])
    given = {
        S.KIND: F.lit(S.KIND_CHANGE),
        S.OPERATION: column(S.OPERATION),
        S.SEQUENCE: F.lit(place.sequence),
        S.COMMIT_TIME: F.timestamp_micros(F.lit(micros)),
        S.FILE: F.lit(place.file),
        S.FILE_TIME: F.lit(place.file_time),
        S.ROW: F.row_number().over(by_key).cast("long"),
        S.STEP: F.lit(S.STEP_ONLY),
    }
    fields = [given.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name) for field in S.RECORD_FIELDS]
    return rows.select(*fields, *columns(names))


def _place(progress: Progress, row: int) -> Place:
    """Return the place of a repair's row: its file name sorts after the last file and before the next one."""
    last = progress.last_place
    if last is None or not last.file_time:
        # There are only rows of the load so far, which come first. Without a file time this row would count as one.
        last = Place("", _BEFORE_ALL_FILES, "", 0)
    return Place(last.sequence, last.file_time, f"{last.file}~repair-{progress.op + 1}", row)


def _reached(following: Progress, before: Progress, rows: int, micros: int) -> Progress:
    newest = max(micros, before.newest_commit or micros)
    return replace(following, last_place=_place(before, rows), newest_commit=newest)


def _commit_micros(against: Against) -> int:
    if against.cut_off is not None and against.cut_off.micros is not None:
        return against.cut_off.micros
    return against.asked_us


def _require_exact(context: TableContext, examined: Examined) -> None:
    """Refuse a repair that cannot be exact.

    Raises:
        ConfigurationError: the table has no key, or the other copy lacks columns.
    """
    if not context.settings.primary_key:
        msg = (
            f"{context.table} has no key: its changelog holds inserts only, and a row that the other copy does not "
            "have cannot be taken away by one"
        )
        raise ConfigurationError(msg, hint=f"reload the table; or lakeward verify {context.table} --repair")
    sides = examined.sides
    if sides is not None and (lacking := [*sides.only_here, *sides.not_compared]):
        msg = f"{context.table} cannot be repaired from the other copy, which lacks {', '.join(lacking)}"
        raise ConfigurationError(msg, hint="compare with a copy that has every column")


def _require_lossless(context: TableContext, corrections: DataFrame, source: Sequence[Column]) -> None:
    """Refuse values that the mirror's types cannot hold exactly.

    Raises:
        DataError: there are such values.
    """
    there = {field.name: field.dataType.simpleString() for field in corrections.schema.fields}
    changed = [
        ~column(name).eqNullSafe(F.expr(f"CAST(try_cast({quote_name(name)} AS {lake_type}) AS {there[name]})"))
        for name, lake_type in ((lake_column.name, lake_column.lake_type) for lake_column in source)
        if there[name] != spark_type(lake_type).simpleString()
    ]
    if changed and corrections.filter(reduce(lambda left, right: left | right, changed)).take(1):
        msg = f"{context.table}: the other copy has values that the mirror's types cannot hold; nothing was written"
        raise DataError(msg, hint="declare wider types in schema:, and run the table once")


def _record(context: TableContext, bases: Bases, *, keys: int, reason: str) -> OpRecord:
    progress = progress_of(context, bases)
    number = progress.op + 1
    generation = progress.generations[-1].number
    return OpRecord(number, OpKind.REPAIR, generation, replace(progress, op=number), keys=keys, reason=reason)


def _execute(
    context: TableContext, bases: Bases, record: OpRecord, effect: Effect, rows: DataFrame | None, row_count: int
) -> OpReport:
    """Log and apply the op; ``rows`` are those for the changelog, None where it only records the repair."""
    started = time.monotonic()
    report = carry_out(context, PreparedOp(record, bases, bases.columns, (), (), (), rows, row_count, effect))
    return replace(report, seconds=time.monotonic() - started)
