"""Prepare an op without writing: read, check, fold and plan what was chosen. `plan` shows it, `run` carries it out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakeward import schemas as S
from lakeward.errors import BugError, ConfigurationError, DataError
from lakeward.model import Disposition, FileClass, OpKind, OrderBy, Progress
from lakeward.pipeline import check
from lakeward.pipeline.cut import require_fitting_times, require_new_keys, require_parts_apart, with_cut
from lakeward.pipeline.effect import Effect, OpInput, load_rows, work_out
from lakeward.pipeline.erase.rows import without_erased
from lakeward.pipeline.reading import read_records
from lakeward.pipeline.records import FileRecord, OpRecord
from lakeward.pipeline.schema import describe_changes, known_columns, require_names, require_usable, with_file_columns
from lakeward.pipeline.steps import Step
from lakeward.pipeline.work import Waiting
from lakeward.sources.base import ReadSpec
from lakeward.sources.dms.parquet import parquet_columns
from lakeward.sources.dms.problems import UnusableFileError
from lakeward.transforms.columns import column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from lakeward.datatypes import Column
    from lakeward.model import Generation, LandingFile, Place
    from lakeward.pipeline.context import TableContext
    from lakeward.pipeline.effect import Bases
    from lakeward.pipeline.erase.erased import ErasedKeys
    from lakeward.pipeline.work import Work
    from lakeward.pipeline.workspace import Workspace
    from lakeward.sources.base import FileSummary

# A file's columns are learnt while it is read; each round can only add or widen, so this many never happen.
_SCHEMA_ROUNDS = 5


@dataclass(frozen=True)
class Prepared:
    """An op ready to be logged and applied.

    ``rows`` holds the changes and bad rows to log, ``row_count`` of them; ``is_logged`` says that a crash came after
    that step, ``is_last`` that nothing else waits.
    """

    record: OpRecord
    bases: Bases
    columns: tuple[Column, ...]
    schema_changes: tuple[str, ...]
    files: tuple[FileRecord, ...]
    unstable: tuple[str, ...]
    rows: DataFrame | None
    row_count: int
    effect: Effect
    is_logged: bool = False
    is_last: bool = False

    @property
    def summaries(self) -> list[FileSummary]:
        """What was read, file by file; files that were only taken note of are left out."""
        return [one.summary for one in self.files if one.was_read]


def prepare(
    context: TableContext, workspace: Workspace, work: Work, progress: Progress, bases: Bases
) -> Prepared | Waiting:
    """Read, check, fold and plan one op; where change files must be applied before a load, plan these.

    Raises:
        DataError: the input is refused; nothing was written.
    """
    before = bases.columns
    context.adapt_plans(wanted=False)
    columns, records, summaries = read_work(
        context, workspace, work.generation, work.files, before, erased=bases.erased
    )
    stable = [one for one in summaries if one.stable]
    unstable = tuple(one.path for one in summaries if not one.stable)
    if records is not None:
        records = _taking_part(records, unstable)
        check.require_good_rows(context, records, stable, columns)
        check.require_clear_keys(context, records, stable, columns, bases)
    if work.files and (not stable or (unstable and work.kind is OpKind.LOAD)):
        return Waiting(f"{len(unstable)} files are still being written: {', '.join(unstable[:3])}")
    if work.kind is OpKind.LOAD:
        decided = with_cut(context, work, progress, columns, stable)
        if decided.kind is not OpKind.LOAD:
            return prepare(context, workspace, decided, progress, bases)
        work = decided
    else:
        require_fitting_times(context, work, progress, stable)
    context.reached(Step.CHECK_READ)
    record = _op_record(context, work, progress, stable)
    given = OpInput(record, bases, columns, _only_changes(records), _good_rows(stable))
    if work.kind is OpKind.LOAD:
        _require_one_load(context, work, given, stable)
    effect = work_out(context, workspace, given)
    if effect.folded is not None and work.kind is OpKind.BATCH:
        check.require_delete_share(context, effect, columns, bases.mirror)
    if effect.load_rows is not None and work.starts:
        check.require_reload_size(context, effect, bases.mirror)
    context.reached(Step.CHECK_FOLD)
    changes = describe_changes(before, columns, context.settings.renames)
    files = tuple(_file_record(one, record) for one in stable) + work.notes
    rows, count = _to_log(records, work.kind, stable)
    is_last = work.is_last and not unstable
    return Prepared(record, bases, columns, changes, files, unstable, rows, count, effect, is_last=is_last)


def _require_one_load(context: TableContext, work: Work, given: OpInput, parts: Sequence[FileSummary]) -> None:
    """Refuse parts that share keys with each other, in a reload, or with the load that they would join."""
    if not context.settings.primary_key or given.changes is None:
        return
    if not work.starts:
        earlier = load_rows(context, given.record.generation, given)
        if earlier is not None:
            require_new_keys(earlier, given.changes, context, parts)
    elif given.record.generation > 1 and not work.earlier:
        require_parts_apart(given.changes, context, parts)


def read_work(
    context: TableContext,
    workspace: Workspace,
    generation: Generation,
    files: Sequence[LandingFile],
    mirror_columns: Sequence[Column],
    *,
    erased: ErasedKeys | None,
) -> tuple[tuple[Column, ...], DataFrame | None, list[FileSummary]]:
    """Read files under the table's schema, evolving it until every file fits; rows of erased keys are left out."""
    settings = context.settings
    columns = known_columns(context.table, mirror_columns, settings.columns, settings.renames)
    if not files:
        require_names(context.table, columns, settings, mirror_columns)
        return columns, None, []
    columns = columns or _columns_of_first(context, files)
    for _ in range(_SCHEMA_ROUNDS):
        require_usable(context.table, columns, settings, mirror_columns)
        spec = ReadSpec(context.table, columns, settings, generation.order_by)
        records, summaries = read_records(context.spark, workspace, context.storage, context.transactions, files, spec)
        check.require_readable(context, [one for one in summaries if one.stable])
        evolved = with_file_columns(context.table, columns, summaries, settings)
        if evolved == columns:
            return columns, *without_erased(workspace, records, summaries, spec, erased)
        columns = evolved
    msg = f"{context.table}: the schema did not settle after {_SCHEMA_ROUNDS} readings"
    raise BugError(msg)


