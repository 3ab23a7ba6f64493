"""Choose the next piece of work of a table: which files, in which generation, as which kind of op.

There is no high-water mark: a file is new when the ledger does not have it, however old its name. The listing is
walked once and compared with the ledger page by page; of the waiting change files only one batch is held.
"""

from __future__ import annotations

import heapq
import time
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING

from lakeward.errors import ChangedFileError, VanishedError
from lakeward.model import Disposition, FileClass, Generation, LandingFile, OpKind
from lakeward.pipeline.records import FileRecord
from lakeward.pipeline.reload import decide_reload, time_digits
from lakeward.sources.base import FileSummary
from lakeward.sources.dms.listing import list_folder, list_transactions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lakeward.model import LedgerEntry, Progress
    from lakeward.pipeline.context import TableContext

_PAGE = 1000
_UNKNOWN_NAMED = 20


@dataclass(frozen=True)
class Work:
    """One op's worth of input. ``starts`` marks the first op of its generation, ``is_last`` that nothing else waits.

    ``redelivered`` are files with nothing to read, recorded so that they need not be looked at again: consumed ones
    that came back with a new time, and load parts that a reload left over. ``earlier`` is the generation before the
    first one seen, where the user says that the load is a reload.
    """

    kind: OpKind
    generation: Generation
    files: tuple[LandingFile, ...] = ()
    starts: bool = False
    is_last: bool = False
    redelivered: tuple[FileRecord, ...] = ()
    earlier: tuple[Generation, ...] = ()


@dataclass(frozen=True)
class Waiting:
    """There is input, but not yet time for it."""

    reason: str


@dataclass
class Scan:
    """What one walk over the landing folder found; of files that no rule knows, the number and the first few."""

    new_loads: list[LandingFile] = field(default_factory=list)
    retimed_loads: list[tuple[LandingFile, LedgerEntry]] = field(default_factory=list)
    retimed_changes: list[tuple[LandingFile, LedgerEntry]] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    unknown_count: int = 0


def choose(context: TableContext, progress: Progress) -> Work | Waiting | None:
    """Give the next op's work, None when there is nothing to do.

    Raises:
        ChangedFileError: a consumed change file has other content now.
        CutError: a reload whose change files cannot be told.
        VanishedError: the table's folder is gone.
    """
    if not context.storage.exists(context.folder) and _is_missed(context, progress):
        return _vanished(context, progress)
    scan = Scan()
    batch, is_last = _smallest_batch(context, progress, scan)
    if load := _load_work(context, progress, scan):
        return _affordable(context, load)
    work = _change_work(context, progress, scan, batch, is_last=is_last)
    return _affordable(context, work) if work else None


def _affordable(context: TableContext, work: Work | Waiting) -> Work | Waiting:
    """Cut work down to what the run may still take in; a load is taken as a whole."""
    if isinstance(work, Waiting) or not work.files:
        return work
    files = context.budget.admit(work.files, whole=work.kind is OpKind.LOAD)
    if not files:
        return Waiting("the run has taken in as much as its limits allow; the rest waits for the next one")
    return replace(work, files=files, is_last=work.is_last and len(files) == len(work.files))


def _change_work(
    context: TableContext, progress: Progress, scan: Scan, batch: tuple[LandingFile, ...], *, is_last: bool
) -> Work | None:
    redelivered = tuple(_same_content(context, scan.retimed_changes))
    if batch:
        generation = _generation_of(batch[0], progress)
        if progress.generation is not None and generation.number < progress.generation.number:
            # Recorded under an older generation, files of the newest would be read into it again: they wait one op.
            return Work(OpKind.BATCH, generation, batch)
        return Work(OpKind.BATCH, generation, batch, not progress.generations, is_last, redelivered)
    if redelivered and progress.generation:
        return Work(OpKind.BATCH, progress.generation, is_last=True, redelivered=redelivered)
    return None


