"""The history of one row: every change in the total order over all generations, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from lakeward.mirror.op.checkpoints import is_undone
from lakeward.model import Operation, Place
from lakeward.spark.workspace import Workspace
from lakeward.transforms.versions import LOADED
from lakeward.views.history import row_events
from lakeward.views.history.row_events import Event, set_aside
from lakeward.views.history.timeline import read_story

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakeward.mirror.op.context import TableContext
    from lakeward.model import Generation, Progress
    from lakeward.views.history.keys import RowKey
    from lakeward.views.history.row_events import SetAside, Values
    from lakeward.views.history.timeline import Story


# What became of each change of a row: whether its values stood, and if not, what came in its way.


_NEVER = float("inf")


class Verdict(StrEnum):
    """What became of a change."""

    WON = "won"
    STALE = "stale"
    SUPERSEDED = "superseded"
    REPEATED = "repeated"
    QUARANTINED = "quarantined"
    UNDONE = "undone"


Judgement = tuple[Verdict, str | None]


@dataclass(frozen=True)
class Deed:
    """A change of a row as far as the verdict on it depends on it.

    ``spoken`` are the columns it sets, for a delete all of them. ``is_numbered`` says that a change sequence tells it
    from every other change.
    """

    op: int
    generation: int
    place: Place
    spoken: frozenset[str]
    is_delete: bool = False
    is_numbered: bool = False

    @property
    def identity(self) -> object:
        """What two deliveries of one change have in common."""
        if self.is_numbered:
            return (self.generation, self.place.sequence, self.place.step)
        return (self.generation, self.place)


class _Later:
    """What comes after a change in the order of its generation: the oldest op that speaks of each column."""

    def __init__(self) -> None:
        self._oldest: dict[tuple[int, str | None], float] = {}

    def oldest(self, generation: int, name: str | None = None) -> float:
        """Return the oldest op of a later change that speaks of a column; of any later change where none is named."""
        return self._oldest.get((generation, name), _NEVER)

    def add(self, one: Deed) -> None:
        """Note a change; those before it come next."""
        for name in (None, *one.spoken):
            self._oldest[one.generation, name] = min(one.op, self.oldest(one.generation, name))


def judge(deeds: Sequence[Deed], progress: Progress, begun: Mapping[int, int]) -> list[Judgement]:
    """Return verdict on each of a row's changes, which come in the total order, and the reason where it did not win.

    ``begun`` gives the op that began each generation.
    """
    standing = [one for one in deeds if not is_undone(one.op, progress.undone)]
    first: dict[object, Deed] = {}
    for one in sorted(standing, key=lambda deed: (deed.op, deed.place)):
        first.setdefault(one.identity, one)
    later = _Later()
    found: list[Judgement] = []
    for one in reversed(deeds):
        if is_undone(one.op, progress.undone):
            found.append((Verdict.UNDONE, _undone_by(one.op, progress)))
        elif (delivered := first[one.identity]) is not one:
            where = f"{delivered.place.file}, row {delivered.place.row}"
            found.append((Verdict.REPEATED, f"op {delivered.op} brought the same change: {where}"))
        else:
            found.append(_outcome(one, later, begun))
            later.add(one)
    return found[::-1]


def _outcome(one: Deed, later: _Later, begun: Mapping[int, int]) -> Judgement:
    """Return whether anything of a change stood after its op."""
    if newer := [number for number, op in begun.items() if number > one.generation and op < one.op]:
        return Verdict.SUPERSEDED, f"the load of generation {min(newer)} had replaced generation {one.generation}"
    # Nothing of a delete stands once the row is written again, whatever columns that speaks of.
    names = [None] if one.is_delete or not one.spoken else [*one.spoken]
    oldest = [later.oldest(one.generation, name) for name in names]
    if max(oldest) > one.op:
        return Verdict.WON, None
    if min(oldest) < one.op:
        return Verdict.STALE, f"op {min(oldest):.0f} had brought a later change before"
    return Verdict.SUPERSEDED, "a later change came in the same op"


def _undone_by(op: int, progress: Progress) -> str:
    last = next(last for first, last in progress.undone if first <= op <= last)
    return f"op {last + 1} took it back"


@dataclass(frozen=True)
class HistoryEntry:
    """One change of a row.

    ``before`` and ``after`` hold the columns that changed, the whole row where it came or went, None where there was no
    row. ``moved_from`` and ``moved_to`` are the other key of a key change, ``raw`` the text of a bad row.
    """

    operation: str
    commit_time: str | None
    op: int
    generation: int
    file: str | None
    row: int | None
    verdict: Verdict
    reason: str | None = None
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    moved_from: dict[str, Any] | None = None
    moved_to: dict[str, Any] | None = None
    raw: str | None = None


@dataclass(frozen=True)
class RowHistory:
    """All changes of a row, oldest first, and the row as it is ``now``. ``is_cut``: older changes are left out."""

    table: str
    key: dict[str, Any]
    changes: tuple[HistoryEntry, ...]
    now: dict[str, Any] | None
    is_cut: bool = False


def history_of_row(context: TableContext, key: RowKey, *, limit: int) -> RowHistory:
    """Tell the history of one row, of which the newest ``limit`` changes; a row that never was has none."""
    story = read_story(context)
    context.adapt_plans(wanted=False)
    with Workspace() as workspace:
        # One more than wanted tells whether there are more, and what the first one told found.
        events = row_events.standing_events(story, workspace, key, limit=limit + 1)
    begun = row_events.first_ops(story)
    is_cut = len(events) > limit
    told = _with_absences(_without_idle_loads(events), story.progress.generations, begun)
    entries = _entries(story, told, row_events.undone_events(story, key, limit=limit), begun)
    mixed = _with_bad_rows(story, entries, set_aside(story, key, limit=limit))
    shown = mixed[-limit:]
    return RowHistory(
        str(context.table),
        key.shown(),
        tuple(entry for _, entry in shown),
        row_events.row_now(story, key),
        is_cut or len(shown) < len(mixed),
    )


def _without_idle_loads(events: Sequence[Event]) -> list[Event]:
    """Leave out what later parts of a load repeat of the row as an earlier one brought it."""
    kept: list[Event] = []
    for event in events:
        before = kept[-1] if kept else None
        is_same = before is not None and before.is_load and before.generation == event.generation
        if not (event.is_load and is_same and before is not None and same_values(before.after, event.after)):
            kept.append(event)
    return kept


def _with_absences(
    events: Sequence[Event], generations: Sequence[Generation], begun: Mapping[int, int]
) -> list[tuple[Event, Values | None]]:
    """Return each event with the row before it, and an event where a new generation came without the row."""
    found: list[tuple[Event, Values | None]] = []
    before: Values | None = None
    for generation in generations:
        own = [event for event in events if event.generation == generation.number]
        if before is not None and not (own and own[0].is_load) and generation.number in begun:
            op = begun[generation.number]
            gone = Event(LOADED, op, generation.number, Place("", "", "", op), None, frozenset(), None)
            found.append((gone, before))
            before = None
        for one in own:
            found.append((one, before))
            before = one.after
    return found


def _entries(
    story: Story, told: Sequence[tuple[Event, Values | None]], undone: Iterable[Event], begun: Mapping[int, int]
) -> list[tuple[Event, HistoryEntry]]:
    """Judge all events and describe them, in order."""
    ordered = sorted([*told, *((one, None) for one in undone)], key=lambda pair: pair[0].order)
    judged = judge([_deed(story, one) for one, _ in ordered], story.progress, begun)
    partners = row_events.partners(story, [one for one, _ in ordered if not one.is_load])
    files = row_events.load_files(story, {one.op for one, _ in ordered if one.is_load and not one.place.file})
    found = []
    for (event, before), (verdict, reason) in zip(ordered, judged, strict=True):
        is_fresh = verdict is Verdict.UNDONE
        old, new = (None, _spoken(event)) if is_fresh else changed(before, event.after)
        entry = HistoryEntry(
            operation=event.operation,
            commit_time=event.commit_time,
            op=event.op,
            generation=event.generation,
            file=event.place.file or files.get(event.op),
            row=event.place.row if event.place.file else None,
            verdict=verdict,
            reason=reason or _absence(event),
            before=old,
            after=new,
            moved_from=_partner(partners, event, step=0) if event.place.step else None,
            moved_to=_partner(partners, event, step=1) if event.operation == Operation.DELETE else None,
        )
        found.append((event, entry))
    return found


def _with_bad_rows(
    story: Story, entries: list[tuple[Event, HistoryEntry]], bad: Iterable[SetAside]
) -> list[tuple[Event | None, HistoryEntry]]:
    """Put bad rows where their file and row number lie among the changes: their order column may not be readable."""
    mixed: list[tuple[Event | None, HistoryEntry]] = [*entries]
    for one in bad:
        own = (one.generation, one.file_time, one.file, one.row)
        earlier = [at for at, (event, _) in enumerate(mixed) if event is not None and _file_place(event) < own]
        verdict = Verdict.UNDONE if is_undone(one.op, story.progress.undone) else Verdict.QUARANTINED
        entry = HistoryEntry("?", None, one.op, one.generation, one.file, one.row, verdict, one.reason, raw=one.raw)
        mixed.insert(earlier[-1] + 1 if earlier else 0, (None, entry))
    return mixed


def _file_place(event: Event) -> tuple[int, str, str, int]:
    return (event.generation, event.place.file_time, event.place.file, event.place.row)


def _deed(story: Story, event: Event) -> Deed:
    others = frozenset(name for name in story.names if name not in story.keys)
    is_delete = event.operation == Operation.DELETE or event.after is None
    spoken = others if is_delete else others - event.unchanged
    return Deed(event.op, event.generation, event.place, spoken, is_delete, event.is_numbered)


def _spoken(event: Event) -> Values | None:
    if event.after is None:
        return None
    return {name: value for name, value in event.after.items() if name not in event.unchanged}


def _absence(event: Event) -> str | None:
    if event.is_load and event.after is None:
        return f"generation {event.generation} began without the row"
    return None


def _partner(partners: Mapping[tuple[int, str, int, int], Values], event: Event, *, step: int) -> Values | None:
    return partners.get((event.op, event.place.file, event.place.row, step))


def changed(before: Values | None, after: Values | None) -> tuple[Values | None, Values | None]:
    """Return the columns that differ, before and after; the whole row where there is none to compare with."""
    if before is None or after is None:
        return before, after
    names = [name for name in after if not _same(before.get(name), after[name])]
    return {name: before.get(name) for name in names}, {name: after[name] for name in names}


def same_values(one: Values | None, other: Values | None) -> bool:
    """Return whether two rows are alike."""
    if one is None or other is None:
        return one is other
    return all(_same(one[name], other[name]) for name in one)


def _same(one: Any, other: Any) -> bool:
    # NaN is the only value that differs from itself.
    return bool(one == other or (one != one and other != other))  # noqa: PLR0124
