"""What became of each change of a row: whether its values stood, and if not, what came in its way."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from lakeward.pipeline.checkpoints import is_undone

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakeward.model import Place, Progress

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
        """Give the oldest op of a later change that speaks of a column; of any later change where none is named."""
        return self._oldest.get((generation, name), _NEVER)

    def add(self, one: Deed) -> None:
        """Note a change; those before it come next."""
        for name in (None, *one.spoken):
            self._oldest[one.generation, name] = min(one.op, self.oldest(one.generation, name))


def judge(deeds: Sequence[Deed], progress: Progress, begun: Mapping[int, int]) -> list[Judgement]:
    """Give the verdict on each of a row's changes, which come in the total order, and the reason where it did not win.

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
    """Tell whether anything of a change stood after its op."""
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
