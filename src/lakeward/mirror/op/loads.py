"""The meaning of the load files in a table's folder: the known load, one more part of it, or a reload.

Modification times prove nothing: tools touch and copy files. A load file is compared by content with the part of the
same name in the current generation, and only new content indicates a reload. Where the files do not show which of them
belong to a reload, the table stops and lists the choices.
"""

from __future__ import annotations

import shlex
import time
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakeward.errors import ConfigurationError, CutError
from lakeward.formats.base import FileSummary
from lakeward.formats.dms.files import Limits, UnusableFileError, is_gzip, open_bytes
from lakeward.formats.dms.listing import part_as_set
from lakeward.formats.dms.reader import is_as_listed
from lakeward.mirror.op.changelog import FileRecord, LoadDecision
from lakeward.mirror.op.context import Waiting, Work
from lakeward.model import Disposition, Generation, LandingFile, LedgerEntry, OpKind
from lakeward.storage.filesystem import CHUNK_BYTES
from lakeward.storage.landing import new_digest
from lakeward.text import listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lakeward.mirror.op.context import TableContext

_SHOWN = 5
_UNDECIDED = (Disposition.REWRITTEN, Disposition.RETURNED)


@dataclass(frozen=True)
class SeenFile:
    """A load file in the folder with the ledger entry of its path, if there is one."""

    file: LandingFile
    entry: LedgerEntry | None = None

    def noted(self, disposition: Disposition) -> FileRecord:
        """Return the record that the file was seen in its present state, with the content that the ledger has."""
        assert self.entry is not None  # only files of known content are recorded
        return file_note(self.file, self.entry, disposition)


@dataclass
class LoadFiles:
    """A folder's load files, compared with the load of the current generation.

    ``changed`` have new content for one of its parts, ``added`` are parts that it lacks. ``rewritten`` have the content
    of a part and were written again since they were last recorded; ``undecided`` likewise, as an earlier op recorded.
    ``untouched`` have not changed, ``absent`` parts are gone. ``returned`` do not belong to the load and were written
    again with the content they had; ``copies`` hold the content of a part in another format. ``beside`` are all entries
    of files that are not part of the load. ``unstable`` files are still being written.
    """

    changed: list[LandingFile] = field(default_factory=list)
    added: list[LandingFile] = field(default_factory=list)
    rewritten: list[SeenFile] = field(default_factory=list)
    undecided: list[SeenFile] = field(default_factory=list)
    untouched: list[SeenFile] = field(default_factory=list)
    returned: list[SeenFile] = field(default_factory=list)
    copies: list[FileRecord] = field(default_factory=list)
    absent: list[LedgerEntry] = field(default_factory=list)
    beside: list[LedgerEntry] = field(default_factory=list)
    unstable: list[str] = field(default_factory=list)
    has_load: bool = False

    @property
    def identical(self) -> list[SeenFile]:
        """Parts that were written again with the same content."""
        return [*self.rewritten, *self.undecided]


@dataclass(frozen=True)
class LoadVerdict:
    """What the load files require: an op, a pause, or only notes that the next op records."""

    next: Work | Waiting | None = None
    notes: tuple[FileRecord, ...] = ()
    is_rewritten: bool = False


def decide_loads(
    context: TableContext, current: Generation | None, loads: Sequence[SeenFile], *, has_changes: bool
) -> LoadVerdict:
    """Return what the load files of a table require; ``has_changes``: change files follow the load.

    Raises:
        CutError: the files do not show which of them belong to a reload.
        ConfigurationError: ``--same-load`` does not fit what is there.
    """
    if current is None:
        return LoadVerdict(_first_load(context, [seen.file for seen in loads])) if loads else LoadVerdict()
    found = compare(context, current, loads)
    if found.unstable:
        return LoadVerdict(Waiting(f"load files are still being written: {', '.join(found.unstable[:_SHOWN])}"))
    if _is_reload(context, current, found):
        return LoadVerdict(_reload(context, current, found))
    if context.options.same_load and found.changed:
        raise _not_the_same(context, found.changed)
    notes = tuple(_notes(context, found, has_changes=has_changes))
    return LoadVerdict(_joining(context, current, found, notes), notes, bool(found.identical))