def _columns_of_first(context: TableContext, files: Sequence[LandingFile]) -> tuple[Column, ...]:
    """Learn the schema of a table never seen from a Parquet file's footer; CSV tells no types."""
    for file in sorted(files, key=lambda one: one.order):
        if ".parquet" in file.path:
            return _footer_columns(context, file)
    msg = f"{context.table}: no schema: CSV files do not tell types, and they are never guessed"
    hint = f"declare it in lakeward.yaml: tables: {{{context.table}: {{schema: 'id int, name string, …'}}}}"
    raise ConfigurationError(msg, hint=hint)


def _footer_columns(context: TableContext, file: LandingFile) -> tuple[Column, ...]:
    try:
        with context.storage.spool(file.path) as (local_path, _):
            return parquet_columns(local_path, context.settings)
    except (UnusableFileError, OSError, pa.ArrowException) as error:
        msg = f"{context.table}: {file.path} cannot be used: {error}"
        raise DataError(msg, hint=f"repair or remove it, then: lakeward run {context.table}") from error


def _op_record(context: TableContext, work: Work, progress: Progress, summaries: Sequence[FileSummary]) -> OpRecord:
    """Number the op and say how far the table is once it is logged."""
    changes = [one for one in summaries if one.file_class is not FileClass.LOAD]
    generation = replace(work.generation, order_by=check.common_order(context, work.generation.order_by, changes))
    known = (*progress.generations, *work.earlier)
    earlier = tuple(one for one in known if one.number != generation.number)
    generations = tuple(sorted((*earlier, generation), key=lambda one: one.number))
    is_current = generations[-1] is generation
    reached_before = progress.last_place if is_current and not work.starts else None
    firsts = [one.first for one in changes if one.first is not None]
    lasts = [one.last for one in changes if one.last is not None]
    newest = max([*lasts, *([reached_before] if reached_before else [])], default=None)
    commits = [one.newest_commit for one in changes] + ([progress.newest_commit] if not work.starts else [])
    newest_commit = max((one for one in commits if one is not None), default=None)
    reached = (newest, newest_commit) if is_current else (progress.last_place, progress.newest_commit)
    before = replace(progress, newest_commit=None, moved_until=None) if work.starts else progress
    moves = any(one.moves for one in changes)
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
        ),
        starts=work.starts,
        late=bool(
            firsts
            and reached_before
            and (_reaches_back(context, generation, min(firsts), reached_before) or _continues_commit(before, changes))
        ),
        partial=any(one.partial for one in changes),
        moves=moves,
        decision=work.decision,
    )


def _newest_file(work: Work, progress: Progress, summaries: Sequence[FileSummary]) -> int | None:
    """Return the latest modification time among the newest generation's files once the op is logged."""
    times = [one.identity.mtime_us for one in summaries]
    if not work.starts and progress.newest_file is not None:
        times.append(progress.newest_file)
    return max(times, default=None)


def _continues_commit(progress: Progress, summaries: Sequence[FileSummary]) -> bool:
    """Whether changes may belong to a commit with key changes that is logged in part: it is then folded whole.

    Without commit times nothing tells where a commit ends, and every key change may continue one.
    """
    oldest = [one.oldest_commit for one in summaries if one.first is not None]
    known = [one for one in oldest if one is not None]
    if len(known) < len(oldest) or progress.newest_commit is None:
        return any(one.moves for one in summaries)
    first = min(known)
    goes_on = progress.moved_until is not None and first <= progress.moved_until
    return goes_on or (first <= progress.newest_commit and any(one.moves for one in summaries))


def _reaches_back(context: TableContext, generation: Generation, first: Place, reached: Place) -> bool:
    """Tell whether changes come before others that are already applied.

    Without a key, a change sequence sent again is a repeat, the last one in a newer file too: only looking back tells.
    """
    if generation.order_by is OrderBy.SEQUENCE and not context.settings.primary_key:
        return first.sequence <= reached.sequence
    return first < reached


def _file_record(summary: FileSummary, record: OpRecord) -> FileRecord:
    if record.generation < record.progress.generations[-1].number:
        return FileRecord(summary, Disposition.SUPERSEDED)
    return FileRecord(summary, Disposition.CONSUMED if summary.rows else Disposition.EMPTY)


def _taking_part(records: DataFrame, unstable: Sequence[str]) -> DataFrame:
    rows = records.filter(column(S.KIND).isin(S.KIND_CHANGE, S.KIND_BAD))
    return rows.filter(~column(S.FILE).isin(*unstable)) if unstable else rows


def _only_changes(records: DataFrame | None) -> DataFrame | None:
    return records.filter(column(S.KIND) == S.KIND_CHANGE) if records is not None else None


def _good_rows(summaries: Sequence[FileSummary]) -> int:
    return sum(one.rows - one.bad for one in summaries)


def _to_log(records: DataFrame | None, kind: OpKind, summaries: Sequence[FileSummary]) -> tuple[DataFrame | None, int]:
    """Give what the changelog keeps. Load rows go to the mirror and not through it; their bad rows do."""
    if records is None or kind is not OpKind.LOAD:
        return records, sum(one.rows + one.moves for one in summaries)
    return records.filter(column(S.KIND) == S.KIND_BAD), sum(one.bad for one in summaries)
