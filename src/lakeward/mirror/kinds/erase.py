"""An erasure: rows of certain keys, known by hashes alone, are removed from every file of changelog and mirror.

Values of columns are erased in the same way: their rows stay, with the values replaced by the columns' rules.

The changelog, load branches and tags come first and ``main`` last: its commit marks the op as applied, and until then
the next run cleans what is left. Every step is idempotent. Landing files that an erasure rewrites are recorded before
they are replaced, so that no run takes them for files changed by others.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakeward import schemas as S
from lakeward.column_policy import ColumnPolicy, dropped, hashed_names
from lakeward.config.policy import policy_of
from lakeward.errors import BugError
from lakeward.formats.base import FileSummary
from lakeward.iceberg.attempt import ATTEMPT_STAMP, BASE_STAMP, BRANCH_PREFIX, Attempt
from lakeward.iceberg.cleanup import count_stored, expire_unreferenced, places, purge, stored_rows
from lakeward.iceberg.define import BAD_ROWS_STAMP, LOAD_STAMP, rename_everywhere
from lakeward.iceberg.metadata import EMPTY_TAG, MAIN
from lakeward.mirror.kinds.base import OpHandler
from lakeward.mirror.op.apply import carried_stamps
from lakeward.mirror.op.changelog import UNREAD, FileRecord, OpRecord, open_rows
from lakeward.mirror.op.effect import ApplyPlan, Effect, PreparedOp, Strategy, capture
from lakeward.mirror.op.erased import (
    REWRITTEN_REASON,
    UNFINISHED_PROPERTY,
    UnfinishedErasure,
    bad_rows_of_keys,
    is_erased_key,
    record_erasure,
    record_removal,
    unfinished_erasure,
)
from lakeward.mirror.op.ledger import progress_of
from lakeward.mirror.op.protected import has_stored_value, without_stored_values
from lakeward.mirror.op.steps import Step
from lakeward.model import Disposition, OpKind
from lakeward.spark.workspace import Workspace
from lakeward.transforms.columns import column

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import Column, DataFrame

    from lakeward.column_policy import ColumnRule
    from lakeward.iceberg.metadata import Snapshot, TableMetadata
    from lakeward.mirror.op.context import TableContext
    from lakeward.mirror.op.effect import OpInput
    from lakeward.mirror.op.erased import Erasure
    from lakeward.model import LedgerEntry

_PLAN = ApplyPlan(Strategy.ERASE, "rows of erased keys are removed from every file that holds them")
_VALUES_PLAN = ApplyPlan(Strategy.ERASE, "values are replaced in every file that holds them")
_STAMP_PREFIX = "lakeward."
_OF_ONE_ATTEMPT = (ATTEMPT_STAMP, BASE_STAMP)
MIRROR, CHANGELOG = "mirror", "changelog"
_NOTE_PLAN = ApplyPlan(Strategy.LOG_ONLY, "an erasure rewrote landing files: the ledger records their new content")


class Erase(OpHandler):
    """Removes rows by the hashes of their keys. Has no rows: its record holds the hashes."""

    kind = OpKind.ERASE

    def effect(self, context: TableContext, workspace: Workspace, op_input: OpInput) -> Effect:
        """Return the removal of the rows, or of the values."""
        return Effect(_VALUES_PLAN if erasure_of(op_input.record).columns else _PLAN)

    def before_main(self, context: TableContext, prepared: PreparedOp) -> None:
        """Clean the changelog, load branches and tags: ``main`` comes last, as its commit marks the op as applied."""
        erase_beside_main(context, prepared.record)

    def write(self, context: TableContext, attempt: Attempt, prepared: PreparedOp, stamps: dict[str, str]) -> None:
        """Clean the branch that becomes ``main``."""
        erase_from_main(context, attempt, prepared.record, stamps)

    def after_main(self, context: TableContext) -> None:
        """Remove the snapshots that may still hold the rows."""
        expire_after_erasure(context)


def erasure_of(record: OpRecord) -> Erasure:
    """Return the keys, or the values, that an erase op erases."""
    if record.erasure is None:
        msg = f"op {record.op} is an erasure of nothing"
        raise BugError(msg)
    return record.erasure


def erase_beside_main(context: TableContext, record: OpRecord) -> None:
    """Clean everything except the mirror's ``main``: the changelog with its bad rows, load branches and tags."""
    erasure = erasure_of(record)
    before = unfinished_erasure(context.changelog.metadata())
    if before is None or before.op != record.op:
        record_erasure(context.changelog, erasure, UnfinishedErasure(record.op, erasure.landing))
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
        rows = workspace.keep(mirror_rows_to_erase(context, record, attempt.base))
        found = count_stored(rows)
        record_removal(context.changelog, MIRROR, found)
        purge(attempt, rows, found, rewriting(context, record))
    carried = carried_stamps(metadata, attempt.base)
    # ``main`` may have begun as the load itself; only snapshots that hold nothing but a load carry its stamp.
    carried.pop(LOAD_STAMP, None)
    attempt.stamp({**carried, **stamps})
    context.reached(Step.ERASE_MAIN)


