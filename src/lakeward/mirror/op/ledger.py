"""The ledger: which files a table has consumed, and its progress.

The changelog's control rows are the truth. The state store caches them for exactly one changelog snapshot; when the
cache belongs to another snapshot, or is gone, it is rebuilt from the changelog.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakeward import schemas as S
from lakeward.errors import BugError, ConfigurationError
from lakeward.formats.file_order import NOT_RECORDED, TIME_PATTERN, number_of
from lakeward.iceberg.define import LOGGED_STAMP
from lakeward.mirror.op.changelog import REBUILD, FileRecord, LoadDecision, OpRecord, arrived
from lakeward.model import Disposition, FileClass, OpKind, OrderBy, Progress
from lakeward.text import json_object, refusing_damage
from lakeward.transforms.columns import column
from lakeward.transforms.fold import is_standing

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from pyspark.sql import Column, DataFrame

    from lakeward.mirror.op.context import TableContext
    from lakeward.mirror.op.effect import Bases
    from lakeward.model import LedgerEntry


_READ = (Disposition.CONSUMED.value, Disposition.EMPTY.value)


def current_progress(context: TableContext, snapshot_id: int | None) -> Progress:
    """Return the progress at a changelog snapshot, rebuilding the cache if it belongs to another one."""
    if snapshot_id is None:
        context.state.forget_ledger(context.table)
        return Progress()
    if context.state.ledger_position(context.table) == snapshot_id:
        cached = context.state.progress(context.table)
        if cached is not None:
            return cached
    return rebuild(context, snapshot_id)


def progress_of(context: TableContext, bases: Bases) -> Progress:
    """Return the progress at the changelog snapshot that an op is based on."""
    return current_progress(context, bases.changelog.id if bases.changelog else None)


def applied_progress(context: TableContext, bases: Bases) -> Progress:
    """Return the progress that readers see.

    It excludes an op that is logged and not yet applied, because it is being written or was interrupted: the rows of a
    load exist only once it is applied.
    """
    if bases.changelog is None or bases.applied >= bases.logged:
        return progress_of(context, bases)
    if not bases.applied:
        return Progress()
    return op_record(context.changelog.read(bases.changelog.id), bases.applied).progress


def rebuild(context: TableContext, snapshot_id: int) -> Progress:
    """Rebuild the cache from the changelog's control rows at a snapshot; return the progress."""
    log = context.changelog.read(snapshot_id)
    last = _last_op(context, snapshot_id)
    progress = op_record(log, last).progress if last else Progress()
    context.state.replace_ledger(context.table, snapshot_id, progress, _entries(log, progress))
    return progress


def op_record(log: DataFrame, op: int) -> OpRecord:
    """Read the control row of one op."""
    return op_records(log, [op])[op]


def op_records(log: DataFrame, ops: Collection[int]) -> dict[int, OpRecord]:
    """Read the control rows of some ops together."""
    own = (column(S.KIND) == S.KIND_CONTROL) & column(S.OP).isin(*ops) & column(S.FILE).isNull()
    rows = log.filter(own).select(S.OP, S.DETAIL).take(2 * len(ops))
    times = Counter(row[0] for row in rows)
    if wrong := [op for op in ops if times[op] != 1]:
        msg = f"the changelog has {times[wrong[0]]} control rows for op {wrong[0]}, expected one"
        raise BugError(msg)
    return {row[0]: OpRecord.from_json(row[1]) for row in rows}


def last_arrival(context: TableContext) -> int:
    """Return the greatest number under which a change file of the table was ever recorded, 0 where none was."""
    snapshot = context.state.ledger_position(context.table)
    if snapshot is None:
        return 0
    files = context.changelog.read(snapshot).filter((column(S.KIND) == S.KIND_FILE) & _is_numbered())
    return number_of(files.agg(F.max(S.FILE_TIME)).collect()[0][0])


def _is_numbered() -> Column:
    return column(S.FILE_TIME).startswith(NOT_RECORDED)


def _is_time() -> Column:
    return column(S.FILE_TIME).rlike(TIME_PATTERN)


def newest_place(context: TableContext, progress: Progress) -> str | None:
    """Return the greatest place of a change file that was read for any generation, None where none was.

    Files that were read by ops that are undone do not count, nor do places of another kind than those in use, which
    could not be compared.
    """
    snapshot = context.state.ledger_position(context.table)
    if snapshot is None:
        return None
    disposition, file_class = (
        F.get_json_object(column(S.DETAIL), path) for path in ("$.disposition", "$.file.file_class")
    )
    is_read = disposition.isin(*_READ) & (file_class == FileClass.CHANGES.value)
    is_comparable = _is_numbered() if context.settings.files.records_arrival else ~_is_numbered() & ~_is_time()
    own = (column(S.KIND) == S.KIND_FILE) & is_read & is_comparable & is_standing(progress.undone)
    files = context.changelog.read(snapshot).filter(own)
    found: str | None = files.agg(F.max(S.FILE_TIME)).collect()[0][0]
    return found


