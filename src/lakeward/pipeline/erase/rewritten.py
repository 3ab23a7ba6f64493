"""Landing files that an erasure rewrites: noted before they change, so that no run ever takes them for changed ones."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakeward.model import Disposition, OpKind
from lakeward.pipeline.effect import Effect, Prepared, capture
from lakeward.pipeline.erase.erased import UNFINISHED_PROPERTY, unfinished_erasure
from lakeward.pipeline.ledger import progress_of
from lakeward.pipeline.planner import ApplyPlan, Strategy
from lakeward.pipeline.records import FileRecord, OpRecord
from lakeward.sources.base import FileSummary

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakeward.model import LedgerEntry
    from lakeward.pipeline.context import TableContext

_PLAN = ApplyPlan(Strategy.LOG_ONLY, "an erasure rewrote landing files: the ledger takes note of their new content")


def announce(context: TableContext, contents: Mapping[str, str]) -> None:
    """Note which files are about to get which content, by its hash."""
    unfinished = unfinished_erasure(context.changelog.metadata())
    if unfinished is not None:
        text = replace(unfinished, rewritten=dict(contents)).to_json()
        context.changelog.set_properties({UNFINISHED_PROPERTY: text})


def rewritten_files(context: TableContext) -> Iterator[Prepared]:
    """Prepare the ops that bring the ledger to the files' new content, one per generation; then forget the notes.

    The caller carries each out before it asks for the next.
    """
    unfinished = unfinished_erasure(context.changelog.metadata())
    if unfinished is None or not unfinished.rewritten:
        return
    progress_of(context, capture(context))
    entries = context.state.lookup(context.table, sorted(unfinished.rewritten))
    stored = [(entry, unfinished.rewritten[path]) for path, entry in sorted(entries.items())]
    changed = [(entry, to) for entry, to in stored if to != entry.content_hash and _has(context, entry.path, to)]
    for generation in sorted({entry.generation for entry, _ in changed}):
        yield _prepared(context, generation, [one for one in changed if one[0].generation == generation])
    announce(context, {})


def _has(context: TableContext, path: str, content: str) -> bool:
    """Tell whether a file has its new content: a crash may have come before it did."""
    try:
        with context.storage.spool(path) as (_, found):
            return found == content
    except FileNotFoundError:
        return False


def _prepared(context: TableContext, generation: int, files: Sequence[tuple[LedgerEntry, str]]) -> Prepared:
    bases = capture(context)
    progress = progress_of(context, bases)
    following = replace(progress, op=progress.op + 1)
    record = OpRecord(following.op, OpKind.BATCH, generation, following)
    records = tuple(_record(context, entry, content) for entry, content in files)
    return Prepared(record, bases, bases.columns, (), records, (), None, 0, Effect(_PLAN))


def _record(context: TableContext, entry: LedgerEntry, content: str) -> FileRecord:
    identity = context.storage.identity(entry.path)
    summary = FileSummary(entry.path, entry.file_class, entry.time, identity, content, rows=entry.rows)
    return FileRecord(summary, Disposition.REDELIVERED)
