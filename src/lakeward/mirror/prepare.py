"""Prepare an op without writing: read, check, fold and plan the chosen files.

`plan` shows the result, `run` carries it out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakeward import schemas as S
from lakeward.mirror.kinds import handler_of
from lakeward.mirror.op import check
from lakeward.mirror.op.adopted import FORMER
from lakeward.mirror.op.changelog import FileRecord, OpRecord
from lakeward.mirror.op.context import Waiting
from lakeward.mirror.op.effect import OpInput, PreparedOp
from lakeward.mirror.op.reading import read_work
from lakeward.mirror.op.schema import describe_changes
from lakeward.mirror.op.steps import Step
from lakeward.model import Disposition, FileClass, OrderBy, Progress
from lakeward.transforms.columns import column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from lakeward.formats.base import FileSummary
    from lakeward.mirror.op.context import TableContext, Work
    from lakeward.mirror.op.effect import Bases
    from lakeward.model import Generation, Place
    from lakeward.spark.workspace import Workspace


def prepare(
    context: TableContext, workspace: Workspace, work: Work, progress: Progress, bases: Bases
) -> PreparedOp | Waiting:
    """Read, check, fold and plan one op; where change files must be applied before a load, plan those first.

    Raises:
        DataError: the input is refused; nothing was written.
    """
    before = bases.columns
    context.adapt_plans(wanted=False)
    columns, records, summaries = read_work(
        context, workspace, work.generation, work.files, before, op=progress.op + 1, erased=bases.erased
    )
    stable = [summary for summary in summaries if summary.stable]
    unstable = tuple(summary.path for summary in summaries if not summary.stable)
    if records is not None:
        records = _without_files(records, unstable)
        check.require_good_rows(context, records, stable, columns)
        check.require_clear_keys(context, records, stable, columns, bases)
    handler = handler_of(work.kind)
    if work.files and (not stable or (unstable and handler.needs_every_file)):
        return Waiting(f"{len(unstable)} files are still being written: {', '.join(unstable[:3])}")
    decided = handler.decide(context, work, progress, columns, stable)
    if decided.kind is not work.kind:
        return prepare(context, workspace, decided, progress, bases)
    context.reached(Step.CHECK_READ)
    record = _op_record(context, decided, progress, stable)
    op_input = OpInput(record, bases, columns, _only_changes(records), _good_rows(stable))
    handler.check_input(context, decided, op_input, stable)
    effect = handler.compute_effect(context, workspace, op_input)
    handler.check_effect(context, decided, effect, columns, bases.mirror)
    context.reached(Step.CHECK_FOLD)
    changes = describe_changes(before, columns, context.settings.renames)
    files = _file_records(context, stable, record, decided.notes)
    rows, count = handler.rows_to_log(records, stable)
    is_last = decided.is_last and not unstable
    return PreparedOp(record, bases, columns, changes, files, unstable, rows, count, effect, is_last=is_last)


def _op_record(context: TableContext, work: Work, progress: Progress, summaries: Sequence[FileSummary]) -> OpRecord:
    """Return the record of the op: its number, and the progress of the table once it is logged."""
    changes = [summary for summary in summaries if summary.file_class is not FileClass.LOAD]
    generation = replace(work.generation, order_by=check.common_order(context, work.generation.order_by, changes))
    known = (*progress.generations, *work.earlier)
    earlier = tuple(other for other in known if other.number != generation.number)
    generations = tuple(sorted((*earlier, generation), key=lambda generation: generation.number))
    is_current = generations[-1] is generation
    reached_before = progress.last_place if is_current and not work.starts else None
    firsts = [change.first for change in changes if change.first is not None]
    lasts = [change.last for change in changes if change.last is not None]
    newest = max([*lasts, *([reached_before] if reached_before else [])], default=None)
    commits = [change.newest_commit for change in changes] + ([progress.newest_commit] if not work.starts else [])
    newest_commit = max((commit for commit in commits if commit is not None), default=None)
    reached = (newest, newest_commit) if is_current else (progress.last_place, progress.newest_commit)
    before = replace(progress, newest_commit=None, moved_until=None) if work.starts else progress
    ignored = (0 if work.starts else progress.rows_ignored) + sum(change.ignored for change in changes)
    moves = any(change.moves for change in changes)
    moved_until = newest_commit if moves and is_current else before.moved_until
    return OpRecord(
        op=progress.op + 1,
        kind=work.kind,
        generation=generation.number,
        progress=Progress(
            op=progress.op + 1,
            generations=generations,
            last_place=reached[0],
            newest_commit=reached[1],
            undone=progress.undone,
            newest_file=_newest_file(work, progress, summaries),
            moved_until=moved_until,
            rows_ignored=ignored if is_current else progress.rows_ignored,
        ),
        starts=work.starts,
        late=bool(
            firsts
            and reached_before
            and (_reaches_back(context, generation, min(firsts), reached_before) or _continues_commit(before, changes))
        ),
        partial=any(change.partial for change in changes),
        moves=moves,
        decision=work.decision,
    )


def _newest_file(work: Work, progress: Progress, summaries: Sequence[FileSummary]) -> int | None:
    """Return the latest modification time among the newest generation's files once the op is logged."""
    times = [summary.identity.mtime_us for summary in summaries]
    if not work.starts and progress.newest_file is not None:
        times.append(progress.newest_file)
    return max(times, default=None)


