"""The cut between one generation and the next: which change files follow a load.

The evidence comes from inside the files: the times in a load's own rows, the names of change files (the moment
at which the replication tool created them) and the commit times in them. A file created before the load wrote its first
row is in the load; one created later is applied on top of it. Applying a few extra changes from just before the
load does no harm, because every later change follows; leaving one out would lose it. Without such times the
modification times of load files decide if the user has declared them as trusted; otherwise the user decides.
"""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakeward import schemas as S
from lakeward.errors import CutError
from lakeward.formats.dms.listing import load_part
from lakeward.formats.file_order import place_after, shown_place
from lakeward.mirror.op.changelog import LoadDecision
from lakeward.mirror.op.choose import Scan, batch_before, pending_changes
from lakeward.mirror.op.ledger import change_files, newest_place, sides_in_order
from lakeward.mirror.op.loads import is_part
from lakeward.mirror.op.places import cut_at, has_own_order, user_cut
from lakeward.model import Generation, time_digits
from lakeward.text import count
from lakeward.transforms.columns import column
from lakeward.transforms.columns import columns as named
from lakeward.transforms.fold import having_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from lakeward.columns import Column
    from lakeward.formats.base import FileSummary
    from lakeward.mirror.op.context import TableContext, Work
    from lakeward.model import Progress

FIRST_LOAD, LOAD_TIMES, LANDING_TIMES = "first load", "load times", "landing times"
USER, OBSERVED, SAME_LOAD, RESET = "user", "observed", "same load", "reset"
_SHOWN = 5
# The length of times in file names.
_DIGITS = 20


@dataclass(frozen=True)
class _Cut:
    """A cut and its evidence; ``at`` is empty where every change file follows the load.

    ``began`` is the moment at which the load did, in microseconds since 1970, where that is known and not the cut.
    """

    at: str
    evidence: str
    undecided_from: str = ""
    began: int | None = None


@dataclass(frozen=True)
class _ReadLoad:
    """A load that was read, and its table's progress. ``times`` are the first and last time of its new rows."""

    context: TableContext
    work: Work
    progress: Progress
    parts: Sequence[FileSummary]
    times: tuple[int, int] | None

    @property
    def former(self) -> Generation | None:
        """The generation whose load this one would replace, None when the table has no load yet."""
        return self.progress.generation if self.work.starts else None

    @property
    def comes_later(self) -> bool:
        """Whether there was a load before, so that landing may hold files of several loads."""
        current = self.progress.generation
        return self.former is not None or (current is not None and current.emptied)

    @property
    def timed_by_row(self) -> bool:
        """Whether the times are those of rows: the start of the task would be the same in all rows of a part."""
        parts = _new_parts(self.work, self.parts) if self.times is not None else []
        current = self.progress.generation
        is_known = current is not None and bool(current.timed_by_row)
        return is_known or any(part.oldest_commit != part.newest_commit for part in parts)


def with_cut(
    context: TableContext, work: Work, progress: Progress, columns: Sequence[Column], parts: Sequence[FileSummary]
) -> Work:
    """Return a load's work with its generation and decision, or the work that must precede it.

    Raises:
        CutError: nothing shows which change files follow the load, or the files contradict each other.
    """
    load = _ReadLoad(context, work, progress, parts, load_times(context, columns, _new_parts(work, parts)))
    if not work.needs_cut:
        return _joined(load)
    _require_one_load(load)
    if has_own_order(context) and load.comes_later and context.options.cut is None:
        # Names do not show which files precede the load; once they are applied, what was found in them is known.
        waiting = batch_before(context, progress, None)
        if waiting is not None:
            return waiting
    cut = _cut(load)
    before, after = _sides(load, cut)
    if progress.generation is not None and before and cut.evidence != FIRST_LOAD:
        earlier = batch_before(context, progress, cut.at)
        if earlier is not None:
            return earlier
    return _decided(load, cut, before, after)