def expire_after_erasure(context: TableContext) -> None:
    """Expire every snapshot that no branch or tag references: each may still hold what was erased.

    Erasure takes precedence over the undo window. Columns of which every value was erased are dropped before. Does
    nothing where no erasure is unfinished.
    """
    unfinished = unfinished_erasure(context.changelog.find_metadata())
    if unfinished is None or unfinished.expired is not None:
        return
    context.permission.require()
    if unfinished.begun is not None:
        for table in (context.changelog, context.mirror):
            rename_everywhere(table, {}, dropped(unfinished.begun.rules))
    expired = sum(expire_unreferenced(table) for table in (context.mirror, context.changelog))
    context.reached(Step.ERASE_EXPIRED)
    done = replace(unfinished_erasure(context.changelog.metadata()) or unfinished, expired=expired)
    context.changelog.set_properties({UNFINISHED_PROPERTY: done.to_json()})


def rewriting(context: TableContext, record: OpRecord) -> Callable[[DataFrame], DataFrame] | None:
    """Return what becomes of the rows of files that an erasure of values rewrites; None where rows are removed."""
    if not (rules := erasure_of(record).rules):
        return None
    key = policy_of(context.settings).key if hashed_names(rules) else None
    return lambda rows: without_stored_values(rows, ColumnPolicy(_rules_for(context, record, rows.columns), key))


def _former_names(context: TableContext) -> dict[str, set[str]]:
    """Return the names that each column has had: history and published versions may still have it under one of them."""
    schemas = context.mirror.metadata().schemas()
    now = {field["id"]: field["name"] for field in schemas[max(schemas)]["fields"]}
    found: dict[str, set[str]] = {}
    for field in (field for schema in schemas.values() for field in schema["fields"] if field["id"] in now):
        found.setdefault(now[field["id"]], set()).add(field["name"])
    for before, after in context.settings.renames.items():
        found.setdefault(after, set()).update({before, *found.get(before, ())})
    return {name: names - {name} for name, names in found.items()}


def names_ever(context: TableContext, names: Iterable[str]) -> set[str]:
    """Return the names of columns, and those that they have had."""
    former = _former_names(context)
    return {known for name in names for known in (name, *former.get(name, ()))}


def _rules_for(context: TableContext, record: OpRecord, names: Collection[str]) -> dict[str, ColumnRule]:
    """Return the rules of an erasure by the names that the columns have in some rows."""
    rules, former = erasure_of(record).rules, _former_names(context)
    found: dict[str, ColumnRule] = {}
    for name, rule in rules.items():
        present = [name] if name in names else [before for before in former.get(name, ()) if before in names]
        found |= dict.fromkeys(present, rule)
    return found


