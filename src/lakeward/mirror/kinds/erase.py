"""An erasure: rows of certain keys are taken out of every file of changelog and mirror, by their hashes alone.

The changelog, load branches and tags come first and ``main`` last: its commit says that the op is applied, and until
then the next run, whoever does it, cleans what is left. Doing it again finds nothing more to do. Landing files that an
erasure rewrites are noted before they change, so that no run ever takes them for changed ones.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakeward import schemas as S
from lakeward.errors import BugError
from lakeward.formats.base import FileSummary
from lakeward.iceberg.attempt import ATTEMPT_STAMP, BASE_STAMP, BRANCH_PREFIX, Attempt
from lakeward.iceberg.cleanup import count_stored, expire_unreferenced, places, purge, stored_rows
from lakeward.iceberg.define import BAD_ROWS_STAMP, EMPTY_TAG, LOAD_STAMP
from lakeward.iceberg.metadata import MAIN
from lakeward.mirror.kinds.base import Kind
from lakeward.mirror.op.apply import carried_stamps
from lakeward.mirror.op.changelog import FileRecord, OpRecord, open_rows
from lakeward.mirror.op.effect import ApplyPlan, Effect, Prepared, Strategy, capture
from lakeward.mirror.op.erased import (
    UNFINISHED_PROPERTY,
    UnfinishedErasure,
    bad_rows_of_keys,
    is_erased_key,
    note,
    remember,
    unfinished_erasure,
)
from lakeward.mirror.op.ledger import progress_of
from lakeward.mirror.op.steps import Step
from lakeward.model import Disposition, OpKind
from lakeward.spark.workspace import Workspace
from lakeward.transforms.columns import column

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame

    from lakeward.iceberg.metadata import Snapshot, TableMetadata
    from lakeward.mirror.op.context import TableContext
    from lakeward.mirror.op.effect import OpInput
    from lakeward.mirror.op.erased import Erasure
    from lakeward.model import LedgerEntry

_PLAN = ApplyPlan(Strategy.ERASE, "rows of erased keys are taken out of every file that holds them")
_STAMP_PREFIX = "lakeward."
_OF_ONE_ATTEMPT = (ATTEMPT_STAMP, BASE_STAMP)
MIRROR, CHANGELOG = "mirror", "changelog"
_NOTE_PLAN = ApplyPlan(
    Strategy.LOG_ONLY, "an erasure rewrote landing files: the ledger takes note of their new content"
)


class Erase(Kind):
    """Takes out rows by the hashes of their keys. Has no rows: the record says which keys."""

    name = OpKind.ERASE

    def effect(self, context: TableContext, workspace: Workspace, given: OpInput) -> Effect:
        """Return that rows are taken out."""
        return Effect(_PLAN)

    def before_main(self, context: TableContext, prepared: Prepared) -> None:
        """Clean the changelog, load branches and tags: ``main`` comes last, and says that the op is applied."""
        erase_beside_main(context, prepared.record)

    def write(self, context: TableContext, attempt: Attempt, prepared: Prepared, stamps: dict[str, str]) -> None:
        """Clean the branch that becomes ``main``."""
        erase_from_main(context, attempt, prepared.record, stamps)

    def after_main(self, context: TableContext) -> None:
        """Remove the snapshots that may still hold the rows."""
        expire_after_erasure(context)


def erasure_of(record: OpRecord) -> Erasure:
    """Return what an erase op erases."""
    if record.erasure is None:
        msg = f"op {record.op} is an erasure that does not say of which keys"
        raise BugError(msg)
    return record.erasure


def erase_beside_main(context: TableContext, record: OpRecord) -> None:
    """Clean everything but the mirror's ``main``: changelog with its bad rows, load branches, tags."""
    erasure = erasure_of(record)
    before = unfinished_erasure(context.changelog.metadata())
    if before is None or before.op != record.op:
        remember(context.changelog, erasure, UnfinishedErasure(record.op, erasure.landing))
    context.reached(Step.ERASE_NOTED)
    _clean_changelog(context, record)
    context.reached(Step.ERASE_CHANGELOG)
    for snapshot, names in references_by_snapshot(context.mirror.metadata()):
        _clean_references(context, record, snapshot, names)
    context.reached(Step.ERASE_REFERENCES)


def erase_from_main(context: TableContext, attempt: Attempt, record: OpRecord, stamps: dict[str, str]) -> None:
    """Clean the attempt's branch of the mirror, which is about to become ``main``."""
    metadata = context.mirror.metadata()
    with Workspace() as workspace:
        doomed = workspace.keep(doomed_in_mirror(context, record, attempt.base))
        found = count_stored(doomed)
        note(context.changelog, MIRROR, found)
        purge(attempt, doomed, found)
    carried = carried_stamps(metadata, attempt.base)
    # ``main`` may have begun as the load itself; only what holds a load alone may say that it does.
    carried.pop(LOAD_STAMP, None)
    attempt.stamp({**carried, **stamps})
    context.reached(Step.ERASE_MAIN)


