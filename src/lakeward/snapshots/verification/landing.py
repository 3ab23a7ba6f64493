"""Landing listed anew: every file in it is consumed, superseded for a recorded reason, or reported.

A verification does not repeat a decision. Which change files follow the current load is derived once more from the
content of the files, without looking at what was decided when the load was taken.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakeward.model import Disposition, FileClass, time_digits
from lakeward.pipeline.choose import Scan, list_landing
from lakeward.pipeline.cut import LOAD_TIMES, load_times
from lakeward.pipeline.ledger import load_decisions
from lakeward.pipeline.loads import is_part
from lakeward.pipeline.reading import read_work

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward.model import Generation, LandingFile, LedgerEntry, Progress
    from lakeward.pipeline.context import TableContext
    from lakeward.pipeline.effect import Bases
    from lakeward.pipeline.workspace import Workspace

_SHOWN = 3


@dataclass
class LandingAudit:
    """What a look over landing found. ``findings`` are faults, ``notes`` what is worth knowing."""

    findings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def audit_landing(context: TableContext, workspace: Workspace, bases: Bases, progress: Progress) -> LandingAudit:
    """List a table's landing files and compare what became of each with what its content says."""
    audit, current = LandingAudit(), progress.generation
    if current is None:
        return audit
    cut = _cut_by_content(context, workspace, bases, current)
    counts: Counter[str] = Counter()
    examples: dict[str, list[str]] = {}
    for file, entry in _known_files(context):
        verdict = _verdict(context, file, entry, current, cut)
        counts[verdict] += 1
        if len(shown := examples.setdefault(verdict, [])) < _SHOWN:
            shown.append(file.path)
    for verdict in sorted(counts.keys() - {_FINE}):
        names = ", ".join(examples[verdict])
        text = f"{counts[verdict]:,} landing files {verdict}: {names}{' …' if counts[verdict] > _SHOWN else ''}"
        (audit.notes if verdict == _WAITING else audit.findings).append(text)
    if not current.emptied and current.number > 1:
        audit.notes.append(_how_decided(context, bases, progress, current, cut))
    return audit


_FINE, _WAITING = "fine", "wait for a run"
_CHANGED = "have other content than when they were consumed"
_LOST = "follow the current load by their name, but are not applied to it"
_REPLAYED = "precede the current load by their name, but are applied to it"


def _known_files(context: TableContext) -> Iterator[tuple[LandingFile, LedgerEntry | None]]:
    """Walk landing, each file with what the ledger has of it."""
    for page in list_landing(context, Scan()):
        known = context.state.lookup(context.table, [file.path for file in page])
        yield from ((file, known.get(file.path)) for file in page)


def _verdict(
    context: TableContext, file: LandingFile, entry: LedgerEntry | None, current: Generation, cut: str | None
) -> str:
    if entry is None:
        return _WAITING
    if entry.disposition is Disposition.FENCED:
        return _FINE
    if entry.identity != file.identity:
        with context.storage.spool(file.path) as (_, content_hash):
            if content_hash != entry.content_hash:
                return _WAITING if file.file_class is FileClass.LOAD else _CHANGED
    if cut is None or file.file_class is FileClass.LOAD:
        return _FINE
    if file.time >= cut and entry.generation < current.number:
        return _LOST
    return _REPLAYED if file.time < cut and entry.generation == current.number else _FINE


def _cut_by_content(context: TableContext, workspace: Workspace, bases: Bases, current: Generation) -> str | None:
    """Return the cut that the load's own rows prove, None where the load is the first or its rows carry no time."""
    if current.number == 1 or context.settings.timestamp_column is None:
        return None
    entries = {entry.path: entry for entry in context.state.load_parts(context.table, current.number)}
    pages = list_landing(context, Scan())
    parts = [
        file
        for page in pages
        for file in page
        if file.path in entries and is_part(entries[file.path]) and file.file_class is FileClass.LOAD
    ]
    if not parts:
        return None
    columns, _, summaries = read_work(context, workspace, current, parts, bases.columns, erased=None)
    times = load_times(context, columns, [one for one in summaries if one.stable])
    return time_digits(times[0]) if times else None


def _how_decided(context: TableContext, bases: Bases, progress: Progress, current: Generation, cut: str | None) -> str:
    """Say from what the current generation's cut came, and whether the files prove it again."""
    assert bases.changelog is not None  # the table has run
    decision = load_decisions(context.changelog.read(bases.changelog.id), progress).get(current.number)
    if decision is None:
        return f"generation {current.number}: an earlier version of Lakeward took its load and recorded no reason"
    proven = ", which their content proves again" if decision.evidence == LOAD_TIMES and cut == decision.cut else ""
    return (
        f"generation {current.number}: change files named from {decision.cut} on follow its load, by "
        f"{decision.evidence}{proven}"
    )