def greatest_sequence_before(context: TableContext, progress: Progress, cut: str, order_by: OrderBy) -> str | None:
    """Return the greatest value of the order column in change files before a cut, None where there is none."""
    snapshot = context.state.ledger_position(context.table)
    if snapshot is None:
        return None
    disposition, file_class, order, last = (
        F.get_json_object(column(S.DETAIL), path)
        for path in ("$.disposition", "$.file.file_class", "$.file.order_by", "$.file.last.sequence")
    )
    read = (Disposition.CONSUMED.value, Disposition.SUPERSEDED.value)
    is_read = disposition.isin(*read) & (file_class == FileClass.CHANGES.value) & (order == order_by.value)
    own = (column(S.KIND) == S.KIND_FILE) & is_read & (column(S.FILE_TIME) < cut) & is_standing(progress.undone)
    found: str | None = context.changelog.read(snapshot).filter(own).agg(F.max(last)).collect()[0][0]
    return found


@dataclass(frozen=True)
class OrderedFile:
    """A change file by its place in the order of files, and its path."""

    place: str
    path: str


@dataclass(frozen=True)
class OrderedSides:
    """The current generation's consumed change files with rows, divided at a moment by what is known of each.

    ``first`` and ``last`` are those at the ends of the order. ``last_before`` is the last of those that precede the
    moment, ``first_after`` the first of the others; ``unknown`` counts those of which the time is not known.
    """

    count: int = 0
    unknown: int = 0
    first: OrderedFile | None = None
    last: OrderedFile | None = None
    last_before: OrderedFile | None = None
    first_after: OrderedFile | None = None


def sides_in_order(context: TableContext, progress: Progress, moment: int, *, by_commit: bool) -> OrderedSides:
    """Divide the change files at a moment in microseconds since 1970.

    A file precedes it if its newest commit does, or else, not ``by_commit``, if it was last modified before.
    """
    snapshot = context.state.ledger_position(context.table)
    if snapshot is None or progress.generation is None:
        return OrderedSides()
    detail = column(S.DETAIL)
    disposition, file_class, rows, bad, time = (
        F.get_json_object(detail, path)
        for path in (
            "$.disposition",
            "$.file.file_class",
            "$.file.rows",
            "$.file.bad",
            "$.file.newest_commit" if by_commit else "$.file.identity.mtime_us",
        )
    )
    own = (column(S.KIND) == S.KIND_FILE) & (column(S.GENERATION) == progress.generation.number)
    is_read = (disposition == Disposition.CONSUMED.value) & (file_class != FileClass.LOAD.value)
    has_rows = rows.cast("long") > F.coalesce(bad.cast("long"), F.lit(0))
    files = context.changelog.read(snapshot).filter(own & is_read & has_rows & is_standing(progress.undone))
    is_before = time.cast("long") < F.lit(moment)
    where, found = F.struct(S.FILE_TIME, S.FILE), []
    for function, condition in (
        (F.min, F.lit(True)), (F.max, F.lit(True)), (F.max, is_before), (F.min, ~is_before),
    ):  # fmt: skip
        found.append(function(F.when(condition, where)))
    count, unknown, *ends = files.agg(F.count(F.lit(1)), F.count_if(time.isNull()), *found).collect()[0]
    return OrderedSides(count, unknown, *(OrderedFile(*end) if end is not None else None for end in ends))


@dataclass(frozen=True)
class ChangeFiles:
    """The current generation's consumed change files on either side of a name time.

    ``newest_before`` is the latest commit time in files ``before``, ``timeless_before`` how many of these have good
    rows and no commit time: of a file of bad rows alone, nothing was applied. ``first`` is the smallest name time of
    all.
    """

    before: int = 0
    after: int = 0
    newest_before: int | None = None
    timeless_before: int = 0
    first: str | None = None


