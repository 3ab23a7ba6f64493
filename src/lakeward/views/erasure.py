"""Erase keys, or values of columns, from every place where Lakeward keeps rows, and prove by a scan that none is left.

Changelog and mirror are cleaned by the op itself, which any later run finishes. What is derived from them is cleaned
here: histories, published files, old snapshots, and on request the landing files. A property of the changelog marks
an erasure that was interrupted until it is finished.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakeward import schemas as S
from lakeward.column_policy import POLICY_PROPERTY, dropped, stored_policy
from lakeward.config.policy import policy_of
from lakeward.documents import Document
from lakeward.errors import BugError, ConfigurationError, DataError
from lakeward.formats.dms.quarantined import HAS_KEY
from lakeward.iceberg.attempt import Attempt, drop_abandoned
from lakeward.iceberg.cleanup import (
    Stored,
    count_stored,
    expire_unreferenced,
    places,
    purge,
    stop_merging,
    stored_rows,
)
from lakeward.iceberg.define import APPLIED_STAMP, history_of, rename_everywhere
from lakeward.iceberg.metadata import MAIN
from lakeward.mirror.erase import (
    FOREIGN,
    MAX_KEYS,
    UNREAD,
    LandingTrace,
    erase_keys,
    hashes_of,
    landing_traces,
    next_record,
    record_of,
    rewrite_landing,
    with_moved_keys,
)
from lakeward.mirror.kinds.erase import (
    CHANGELOG,
    MIRROR,
    changelog_rows_to_erase,
    erasure_of,
    mirror_rows_to_erase,
    names_ever,
    references_by_snapshot,
    rewriting,
    rows_to_erase,
    same_stamps,
)
from lakeward.mirror.op.effect import capture
from lakeward.mirror.op.erased import (
    SALT_PROPERTY,
    UNFINISHED_PROPERTY,
    Erasure,
    UnfinishedErasure,
    is_erased_key,
    keys_of_bad_rows,
    new_salt,
    record_removal,
    unfinished_erasure,
    unlogged_erasure,
)
from lakeward.mirror.op.protected import protected_rows
from lakeward.mirror.op.steps import Step
from lakeward.mirror.run import finish_interrupted
from lakeward.spark.workspace import Workspace
from lakeward.storage.claims import shown
from lakeward.storage.filesystem import open_filesystem
from lakeward.transforms.columns import column, columns
from lakeward.transforms.versions import VALID_FROM
from lakeward.views.history.keys import row_key
from lakeward.views.history.scd2 import shown_names
from lakeward.views.versions.folders import find_version, place_of, publishing, tidy, unfinished_folders
from lakeward.views.versions.foreign import list_foreign, read_foreign, reading
from lakeward.views.versions.manage import rebuild_publication
from lakeward.views.versions.manifest import PublicationKind, list_publications, record_publication

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from pyspark.sql import DataFrame

    from lakeward.iceberg.metadata import TableMetadata
    from lakeward.iceberg.table import IcebergTable
    from lakeward.mirror.op.changelog import OpRecord
    from lakeward.mirror.op.context import TableContext
    from lakeward.views.versions.foreign import ForeignVersion
    from lakeward.views.versions.manifest import Publication


# Copies of a table's rows, which are cleaned after it: its history and its published files.


HISTORY = "history"


def doomed_in_history(context: TableContext, record: OpRecord, stored: DataFrame) -> DataFrame:
    """Return the places of versions to be erased; of keys, versions that began after the erasure belong to new rows."""
    erasure, doomed = erasure_of(record), rows_to_erase(context, record, stored)
    if erasure.columns:
        return places(stored.filter(doomed))
    since = column(shown_names([lake_column.name for lake_column in context.mirror.columns()])[VALID_FROM])
    is_older = since.isNull() | (F.unix_micros(since) <= F.lit(erasure.at))
    return places(stored.filter(doomed & is_older))


def clean_history(context: TableContext, record: OpRecord) -> None:
    """Remove what was erased from the table's history, where one is kept."""
    history = history_of(context.spark, context.table)
    metadata = drop_abandoned(history)
    head = metadata.head() if metadata else None
    if metadata is None or head is None:
        return
    with Workspace() as workspace:
        doomed = workspace.keep(doomed_in_history(context, record, stored_rows(history, head.id)))
        found = count_stored(doomed)
        if found.files:
            record_removal(context.changelog, HISTORY, found)
            with Attempt(history, op=record.op, base=head.id) as attempt:
                purge(attempt, doomed, found, rewriting(context, record))
                attempt.stamp(same_stamps(metadata, head))
                attempt.publish(before=context.permission.require)
    if gone := dropped(erasure_of(record).rules):
        rename_everywhere(history, {}, names_ever(context, gone))