def _is_reload(context: TableContext, current: Generation, found: LoadFiles) -> bool:
    """Whether there is a reload: new content shows it, or the user declares it.

    After the adoption of a lake, which was complete, every load file is one of a reload.
    """
    options = context.options
    if current.adopted and any(file.path not in options.drop_parts for file in found.added):
        return True
    if options.same_load:
        return False
    written = bool(found.identical or found.added or found.returned)
    return bool(found.changed) or (written and (options.reload or options.cut is not None))


# --- comparing ----------------------------------------------------------------------------------------------------


def compare(context: TableContext, current: Generation, loads: Sequence[SeenFile]) -> LoadFiles:
    """Compare the folder's load files with the current generation's load, by name and content."""
    settings, entries = context.settings, context.state.load_parts(context.table, current.number)
    parts = {part_as_set(entry.path, settings): entry for entry in entries if is_part(entry)}
    found = LoadFiles(beside=[entry for entry in entries if not is_part(entry)], has_load=bool(parts))
    listed = {seen.file.path: seen.file for seen in loads}
    for seen in loads:
        if seen.entry is not None and seen.entry.generation == current.number:
            _classify_known(context, seen.file, seen.entry, parts, found)
        elif seen.entry is None or seen.entry.identity != seen.file.identity:
            _classify_new(context, seen.file, parts, listed, found)
    replaced = {part_as_set(file.path, settings) for file in found.changed}
    # A part that came in another format leaves its old file behind.
    found.untouched = [seen for seen in found.untouched if part_as_set(seen.file.path, settings) not in replaced]
    copied = {part_as_set(record.summary.path, settings) for record in found.copies}
    gone = [entry for entry in parts.values() if entry.path not in listed]
    found.absent += [entry for entry in gone if part_as_set(entry.path, settings) not in replaced | copied]
    return found


def is_part(entry: LedgerEntry) -> bool:
    """Whether the load file of a ledger entry is part of its generation's load."""
    return entry.disposition not in (Disposition.SUPERSEDED, Disposition.RETURNED, Disposition.FENCED)


def _classify_known(
    context: TableContext,
    file: LandingFile,
    entry: LedgerEntry,
    parts: dict[tuple[str, int], LedgerEntry],
    found: LoadFiles,
) -> None:
    """Classify a file that the current generation has an entry for."""
    seen = SeenFile(file, entry)
    if entry.identity == file.identity:
        if entry.disposition is Disposition.REWRITTEN:
            found.undecided.append(seen)
        elif is_part(entry):
            found.untouched.append(seen)
        return
    content = _content(context, file)
    if content is None:
        found.unstable.append(file.path)
    elif content == entry.content_hash:
        (found.rewritten if is_part(entry) else found.returned).append(seen)
    else:
        (found.changed if part_as_set(file.path, context.settings) in parts else found.added).append(file)


def _classify_new(
    context: TableContext,
    file: LandingFile,
    parts: dict[tuple[str, int], LedgerEntry],
    listed: dict[str, LandingFile],
    found: LoadFiles,
) -> None:
    """Classify a file that the current generation has no entry for."""
    part = parts.get(part_as_set(file.path, context.settings))
    if part is None:
        found.added.append(file)
        return
    content = _content(context, file)
    if content is None:
        found.unstable.append(file.path)
    elif content == part.content_hash or _same_unpacked(context, file, listed.get(part.path), part):
        summary = FileSummary(file.path, file.file_class, file.time, file.identity, content, rows=part.rows)
        found.copies.append(FileRecord(summary, Disposition.SUPERSEDED))
    else:
        found.changed.append(file)


def _content(context: TableContext, file: LandingFile) -> str | None:
    """Return the hash of a file's bytes, None while it is still being written."""
    try:
        with context.storage.spool(file.path) as (_, content_hash):
            pass
    except FileNotFoundError:
        return None
    return content_hash if is_as_listed(context.storage, file) else None


def _same_unpacked(context: TableContext, file: LandingFile, other: LandingFile | None, part: LedgerEntry) -> bool:
    """Whether a file holds the bytes of a part that was compressed or unpacked since."""
    unpacked = _unpacked_content(context, file)
    if unpacked == part.content_hash:
        return True
    is_there = other is not None and other.identity == part.identity
    return is_there and unpacked == _unpacked_content(context, other) if other is not None else False