def pending_files(context: TableContext, progress: Progress, scan: Scan | None = None) -> Iterator[LandingFile]:
    """Give every file that waits, for `status`; content is not looked at. ``scan`` holds the rest of the walk."""
    scan = scan or Scan()
    yield from (file for _, file in _pending_changes(context, progress, scan))
    yield from scan.new_loads
    yield from (file for file, _ in scan.retimed_loads)


def _smallest_batch(context: TableContext, progress: Progress, scan: Scan) -> tuple[tuple[LandingFile, ...], bool]:
    """Take the first files in order, of one generation, within the batch's bounds; tell whether these are all."""
    limit = context.settings.max_files
    waiting = _pending_changes(context, progress, scan)
    first = heapq.nsmallest(limit + 1, waiting, key=lambda pair: (pair[0], *pair[1].order))
    chosen: list[LandingFile] = []
    size = 0
    for generation, file in first[:limit]:
        size += file.identity.size
        if chosen and (generation != first[0][0] or size > context.settings.max_bytes):
            break
        chosen.append(file)
    return tuple(chosen), len(chosen) == len(first)


def _pending_changes(context: TableContext, progress: Progress, scan: Scan) -> Iterator[tuple[int, LandingFile]]:
    """Walk the listing; yield change files that wait with their generation and keep load parts in ``scan``."""
    for page in _pages(_listed(context, scan)):
        known = context.state.lookup(context.table, [file.path for file in page])
        for file in page:
            entry = known.get(file.path)
            if entry is not None and entry.disposition is Disposition.FENCED:
                continue
            if file.file_class is FileClass.LOAD:
                _sort_load(file, entry, progress, scan)
                continue
            generation = _generation_of(file, progress).number
            if entry is None or entry.generation < generation:
                yield generation, file
            elif entry.identity != file.identity:
                scan.retimed_changes.append((file, entry))


def _sort_load(file: LandingFile, entry: LedgerEntry | None, progress: Progress, scan: Scan) -> None:
    current = progress.generation
    if entry is None or current is None:
        scan.new_loads.append(file)
    elif entry.generation == current.number:
        if entry.identity != file.identity:
            scan.retimed_loads.append((file, entry))
    elif entry.identity != file.identity or current.emptied:
        scan.new_loads.append(file)


def _load_work(context: TableContext, progress: Progress, scan: Scan) -> Work | Waiting | None:
    if not (scan.new_loads or scan.retimed_loads):
        return None
    youngest = max(file.identity.mtime_us for file in (*scan.new_loads, *(file for file, _ in scan.retimed_loads)))
    age = time.time() - youngest / 1e6
    if age < context.settings.load_settle:
        wait = context.settings.load_settle - age
        return Waiting(f"load parts arrived {age:.0f} s ago; the load is taken after {wait:.0f} s without new ones")
    current = progress.generation
    if current is None:
        return _first_load(context, tuple(scan.new_loads))
    if not scan.retimed_loads:
        return Work(OpKind.LOAD, current, tuple(scan.new_loads))
    decision = decide_reload(context, current, scan.retimed_loads, scan.new_loads, scan.retimed_changes)
    if decision.cut is None:
        joining = tuple(scan.new_loads)
        kind = OpKind.LOAD if joining else OpKind.BATCH
        known = tuple(_redelivered(file, entry, entry.content_hash) for file, entry in scan.retimed_loads)
        return Work(kind, current, joining, redelivered=known)
    following = Generation(current.number + 1, decision.cut)
    left = tuple(_left_over(context, file) for file in scan.new_loads if file not in decision.parts)
    return Work(OpKind.LOAD, following, decision.parts, starts=True, redelivered=left)


def _first_load(context: TableContext, parts: tuple[LandingFile, ...]) -> Work:
    """Begin with a load, which every change file follows unless the user gives a cut.

    The load's time is often a copy's and says nothing of the changes. With a cut, files named before it belong to a
    generation that this load has replaced, and that nobody saw.
    """
    if context.options.cut is None:
        return Work(OpKind.LOAD, Generation(1), parts, starts=True)
    earlier = (Generation(1, unseen=True),)
    return Work(OpKind.LOAD, Generation(2, context.options.cut), parts, starts=True, earlier=earlier)


