"""Ops that an undo takes back, or lets stand again, in the changelog; and their files.

Files of ops that are taken back are new to the next run, unless they are fenced.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakeward import schemas as S
from lakeward.errors import BugError, ConfigurationError
from lakeward.mirror.op.changelog import FileRecord
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
_NOTES = tuple(one.value for one in Disposition if one.is_note)


def pinned_log(context: TableContext, bases: Bases) -> DataFrame:
    """Read the changelog as it was captured."""
    if bases.changelog is None:
        msg = f"{context.table}: an undo needs a changelog"
        raise BugError(msg)
    return context.changelog.read(bases.changelog.id)


def is_newly_undone(before: Progress, record: OpRecord) -> Column:
    """Tell rows of ops that stood before an undo and do not after it."""
    return is_earlier(record) & is_standing(before.undone) & ~is_standing(record.progress.undone)


def is_redone(before: Progress, record: OpRecord) -> Column:
    """Tell rows of ops that did not stand before an undo and do after it: it undoes an undo."""
    return is_earlier(record) & ~is_standing(before.undone) & is_standing(record.progress.undone)


def is_earlier(record: OpRecord) -> Column:
    """Tell rows of ops before this one."""
    return column(S.OP) < F.lit(record.op)


def is_op_row() -> Column:
    """Tell the one row that says what an op did."""
    return (column(S.KIND) == S.KIND_CONTROL) & column(S.FILE).isNull()


@dataclass(frozen=True)
class FileList:
    """How many files ops have read, the first of them by path, and those that the ops fenced."""

    count: int
    paths: tuple[str, ...]
    fenced: tuple[str, ...] = ()


def files_of(log: DataFrame, ops: Column, *, limit: int) -> FileList:
    """Return the files that certain ops have read or fenced."""
    fenced = f"{S.PREFIX}fenced"
    own = log.filter((column(S.KIND) == S.KIND_FILE) & ops & (_was_read() | _was_fenced()))
    files = own.select(S.FILE, _was_fenced().alias(fenced)).distinct()
    # Fenced ones, of which there are few, come first; one more than wanted tells whether counting is needed at all.
    rows = files.orderBy(column(fenced).desc_nulls_last(), column(S.FILE).asc_nulls_first()).limit(limit + 1).collect()
    read = tuple(row[0] for row in rows if not row[1])
    count = files.filter(~column(fenced)).count() if len(rows) > limit else len(read)
    return FileList(count, read[:limit], tuple(row[0] for row in rows if row[1]))


def fences(context: TableContext, log: DataFrame, record: OpRecord, paths: Collection[str]) -> tuple[FileRecord, ...]:
    """Return the file rows that fence files of ops which do not stand after an undo.

    Raises:
        ConfigurationError: a path is not one of theirs, or a load part.
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
    """Return what only ops that are taken back know of files whose consumption still stands: their newest content.

    These are copies that came, and files that an erasure rewrote. They are in landing as before the undo: without a
    note the next run would take a load part for a reload, and a change file for one that was changed.
    """
    own = log.filter((column(S.KIND) == S.KIND_FILE) & is_earlier(record))
    noted = own.filter(is_newly_undone(before, record) & _was_noted()).select(S.FILE).distinct()
    rows = own.join(noted, on=S.FILE, how="left_semi").select(S.FILE, S.OP, S.GENERATION, S.DETAIL)
    ordered = rows.orderBy(column(S.FILE).asc_nulls_first(), column(S.OP).asc_nulls_first()).toLocalIterator()
    found = (kept_note(one, before, record.progress) for _, one in groupby(ordered, key=lambda row: row[0]))
    return tuple(one for one in found if one is not None)


def kept_note(rows: Iterable[Row | tuple[str, int, int, str]], before: Progress, after: Progress) -> FileRecord | None:
    """Return note of a file that stands ``before`` and not ``after``; None: there is none, or the file was read anew.

    ``rows`` are path, op, generation and detail of all the file's records, by op. Of two ops that read the same content
    for one generation, the one before an undo and the other after it, either is as good: a note made for one holds for
    the other.
    """
    note, decided_before, decided_after = None, None, None
    # What a content is at bottom: that which was read first, before it was copied or rewritten.
    origins: dict[str, str] = {}
    newest = ""
    for _, op, generation, detail in rows:
        one = FileRecord.from_json(detail)
        stood, stands = (not is_undone(op, progress.undone) for progress in (before, after))
        is_note, content = one.disposition.is_note, one.summary.content_hash
        origin = origins.setdefault(content, origins.get(newest, newest) if is_note else content)
        newest = content
        if not is_note:
            decided = one.disposition, one.generation or generation, origin
            decided_before, note = (decided, None) if stood else (decided_before, note)
            decided_after = decided if stands else decided_after
        elif stood:
            note = None if stands else replace(one, generation=one.generation or generation)
    return note if decided_before == decided_after else None


def _records(log: DataFrame, record: OpRecord, paths: Collection[str]) -> dict[str, FileRecord]:
    """Return the newest record of each file that only ops which do not stand have read."""
    if not paths:
        return {}
    rows = log.filter((column(S.KIND) == S.KIND_FILE) & is_earlier(record) & column(S.FILE).isin(*paths))
    found: dict[str, FileRecord] = {}
    standing: set[str] = set()
    for row in rows.select(S.OP, S.FILE, S.DETAIL).orderBy(column(S.OP).asc_nulls_first()).toLocalIterator():
        one = FileRecord.from_json(row[2])
        if is_undone(row[0], record.progress.undone):
            if one.was_read or one.disposition is Disposition.FENCED:
                found[row[1]] = one
        elif one.was_read:
            standing.add(row[1])
    return {path: value for path, value in found.items() if path not in standing}


def _not_undone(context: TableContext, log: DataFrame, record: OpRecord, strange: Sequence[str]) -> ConfigurationError:
    gone = is_earlier(record) & ~is_standing(record.progress.undone)
    there = files_of(log, gone, limit=_NAMED)
    shown = "".join(f"\n  {path}" for path in there.paths) or " none"
    more = f"\n  and {there.count - _NAMED:,} more" if there.count > _NAMED else ""
    msg = (
        f"{context.table}: no op that is taken back has read {', '.join(strange)}; those that it has read:{shown}{more}"
    )
    return ConfigurationError(msg, hint="give paths as they are listed, under landing")


def _was_read() -> Column:
    """Tell file rows as :attr:`FileRecord.was_read` does."""
    disposition, file_class = (
        F.get_json_object(column(S.DETAIL), one) for one in ("$.disposition", "$.file.file_class")
    )
    left_over = (disposition == Disposition.SUPERSEDED.value) & (file_class == FileClass.LOAD.value)
    return ~disposition.isin(*_NOTES, Disposition.FENCED.value) & ~left_over


def _was_fenced() -> Column:
    return F.get_json_object(column(S.DETAIL), "$.disposition") == Disposition.FENCED.value


def _was_noted() -> Column:
    return F.get_json_object(column(S.DETAIL), "$.disposition").isin(*_NOTES)