def _unpacked_content(context: TableContext, file: LandingFile) -> str:
    """Return the hash of a file's bytes, those of a compressed file after unpacking."""
    with context.storage.spool(file.path) as (local_path, content_hash):
        if not is_gzip(local_path):
            return content_hash
        digest = new_digest()
        try:
            with open_bytes(local_path, Limits.of(context.settings)) as unpacked:
                while chunk := unpacked.read(CHUNK_BYTES):
                    digest.update(chunk)
        except (OSError, EOFError, zlib.error, UnusableFileError):
            return content_hash  # damaged, or too large to unpack: equal to nothing but itself
        return digest.hexdigest()


# --- a load, a part that arrives later ------------------------------------------------------------------------------


def _first_load(context: TableContext, files: Sequence[LandingFile]) -> Work | Waiting:
    if waiting := _settling(files, context.settings.load_settle, "the load is taken"):
        return waiting
    taken = tuple(file for file in files if file.path not in context.options.drop_parts)
    _require_one_file_per_part(context, taken)
    dropped = tuple(dropped_part(context, file) for file in files if file not in taken)
    decision = LoadDecision("", dropped=tuple(note.summary.path for note in dropped))
    return Work(OpKind.LOAD, Generation(1), taken, starts=True, notes=dropped, decision=decision, needs_cut=True)


def _joining(
    context: TableContext, current: Generation, found: LoadFiles, notes: tuple[FileRecord, ...]
) -> Work | Waiting | None:
    """Return the op that adds new parts to the current generation's load, if there are any."""
    added = [file for file in found.added if file.path not in context.options.drop_parts]
    if not found.added:
        return None
    if waiting := _settling(found.added, context.settings.load_settle, "they are taken"):
        return waiting
    _require_one_file_per_part(context, added)
    dropped = tuple(dropped_part(context, file) for file in found.added if file not in added)
    if not added:
        return Work(OpKind.BATCH, current, notes=(*notes, *dropped))
    if found.has_load and not context.settings.primary_key:
        _require_soon_after(context, current, added)
    decision = LoadDecision("", dropped=tuple(note.summary.path for note in dropped))
    return Work(
        OpKind.LOAD, current, tuple(added), notes=(*notes, *dropped), decision=decision, needs_cut=not found.has_load
    )


def _require_soon_after(context: TableContext, current: Generation, added: Sequence[LandingFile]) -> None:
    """Refuse parts that come later than ``load_settle`` after the load: without a key nothing shows a repeated row."""
    entries = context.state.load_parts(context.table, current.number)
    newest = max((entry.identity.mtime_us for entry in entries if is_part(entry)), default=0)
    limit = newest + context.settings.load_settle * 1e6
    late = [file for file in added if file.identity.mtime_us > limit and file.path not in context.options.keep_parts]
    if late:
        msg = (
            f"{context.table} has no key, and {_names(late)} came more than load_settle "
            f"({context.settings.load_settle:g} s) after its load: it cannot be known whether it is a part of that "
            "load or a new load"
        )
        raise CutError(msg, hint=_choices(context, [file.path for file in late], "belongs to the load"))


def _settling(files: Sequence[LandingFile], settle: float, then: str) -> Waiting | None:
    """Return the pause that recently written files need; times far in the future are ignored as wrong."""
    youngest = max(file.identity.mtime_us for file in files)
    age = time.time() - youngest / 1e6
    if not -settle < age < settle:
        return None
    return Waiting(f"load parts arrived {max(age, 0):.0f} s ago; {then} after {settle - age:.0f} s without new ones")


def _notes(context: TableContext, found: LoadFiles, *, has_changes: bool) -> Iterator[FileRecord]:
    """Yield the records of files that were written again and change nothing."""
    same_load = context.options.same_load
    for seen in found.rewritten:
        is_open = has_changes and not same_load
        yield seen.noted(Disposition.REWRITTEN if is_open else Disposition.REDELIVERED)
    for seen in found.returned:
        yield seen.noted(Disposition.SUPERSEDED if same_load else Disposition.RETURNED)
    if same_load:
        yield from (seen.noted(Disposition.REDELIVERED) for seen in found.undecided)
        yield from (_outside_load(entry) for entry in found.beside if entry.disposition is Disposition.RETURNED)
    yield from found.copies


