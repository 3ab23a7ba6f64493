"""Choose the next piece of work of a table: which files, in which generation, as which kind of op.

There is no high-water mark: a file is new when the ledger does not have it, however old its name. The listing is
read once and compared with the ledger page by page; of the waiting change files only one batch is held in memory.
"""

from __future__ import annotations

import heapq
import shlex
import time
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import TYPE_CHECKING

from lakeward.errors import ChangedFileError, ConfigurationError, CutError, DataError, VanishedError
from lakeward.formats.base import FileSummary
from lakeward.formats.dms.listing import UnreadFile, list_folder, list_transactions, unread_file
from lakeward.formats.file_order import is_time, shown_place
from lakeward.mirror.op.adopted import FORMER, adoption
from lakeward.mirror.op.arrivals import Arrivals, arrival_notes, placed
from lakeward.mirror.op.changelog import FileRecord
from lakeward.mirror.op.context import Waiting, Work
from lakeward.mirror.op.ledger import began_with_lake, change_files
from lakeward.mirror.op.loads import SeenFile, decide_loads, file_note
from lakeward.mirror.op.places import cut_at, has_own_order, is_recorded, reading_again, require_one_order, user_cut
from lakeward.model import Disposition, FileClass, Generation, LandingFile, OpKind, digits_micros, time_digits
from lakeward.text import count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lakeward.mirror.op.context import TableContext
    from lakeward.model import LedgerEntry, Progress

_PAGE = 1000
_NAMED = 20
_SHOWN = 5


@dataclass
class Earliest:
    """The earliest time known of some landing files: of their modification, or in their names."""

    mtime_us: int | None = None
    name: str | None = None

    def add(self, file: LandingFile) -> None:
        """Include a file."""
        modified = file.identity.mtime_us
        self.mtime_us = modified if self.mtime_us is None else min(self.mtime_us, modified)
        if is_time(file.time):
            self.name = min(self.name or file.time, file.time)

    @property
    def micros(self) -> int | None:
        """The time in microseconds since 1970; None without files."""
        named = digits_micros(self.name) if self.name is not None else None
        return min((time for time in (self.mtime_us, named) if time is not None), default=None)


@dataclass
class Scan:
    """The findings of one listing of the landing folder.

    ``unread`` are the first few files that no naming rule matches, ``unread_count`` counts all of them. ``known``
    counts the current generation's files that are still in landing, ``known_changes`` the change files among them, and
    ``counted_changes`` those named at or after ``count_from``. ``undecided`` are change files that may precede the
    current load or follow it. ``came_back`` are files of older generations that reappeared after the table was emptied.
    ``logged`` are the files of op ``logged_op``, if that is given. ``arrivals`` are change files without a number,
    where their order is that of numbers.
    """

    count_from: str = ""
    logged_op: int | None = None
    logged: Earliest = field(default_factory=Earliest)
    loads: list[SeenFile] = field(default_factory=list)
    retimed_changes: list[tuple[LandingFile, LedgerEntry]] = field(default_factory=list)
    unread: list[UnreadFile] = field(default_factory=list)
    unread_count: int = 0
    known: int = 0
    known_changes: int = 0
    counted_changes: int = 0
    undecided: list[LandingFile] = field(default_factory=list)
    came_back: list[str] = field(default_factory=list)
    arrivals: Arrivals = field(default_factory=Arrivals)


def choose(context: TableContext, progress: Progress, *, arrivals_first: bool = True) -> Work | Waiting | None:
    """Return the next op's work, None when there is nothing to do.

    Numbers of change files that were seen for the first time are recorded before anything is read, so that they count
    whatever stops the table then; without a table to record them in, and without ``arrivals_first``, together with
    the work.

    Raises:
        ConfigurationError: the settings of files do not fit what was read before.
        ChangedFileError: a consumed change file has other content now.
        CutError: the files do not show what load files mean, or which change files follow a reload.
        VanishedError: the files that the table was built from are gone, or came back after it was emptied.
    """
    require_one_order(context, progress)
    if progress.generation is None and context.settings.adopt is not None:
        return _affordable(context, adoption(context, list_landing(context, Scan())))
    scan, known = Scan(count_from=_kept_since(context)), progress.generation
    progress = _recut(context, progress)
    batch, is_last, arrivals = _smallest_batch(context, progress, scan)
    if arrivals and known is not None and arrivals_first:
        return Work(OpKind.BATCH, known, notes=arrivals)
    if truncate := _vanished(context, progress, scan):
        return truncate
    has_changes = progress.last_place is not None or bool(batch)
    loads = decide_loads(context, progress.generation, scan.loads, has_changes=has_changes)
    if loads.is_rewritten and not context.options.same_load:
        _require_change_files(context, progress, scan)
    if loads.next is not None:
        return _affordable(context, _with_notes(loads.next, arrivals))
    _require_decided(context, progress, scan)
    work = _change_work(context, progress, scan, batch, (*arrivals, *loads.notes), is_last=is_last)
    return _affordable(context, work) if work else None