def published(context: TableContext, record: OpRecord) -> list[Publication]:
    """Return the files that were published before the erasure; tags are cleaned with the mirror."""
    known = _recorded(context)
    return [publication for publication in known if _exists(context, publication) and publication.op <= record.op]


def _recorded(context: TableContext) -> list[Publication]:
    found = list_publications(context.mirror.metadata())
    return [publication for publication in found if publication.kind is not PublicationKind.TAG]


def tidy_publications(context: TableContext) -> list[str]:
    """Finish or remove what dead publishers left beside published files, and return the hidden folders that stay.

    A folder that was staged before the erasure would otherwise get its place after it, with what was erased.
    """
    if not _recorded(context):
        return []
    left: set[str] = set()
    with publishing(context) as lease:
        for publication in _recorded(context):
            store = open_filesystem(context.spark, context.config, publication.location)
            place = place_of(store, publication.location)
            tidy(place)
            left |= {*unfinished_folders(place)}
        lease.require()
    return sorted(left)


def _require_tidy(context: TableContext) -> None:
    """Require that no hidden folder holds rows, which the scan would not see.

    Raises:
        DataError: there is one, and nothing shows that it may be removed.
    """
    if left := tidy_publications(context):
        msg = f"{context.table}: {shown(left)} may hold what was erased, and nothing shows that Lakeward may remove it"
        raise DataError(
            msg, hint=f"inspect it, move it elsewhere or remove it; lakeward erase {context.table} --resume"
        )


def _exists(context: TableContext, publication: Publication) -> bool:
    location = publication.location
    return open_filesystem(context.spark, context.config, location).exists(location)


def rows_in_publication(context: TableContext, record: OpRecord, publication: Publication) -> Stored:
    """Count rows to be erased in published files.

    A copy without all columns of the key does not show whose rows it has: from before the erasure, each file counts.
    """
    version = find_version(open_filesystem(context.spark, context.config, publication.location), publication.location)
    rows = version.read(context.spark)
    if not erasure_of(record).columns and not set(context.settings.primary_key) <= set(rows.columns):
        return Stored(0, 0, tuple(version.manifest.files) if publication.op < record.op else ())
    found = rows.filter(rows_to_erase(context, record, rows))
    by_file = found.groupBy(F.input_file_name().alias("file")).count()
    return sum((Stored(count, 0, (file,)) for file, count in by_file.toLocalIterator()), Stored())


def foreign_traces(context: TableContext, record: OpRecord) -> list[LandingTrace]:
    """Return the registered versions of other systems that hold what was erased: they are left as they are."""
    mirror, found = context.mirror.find_metadata(), []
    for version in list_foreign(mirror) if mirror else ():
        try:
            with reading(version.location):
                found += _foreign_trace(context, record, version)
        except DataError:
            # It may hold what was erased; a damaged file of another system does not keep the erasure from its end.
            found.append(LandingTrace(version.location, 0, UNREAD))
    return found


def _foreign_trace(context: TableContext, record: OpRecord, version: ForeignVersion) -> list[LandingTrace]:
    """Return what one version of another system holds of what was erased: nothing, or one entry."""
    erasure, key = erasure_of(record), context.settings.primary_key
    rows = read_foreign(context, version)
    if rows is None:
        return []
    if erasure.columns:
        count = rows.filter(rows_to_erase(context, record, rows)).count()
        return [LandingTrace(version.location, count, FOREIGN)] if count else []
    if not {*key} <= {*rows.columns}:
        return [LandingTrace(version.location, 0, UNREAD)]
    fields = [field for field in context.mirror.columns() if field.name in key]
    sources = {field.name: field.source for field in fields}
    # A mirror under a column policy has the hashes of its keys.
    rows = protected_rows(rows.select(*columns(key)), policy_of(context.settings), sources, is_text=False)
    # Another system may have stored keys in narrower types, by which they would hash differently.
    types = {field.name: field.type for field in fields}
    rows = rows.select(*[column(name).cast(types[name]).alias(name) for name in key])
    count = rows.filter(is_erased_key(rows, key, erasure.salt, erasure.hashes)).count()
    return [LandingTrace(version.location, count, FOREIGN)] if count else []