def expire_after_erasure(context: TableContext) -> None:
    """Let every snapshot go that no branch or tag stands at: each may hold the rows, and past states start from them.

    Erasure wins over the undo window. Nothing happens where no erasure waits for it.
    """
    unfinished = unfinished_erasure(context.changelog.metadata())
    if unfinished is None or unfinished.expired is not None:
        return
    context.permission.require()
    expired = sum(expire_unreferenced(table) for table in (context.mirror, context.changelog))
    context.reached(Step.ERASE_EXPIRED)
    done = replace(unfinished_erasure(context.changelog.metadata()) or unfinished, expired=expired)
    context.changelog.set_properties({UNFINISHED_PROPERTY: done.to_json()})


def doomed_in_mirror(context: TableContext, record: OpRecord, snapshot_id: int) -> DataFrame:
    """Return the places of erased keys' rows in a snapshot of the mirror."""
    erasure, stored = erasure_of(record), stored_rows(context.mirror, snapshot_id)
    return places(stored.filter(is_erased_key(stored, context.settings.primary_key, erasure.salt, erasure.hashes)))


def doomed_in_changelog(context: TableContext, record: OpRecord, snapshot_id: int) -> DataFrame:
    """Return the places of changes and bad rows of erased keys that were logged before their erasure.

    What came later was let through on purpose: it is new.
    """
    erasure, key = erasure_of(record), context.settings.primary_key
    stored = stored_rows(context.changelog, snapshot_id).filter(column(S.OP) < F.lit(record.op))
    changes = stored.filter(column(S.KIND) == S.KIND_CHANGE)
    doomed = places(changes.filter(is_erased_key(changes, key, erasure.salt, erasure.hashes)))
    bad = stored.filter(column(S.KIND) == S.KIND_BAD)
    if not bad.take(1):
        return doomed
    named = bad_rows_of_keys(context, bad, erasure.salt, erasure.hashes)
    return doomed.unionByName(places(bad.join(F.broadcast(named), [S.FILE, S.ROW], "left_semi")))


def references_by_snapshot(metadata: TableMetadata) -> Iterator[tuple[Snapshot, list[str]]]:
    """Yield the snapshots that branches and tags other than ``main`` keep, with the names of these."""
    found: dict[int, tuple[Snapshot, list[str]]] = {}
    for name in metadata.references():
        head = metadata.head(name)
        if head is not None and name not in (MAIN, EMPTY_TAG) and not name.startswith(BRANCH_PREFIX):
            found.setdefault(head.id, (head, []))[1].append(name)
    yield from found.values()


def _clean_references(context: TableContext, record: OpRecord, snapshot: Snapshot, names: list[str]) -> None:
    """Let branches and tags that keep one snapshot keep one without the rows; it says of itself what that one did."""
    mirror, metadata = context.mirror, context.mirror.metadata()
    with Workspace() as workspace:
        doomed = workspace.keep(doomed_in_mirror(context, record, snapshot.id))
        found = count_stored(doomed)
        if not found.files:
            return
        for name in names:
            note(context.changelog, f"{MIRROR} {name}", found)
        with Attempt(mirror, op=record.op, base=snapshot.id) as attempt:
            purge(attempt, doomed, found)
            attempt.stamp(same_stamps(metadata, snapshot))
            context.reached(Step.ERASE_REWRITTEN)
            head = attempt.checked_head()
            context.permission.require()
            tags = metadata.tags()
            for name in names:
                if name in tags:
                    mirror.replace_tag(name, head.id)
                else:
                    mirror.fast_forward(attempt.branch, name, expected=snapshot.id)


def same_stamps(metadata: TableMetadata, snapshot: Snapshot) -> dict[str, str]:
    """Return the stamps that hold at a snapshot, those of its own commit among them."""
    carried = carried_stamps(metadata, snapshot.id)
    carried.pop(LOAD_STAMP, None)
    own = {name: value for name, value in snapshot.summary.items() if name.startswith(_STAMP_PREFIX)}
    return {name: value for name, value in {**carried, **own}.items() if name not in _OF_ONE_ATTEMPT}


def _clean_changelog(context: TableContext, record: OpRecord) -> None:
    changelog, metadata = context.changelog, context.changelog.metadata()
    base = changelog.require_head()
    with Workspace() as workspace:
        doomed = workspace.keep(doomed_in_changelog(context, record, base.id))
        found = count_stored(doomed)
        if not found.files:
            return
        note(changelog, CHANGELOG, found)
        with Attempt(changelog, op=record.op, base=base.id) as attempt:
            purge(attempt, doomed, found)
            waiting = open_rows(changelog.read(attempt.checked_head().id), record.progress).count()
            attempt.stamp({**carried_stamps(metadata, base.id), BAD_ROWS_STAMP: str(waiting)})
            published = attempt.publish(before=context.permission.require)
    context.state.extend_ledger(
        context.table, after=base.id, snapshot_id=published.id, progress=record.progress, entries=()
    )


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
    """Return whether a file has its new content: a crash may have come before it did."""
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
    return Prepared(record, bases, bases.columns, (), records, (), None, 0, Effect(_NOTE_PLAN))


def _record(context: TableContext, entry: LedgerEntry, content: str) -> FileRecord:
    identity = context.storage.identity(entry.path)
    summary = FileSummary(entry.path, entry.file_class, entry.time, identity, content, rows=entry.rows)
    return FileRecord(summary, Disposition.REDELIVERED)
