"""What a run does next with a table, as values: the input of one op, or the reason why it waits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.model import Generation, LandingFile, LedgerEntry, OpKind
    from lakeward.pipeline.records import FileRecord, LoadDecision


@dataclass(frozen=True)
class Work:
    """One op's worth of input. ``starts`` marks the first op of its generation, ``is_last`` that nothing else waits.

    ``notes`` are files with nothing to read, recorded so that they need not be looked at again: consumed ones that
    were written again, and load files that are not part of the load. ``earlier`` is the generation before the first
    one seen, where the first load is known to be a reload. ``decision`` says why a load is taken as it is; with
    ``needs_cut`` it is complete only once the load's rows were read. ``former`` maps the paths of parts that a reload
    shares unchanged with the load before to their ledger entries.
    """

    kind: OpKind
    generation: Generation
    files: tuple[LandingFile, ...] = ()
    starts: bool = False
    is_last: bool = False
    notes: tuple[FileRecord, ...] = ()
    earlier: tuple[Generation, ...] = ()
    decision: LoadDecision | None = None
    needs_cut: bool = False
    former: Mapping[str, LedgerEntry] = field(default_factory=dict)


@dataclass(frozen=True)
class Waiting:
    """There is input, but not yet time for it."""

    reason: str