def _recut(context: TableContext, progress: Progress) -> Progress:
    """Apply the user's cut to the current generation, where change files wait for it."""
    current, cut = progress.generation, user_cut(context)
    if cut is None or current is None or len(progress.generations) == 1 or cut > current.cut:
        return progress
    scan = Scan()
    moved = any(cut <= file.time < current.cut for _, file in pending_changes(context, progress, scan))
    if not (moved or scan.undecided):
        return progress
    decided = replace(current, cut=cut, undecided_from="", load_from=None)
    return replace(progress, generations=(*progress.generations[:-1], decided))


def _with_notes(work: Work | Waiting, notes: tuple[FileRecord, ...]) -> Work | Waiting:
    return replace(work, notes=(*notes, *work.notes)) if notes and isinstance(work, Work) else work


def _affordable(context: TableContext, work: Work | Waiting) -> Work | Waiting:
    """Reduce work to what the run's limits still allow; a load is taken as a whole."""
    if isinstance(work, Waiting) or not work.files:
        return work
    files = context.budget.admit(work.files, whole=work.kind is OpKind.LOAD)
    if not files:
        return Waiting("the run has taken in as much as its limits allow; the rest waits for the next one")
    return replace(work, files=files, is_last=work.is_last and len(files) == len(work.files))


def _change_work(
    context: TableContext,
    progress: Progress,
    scan: Scan,
    batch: tuple[LandingFile, ...],
    notes: tuple[FileRecord, ...],
    *,
    is_last: bool,
) -> Work | None:
    notes = (*notes, *_same_content(context, scan.retimed_changes))
    if batch and not progress.generations:
        _require_no_former_lake(context, progress)
    if batch:
        generation = generation_of(batch[0], progress)
        if progress.generation is not None and generation.number < progress.generation.number:
            # Notes recorded under an older generation would be read again in the newest one: they wait for the next op.
            return Work(OpKind.BATCH, generation, batch)
        return Work(OpKind.BATCH, generation, batch, not progress.generations, is_last, notes)
    if notes and progress.generation:
        return Work(OpKind.BATCH, progress.generation, is_last=True, notes=notes)
    return None


def _require_no_former_lake(context: TableContext, progress: Progress) -> None:
    """Refuse to begin a table with changes alone that began with an adopted lake before all its ops were undone."""
    if not progress.op or not began_with_lake(context):
        return
    table = shlex.quote(str(context.table))
    msg = (
        f"{context.table}: all its ops were undone, and it began with a lake that another system wrote: its change "
        "files alone are not all of its rows"
    )
    hint = (
        f"name the lake again: lakeward tables set {table} --set 'adopt={{lake: PATH, last_file: FILE}}'; or load the "
        "table at the source"
    )
    raise DataError(msg, hint=hint)


def pending_files(context: TableContext, progress: Progress, scan: Scan | None = None) -> Iterator[LandingFile]:
    """Yield every file that waits, for `status`, without reading contents. ``scan`` receives the other findings."""
    scan = scan or Scan()
    yield from (file for _, file in pending_changes(context, progress, scan, numbered=False))
    yield from scan.undecided
    current = progress.generation
    for seen in scan.loads:
        if current is None or seen.entry is None or seen.entry.identity != seen.file.identity:
            yield seen.file


def batch_before(context: TableContext, progress: Progress, cut: str | None) -> Work | None:
    """Return the op that applies waiting change files before ``cut`` to the current generation, if any wait.

    Without a cut it applies all of them.
    """
    assert progress.generation is not None  # the files belong to a generation
    current = progress.generation.number

    def is_earlier(generation: int, file: LandingFile) -> bool:
        return generation == current and (cut is None or file.time < cut)

    files, _ = _smallest(context, (pair for pair in pending_changes(context, progress, Scan()) if is_earlier(*pair)))
    return Work(OpKind.BATCH, progress.generation, files) if files else None