def load_times(
    context: TableContext, columns: Sequence[Column], parts: Sequence[FileSummary]
) -> tuple[int, int] | None:
    """Return the first and last time at which a load's rows were loaded, None where the rows do not show it.

    A timestamp column that belongs to the table itself holds the time of a row's change, not that of its loading.
    """
    name = context.settings.timestamp_column
    if name is None or any(column.name.lower() == name.lower() for column in columns):
        return None
    with_rows = [part for part in parts if part.rows > part.bad]
    oldest = [part.oldest_commit for part in with_rows if part.oldest_commit is not None]
    newest = [part.newest_commit for part in with_rows if part.newest_commit is not None]
    return (min(oldest), max(newest)) if oldest and len(oldest) == len(with_rows) else None


def _new_parts(work: Work, parts: Sequence[FileSummary]) -> list[FileSummary]:
    return [part for part in parts if part.path not in work.former]


def _require_one_load(load: _ReadLoad) -> None:
    """Refuse parts of different loads: they would be mixed.

    Several reloads may have come since the last run, and a smaller one leaves parts of a larger one behind. Within a
    segment DMS writes part after part, so that times that go backwards reveal it.
    """
    options, former = load.context.options, load.former
    if options.reload:
        return  # the user has decided
    of_former = (part for part in load.parts if _is_of_former(load, part))
    older = {part.path: "its rows were loaded with the load before" for part in of_former}
    if former is not None and len(older) == len(load.parts):
        older = {}  # times that stay the same prove nothing
    doubts = older or _doubtful_parts(load)
    doubts = {path: reason for path, reason in doubts.items() if path not in options.keep_parts}
    if doubts:
        raise _mixed_loads(load, doubts)


def _is_of_former(load: _ReadLoad, part: FileSummary) -> bool:
    limit = load.former.load_to if load.former is not None else None
    return limit is not None and part.newest_commit is not None and part.newest_commit <= limit


def _doubtful_parts(load: _ReadLoad) -> dict[str, str]:
    """Return the parts that may belong to another load, each with the reason."""
    parts = [part for part in load.parts if part.path not in load.context.options.keep_parts]
    spans = _spans(load, parts)
    if len(parts) == 1 or (spans is None and not load.comes_later):
        return {}
    if spans is None:
        return dict.fromkeys((part.path for part in parts), "nothing inside it shows which load it belongs to")
    segments: dict[str, list[tuple[int, str]]] = {}
    for path in spans:
        segment, counter = load_part(path)
        segments.setdefault(segment, []).append((counter, path))
    if len(segments) > 1 and load.comes_later:
        return dict.fromkeys(spans, "it is one of several segments, which may be of different loads")
    neighbours = (pair for numbered in segments.values() for pair in pairwise(sorted(numbered)))
    return {
        later: f"it is older than {earlier.rpartition('/')[2]}, which comes before it"
        for (_, earlier), (_, later) in neighbours
        if spans[earlier][1] > spans[later][0]
    }


def _spans(load: _ReadLoad, parts: Sequence[FileSummary]) -> dict[str, tuple[int, int]] | None:
    """Return when each part was loaded: by its rows, else by trusted modification times; None where it is unknown.

    A single time for all rows of all parts is the task's start, which several loads may share.
    """
    if load.times is not None and load.times[0] < load.times[1] and _is_proof(load):
        with_rows = (part for part in parts if part.rows > part.bad)
        return {part.path: (part.oldest_commit or 0, part.newest_commit or 0) for part in with_rows}
    if load.comes_later and load.context.settings.landing_times == "trusted":
        return {part.path: (part.identity.mtime_us, part.identity.mtime_us) for part in parts}
    return None


def _is_proof(load: _ReadLoad) -> bool:
    return load.times is not None and (load.former is None or _is_newer(load, load.former, load.times[0]))