def clean_publications(context: TableContext, record: OpRecord) -> None:
    """Rebuild every published version that holds erased rows, which removes the files that held them."""
    tidy_publications(context)
    holding = [
        (publication, rows_in_publication(context, record, publication)) for publication in published(context, record)
    ]
    for publication, found in holding:
        record_removal(context.changelog, f"publication {publication.location}", found)
    for publication, found in holding:
        # Rebuilding one copy of the current state removes the others.
        if found.files and publication.id in {publication.id for publication in published(context, record)}:
            rebuild_publication(context, publication)
            context.reached(Step.ERASE_REBUILT)
    _count_tags(context)


def _count_tags(context: TableContext) -> None:
    """Update the row counts in the records of tags that the erasure cleaned."""
    metadata = context.mirror.metadata()
    for publication in list_publications(metadata):
        head = metadata.head(publication.location) if publication.kind is PublicationKind.TAG else None
        if head is not None and head.rows != publication.rows:
            record_publication(context.mirror, replace(publication, rows=head.rows))


# The receipt of an erasure: what was removed from each place, and what a scan of all places found afterwards.


@dataclass(frozen=True)
class ErasedPlace(Document):
    """One place that holds rows of the table.

    ``rows`` were visible to readers, ``hidden`` rows were deleted before and still stored; ``files`` held either.
    ``remaining_rows`` and ``remaining_files`` are what the scan found at the end, None in a dry run.
    """

    place: str
    rows: int
    hidden: int
    files: int
    remaining_rows: int | None = None
    remaining_files: int | None = None

    @property
    def is_clean(self) -> bool:
        """Whether the scan found nothing."""
        return not self.remaining_rows and not self.remaining_files


@dataclass(frozen=True)
class Receipt(Document, if_set=("columns",)):
    """The result of an erasure. It contains no keys, only salted hashes.

    ``bad_rows_untold`` counts bad rows in quarantine whose text does not contain their key: they were left. ``columns``
    are the rules by which values were replaced, None where rows of keys were removed.
    """

    table: str
    op: int
    reason: str
    erased_at: str | None
    keys: int
    hashes: tuple[str, ...]
    places: tuple[ErasedPlace, ...]
    snapshots_expired: int
    landing: tuple[LandingTrace, ...]
    bad_rows_untold: int
    proved: bool
    dry_run: bool = False
    columns: dict[str, str] | None = None

    def require_clean(self) -> None:
        """Require that nothing was left.

        Raises:
            BugError: the scan found rows of erased keys.
        """
        if self.proved:
            return
        left = ", ".join(place.place for place in self.places if not place.is_clean)
        msg = f"{self.table}: {'erased values' if self.columns else 'rows of erased keys'} are still in {left}"
        raise BugError(msg, hint=f"lakeward erase {self.table} --resume")


def receipt_of(
    context: TableContext,
    record: OpRecord,
    places: tuple[ErasedPlace, ...],
    landing: tuple[LandingTrace, ...],
    without_key: int,
    *,
    expired: int = 0,
    dry_run: bool = False,
) -> Receipt:
    """Return the receipt of an erasure."""
    erasure = erasure_of(record)
    return Receipt(
        table=str(context.table),
        op=record.op,
        reason=erasure.reason,
        erased_at=datetime.fromtimestamp(erasure.at / 1e6, UTC).isoformat() if not dry_run else None,
        keys=len(erasure.hashes),
        # Those of a dry run use a salt that is not kept: they are useless.
        hashes=() if dry_run else erasure.hashes,
        places=places,
        snapshots_expired=expired,
        landing=landing,
        bad_rows_untold=without_key,
        proved=not dry_run and all(place.is_clean for place in places),
        dry_run=dry_run,
        columns=erasure.columns,
    )


# The scan of every place that may hold what is erased: to plan an erasure, and to prove it.


def found_places(context: TableContext, record: OpRecord) -> Iterator[ErasedPlace]:
    """Yield the places that hold rows to be erased now, without old snapshots, which all expire anyway."""
    for place, found in _scanned(context, record, only_heads=True):
        if found.files:
            yield ErasedPlace(place, found.rows, found.hidden, len(found.files))