def _smallest_batch(
    context: TableContext, progress: Progress, scan: Scan
) -> tuple[tuple[LandingFile, ...], bool, tuple[FileRecord, ...]]:
    """Return the next change files, whether these are all, and the records of numbers that files now receive."""
    new: list[LandingFile] = []

    def received() -> Iterator[tuple[int, LandingFile]]:
        new.extend(scan.arrivals.numbered(context))
        yield from ((generation_of(file, progress).number, file) for file in new if _is_wanted(context, file))

    batch, is_last = _smallest(context, chain(pending_changes(context, progress, scan), received()))
    return batch, is_last, arrival_notes(new)


def _smallest(
    context: TableContext, waiting: Iterable[tuple[int, LandingFile]]
) -> tuple[tuple[LandingFile, ...], bool]:
    """Return the first files in order, of one generation and within a batch's limits, and whether these are all."""
    limit = context.settings.max_files
    first = heapq.nsmallest(limit + 1, waiting, key=lambda pair: (pair[0], *pair[1].order))
    chosen: list[LandingFile] = []
    size = 0
    for generation, file in first[:limit]:
        size += file.identity.size
        if chosen and (generation != first[0][0] or size > context.settings.max_bytes):
            break
        chosen.append(file)
    return tuple(chosen), len(chosen) == len(first)


def pending_changes(
    context: TableContext, progress: Progress, scan: Scan, *, numbered: bool = True
) -> Iterator[tuple[int, LandingFile]]:
    """Yield the waiting change files of the listing with their generation; ``scan`` receives everything else.

    Files without a number, where they need one, are among the ``scan``'s if ``numbered``.
    """
    for file, entry in _with_entries(context, scan, numbered=numbered):
        if entry is not None:
            _require_same_class(context, progress, file, entry)
            if entry.op == scan.logged_op:
                scan.logged.add(file)
            _count_known(file, entry, progress, scan)
            if entry.disposition is Disposition.FENCED:
                continue
        if file.file_class is FileClass.LOAD:
            scan.loads.append(SeenFile(file, entry))
            continue
        generation = generation_of(file, progress).number
        if entry is None and _is_undecided(file, progress):
            scan.undecided.append(file)
        elif entry is None or _is_new(entry, generation):
            yield generation, file
        elif entry.identity != file.identity and entry.disposition is not Disposition.CONTAINED:
            scan.retimed_changes.append((file, entry))


def _with_entries(
    context: TableContext, scan: Scan, *, numbered: bool
) -> Iterator[tuple[LandingFile, LedgerEntry | None]]:
    """Yield the files of the listing that the run may read, each at its place, with what became of it so far."""
    for page in list_landing(context, scan):
        known = context.state.lookup(context.table, [file.path for file in page])
        for listed in page:
            entry = known.get(listed.path)
            file = placed(listed, entry)
            if numbered and not is_recorded(file):
                scan.arrivals.add(file)
            elif _is_wanted(context, file):
                is_new = entry is None or entry.disposition is Disposition.ARRIVED
                yield file, None if is_new else entry


def _is_new(entry: LedgerEntry, generation: int) -> bool:
    """Whether a recorded change file was not read for the generation that it belongs to."""
    if entry.disposition is Disposition.CONTAINED:
        return generation > FORMER  # an earlier cut was declared since
    return entry.generation < generation


def _count_known(file: LandingFile, entry: LedgerEntry, progress: Progress, scan: Scan) -> None:
    """Count a file of the current generation, or record an older one that reappeared after the table was emptied."""
    current = progress.generation
    if current is None:
        return
    is_change = file.file_class is not FileClass.LOAD
    if entry.generation == current.number and entry.disposition is not Disposition.SUPERSEDED:
        scan.known += 1
        scan.known_changes += is_change
        scan.counted_changes += is_change and file.time >= scan.count_from
    elif any(generation.emptied and entry.generation < generation.number for generation in progress.generations):
        # Names of change files are never reused; a load file may be a new file under the same name.
        is_same = file.file_class is FileClass.CHANGES or entry.identity == file.identity
        if is_same and file.file_class is not FileClass.TRANSACTIONS and len(scan.came_back) < _SHOWN:
            scan.came_back.append(file.path)