def _mixed_loads(load: _ReadLoad, doubts: dict[str, str]) -> CutError:
    table = shlex.quote(str(load.context.table))
    shown = list(doubts)[:_SHOWN]
    keeps, drops = (" ".join(f"--{verb}-part {shlex.quote(path)}" for path in shown) for verb in ("keep", "drop"))
    reasons = "; ".join(f"{path}: {doubts[path]}" for path in shown)
    what = "a load" if load.former is None else "a reload"
    msg = (
        f"{load.context.table}: {what} of {len(load.parts)} parts is there, but it cannot be known whether these "
        f"belong to it or were left behind by another: {reasons}"
    )
    hint = (
        f"they belong to it: lakeward run {table} {keeps}; they do not: lakeward run {table} {drops}; all load files "
        f"there are one load: lakeward run {table} --reload"
    )
    return CutError(msg, hint=hint)


def _cut(load: _ReadLoad) -> _Cut:
    context = load.context
    if (known := _known_cut(load)) is not None:
        return known
    if not load.comes_later:
        # Nothing indicates a reload. A load's own time is often later than the first changes that follow it.
        return _Cut("", FIRST_LOAD)
    if has_own_order(context):
        return _cut_in_order(load)
    proven = load.times[0] if load.times is not None and _is_proof(load) else None
    if proven is not None and load.timed_by_row:
        return _Cut(time_digits(proven), LOAD_TIMES)
    if context.settings.landing_times == "trusted":
        return _Cut(time_digits(_first_written(load)), LANDING_TIMES)
    return _unproven_cut(load, proven)


def _known_cut(load: _ReadLoad) -> _Cut | None:
    """Return the cut that the user names, or that was known before a reset; None where it is to be found."""
    context = load.context
    if (decided := user_cut(context)) is not None:
        return _Cut(decided, USER)
    if context.again is not None and load.progress.generation is None:
        return _Cut(context.again.cut, RESET, context.again.undecided_from)
    return None


def _cut_in_order(load: _ReadLoad) -> _Cut:
    """Return the cut in an order of files that names no times: where those that precede the load end.

    Every change file was read. What shows on which side one belongs are the commit times in it, if the times in the
    load's rows are those of rows, or else its modification time, if that is declared as trusted.

    Raises:
        CutError: nothing shows it, or files on both sides alternate.
    """
    context, progress = load.context, load.progress
    if load.progress.last_place is None:
        newest = newest_place(context, progress)
        # Names may begin anew with a load; numbers only grow. A file that comes before the cut may follow the load.
        anew = newest is not None and not context.settings.files.records_arrival
        return _Cut(place_after(newest) if newest else "", OBSERVED, undecided_from=" " if anew else "")
    by_commit = load.times is not None and load.timed_by_row and _is_proof(load)
    if by_commit and load.times is not None:
        moment, evidence = load.times[0], LOAD_TIMES
    elif context.settings.landing_times == "trusted":
        moment, evidence = _first_written(load), LANDING_TIMES
    else:
        raise _unknown_order(load, _why_no_times(load))
    sides = sides_in_order(context, progress, moment, by_commit=by_commit)
    if sides.unknown:
        raise _unknown_order(
            load, count(sides.unknown, "change file has no commit times", "change files have no commit times")
        )
    last, first = sides.last_before, sides.first_after
    if last is not None and first is not None and last.place >= first.place:
        why = f"by {evidence}, {first.path} follows it and {last.path}, which comes later in the order, does not"
        raise _unknown_order(load, why)
    began = moment if by_commit else None
    if first is None:
        return _Cut(place_after(last.place) if last is not None else "", evidence, began=began)
    return _Cut(first.place, evidence, undecided_from=place_after(last.place) if last is not None else " ", began=began)