# --- a reload -------------------------------------------------------------------------------------------------------


def _reload(context: TableContext, current: Generation, found: LoadFiles) -> Work | Waiting:
    """Return the op that begins the next generation, once it is clear which files belong to the reload."""
    if context.options.files:
        return Waiting("a reload is there; it is decided by a run without --file")
    written = [*found.changed, *found.added, *(seen.file for seen in (*found.identical, *found.returned))]
    if waiting := _settling(written, context.settings.reload_settle, "the reload is taken"):
        return Waiting(f"a reload is there ({_names(written)}): {waiting.reason}")
    chosen = _chosen_parts(context, found)
    _require_one_file_per_part(context, chosen.taken)
    entries = {seen.file.path: seen.entry for seen in chosen.same if seen.entry is not None}
    notes = tuple(_left_behind(context, current, found, chosen))
    decision = LoadDecision(
        "",
        changed=tuple(file.path for file in found.changed if file in chosen.taken),
        kept=tuple(sorted(entries)),
        dropped=tuple(sorted(chosen.dropped)),
    )
    taken = tuple(sorted(chosen.taken, key=lambda file: file.path))
    following = Generation(current.number + 1)
    return Work(
        OpKind.LOAD, following, taken, starts=True, notes=notes, decision=decision, former=entries, needs_cut=True
    )


@dataclass
class _Chosen:
    """The files of a reload; ``same`` are those among them with the content of the load before."""

    taken: list[LandingFile] = field(default_factory=list)
    same: list[SeenFile] = field(default_factory=list)
    dropped: set[str] = field(default_factory=set)


def _chosen_parts(context: TableContext, found: LoadFiles) -> _Chosen:
    """Choose the reload's files.

    Raises:
        CutError: parts of the load before are unchanged or gone, and the user has not declared what that means.
    """
    options, chosen = context.options, _Chosen()
    questions: dict[str, str] = {}
    written_by_tool = context.settings.landing_times == "trusted" or options.reload
    for file in (*found.changed, *found.added):
        if file.path in options.drop_parts:
            chosen.dropped.add(file.path)
        else:
            chosen.taken.append(file)
    unchanged = [(seen, written_by_tool, "has its old content and a new time") for seen in found.identical]
    unchanged += [(seen, written_by_tool, "was left out of the load and has a new time") for seen in found.returned]
    unchanged += [(seen, False, "was not written again") for seen in found.untouched]
    for seen, belongs, reason in unchanged:
        if seen.file.path in options.drop_parts:
            chosen.dropped.add(seen.file.path)
        elif belongs or seen.file.path in options.keep_parts:
            chosen.taken.append(seen.file)
            chosen.same.append(seen)
        else:
            questions[seen.file.path] = reason
    for entry in found.absent:
        if entry.path in options.drop_parts or _is_expired(context, entry):
            chosen.dropped.add(entry.path)
        else:
            questions[entry.path] = "is gone"
    if questions:
        raise _unclear_parts(context, found, questions)
    return chosen


def _is_expired(context: TableContext, entry: LedgerEntry) -> bool:
    retention = context.settings.landing_retention
    return retention is not None and entry.identity.mtime_us < (time.time() - retention) * 1e6


def _left_behind(context: TableContext, current: Generation, found: LoadFiles, chosen: _Chosen) -> Iterator[FileRecord]:
    """Yield notes on all known load files that the reload lacks: they are not part of it from now on."""
    taken = {file.path for file in chosen.taken}
    listed = {seen.file.path: seen for seen in (*found.identical, *found.untouched, *found.returned)}
    for entry in context.state.load_parts(context.table, current.number):
        if entry.path in taken:
            continue
        seen = listed.get(entry.path)
        yield seen.noted(Disposition.SUPERSEDED) if seen is not None else _outside_load(entry)
    known = {entry.path for entry in context.state.load_parts(context.table, current.number)}
    for file in (*found.changed, *found.added):
        if file.path not in taken and file.path not in known:
            yield dropped_part(context, file)
    yield from found.copies