def remaining(context: TableContext, record: OpRecord) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield for every place the rows that remain to be erased, hidden ones included, and the files that hold them."""
    for place, found in _scanned(context, record, only_heads=False):
        yield place, (found.rows + found.hidden, len(found.files))


def bad_rows_without_key(context: TableContext, record: OpRecord) -> int:
    """Count the bad rows whose text does not contain their key, so that they may belong to an erased one."""
    if erasure_of(record).columns:
        return 0
    head = context.changelog.require_head()
    log = context.changelog.read(head.id)
    bad = log.filter((column(S.KIND) == S.KIND_BAD) & (column(S.OP) < record.op))
    return keys_of_bad_rows(context, bad).filter(~column(HAS_KEY)).count() if bad.take(1) else 0


def _scanned(context: TableContext, record: OpRecord, *, only_heads: bool) -> Iterator[tuple[str, Stored]]:
    """Scan the files of every kept snapshot and of every publication, including hidden rows."""
    mirror = context.mirror.metadata()
    for place, snapshot_id in _mirror_places(mirror, record, only_heads=only_heads):
        yield place, count_stored(mirror_rows_to_erase(context, record, snapshot_id))
    changelog = context.changelog.metadata()
    for number, snapshot_id in enumerate(_newest_first(changelog, only_heads=only_heads)):
        place = CHANGELOG if not number else f"{CHANGELOG} snapshot {snapshot_id}"
        yield place, count_stored(changelog_rows_to_erase(context, record, snapshot_id))
    history = history_of(context.spark, context.table)
    if (metadata := history.find_metadata()) is not None:
        for number, snapshot_id in enumerate(_newest_first(metadata, only_heads=only_heads)):
            place = HISTORY if not number else f"{HISTORY} snapshot {snapshot_id}"
            yield place, count_stored(doomed_in_history(context, record, stored_rows(history, snapshot_id)))
    for publication in published(context, record):
        yield f"publication {publication.location}", rows_in_publication(context, record, publication)


def _mirror_places(mirror: TableMetadata, record: OpRecord, *, only_heads: bool) -> Iterator[tuple[str, int]]:
    """Yield the mirror's snapshots, named by their references; states after the erasure hold only new rows."""
    names = {snapshot.id: references for snapshot, references in references_by_snapshot(mirror)}
    head = mirror.head(MAIN)
    for snapshot_id in mirror.snapshots():
        if int(mirror.stamp_at(APPLIED_STAMP, snapshot_id) or 0) > record.op:
            continue
        for name in names.get(snapshot_id, ()):
            yield f"{MIRROR} {name}", snapshot_id
        if head is not None and snapshot_id == head.id:
            yield MIRROR, snapshot_id
        elif snapshot_id not in names and not only_heads:
            yield f"{MIRROR} snapshot {snapshot_id}", snapshot_id


def _newest_first(metadata: TableMetadata, *, only_heads: bool) -> list[int]:
    """Return a table's snapshots with the head of ``main`` first, or only that head."""
    head = metadata.head(MAIN)
    if only_heads:
        return [head.id] if head else []
    return sorted(metadata.snapshots(), key=lambda snapshot_id: (head is None or snapshot_id != head.id, snapshot_id))


def erase(
    context: TableContext,
    keys: Sequence[Mapping[str, Any]],
    reason: str,
    *,
    landing: bool = False,
    moves: str | None = None,
) -> list[Receipt]:
    """Erase keys and return the receipt, after that of an interrupted erasure, which is finished first.

    The caller holds the table's lease.

    Raises:
        ConfigurationError: a key does not fit the table, or key changes connect it with others.
    """
    earlier = resume(context)
    salt = _known_salt(context) or new_salt()
    hashes = with_moved_keys(context, salt, _hashes(context, keys, salt), moves)
    record = erase_keys(context, Erasure(salt, hashes, reason, 0, landing))
    return [*earlier, finish_erasure(context, record)]


