"""Finish the op that a crash left logged but not applied.

A batch is applied from the changelog. A load is read again from its files, which the ledger names by content; where
they are gone or changed, the op is taken back and the files are new to the next one. No op is ever stuck.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward import schemas as S
from lakeward.errors import ConflictError, DataError
from lakeward.model import LandingFile, OpKind, Progress
from lakeward.pipeline.apply import is_load_written
from lakeward.pipeline.changelog import changes_of
from lakeward.pipeline.effect import Effect, OpInput, capture, strategy_of_first_load, work_out
from lakeward.pipeline.ledger import op_record
from lakeward.pipeline.planner import ApplyPlan, Strategy
from lakeward.pipeline.prepare import Prepared, read_work
from lakeward.pipeline.records import FileRecord, OpRecord
from lakeward.pipeline.undo.effect import undo_effect
from lakeward.pipeline.undo.files import notes
from lakeward.transforms.columns import column, conformed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from lakeward.errors import LakewardError
    from lakeward.pipeline.context import TableContext
    from lakeward.pipeline.effect import Bases
    from lakeward.pipeline.workspace import Workspace


def unfinished_op(context: TableContext, bases: Bases) -> int | None:
    """Give the number of the op that is logged and not applied."""
    if bases.applied > bases.logged:
        raise _mirror_is_ahead(context, bases)
    if bases.mirror is None:
        if bases.logged:
            msg = f"{context.table}: the changelog stands at op {bases.logged}, but the mirror is gone"
            hint = (
                f"restore {context.mirror.identifier} from a backup; or drop {context.changelog.identifier} too and "
                f"run again: the table is then built anew from the landing files"
            )
            raise DataError(msg, hint=hint)
        return None
    return bases.logged if bases.logged > bases.applied else None


def _mirror_is_ahead(context: TableContext, bases: Bases) -> LakewardError:
    """Say that the changelog was lost or cut back: its files would be read again, twice where there is no key."""
    if capture(context).logged >= bases.applied:
        return ConflictError(f"{context.table}: another writer published while this one looked")
    found = "the changelog is gone" if bases.changelog is None else f"the changelog stands at op {bases.logged}"
    msg = f"{context.table}: the mirror stands at op {bases.applied}, but {found}"
    hint = (
        f"restore {context.changelog.identifier} from a backup; or drop {context.mirror.identifier} too and run again: "
        f"the table is then built anew from the landing files"
    )
    return DataError(msg, hint=hint)


def prepare_unfinished(context: TableContext, workspace: Workspace, op: int, bases: Bases) -> Prepared:
    """Prepare the rest of a logged op; its void where it can no longer be finished."""
    log = context.changelog.read(context.changelog.require_head().id if bases.changelog is None else bases.changelog.id)
    record = op_record(log, op)
    files = tuple(_file_records(log, op))
    if record.kind is OpKind.LOAD:
        return _prepare_load(context, workspace, record, bases, files)
    columns = context.mirror.columns()
    if record.kind is OpKind.UNDO:
        effect = undo_effect(context, workspace, record, bases)
        return Prepared(record, bases, columns, (), files, (), None, 0, effect, is_logged=True)
    changes = conformed(changes_of(log, op), columns, {})
    rows = sum(one.summary.rows - one.summary.bad for one in files)
    effect = work_out(context, workspace, OpInput(record, bases, columns, changes, rows))
    return Prepared(record, bases, columns, (), files, (), None, 0, effect, is_logged=True)


def _prepare_load(
    context: TableContext, workspace: Workspace, record: OpRecord, bases: Bases, files: tuple[FileRecord, ...]
) -> Prepared:
    columns = context.mirror.columns()
    if record.starts and is_load_written(context, record):
        plan = ApplyPlan(strategy_of_first_load(context, bases), "the load was written before the interruption")
        return Prepared(record, bases, columns, (), files, (), None, 0, Effect(plan), is_logged=True)
    parts = [one for one in files if one.was_read]
    landing = [_landing_file(context, one) for one in parts]
    generation = record.progress.generations[-1]
    columns, records, summaries = read_work(context, workspace, generation, landing, columns, erased=bases.erased)
    found = {one.path: one.content_hash for one in summaries if one.stable}
    if records is None or found != {one.summary.path: one.summary.content_hash for one in parts}:
        return _prepare_void(context, record, bases)
    changes = records.filter(column(S.KIND) == S.KIND_CHANGE)
    given = OpInput(record, bases, columns, changes, sum(one.rows - one.bad for one in summaries))
    effect = work_out(context, workspace, given)
    return Prepared(record, bases, columns, (), files, (), None, 0, effect, is_logged=True)


def _prepare_void(context: TableContext, record: OpRecord, bases: Bases) -> Prepared:
    """Take a load back whose files are no longer what was logged; they are new to the next op."""
    log = context.changelog.read(context.changelog.require_head().id)
    before = op_record(log, record.op - 1).progress if record.op > 1 else Progress()
    void = OpRecord(
        op=record.op + 1,
        kind=OpKind.VOID,
        generation=record.generation,
        progress=before.after_undoing(record.op + 1, back_to=record.op - 1),
        back_to=record.op - 1,
    )
    plan = ApplyPlan(Strategy.LOG_ONLY, f"the files of op {record.op} changed before it was applied: it is taken back")
    files = notes(log, record.progress, void)
    return Prepared(void, bases, context.mirror.columns(), (), files, (), None, 0, Effect(plan))


def _file_records(log: DataFrame, op: int) -> Iterator[FileRecord]:
    own = (column(S.KIND) == S.KIND_FILE) & (column(S.OP) == op)
    for row in log.filter(own).select(S.DETAIL).toLocalIterator():
        yield FileRecord.from_json(row[0])


def _landing_file(context: TableContext, record: FileRecord) -> LandingFile:
    found = record.summary
    location = context.storage.location(found.path)
    return LandingFile(found.path, location, found.file_class, found.time, found.identity)