def _same_content(context: TableContext, suspects: Iterable[tuple[LandingFile, LedgerEntry]]) -> Iterator[FileRecord]:
    """Let through files whose content is what was consumed, or that the user accepts; refuse the others."""
    for file, entry in suspects:
        with context.storage.spool(file.path) as (_, content_hash):
            if content_hash != entry.content_hash and file.path not in context.options.accept_changed:
                raise _changed(context, file, entry, content_hash)
            yield _redelivered(file, entry, content_hash)


def _redelivered(file: LandingFile, entry: LedgerEntry, content_hash: str) -> FileRecord:
    summary = FileSummary(file.path, file.file_class, file.time, file.identity, content_hash, rows=entry.rows)
    return FileRecord(summary, Disposition.REDELIVERED)


def _left_over(context: TableContext, file: LandingFile) -> FileRecord:
    """Take note of a part that is older than the reload: it belongs to the load before and must not join this one."""
    with context.storage.spool(file.path) as (_, content_hash):
        summary = FileSummary(file.path, file.file_class, file.time, file.identity, content_hash)
        return FileRecord(summary, Disposition.SUPERSEDED)


def _changed(context: TableContext, file: LandingFile, entry: LedgerEntry, content_hash: str) -> ChangedFileError:
    msg = (
        f"{context.table}: {file.path} was consumed by op {entry.op} and has other content now: found "
        f"{file.identity.size} bytes (hash {content_hash}), expected {entry.identity.size} (hash {entry.content_hash})"
    )
    hint = (
        "put the original back; or land the new content under a new name; or reload the table; "
        f"or ignore it: lakeward run {context.table} --accept-changed {file.path}"
    )
    return ChangedFileError(msg, hint=hint)


def _generation_of(file: LandingFile, progress: Progress) -> Generation:
    """Give the newest generation whose cut lies at or before the file's name time."""
    fitting = (one for one in reversed(progress.generations) if one.cut <= file.time)
    return next(fitting, progress.generations[0] if progress.generations else Generation(1))


def _listed(context: TableContext, scan: Scan) -> Iterator[LandingFile]:
    wanted = context.options.files
    for file in _all_listed(context, scan):
        if not wanted or file.path in wanted or file.location in wanted:
            yield file


def _all_listed(context: TableContext, scan: Scan) -> Iterator[LandingFile]:
    for file in list_folder(context.storage, context.folder, context.settings):
        if isinstance(file, LandingFile):
            yield file
            continue
        scan.unknown_count += 1
        if len(scan.unknown) < _UNKNOWN_NAMED:
            scan.unknown.append(file.path)
    if context.config.transactions:
        yield from list_transactions(context.storage, context.config.transactions.strip("/"), context.settings)


def _is_missed(context: TableContext, progress: Progress) -> bool:
    """Tell whether the folder held files before; an emptied generation without files is as it should be."""
    current = progress.generation
    if current is None or (current.emptied and not context.state.has_files(context.table, generation=current.number)):
        return False
    if context.config.transactions:
        return bool(context.state.load_parts(context.table, current.number))
    return context.state.has_files(context.table)


def _vanished(context: TableContext, progress: Progress) -> Work:
    if context.settings.on_missing_folder == "truncate":
        now = time_digits(time.time_ns() // 1000)
        following = Generation(len(progress.generations) + 1, emptied=True, since=now)
        return Work(OpKind.TRUNCATE, following, starts=True)
    msg = (
        f"{context.table}: the folder {context.folder} is gone from landing, though files of it were consumed; "
        "it is not known whether the source table was truncated or the folder lost"
    )
    hint = f"restore the folder; or, if the table is empty now, set on_missing_folder: truncate for {context.table}"
    raise VanishedError(msg, hint=hint)


def _pages(files: Iterator[LandingFile]) -> Iterator[list[LandingFile]]:
    while page := list(islice(files, _PAGE)):
        yield page