def _unknown_order(load: _ReadLoad, why: str) -> CutError:
    """Return the error for a reload whose cut in an order of files is unknown, with the choices."""
    context, table = load.context, shlex.quote(str(load.context.table))
    sides = sides_in_order(context, load.progress, 0, by_commit=False)
    reload = " --reload" if context.options.reload else ""
    run = f"lakeward run {table}{reload}"
    msg = (
        f"{context.table}: a reload is there ({', '.join(part.path for part in load.parts[:_SHOWN])}), but nothing "
        f"shows which of {count(sides.count, 'change file')} follow it: {why}"
    )
    choices = [f"those from PATH on follow it: {run} --cut file:PATH"]
    if sides.last is not None and sides.first is not None:
        choices = [
            f"all of them are in it: {run} {cut_at(sides.last, behind=True)}",
            f"all of them follow it: {run} {cut_at(sides.first)}",
            *choices,
        ]
    if context.settings.landing_times != "trusted":
        trusted = f"lakeward tables set {table} --set landing_times=trusted"
        choices.append(f"if only the tool that captures writes to landing: {trusted}")
    return CutError(msg, hint="; ".join(choices))


def _unproven_cut(load: _ReadLoad, since: int | None) -> _Cut:
    """Return the cut of a load of which only the earliest possible time is known, or none at all."""
    former = load.former
    if since is not None:
        return _cut_between(load, time_digits(since), LOAD_TIMES)
    if former is None:
        return _cut_between(load, "0" * _DIGITS, OBSERVED)
    if not _has_change_files(load):
        # A file created after the complete load was seen follows it; earlier names remain undecided.
        now = time_digits(time.time_ns() // 1000)
        return _Cut(now, OBSERVED, undecided_from=former.undecided_from or former.cut or "0" * _DIGITS)
    raise _unknown_cut(load)


def _cut_between(load: _ReadLoad, start: str, evidence: str) -> _Cut:
    """Return the cut of a load that began at ``start`` or later, and before its files were written.

    One time in all rows may be the start of the task, and after a truncate the table may have been loaded more than
    once. Copying makes modification times later, so that change files named from the earliest of them on follow the
    load. Files named in between may precede it: those that are there stop the table now, and others once they come.
    """
    now = time_digits(time.time_ns() // 1000)
    end = max(start, min(time_digits(_first_written(load)), now))
    scan = Scan()
    waiting = any(start <= file.time < end for _, file in pending_changes(load.context, load.progress, scan))
    waiting = waiting or any(start <= file.time < end for file in scan.undecided)
    if start < end and (waiting or _consumed_before(load, end) > _consumed_before(load, start)):
        raise _unknown_cut(load)
    return _Cut(end, evidence, undecided_from=start if start < end else "")


def _consumed_before(load: _ReadLoad, moment: str) -> int:
    return change_files(load.context, load.progress, cut=moment).before


def _is_newer(load: _ReadLoad, former: Generation, first: int) -> bool:
    """Whether a load's rows were loaded after those of the load before; two loads may share a task's start time."""
    if former.load_to is not None:
        return first > former.load_to
    if has_own_order(load.context):
        return _has_commits_before(load, first) or not _has_change_files(load)
    known = change_files(load.context, load.progress, cut=time_digits(first))
    return known.before > 0 or not _has_change_files(load)


def _has_commits_before(load: _ReadLoad, moment: int) -> bool:
    """Whether some change file of the current generation has commits before a moment only."""
    return sides_in_order(load.context, load.progress, moment, by_commit=True).last_before is not None


def _first_written(load: _ReadLoad) -> int:
    new = _new_parts(load.work, load.parts) or load.parts
    return min(part.identity.mtime_us for part in new)


def _has_change_files(load: _ReadLoad) -> bool:
    scan = Scan()
    waiting = next(pending_changes(load.context, load.progress, scan), None)
    return waiting is not None or load.progress.last_place is not None or bool(scan.undecided)


def _sides(load: _ReadLoad, cut: _Cut) -> tuple[int, int]:
    """Return how many change files, consumed and waiting, are before and after a cut; refuse a contradiction."""
    context, progress = load.context, load.progress
    # Every change file follows the first load; those that were created before it are counted for the record.
    at = cut.at
    if cut.evidence == FIRST_LOAD and load.times is not None and not has_own_order(context):
        at = time_digits(load.times[0])
    known = change_files(context, progress, cut=at)
    scan, before, after = Scan(count_from=at), 0, 0
    for _, file in pending_changes(context, progress, scan):
        before, after = before + (file.time < at), after + (file.time >= at)
    undecided = sum(file.time < at for file in scan.undecided)
    if cut.evidence == LOAD_TIMES and load.times is not None:
        _require_older(load, known.newest_before, known.timeless_before, load.times[0])
    if _begins(load, cut) and scan.counted_changes < known.after:
        raise _later_files_gone(load, known.after - scan.counted_changes, known.after)
    return known.before + before + undecided, known.after + after + len(scan.undecided) - undecided


def _require_older(load: _ReadLoad, newest: int | None, timeless: int, first: int) -> None:
    if timeless or (newest is not None and newest >= first):
        found = "have no commit times" if timeless else f"hold commits up to {time_digits(newest or 0)}"
        msg = (
            f"{load.context.table}: change files that were created before the load began ({time_digits(first)}) "
            f"{found}: it cannot be known whether they precede it; are the times in file names in another time zone?"
        )
        raise CutError(msg, hint=f"set name_timezone; or {_cut_hint(load, time_digits(first))}")


def _later_files_gone(load: _ReadLoad, gone: int, after: int) -> CutError:
    """Return the error for consumed changes that follow a reload and can no longer be read for it."""
    msg = (
        f"{load.context.table}: of {count(after, 'consumed change file')} that would follow the reload, {gone:,} can "
        "no longer be found in landing and cannot be applied on top of it"
    )
    return CutError(msg, hint="restore them from a backup of landing, or reload the table once more at the source")


def _decided(load: _ReadLoad, cut: _Cut, before: int, after: int) -> Work:
    """Complete the work: a reload begins the next generation, and so does a load that arrived after changes."""
    first, last = load.times or (None, None)
    reasons = load.work.decision or LoadDecision("")
    decision = replace(
        reasons, evidence=cut.evidence, cut=cut.at, before=before, after=after, load_from=first, load_to=last
    )
    decided = replace(_begun(load, cut), decision=decision)
    proven = first if cut.evidence == LOAD_TIMES else None
    generation = replace(decided.generation, load_from=proven, load_to=last, timed_by_row=load.timed_by_row or None)
    if cut.evidence == RESET and load.context.again is not None:
        return replace(decided, generation=_as_known(generation, load.context.again))
    if has_own_order(load.context) and generation.number > 1:
        began = _began(load, cut)
        since = time_digits(began if began is not None else time.time_ns() // 1000)
        generation = replace(generation, since=generation.since or since, load_from=began)
    return replace(decided, generation=generation)


def _as_known(generation: Generation, again: Generation) -> Generation:
    """Return the generation with what was known of its load before a reset: the same files are read again.

    When the load began may have been found in changes before it, which are read only after it now.
    """
    return replace(
        generation,
        since=again.since,
        load_from=again.load_from,
        load_to=generation.load_to if again.load_to is None else again.load_to,
        timed_by_row=again.timed_by_row or generation.timed_by_row,
    )


def _began(load: _ReadLoad, cut: _Cut) -> int | None:
    """Return when a load began whose cut is not a time: by its rows, or else after the last commit before the cut.

    Nothing was committed between the two that any file shows, so that both begin the same states of the table.
    """
    if cut.began is not None:
        return cut.began
    before = change_files(load.context, load.progress, cut=cut.at)
    if before.timeless_before or before.newest_before is None:
        return load.times[0] if load.times is not None and _is_proof(load) else None
    return before.newest_before + 1


def _begun(load: _ReadLoad, cut: _Cut) -> Work:
    """Return the work with the generation that the load begins or joins."""
    work, current = load.work, load.progress.generation
    if current is None and cut.evidence in (USER, RESET):
        begun = Generation(2, cut.at, undecided_from=cut.undecided_from)
        return replace(work, generation=begun, earlier=(Generation(1, unseen=True),))
    if current is not None and _begins(load, cut):
        following = Generation(current.number + 1, cut.at, undecided_from=cut.undecided_from)
        return replace(work, generation=following, starts=True)
    return work


def _begins(load: _ReadLoad, cut: _Cut) -> bool:
    """Whether a generation begins with the load: there was one before, or a truncate."""
    return load.work.starts or (load.progress.generation is not None and bool(cut.at))


def _joined(load: _ReadLoad) -> Work:
    """Return the work for load parts that arrive later: their rows were loaded before any change was written."""
    work, current = load.work, load.progress.generation
    assert current is not None  # parts join the load of a generation
    _require_same_naming(load, current)
    if load.times is not None:
        _require_before_changes(load, load.times[0])
    ends = (current.load_to, load.times[1] if load.times else None)
    newest = max((moment for moment in ends if moment is not None), default=None)
    decision = replace(work.decision or LoadDecision(""), evidence=SAME_LOAD, cut=current.cut)
    return replace(work, generation=replace(current, load_to=newest), decision=decision)


def _require_same_naming(load: _ReadLoad, current: Generation) -> None:
    """Refuse parts that are named differently from the load: all parts of a load have segments, or none has."""
    entries = load.context.state.load_parts(load.context.table, current.number)
    known = {_naming(load.context, entry.path) for entry in entries if is_part(entry)}
    paths = [part.path for part in load.parts if part.path not in load.context.options.keep_parts]
    if strange := [path for path in paths if _naming(load.context, path) not in known]:
        raise _foreign_part(load.context, strange, "the parts of that load are named without segments, or by others")


def _naming(context: TableContext, path: str) -> tuple[bool, bool]:
    """Return whether a part is in a separate folder, and whether its name has a segment."""
    folder, _, segment = load_part(path)[0].rpartition("/")
    return folder != context.folder, bool(segment)


def _require_before_changes(load: _ReadLoad, loaded: int) -> None:
    paths = [part.path for part in load.parts]
    if has_own_order(load.context):
        _require_before_commits(load, paths, loaded)
        return
    first = change_files(load.context, load.progress, cut="").first
    if first is None or time_digits(loaded) <= first or all(path in load.context.options.keep_parts for path in paths):
        return
    current = load.progress.generations[-1]
    if current.load_to is not None and time_digits(current.load_to) > first:
        return  # the load's own times are later than its changes, so they prove nothing about its parts
    why = f"its rows were loaded at {time_digits(loaded)}, though change files follow that load from {first} on"
    raise _foreign_part(load.context, paths, why)


def _require_before_commits(load: _ReadLoad, paths: Sequence[str], loaded: int) -> None:
    if all(path in load.context.options.keep_parts for path in paths) or not _has_commits_before(load, loaded):
        return
    current = load.progress.generations[-1]
    if current.load_to is not None and _has_commits_before(load, current.load_to):
        return  # the load's own times are later than its changes, so they prove nothing about its parts
    why = f"its rows were loaded at {time_digits(loaded)}, after changes that follow that load"
    raise _foreign_part(load.context, paths, why)


def require_new_keys(
    load_rows: DataFrame, rows: DataFrame, context: TableContext, parts: Sequence[FileSummary]
) -> None:
    """Refuse late parts that share keys with the load they would join: they belong to another load.

    Raises:
        CutError: a key is in both.
    """
    key = context.settings.primary_key
    paths = [part.path for part in parts]
    if all(path in context.options.keep_parts for path in paths):
        return
    shared = having_keys(rows.select(*named(key)), load_rows.select(*named(key)), keys=key)
    if shared.take(1):
        raise _foreign_part(context, paths, f"that load holds {count(shared.count(), 'key')} of it, too")


def require_parts_apart(rows: DataFrame, context: TableContext, parts: Sequence[FileSummary]) -> None:
    """Refuse a reload that has a key in two of its parts: they belong to different loads.

    Raises:
        CutError: a key is in more than one part.
    """
    key = context.settings.primary_key
    paths = [part.path for part in parts]
    if len(paths) == 1 or context.options.reload or all(path in context.options.keep_parts for path in paths):
        return
    places = rows.groupBy(*named(key)).agg(F.min(S.FILE).alias(S.FILE), F.max(S.FILE).alias(S.DETAIL))
    twice = places.filter(column(S.FILE) != column(S.DETAIL)).take(1)
    if twice:
        raise shared_key(context, twice[0][S.FILE], twice[0][S.DETAIL])


def shared_key(context: TableContext, path: str, other: str) -> CutError:
    """Return the error about two parts of a reload that hold rows of the same key."""
    table = shlex.quote(str(context.table))
    msg = (
        f"{context.table}: a reload is there, and {path} and {other} hold rows of the same key: it cannot be known "
        "whether they are of one load"
    )
    hint = (
        f"leave one out: lakeward run {table} --drop-part {shlex.quote(path)}   (or {shlex.quote(other)}); "
        f"all load files there are one load: lakeward run {table} --reload"
    )
    return CutError(msg, hint=hint)


def load_warning(context: TableContext, decision: LoadDecision) -> str | None:
    """Return a warning for a first load that is newer than changes applied on top of it, None for other loads."""
    if decision.evidence != FIRST_LOAD or not decision.before or decision.load_from is None:
        return None
    table, loaded = shlex.quote(str(context.table)), time_digits(decision.load_from)
    return (
        f"{count(decision.before, 'change file')} created before the rows of the first load were loaded ({loaded}) "
        f"went on top of it; if that load is a reload: lakeward undo {table} --to-op 0, then lakeward run {table} "
        f"--cut {shown_place(loaded)}"
    )


def _foreign_part(context: TableContext, paths: Sequence[str], why: str) -> CutError:
    table = shlex.quote(str(context.table))
    listed = [shlex.quote(path) for path in paths[:_SHOWN]]
    msg = (
        f"{context.table}: {', '.join(paths[:_SHOWN])} came after the load of the current generation, and {why}: it "
        "cannot be known whether it is a part of that load or of a new one"
    )
    hint = (
        f"a new load: lakeward run {table} --reload; a part of that load: lakeward run {table} "
        f"{' '.join(f'--keep-part {path}' for path in listed)}; neither: lakeward run {table} "
        f"{' '.join(f'--drop-part {path}' for path in listed)}"
    )
    return CutError(msg, hint=hint)


def _unknown_cut(load: _ReadLoad) -> CutError:
    """Return the error for a reload whose cut is unknown, with a proposal and its effect."""
    written = time_digits(_first_written(load))
    before, after = _sides(load, _Cut(written, USER))
    why = _why_no_times(load)
    msg = (
        f"{load.context.table}: a reload is there ({', '.join(part.path for part in load.parts[:_SHOWN])}), but "
        f"nothing inside the files shows which change files follow it: {why}. By the load files' modification times, "
        f"which copying changes, {count(before, 'change file')} would be in the reload and {after:,} would follow it"
    )
    return CutError(msg, hint=_cut_hint(load, written))


def _why_no_times(load: _ReadLoad) -> str:
    if load.times is not None:
        may_be = "which may be the start of the task" if _is_proof(load) else "which is not later than the load before"
        return f"its rows carry the time {time_digits(load.times[0])}, {may_be}"
    if load.context.settings.timestamp_column is None:
        return "the table has no timestamp_column"
    return "its rows carry no time of loading"


def _cut_hint(load: _ReadLoad, proposed: str) -> str:
    table = shlex.quote(str(load.context.table))
    reload = " --reload" if load.context.options.reload else ""
    return (
        f"lakeward run {table}{reload} --cut {shown_place(proposed)}   (change files named from then on follow the "
        "reload); if only the replication tool writes to landing: "
        f"lakeward tables set {table} --set landing_times=trusted"
    )
