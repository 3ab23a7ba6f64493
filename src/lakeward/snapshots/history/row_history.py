"""The history of one row: every change in the total order over all generations, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakeward.model import Operation, Place
from lakeward.pipeline.checkpoints import is_undone
from lakeward.pipeline.workspace import Workspace
from lakeward.snapshots.history import row_events
from lakeward.snapshots.history.bad_rows import set_aside
from lakeward.snapshots.history.row_events import Event
from lakeward.snapshots.history.story import read_story
from lakeward.snapshots.history.verdicts import Deed, Verdict, judge
from lakeward.transforms.versions import LOADED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakeward.model import Generation
    from lakeward.pipeline.context import TableContext
    from lakeward.snapshots.history.bad_rows import SetAside
    from lakeward.snapshots.history.row_events import Values
    from lakeward.snapshots.history.row_keys import RowKey
    from lakeward.snapshots.history.story import Story


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
    for one in events:
        before = kept[-1] if kept else None
        is_same = before is not None and before.is_load and before.generation == one.generation
        if not (one.is_load and is_same and before is not None and same_values(before.after, one.after)):
            kept.append(one)
    return kept


def _with_absences(
    events: Sequence[Event], generations: Sequence[Generation], begun: Mapping[int, int]
) -> list[tuple[Event, Values | None]]:
    """Give each event with the row before it, and an event where a new generation came without the row."""
    found: list[tuple[Event, Values | None]] = []
    before: Values | None = None
    for generation in generations:
        own = [one for one in events if one.generation == generation.number]
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
    """Give the columns that differ, before and after; the whole row where there is none to compare with."""
    if before is None or after is None:
        return before, after
    names = [name for name in after if not _same(before.get(name), after[name])]
    return {name: before.get(name) for name in names}, {name: after[name] for name in names}


def same_values(one: Values | None, other: Values | None) -> bool:
    """Tell whether two rows are alike."""
    if one is None or other is None:
        return one is other
    return all(_same(one[name], other[name]) for name in one)


def _same(one: Any, other: Any) -> bool:
    # NaN is the only value that differs from itself.
    return bool(one == other or (one != one and other != other))  # noqa: PLR0124
