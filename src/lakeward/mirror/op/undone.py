"""Ops in the changelog that an undo undoes or restores, and their files.

Files of ops that are undone are new to the next run, unless they are fenced.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakeward import schemas as S
from lakeward.errors import BugError, ConfigurationError
from lakeward.mirror.op.changelog import UNREAD, FileRecord
from lakeward.mirror.op.checkpoints import is_undone
from lakeward.model import Disposition, FileClass
from lakeward.transforms.columns import column
from lakeward.transforms.fold import is_standing

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from pyspark.sql import Column, DataFrame, Row

    from lakeward.mirror.op.changelog import OpRecord
    from lakeward.mirror.op.context import TableContext
    from lakeward.mirror.op.effect import Bases
    from lakeward.model import Progress

_NAMED = 20
_NOTES = tuple(disposition.value for disposition in Disposition if disposition.is_note)


def pinned_log(context: TableContext, bases: Bases) -> DataFrame:
    """Return the changelog at the captured snapshot."""
    if bases.changelog is None:
        msg = f"{context.table}: an undo needs a changelog"
        raise BugError(msg)
    return context.changelog.read(bases.changelog.id)


def is_newly_undone(before: Progress, record: OpRecord) -> Column:
    """Return the condition for rows of ops that counted before an undo and no longer do."""
    return is_earlier(record) & is_standing(before.undone) & ~is_standing(record.progress.undone)


def is_redone(before: Progress, record: OpRecord) -> Column:
    """Return the condition for rows of ops that count again after an undo: it undoes an earlier undo."""
    return is_earlier(record) & ~is_standing(before.undone) & is_standing(record.progress.undone)


def is_earlier(record: OpRecord) -> Column:
    """Return the condition for rows of earlier ops."""
    return column(S.OP) < F.lit(record.op)


def is_op_row() -> Column:
    """Return the condition for the control row of an op itself."""
    return (column(S.KIND) == S.KIND_CONTROL) & column(S.FILE).isNull()


@dataclass(frozen=True)
class FileList:
    """The number of files that ops have read, the first paths of them, and the files that the ops fenced."""

    count: int
    paths: tuple[str, ...]
    fenced: tuple[str, ...] = ()


def files_of(log: DataFrame, ops: Column, *, limit: int) -> FileList:
    """Return the files that certain ops have read or fenced."""
    fenced = f"{S.PREFIX}fenced"
    own = log.filter((column(S.KIND) == S.KIND_FILE) & ops & (_was_read() | _was_fenced()))
    files = own.select(S.FILE, _was_fenced().alias(fenced)).distinct()
    # Fenced files are few and come first; one row beyond the limit shows whether a count is needed at all.
    rows = files.orderBy(column(fenced).desc_nulls_last(), column(S.FILE).asc_nulls_first()).limit(limit + 1).collect()
    read = tuple(row[0] for row in rows if not row[1])
    count = files.filter(~column(fenced)).count() if len(rows) > limit else len(read)
    return FileList(count, read[:limit], tuple(row[0] for row in rows if row[1]))


def fences(context: TableContext, log: DataFrame, record: OpRecord, paths: Collection[str]) -> tuple[FileRecord, ...]:
    """Return the records that fence files of ops that are undone.

    Raises:
        ConfigurationError: a path is not among their files, or is a load part.
    """
    found = _records(log, record, paths)
    if strange := sorted(path for path in paths if path not in found):
        raise _not_undone(context, log, record, strange)
    if loads := sorted(path for path, value in found.items() if value.summary.file_class is FileClass.LOAD):
        msg = f"{context.table}: {', '.join(loads)} is a load part and cannot be fenced: a later load has the same name"
        hint = "take the file out of landing, or put the right one in its place, and undo without --skip-file"
        raise ConfigurationError(msg, hint=hint)
    return tuple(FileRecord(found[path].summary, Disposition.FENCED) for path in sorted(found))


def notes(log: DataFrame, before: Progress, record: OpRecord) -> tuple[FileRecord, ...]:
    """Return notes on files that stay consumed although the ops that recorded their newest content are undone.

    These are copies that arrived, and files that an erasure rewrote. They stay in landing: without a note the next run
    would take a load part for a reload, and a change file for a changed one.
    """
    own = log.filter((column(S.KIND) == S.KIND_FILE) & is_earlier(record))
    noted = own.filter(is_newly_undone(before, record) & _was_noted()).select(S.FILE).distinct()
    rows = own.join(noted, on=S.FILE, how="left_semi").select(S.FILE, S.OP, S.GENERATION, S.DETAIL)
    ordered = rows.orderBy(column(S.FILE).asc_nulls_first(), column(S.OP).asc_nulls_first()).toLocalIterator()
    found = (kept_note(group, before, record.progress) for _, group in groupby(ordered, key=lambda row: row[0]))
    return tuple(note for note in found if note is not None)


def kept_note(rows: Iterable[Row | tuple[str, int, int, str]], before: Progress, after: Progress) -> FileRecord | None:
    """Return the note on a file that counts ``before`` and not ``after``.

    Returns None where there is none, or where the file was read again. ``rows`` are path, op, generation and detail of
    all the file's records, by op. Two ops that read the same content for the same generation, one before an undo and
    one after it, are equivalent: a note on one holds for the other.
    """
    note, decided_before, decided_after = None, None, None
    # Maps each content to the content that was read first, before it was copied or rewritten.
    origins: dict[str, str] = {}
    newest = ""
    for _, op, generation, detail in rows:
        file = FileRecord.from_json(detail)
        if file.disposition is Disposition.ARRIVED:
            continue  # its number counts whatever is undone
        counted_before, counts_after = (not is_undone(op, progress.undone) for progress in (before, after))
        is_note, content = file.disposition.is_note, file.summary.content_hash
        origin = origins.setdefault(content, origins.get(newest, newest) if is_note else content)
        newest = content
        if not is_note:
            decided = file.disposition, file.generation or generation, origin
            decided_before, note = (decided, None) if counted_before else (decided_before, note)
            decided_after = decided if counts_after else decided_after
        elif counted_before:
            note = None if counts_after else replace(file, generation=file.generation or generation)
    return note if decided_before == decided_after else None


def _records(log: DataFrame, record: OpRecord, paths: Collection[str]) -> dict[str, FileRecord]:
    """Return the newest record of each file that only undone ops have read."""
    if not paths:
        return {}
    rows = log.filter((column(S.KIND) == S.KIND_FILE) & is_earlier(record) & column(S.FILE).isin(*paths))
    found: dict[str, FileRecord] = {}
    standing: set[str] = set()
    for row in rows.select(S.OP, S.FILE, S.DETAIL).orderBy(column(S.OP).asc_nulls_first()).toLocalIterator():
        file = FileRecord.from_json(row[2])
        if is_undone(row[0], record.progress.undone):
            if file.was_read or file.disposition is Disposition.FENCED:
                found[row[1]] = file
        elif file.was_read:
            standing.add(row[1])
    return {path: value for path, value in found.items() if path not in standing}


def _not_undone(context: TableContext, log: DataFrame, record: OpRecord, strange: Sequence[str]) -> ConfigurationError:
    gone = is_earlier(record) & ~is_standing(record.progress.undone)
    there = files_of(log, gone, limit=_NAMED)
    shown = "".join(f"\n  {path}" for path in there.paths) or " none"
    more = f"\n  and {there.count - _NAMED:,} more" if there.count > _NAMED else ""
    msg = f"{context.table}: none of the ops to be undone has read {', '.join(strange)}; they have read:{shown}{more}"
    return ConfigurationError(msg, hint="name paths under landing as they are listed")


def _was_read() -> Column:
    """Return the condition for file rows that corresponds to :attr:`FileRecord.was_read`."""
    disposition, file_class = (
        F.get_json_object(column(S.DETAIL), path) for path in ("$.disposition", "$.file.file_class")
    )
    left_over = (disposition == Disposition.SUPERSEDED.value) & (file_class == FileClass.LOAD.value)
    return ~disposition.isin(*_NOTES, *UNREAD) & ~left_over


def _was_fenced() -> Column:
    return F.get_json_object(column(S.DETAIL), "$.disposition") == Disposition.FENCED.value


def _was_noted() -> Column:
    return F.get_json_object(column(S.DETAIL), "$.disposition").isin(*_NOTES)