def rows_to_erase(context: TableContext, record: OpRecord, rows: DataFrame) -> Column:
    """Return the condition for rows of mirror, history or changes that an erasure removes, or whose values it replaces.

    Rows without all columns of the key must not be passed for an erasure of keys.
    """
    erasure = erasure_of(record)
    if erasure.columns:
        return has_stored_value(_rules_for(context, record, rows.columns))
    return is_erased_key(rows, context.settings.primary_key, erasure.salt, erasure.hashes)


def mirror_rows_to_erase(context: TableContext, record: OpRecord, snapshot_id: int) -> DataFrame:
    """Return where a snapshot of the mirror stores rows of erased keys, or erased values."""
    stored = stored_rows(context.mirror, snapshot_id)
    return places(stored.filter(rows_to_erase(context, record, stored)))


def changelog_rows_to_erase(context: TableContext, record: OpRecord, snapshot_id: int) -> DataFrame:
    """Return where a snapshot of the changelog stores what an erasure concerns in changes and bad rows before it.

    Later changes were admitted on purpose: they are new rows. Of bad rows, values may be anywhere in the text.
    """
    erasure = erasure_of(record)
    stored = stored_rows(context.changelog, snapshot_id).filter(column(S.OP) < F.lit(record.op))
    changes = stored.filter(column(S.KIND) == S.KIND_CHANGE)
    rows = places(changes.filter(rows_to_erase(context, record, changes)))
    bad = stored.filter(column(S.KIND) == S.KIND_BAD)
    if erasure.columns:
        return rows.unionByName(places(bad.filter(_has_text())))
    if not bad.take(1):
        return rows
    named = bad_rows_of_keys(context, bad, erasure.salt, erasure.hashes)
    return rows.unionByName(places(bad.join(F.broadcast(named), [S.FILE, S.ROW], "left_semi")))


def references_by_snapshot(metadata: TableMetadata) -> Iterator[tuple[Snapshot, list[str]]]:
    """Yield the snapshots that branches and tags other than ``main`` reference, with their names."""
    found: dict[int, tuple[Snapshot, list[str]]] = {}
    for name in metadata.references():
        head = metadata.head(name)
        if head is not None and name not in (MAIN, EMPTY_TAG) and not name.startswith(BRANCH_PREFIX):
            found.setdefault(head.id, (head, []))[1].append(name)
    yield from found.values()


def _clean_references(context: TableContext, record: OpRecord, snapshot: Snapshot, names: list[str]) -> None:
    """Move branches and tags from a snapshot to a copy of it without the rows, which carries the same stamps."""
    mirror, metadata = context.mirror, context.mirror.metadata()
    with Workspace() as workspace:
        rows = workspace.keep(mirror_rows_to_erase(context, record, snapshot.id))
        found = count_stored(rows)
        if not found.files:
            return
        for name in names:
            record_removal(context.changelog, f"{MIRROR} {name}", found)
        with Attempt(mirror, op=record.op, base=snapshot.id) as attempt:
            purge(attempt, rows, found, rewriting(context, record))
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
    """Return the stamps that hold at a snapshot, including those of its own commit."""
    carried = carried_stamps(metadata, snapshot.id)
    carried.pop(LOAD_STAMP, None)
    own = {name: value for name, value in snapshot.summary.items() if name.startswith(_STAMP_PREFIX)}
    return {name: value for name, value in {**carried, **own}.items() if name not in _OF_ONE_ATTEMPT}


def _clean_changelog(context: TableContext, record: OpRecord) -> None:
    changelog, metadata = context.changelog, context.changelog.metadata()
    base = changelog.require_head()
    with Workspace() as workspace:
        rows = workspace.keep(changelog_rows_to_erase(context, record, base.id))
        found = count_stored(rows)
        if not found.files:
            return
        record_removal(changelog, CHANGELOG, found)
        with Attempt(changelog, op=record.op, base=base.id) as attempt:
            purge(attempt, rows, found, _log_rewriting(context, record))
            waiting = open_rows(changelog.read(attempt.checked_head().id), record.progress).count()
            attempt.stamp({**carried_stamps(metadata, base.id), BAD_ROWS_STAMP: str(waiting)})
            published = attempt.publish(before=context.permission.require)
    context.state.extend_ledger(
        context.table, after=base.id, snapshot_id=published.id, progress=record.progress, entries=()
    )


