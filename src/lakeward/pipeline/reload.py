"""Decide whether load parts that came back are a reload, and which change files belong to it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from lakeward.errors import CutError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward.model import Generation, LandingFile, LedgerEntry
    from lakeward.pipeline.context import TableContext

Seen = tuple["LandingFile", "LedgerEntry"]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class ReloadDecision:
    """The cut and the parts of the next generation; no cut: the parts were only copied again."""

    cut: str | None
    parts: tuple[LandingFile, ...] = ()


def decide_reload(
    context: TableContext,
    current: Generation,
    retimed: Sequence[Seen],
    new: Sequence[LandingFile],
    retimed_changes: Sequence[Seen],
) -> ReloadDecision:
    """Tell a reload from a copy.

    A consumed part with other content or time begins the next generation; all parts modified at or after the first
    of them belong to it. Where times went backwards, or where load parts and change files alike have new times and
    the old content, nothing tells a reload from a copied folder: the user decides.
    """
    changed = [(file, entry) for file, entry in retimed if _content_changed(context, file, entry)]
    if context.options.same_load:
        _require_unchanged(context, changed)
        return ReloadDecision(None)
    first = min(file.identity.mtime_us for file, _ in retimed)
    parts = [file for file, _ in retimed] + [file for file in new if file.identity.mtime_us >= first]
    if context.options.cut is not None:
        return ReloadDecision(context.options.cut, tuple(parts))
    cut = time_digits(first)
    backwards = [file.path for file, entry in retimed if file.identity.mtime_us < entry.identity.mtime_us]
    if backwards or cut <= current.cut:
        raise _undecided(context, "a load part came back with an earlier time than before", retimed)
    if not changed and retimed_changes:
        raise _undecided(context, "load parts and change files alike have new times and the old content", retimed)
    return ReloadDecision(cut, tuple(parts))


def time_digits(mtime_us: int) -> str:
    """Give a modification time as the 20 digits that file names' times have."""
    return f"{_EPOCH + timedelta(microseconds=mtime_us):%Y%m%d%H%M%S%f}"


def _content_changed(context: TableContext, file: LandingFile, entry: LedgerEntry) -> bool:
    if file.identity.size != entry.identity.size:
        return True
    with context.storage.spool(file.path) as (_, content_hash):
        return content_hash != entry.content_hash


def _require_unchanged(context: TableContext, changed: Sequence[Seen]) -> None:
    if changed:
        names = ", ".join(file.path for file, _ in changed[:5])
        msg = f"{context.table}: these load parts have other content than before, so this is not the same load: {names}"
        raise CutError(msg, hint=f"lakeward run {context.table} --cut TIME")


def _undecided(context: TableContext, why: str, retimed: Sequence[Seen]) -> CutError:
    names = ", ".join(file.path for file, _ in retimed[:5])
    msg = f"{context.table}: cannot tell a reload from a copied folder: {why} ({names})"
    hint = (
        f"a reload: lakeward run {context.table} --cut TIME   (change files named at or after TIME belong to it); "
        f"the same load copied again: lakeward run {context.table} --same-load"
    )
    return CutError(msg, hint=hint)