def _require_same_class(context: TableContext, progress: Progress, file: LandingFile, entry: LedgerEntry) -> None:
    """Refuse a file that was read as a load part and is a change file by today's settings, or the reverse."""
    if entry.file_class is file.file_class:
        return
    words = {FileClass.LOAD: "load", FileClass.CHANGES: "change", FileClass.TRANSACTIONS: "transaction"}
    msg = (
        f"{context.table}: op {entry.op} recorded {file.path} as a {words[entry.file_class]} file; by files.load and "
        f"files.changes it is a {words[file.file_class]} file now"
    )
    hint = f"set files back; or read all files again: {reading_again(context, progress)}"
    raise ConfigurationError(msg, hint=hint)


# Sorts after every place of a file.
_END = "\U0010ffff"


def _kept_since(context: TableContext) -> str:
    """Return the earliest place of consumed files that must still be in landing.

    Places that are not times do not show which files are older than ``landing_retention``: then any may be gone.
    """
    retention = context.settings.landing_retention
    if retention is not None and has_own_order(context):
        return _END
    return "" if retention is None else time_digits(int((time.time() - retention) * 1e6))


def _is_undecided(file: LandingFile, progress: Progress) -> bool:
    return progress.generation is not None and progress.generation.is_undecided(file.time)


def _require_decided(context: TableContext, progress: Progress, scan: Scan) -> None:
    """Refuse change files that may precede the current load or follow it."""
    if not scan.undecided:
        return
    first, current = min(scan.undecided, key=lambda file: file.order), progress.generations[-1]
    event, moment = ("truncate", "noticed") if current.emptied else ("load", "seen in landing")
    named = "which come before those that follow" if has_own_order(context) else "named before"
    since = f"{named} the {event} of generation {current.number} was {moment}"
    if current.adopted:
        since = "named like files whose changes the adopted lake contains, and written since"
    msg = (
        f"{context.table}: {count(len(scan.undecided), 'change file')}, {first.path} first, {since}: they may precede "
        f"that {event} or follow it, and nothing inside the files shows which"
    )
    raise CutError(msg, hint=recut_hint(context, first))


def recut_hint(context: TableContext, first: LandingFile | FileSummary) -> str:
    """Return the command that sets the place from which change files follow the current load; ``first`` may do so."""
    table = shlex.quote(str(context.table))
    if has_own_order(context):
        return (
            f"files from PATH on follow the load, those before are in it: lakeward run {table} --cut file:PATH; "
            f"all of them follow it: lakeward run {table} {cut_at(first)}"
        )
    return (
        f"files named from TIME on follow the load, those before are in it: lakeward run {table} --cut TIME; "
        f"all of them follow it: lakeward run {table} --cut {shown_place(first.time)}"
    )


def _same_content(context: TableContext, suspects: Iterable[tuple[LandingFile, LedgerEntry]]) -> Iterator[FileRecord]:
    """Yield records of files whose content is unchanged or that the user accepts; refuse the others."""
    for file, entry in suspects:
        with context.storage.spool(file.path) as (_, content_hash):
            if content_hash == entry.content_hash:
                yield file_note(file, entry, Disposition.REDELIVERED)
            elif file.path in context.options.accept_changed:
                summary = FileSummary(
                    file.path, file.file_class, file.time, file.identity, content_hash, rows=entry.rows
                )
                yield FileRecord(summary, Disposition.REDELIVERED)
            else:
                raise _changed(context, file, entry, content_hash)


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


def generation_of(file: LandingFile, progress: Progress) -> Generation:
    """Return the newest generation whose cut is at or before the time in the file's name."""
    fitting = (generation for generation in reversed(progress.generations) if generation.cut <= file.time)
    return next(fitting, progress.generations[0] if progress.generations else Generation(1))


def list_landing(context: TableContext, scan: Scan) -> Iterator[list[LandingFile]]:
    """Yield the table's files in landing, page by page; ``scan`` counts those that no naming rule matches."""
    return _pages(_listed(context, scan))


def _is_wanted(context: TableContext, file: LandingFile) -> bool:
    """Whether the run may read a file: ``--file`` restricts it."""
    wanted = context.options.files
    return not wanted or file.path in wanted or file.location in wanted