def _has_text() -> Column:
    """Return the condition for bad rows of which a text or a value is kept."""
    return column(S.RAW).isNotNull() | F.get_json_object(column(S.DETAIL), "$.value").isNotNull()


def _log_rewriting(context: TableContext, record: OpRecord) -> Callable[[DataFrame], DataFrame] | None:
    """Return what becomes of changelog rows: bad ones lose text and value, as they would be read under the rules."""
    if (rewritten := rewriting(context, record)) is None:
        return None
    is_bad = (column(S.KIND) == S.KIND_BAD) & (column(S.OP) < F.lit(record.op))
    reason = F.to_json(F.from_json(column(S.DETAIL), "reason string, column string"))
    hidden = {S.RAW: F.when(~is_bad, column(S.RAW)), S.DETAIL: F.when(is_bad, reason).otherwise(column(S.DETAIL))}
    return lambda rows: rewritten(rows.withColumns(hidden))


def record_new_contents(context: TableContext, contents: Mapping[str, str]) -> None:
    """Record which files are about to receive which content, by its hash."""
    unfinished = unfinished_erasure(context.changelog.metadata())
    if unfinished is not None:
        text = replace(unfinished, rewritten=dict(contents)).to_json()
        context.changelog.set_properties({UNFINISHED_PROPERTY: text})


def rewritten_files(context: TableContext) -> Iterator[PreparedOp]:
    """Yield the ops that record the files' new content in the ledger, one per generation; then clear the list of files.

    The caller must carry out each op before it takes the next.
    """
    unfinished = unfinished_erasure(context.changelog.metadata())
    if unfinished is None or not unfinished.rewritten:
        return
    progress_of(context, capture(context))
    found = context.state.lookup(context.table, sorted(unfinished.rewritten))
    # A file that only has its number is read with its new content.
    entries = {path: entry for path, entry in found.items() if entry.disposition is not Disposition.ARRIVED}
    stored = [(entry, unfinished.rewritten[path]) for path, entry in sorted(entries.items())]
    changed = [
        (entry, to) for entry, to in stored if to != entry.content_hash and _has_content(context, entry.path, to)
    ]
    for generation in sorted({entry.generation for entry, _ in changed}):
        yield _prepared(context, generation, [pair for pair in changed if pair[0].generation == generation])
    record_new_contents(context, {})


def _has_content(context: TableContext, path: str, content: str) -> bool:
    """Whether a file has its new content: a crash may have come before it was replaced."""
    try:
        with context.storage.spool(path) as (_, found):
            return found == content
    except FileNotFoundError:
        return False


def _prepared(context: TableContext, generation: int, files: Sequence[tuple[LedgerEntry, str]]) -> PreparedOp:
    bases = capture(context)
    progress = progress_of(context, bases)
    following = replace(progress, op=progress.op + 1)
    record = OpRecord(following.op, OpKind.BATCH, generation, following, reason=REWRITTEN_REASON)
    records = tuple(_record(context, entry, content) for entry, content in files)
    return PreparedOp(record, bases, bases.columns, (), records, (), None, 0, Effect(_NOTE_PLAN))


def _record(context: TableContext, entry: LedgerEntry, content: str) -> FileRecord:
    identity = context.storage.identity(entry.path)
    summary = FileSummary(entry.path, entry.file_class, entry.time, identity, content, rows=entry.rows)
    # A file that was never read stays so: as a copy of one that was, a reset or an earlier cut would misjudge it.
    return FileRecord(summary, entry.disposition if entry.disposition in UNREAD else Disposition.REDELIVERED)