def resume(context: TableContext) -> list[Receipt]:
    """Finish an interrupted erasure and return its receipt; return nothing where there is none."""
    for table in (context.changelog, context.mirror):
        drop_abandoned(table)
    if (begun := unlogged_erasure(context.changelog.find_metadata())) is not None:
        if not _is_in_force(context, begun):
            context.changelog.set_properties({UNFINISHED_PROPERTY: None})  # nothing else was done
            return []
        return [finish_erasure(context, erase_keys(context, begun))]
    finish_interrupted(context)
    unfinished = unfinished_erasure(context.changelog.find_metadata())
    return [finish_erasure(context, record_of(context, unfinished.op))] if unfinished else []


def _is_in_force(context: TableContext, begun: Erasure) -> bool:
    stored = stored_policy(context.mirror.property(POLICY_PROPERTY)).rules
    return (begun.columns or {}).items() <= stored.items()


def plan(context: TableContext, keys: Sequence[Mapping[str, Any]], reason: str, *, moves: str | None = None) -> Receipt:
    """Return what an erasure would remove, without changing anything; the hashes use a salt that is not kept."""
    bases = capture(context)
    salt = new_salt()
    record = next_record(context, bases, Erasure(salt, (), reason, 0))
    hashes = with_moved_keys(context, salt, _hashes(context, keys, salt), moves)
    record = replace(record, erasure=Erasure(salt, hashes, reason, 2**62))
    traces = (*landing_traces(context, erasure_of(record)), *foreign_traces(context, record))
    places = tuple(found_places(context, record))
    return receipt_of(context, record, places, traces, bad_rows_without_key(context, record), dry_run=True)


def _hashes(context: TableContext, keys: Sequence[Mapping[str, Any]], salt: str) -> tuple[str, ...]:
    if not 1 <= len(keys) <= MAX_KEYS:
        msg = f"{context.table}: {len(keys):,} keys to erase; expected 1 to {MAX_KEYS:,}"
        raise ConfigurationError(msg, hint="--key id=42, or several calls")
    if not context.mirror.exists():
        msg = f"{context.table} has no rows yet: nothing was run, so there is nothing to erase"
        raise ConfigurationError(msg, hint=f"lakeward run {context.table}")
    columns, primary = context.mirror.columns(), context.settings.primary_key
    found = [row_key(context.table, columns, primary, key) for key in keys]
    return hashes_of([key.frame(context.spark) for key in found], salt)


def _known_salt(context: TableContext) -> str | None:
    metadata = context.changelog.find_metadata()
    return metadata.property(SALT_PROPERTY) if metadata else None


def finish_erasure(context: TableContext, record: OpRecord) -> Receipt:
    """Clean what is derived from changelog and mirror, prove that nothing is left, and close the erasure."""
    clean_history(context, record)
    context.reached(Step.ERASE_HISTORY)
    clean_publications(context, record)
    context.reached(Step.ERASE_PUBLICATIONS)
    for table in _tables(context):
        stop_merging(table)
    expired = sum(expire_unreferenced(table) for table in _tables(context))
    context.reached(Step.ERASE_TIDIED)
    erasure = erasure_of(record)
    # Landing holds the values of columns, as the source does; the rules are applied whenever it is read.
    traces = [] if erasure.columns else list(landing_traces(context, erasure))
    if erasure.landing:
        traces = rewrite_landing(context, erasure, traces)
    traces += foreign_traces(context, record)
    context.reached(Step.ERASE_LANDING)
    _require_tidy(context)
    unfinished = unfinished_erasure(context.changelog.metadata()) or UnfinishedErasure(record.op)
    places, without_key = _places(context, record, unfinished), bad_rows_without_key(context, record)
    expired += unfinished.expired or 0
    receipt = receipt_of(context, record, places, tuple(traces), without_key, expired=expired)
    receipt.require_clean()
    context.permission.require()
    context.changelog.set_properties({UNFINISHED_PROPERTY: None})
    context.reached(Step.ERASE_DONE)
    return receipt


def _places(context: TableContext, record: OpRecord, unfinished: UnfinishedErasure) -> tuple[ErasedPlace, ...]:
    """Return every scanned place, with what was removed from it and what the scan finds now."""
    removed = unfinished.removed
    left = dict(remaining(context, record))
    return tuple(
        ErasedPlace(place, *removed.get(place, (0, 0, 0)), *left.get(place, (0, 0)))
        for place in sorted({*removed, *left})
    )


def _tables(context: TableContext) -> list[IcebergTable]:
    history = history_of(context.spark, context.table)
    return [context.mirror, context.changelog, *([history] if history.exists() else [])]