def _listed(context: TableContext, scan: Scan) -> Iterator[LandingFile]:
    # Numbers are recorded of all files that are there, whichever of them the run may read.
    takes_all = context.settings.files.records_arrival
    for file in list_folder(context.storage, context.folder, context.settings):
        if isinstance(file, LandingFile):
            if takes_all or _is_wanted(context, file):
                yield file
            continue
        scan.unread_count += 1
        if len(scan.unread) < _NAMED:
            scan.unread.append(unread_file(file, context.settings))
    if context.config.transactions:
        shared = list_transactions(context.storage, context.config.transactions.strip("/"), context.settings)
        yield from (file for file in shared if _is_wanted(context, file))


# --- missing files --------------------------------------------------------------------------------------------------


def _vanished(context: TableContext, progress: Progress, scan: Scan) -> Work | None:
    """Refuse a table whose files are all gone, or return the truncate where the settings declare it."""
    if context.options.files or progress.generation is None:
        return None
    if scan.came_back:
        raise _came_back(context, scan)
    if not _are_files_missing(context, progress, scan):
        return None
    if context.settings.on_missing_folder == "truncate":
        return Work(OpKind.TRUNCATE, _emptied(context, progress.generation), starts=True)
    news = sum(1 for seen in scan.loads if seen.entry is None)
    beside = "; new files are there" if news or context.storage.exists(context.folder) else ""
    msg = (
        f"{context.table}: every file that the table was built from is gone from landing ({context.folder}){beside}: "
        "it cannot be known whether the source table was truncated, the replication was restarted, or files expired"
    )
    table = shlex.quote(str(context.table))
    hint = (
        f"restore the files; or, if the table was emptied at the source: lakeward tables set {table} --set "
        f"on_missing_folder=truncate; or, if landing files expire: lakeward tables set {table} --set "
        "landing_retention=30d"
    )
    raise VanishedError(msg, hint=hint)


def _emptied(context: TableContext, former: Generation) -> Generation:
    """Return the generation that a truncate begins.

    Change files in the table's own folder are gone with it. Transaction files of a folder of many tables are not: those
    that were consumed precede the truncate, and others that were created before it was noticed may do so.
    """
    now = time_digits(time.time_ns() // 1000)
    number, timed = former.number + 1, former.timed_by_row
    if not context.config.transactions:
        return Generation(number, emptied=True, since=now, timed_by_row=timed)
    undecided = "0" * len(now)
    return Generation(number, now, emptied=True, since=now, undecided_from=undecided, timed_by_row=timed)


def _are_files_missing(context: TableContext, progress: Progress, scan: Scan) -> bool:
    """Whether landing should hold files of the current generation and holds none.

    Transaction files do not count: they are shared by tables.
    """
    current = progress.generation
    assert current is not None  # the caller checks it
    has_transactions = bool(context.config.transactions)
    if (scan.known - scan.known_changes) if has_transactions else scan.known:
        return False
    retention = context.settings.landing_retention
    newest = progress.newest_file
    if retention is not None and newest is not None and newest < (time.time() - retention) * 1e6:
        return False
    if has_transactions:
        return bool(context.state.load_parts(context.table, current.number))
    return context.state.has_files(context.table, generation=current.number)


def _came_back(context: TableContext, scan: Scan) -> VanishedError:
    msg = (
        f"{context.table}: files from before the table was emptied are in landing again, unchanged: "
        f"{', '.join(scan.came_back)}; it cannot be known whether they count"
    )
    table = shlex.quote(str(context.table))
    hint = (
        f"if the table was never emptied at the source, undo that: lakeward undo {table} --to-op OP   (lakeward "
        f"runs lists ops; the one before the truncate); else remove the files from landing"
    )
    return VanishedError(msg, hint=hint)


def _require_change_files(context: TableContext, progress: Progress, scan: Scan) -> None:
    """Refuse rewritten load files where consumed change files are gone: a restarted task clears its target folder."""
    if progress.generation is None or context.options.files or context.config.transactions:
        return
    missing = change_files(context, progress, cut=_kept_since(context)).after - scan.counted_changes
    if missing > 0:
        table = shlex.quote(str(context.table))
        msg = (
            f"{context.table}: load files were written again with the same content, and landing lacks "
            f"{count(missing, 'consumed change file')}: it cannot be known whether the replication was restarted"
        )
        hint = (
            f"the source was loaded again: lakeward run {table} --reload --cut TIME; the files were only copied: "
            f"lakeward run {table} --same-load"
        )
        raise CutError(msg, hint=hint)


def _pages(files: Iterator[LandingFile]) -> Iterator[list[LandingFile]]:
    while page := list(islice(files, _PAGE)):
        yield page