def change_files(context: TableContext, progress: Progress, *, cut: str) -> ChangeFiles:
    """Count the current generation's consumed change files named before ``cut``, and those named at or after it."""
    snapshot = context.state.ledger_position(context.table)
    if snapshot is None or progress.generation is None:
        return ChangeFiles()
    detail = column(S.DETAIL)
    disposition, file_class, rows, bad, commit = (
        F.get_json_object(detail, path)
        for path in ("$.disposition", "$.file.file_class", "$.file.rows", "$.file.bad", "$.file.newest_commit")
    )
    is_change = disposition.isin(*_READ) & (file_class != FileClass.LOAD.value)
    own = (column(S.KIND) == S.KIND_FILE) & (column(S.GENERATION) == progress.generation.number)
    files = context.changelog.read(snapshot).filter(own & is_change & is_standing(progress.undone))
    is_before, name = column(S.FILE_TIME) < cut, column(S.FILE_TIME)
    timeless = is_before & commit.isNull() & (rows.cast("long") > F.coalesce(bad.cast("long"), F.lit(0)))
    found = files.agg(
        F.count_if(is_before),
        F.count_if(~is_before),
        F.max(F.when(is_before, commit.cast("long"))),
        F.count_if(timeless),
        F.min(name),
    ).collect()[0]
    return ChangeFiles(*found)


def last_load_ops(log: DataFrame, progress: Progress) -> dict[int, int]:
    """Return, by generation, the op that read the newest part of its load by a progress."""
    own = (column(S.KIND) == S.KIND_CONTROL) & column(S.FILE).isNull() & (column(S.OP) <= progress.op)
    is_load = F.get_json_object(column(S.DETAIL), "$.kind") == OpKind.LOAD.value
    loads = log.filter(own & is_load & is_standing(progress.undone))
    return {row[0]: row[1] for row in loads.groupBy(S.GENERATION).agg(F.max(S.OP)).collect()}


def load_decisions(log: DataFrame, progress: Progress) -> dict[int, LoadDecision]:
    """Return, by generation, the decision on the load that it began with; loads of earlier versions have none."""
    own = (column(S.KIND) == S.KIND_CONTROL) & column(S.FILE).isNull() & (column(S.OP) <= progress.op)
    starts = F.get_json_object(column(S.DETAIL), "$.starts") == F.lit("true")
    decided = F.get_json_object(column(S.DETAIL), "$.decision").isNotNull()
    rows = log.filter(own & starts & decided & is_standing(progress.undone)).select(S.DETAIL).collect()
    records = [OpRecord.from_json(row[0]) for row in rows]
    return {record.generation: record.decision for record in records if record.decision is not None}


def began_with_lake(context: TableContext) -> bool:
    """Whether any op of the table, undone or not, took the lake of another system as its load."""
    snapshot = context.state.ledger_position(context.table)
    if snapshot is None:
        return False
    own = (column(S.KIND) == S.KIND_CONTROL) & column(S.FILE).isNull()
    adopted = F.get_json_object(column(S.DETAIL), "$.progress.generations").contains('"adopted":true')
    return bool(context.changelog.read(snapshot).filter(own & adopted).take(1))


def require_state(context: TableContext, op: int, records: Mapping[int, OpRecord]) -> None:
    """Refuse an op that could not be finished; ``records`` holds the op after it.

    Raises:
        ConfigurationError: the op was logged and never applied.
    """
    following = records.get(op + 1)
    if following is not None and following.kind is OpKind.VOID:
        msg = f"{context.table}: op {op} could not be finished and was rolled back by op {op + 1}: it has no state"
        raise ConfigurationError(msg, hint=f"the state before it is that of op {op - 1}")


def _last_op(context: TableContext, snapshot_id: int) -> int:
    stamps = (snapshot.summary.get(LOGGED_STAMP) for snapshot in context.changelog.lineage(snapshot_id))
    return next((int(stamp) for stamp in stamps if stamp is not None), 0)


def _entries(log: DataFrame, progress: Progress) -> Iterator[LedgerEntry]:
    """Yield ledger entries in op order; memory does not grow with the number of files.

    First come the numbers of files that ops which are undone had recorded: a file keeps its number.
    """
    files = log.filter(column(S.KIND) == S.KIND_FILE)
    standing = is_standing(progress.undone)
    if progress.undone:
        for row in files.filter(~standing & _is_numbered()).select(S.OP, S.DETAIL).orderBy(S.OP).toLocalIterator():
            yield arrived(FileRecord.from_json(row[1]).summary).ledger_entry(row[0], 0)
    for row in files.filter(standing).select(S.OP, S.GENERATION, S.DETAIL).orderBy(S.OP).toLocalIterator():
        yield FileRecord.from_json(row[2]).ledger_entry(row[0], row[1])


def bad_row_details(detail: str) -> tuple[str, str | None, str | None]:
    """Return reason, column and value of a bad row."""
    with refusing_damage("a bad row of the changelog", hint=REBUILD):
        data = json_object(detail)
        return data["reason"], data.get("column"), data.get("value")