# --- records and messages -------------------------------------------------------------------------------------------


def file_note(file: LandingFile, entry: LedgerEntry, disposition: Disposition) -> FileRecord:
    """Return the record of a file that was seen again with the content that its ledger entry has."""
    summary = FileSummary(file.path, file.file_class, file.time, file.identity, entry.content_hash, rows=entry.rows)
    return FileRecord(summary, disposition)


def _outside_load(entry: LedgerEntry) -> FileRecord:
    """Return the record that a load file, as the ledger has it, is not part of the load."""
    summary = FileSummary(entry.path, entry.file_class, entry.time, entry.identity, entry.content_hash, rows=entry.rows)
    return FileRecord(summary, Disposition.SUPERSEDED)


def dropped_part(context: TableContext, file: LandingFile) -> FileRecord:
    """Return the record of a new load file that the user leaves out."""
    with context.storage.spool(file.path) as (_, content_hash):
        summary = FileSummary(file.path, file.file_class, file.time, file.identity, content_hash)
    return FileRecord(summary, Disposition.SUPERSEDED)


def _require_one_file_per_part(context: TableContext, files: Iterable[LandingFile]) -> None:
    """Refuse two files that are the same part in two formats: their rows would be mixed."""
    by_name: dict[tuple[str, int], list[LandingFile]] = {}
    for file in files:
        by_name.setdefault(part_as_set(file.path, context.settings), []).append(file)
    twice = [group for group in by_name.values() if len(group) > 1]
    if twice:
        msg = f"{context.table}: one load part exists as several files: {_names(twice[0])}; expected one of them"
        raise CutError(msg, hint=_choices(context, [file.path for file in twice[0]], None))


def _unclear_parts(context: TableContext, found: LoadFiles, questions: dict[str, str]) -> CutError:
    reasons = "; ".join(f"{path} {reason}" for path, reason in list(questions.items())[:_SHOWN])
    more = f"; and {len(questions) - _SHOWN} more" if len(questions) > _SHOWN else ""
    new = _names([*found.changed, *found.added])
    msg = (
        f"{context.table}: a reload is there ({new}), but it cannot be known whether these parts of the load before "
        f"belong to it: {reasons}{more}"
    )
    return CutError(msg, hint=_choices(context, list(questions), "belongs to the reload"))


def _not_the_same(context: TableContext, changed: Sequence[LandingFile]) -> ConfigurationError:
    msg = (
        f"{context.table}: --same-load does not fit: these load parts have other content than before: {_names(changed)}"
    )
    return ConfigurationError(msg, hint=f"lakeward run {shlex.quote(str(context.table))}   (without --same-load)")


def _choices(context: TableContext, paths: Sequence[str], kept: str | None) -> str:
    """Return the command for each choice that the user has."""
    command = f"lakeward run {shlex.quote(str(context.table))}"
    drops = " ".join(f"--drop-part {shlex.quote(path)}" for path in paths[:_SHOWN])
    if kept is None:
        return f"remove one of them; or leave one out: {command} --drop-part {shlex.quote(paths[0])}"
    keeps = " ".join(f"--keep-part {shlex.quote(path)}" for path in paths[:_SHOWN])
    return f"it {kept}: {command} {keeps}; it does not: {command} {drops}"


def _names(files: Sequence[LandingFile]) -> str:
    return listed((file.path for file in files), most=_SHOWN)


def undecided_loads(context: TableContext, current: Generation | None) -> str | None:
    """Return a warning while load files that were written again wait for ``--same-load`` or ``--reload``."""
    if current is None:
        return None
    entries = context.state.load_parts(context.table, current.number)
    paths = [entry.path for entry in entries if entry.disposition in _UNDECIDED]
    if not paths:
        return None
    shown, table = listed(paths, most=_SHOWN), shlex.quote(str(context.table))
    return (
        f"load files were written again with the same content after changes had been applied: {shown}; nothing was "
        f"changed. If they were only copied or touched: lakeward run {table} --same-load; if the source was loaded "
        f"again: lakeward run {table} --reload"
    )
