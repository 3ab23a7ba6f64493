"""The history of one row: every change, in the total order over all generations, and whether it took effect."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from lakeward.documents import Document
from lakeward.mirror.op.checkpoints import is_undone
from lakeward.model import Operation, Place
from lakeward.spark.workspace import Workspace
from lakeward.transforms.versions import LOADED
from lakeward.views.history import row_events
from lakeward.views.history.row_events import RowEvent, set_aside
from lakeward.views.history.timeline import read_timeline

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakeward.mirror.op.context import TableContext
    from lakeward.model import Generation, Progress
    from lakeward.views.history.keys import RowKey
    from lakeward.views.history.row_events import SetAside, Values
    from lakeward.views.history.timeline import Timeline


_NEVER = float("inf")


class ChangeVerdict(StrEnum):
    """Whether a change took effect, or why it did not."""

    WON = "won"
    STALE = "stale"
    SUPERSEDED = "superseded"
    REPEATED = "repeated"
    QUARANTINED = "quarantined"
    UNDONE = "undone"


Judgement = tuple[ChangeVerdict, str | None]


@dataclass(frozen=True)
class RowChange:
    """The facts about a change that its verdict depends on.

    ``columns_set`` are the columns that it sets, all of them for a delete. ``is_numbered``: the change sequence
    identifies it.
    """

    op: int
    generation: int
    place: Place
    columns_set: frozenset[str]
    is_delete: bool = False
    is_numbered: bool = False

    @property
    def identity(self) -> object:
        """The values that two deliveries of the same change have in common."""
        if self.is_numbered:
            return (self.generation, self.place.sequence, self.place.step)
        return (self.generation, self.place)


class _LaterChanges:
    """The changes that follow in the order of their generation: for each column the oldest op that sets it."""

    def __init__(self) -> None:
        self._oldest: dict[tuple[int, str | None], float] = {}

    def oldest(self, generation: int, name: str | None = None) -> float:
        """Return the oldest op among later changes that set a column, or among all of them where none is named."""
        return self._oldest.get((generation, name), _NEVER)

    def add(self, change: RowChange) -> None:
        """Add a change. Changes are added from the last to the first."""
        for name in (None, *change.columns_set):
            self._oldest[change.generation, name] = min(change.op, self.oldest(change.generation, name))


def judge_changes(changes: Sequence[RowChange], progress: Progress, begun: Mapping[int, int]) -> list[Judgement]:
    """Return the verdict on each of a row's changes, given in the total order, with the reason where it did not win.

    ``begun`` maps each generation to the op that started it.
    """
    standing = [change for change in changes if not is_undone(change.op, progress.undone)]
    first: dict[object, RowChange] = {}
    for change in sorted(standing, key=lambda change: (change.op, change.place)):
        first.setdefault(change.identity, change)
    later = _LaterChanges()
    found: list[Judgement] = []
    for change in reversed(changes):
        if is_undone(change.op, progress.undone):
            found.append((ChangeVerdict.UNDONE, _undone_by(change.op, progress)))
        elif (delivered := first[change.identity]) is not change:
            where = f"{delivered.place.file}, row {delivered.place.row}"
            found.append((ChangeVerdict.REPEATED, f"op {delivered.op} contained the same change: {where}"))
        else:
            found.append(_outcome(change, later, begun))
            later.add(change)
    return found[::-1]


def _outcome(change: RowChange, later: _LaterChanges, begun: Mapping[int, int]) -> Judgement:
    """Return the verdict on a change that was neither undone nor repeated."""
    if newer := [number for number, op in begun.items() if number > change.generation and op < change.op]:
        return (
            ChangeVerdict.SUPERSEDED,
            f"the load of generation {min(newer)} had replaced generation {change.generation}",
        )
    # A delete has no effect any more once the row is written again, whichever columns that sets.
    names = [None] if change.is_delete or not change.columns_set else [*change.columns_set]
    oldest = [later.oldest(change.generation, name) for name in names]
    if max(oldest) > change.op:
        return ChangeVerdict.WON, None
    if min(oldest) < change.op:
        return ChangeVerdict.STALE, f"op {min(oldest):.0f} had already applied a later change"
    return ChangeVerdict.SUPERSEDED, "a later change is in the same op"


def _undone_by(op: int, progress: Progress) -> str:
    last = next(last for first, last in progress.undone if first <= op <= last)
    return f"op {last + 1} undid it"


@dataclass(frozen=True)
class HistoryEntry(Document):
    """One change of a row.

    ``before`` and ``after`` hold the columns that changed, the whole row where it was added or removed, and None where
    there was no row. ``moved_from`` and ``moved_to`` are the other key of a key change, ``raw`` the text of a bad row.
    """

    operation: str
    commit_time: str | None
    op: int
    generation: int
    file: str | None
    row: int | None
    verdict: ChangeVerdict
    reason: str | None = None
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    moved_from: dict[str, Any] | None = None
    moved_to: dict[str, Any] | None = None
    raw: str | None = None


@dataclass(frozen=True)
class RowHistory(Document):
    """All changes of a row, oldest first, and the row as it is ``now``. ``is_cut``: older changes are left out."""

    table: str
    key: dict[str, Any]
    changes: tuple[HistoryEntry, ...]
    now: dict[str, Any] | None
    is_cut: bool = False


def history_of_row(context: TableContext, key: RowKey, *, limit: int) -> RowHistory:
    """Return the newest ``limit`` changes of one row; a row that never existed has none."""
    timeline = read_timeline(context)
    context.adapt_plans(wanted=False)
    with Workspace() as workspace:
        # One more than wanted: it shows whether there are more, and the row before the first change shown.
        events = row_events.standing_events(timeline, workspace, key, limit=limit + 1)
    begun = row_events.first_ops(timeline)
    is_cut = len(events) > limit
    described = _with_absences(_without_idle_loads(events), timeline.progress.generations, begun)
    entries = _entries(timeline, described, row_events.undone_events(timeline, key, limit=limit), begun)
    mixed = _with_bad_rows(timeline, entries, set_aside(timeline, key, limit=limit))
    shown = mixed[-limit:]
    return RowHistory(
        str(context.table),
        key.shown(),
        tuple(entry for _, entry in shown),
        row_events.row_now(timeline, key),
        is_cut or len(shown) < len(mixed),
    )


def _without_idle_loads(events: Sequence[RowEvent]) -> list[RowEvent]:
    """Return the events without those where a later part of a load repeats the row unchanged."""
    kept: list[RowEvent] = []
    for event in events:
        before = kept[-1] if kept else None
        is_same = before is not None and before.is_load and before.generation == event.generation
        if not (event.is_load and is_same and before is not None and same_values(before.after, event.after)):
            kept.append(event)
    return kept


def _with_absences(
    events: Sequence[RowEvent], generations: Sequence[Generation], begun: Mapping[int, int]
) -> list[tuple[RowEvent, Values | None]]:
    """Return each event with the row before it, and add an event where a new generation lacks the row."""
    found: list[tuple[RowEvent, Values | None]] = []
    before: Values | None = None
    for generation in generations:
        own = [event for event in events if event.generation == generation.number]
        if before is not None and not (own and own[0].is_load) and generation.number in begun:
            op = begun[generation.number]
            gone = RowEvent(LOADED, op, generation.number, Place("", "", "", op), None, frozenset(), None)
            found.append((gone, before))
            before = None
        for event in own:
            found.append((event, before))
            before = event.after
    return found


def _entries(
    timeline: Timeline,
    described: Sequence[tuple[RowEvent, Values | None]],
    undone: Iterable[RowEvent],
    begun: Mapping[int, int],
) -> list[tuple[RowEvent, HistoryEntry]]:
    """Return an entry for each event, with its verdict, in order."""
    ordered = sorted([*described, *((event, None) for event in undone)], key=lambda pair: pair[0].order)
    judged = judge_changes([_row_change(timeline, event) for event, _ in ordered], timeline.progress, begun)
    partners = row_events.partners(timeline, [event for event, _ in ordered if not event.is_load])
    files = row_events.load_files(
        timeline, {event.op for event, _ in ordered if event.is_load and not event.place.file}
    )
    found = []
    for (event, before), (verdict, reason) in zip(ordered, judged, strict=True):
        is_fresh = verdict is ChangeVerdict.UNDONE
        old, new = (None, _values_set(event)) if is_fresh else changed(before, event.after)
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
    timeline: Timeline, entries: list[tuple[RowEvent, HistoryEntry]], bad: Iterable[SetAside]
) -> list[tuple[RowEvent | None, HistoryEntry]]:
    """Insert bad rows by file and row number, since their order column may be unreadable."""
    mixed: list[tuple[RowEvent | None, HistoryEntry]] = [*entries]
    for bad_row in bad:
        own = (bad_row.generation, bad_row.file_time, bad_row.file, bad_row.row)
        earlier = [at for at, (event, _) in enumerate(mixed) if event is not None and _file_place(event) < own]
        verdict = ChangeVerdict.UNDONE if is_undone(bad_row.op, timeline.progress.undone) else ChangeVerdict.QUARANTINED
        entry = HistoryEntry(
            "?",
            None,
            bad_row.op,
            bad_row.generation,
            bad_row.file,
            bad_row.row,
            verdict,
            bad_row.reason,
            raw=bad_row.raw,
        )
        mixed.insert(earlier[-1] + 1 if earlier else 0, (None, entry))
    return mixed


def _file_place(event: RowEvent) -> tuple[int, str, str, int]:
    return (event.generation, event.place.file_time, event.place.file, event.place.row)


def _row_change(timeline: Timeline, event: RowEvent) -> RowChange:
    others = frozenset(name for name in timeline.source_names if name not in timeline.keys)
    is_delete = event.operation == Operation.DELETE or event.after is None
    columns_set = others if is_delete else others - event.unchanged
    return RowChange(event.op, event.generation, event.place, columns_set, is_delete, event.is_numbered)


def _values_set(event: RowEvent) -> Values | None:
    if event.after is None:
        return None
    return {name: value for name, value in event.after.items() if name not in event.unchanged}


def _absence(event: RowEvent) -> str | None:
    if event.is_load and event.after is None:
        return f"generation {event.generation} began without the row"
    return None


def _partner(partners: Mapping[tuple[int, str, int, int], Values], event: RowEvent, *, step: int) -> Values | None:
    return partners.get((event.op, event.place.file, event.place.row, step))


def changed(before: Values | None, after: Values | None) -> tuple[Values | None, Values | None]:
    """Return the columns that differ, before and after, or the whole row where there is none to compare with."""
    if before is None or after is None:
        return before, after
    names = [name for name in after if not _same(before.get(name), after[name])]
    return {name: before.get(name) for name in names}, {name: after[name] for name in names}


def same_values(left: Values | None, right: Values | None) -> bool:
    """Whether two rows have the same values."""
    if left is None or right is None:
        return left is right
    return all(_same(left[name], right[name]) for name in left)


def _same(left: Any, right: Any) -> bool:
    # NaN is the only value that differs from itself.
    return bool(left == right or (left != left and right != right))  # noqa: PLR0124