def _continues_commit(progress: Progress, summaries: Sequence[FileSummary]) -> bool:
    """Whether changes may belong to a commit with key changes that is already logged in part.

    Such a commit must be folded as a whole. Without commit times its end is unknown, and every key
    change may belong to it.
    """
    oldest = [summary.oldest_commit for summary in summaries if summary.first is not None]
    known = [commit for commit in oldest if commit is not None]
    if len(known) < len(oldest) or progress.newest_commit is None:
        return any(summary.moves for summary in summaries)
    first = min(known)
    continues = progress.moved_until is not None and first <= progress.moved_until
    return continues or (first <= progress.newest_commit and any(summary.moves for summary in summaries))


def _reaches_back(context: TableContext, generation: Generation, first: Place, reached: Place) -> bool:
    """Whether changes come before others that are already applied.

    In a table without a key, a change whose sequence was seen before is a repeat, even in a newer file: only
    earlier changes show that.
    """
    if generation.order_by is OrderBy.SEQUENCE and not context.settings.primary_key:
        return first.sequence <= reached.sequence
    return first < reached


def _file_records(
    context: TableContext, summaries: Sequence[FileSummary], record: OpRecord, notes: Sequence[FileRecord]
) -> tuple[FileRecord, ...]:
    """Return the records of an op's files; that of a file which was read contains the number it has received."""
    read = {summary.path for summary in summaries}
    kept = (note for note in notes if note.disposition is not Disposition.ARRIVED or note.summary.path not in read)
    return (*(_file_record(context, summary, record) for summary in summaries), *kept)


def _file_record(context: TableContext, summary: FileSummary, record: OpRecord) -> FileRecord:
    if context.storage.below_lake(summary.path) is not None:
        return FileRecord(summary, Disposition.CONSUMED, generation=FORMER)
    if record.generation < record.progress.generations[-1].number:
        return FileRecord(summary, Disposition.SUPERSEDED)
    return FileRecord(summary, Disposition.CONSUMED if summary.rows or summary.ignored else Disposition.EMPTY)


def _without_files(records: DataFrame, unstable: Sequence[str]) -> DataFrame:
    """Return the changes and bad rows, without those of files that are still being written."""
    rows = records.filter(column(S.KIND).isin(S.KIND_CHANGE, S.KIND_BAD))
    return rows.filter(~column(S.FILE).isin(*unstable)) if unstable else rows


def _only_changes(records: DataFrame | None) -> DataFrame | None:
    return records.filter(column(S.KIND) == S.KIND_CHANGE) if records is not None else None


def _good_rows(summaries: Sequence[FileSummary]) -> int:
    return sum(summary.rows - summary.bad for summary in summaries)
