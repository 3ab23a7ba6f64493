"""Removing what a table no longer needs: old snapshots, orphan files, and the stored bytes of purged rows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError
from pyspark.sql import functions as F

from lakeward.iceberg.metadata import EMPTY_TAG, MAIN, each_of
from lakeward.iceberg.table import CATALOG
from lakeward.spark.errors import commit_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame

    from lakeward.iceberg.attempt import Attempt
    from lakeward.iceberg.metadata import Snapshot
    from lakeward.iceberg.table import IcebergTable


def expirable(
    snapshots: Mapping[int, Snapshot],
    *,
    branches: Mapping[str, int],
    tags: Mapping[str, int],
    before_ms: int,
    stamps: Collection[str],
) -> list[int]:
    """Return the snapshots that can be expired, oldest first.

    Kept are the snapshots of tags and those made since ``before_ms``. Of each branch are kept the head and its
    ancestors back to the state at that moment, or further back to the newest snapshot with each of ``stamps``.
    """
    kept = {*tags.values()}
    for head in branches.values():
        kept |= {snapshot.id for snapshot in _needed(snapshots, head, before_ms, stamps)}
    gone = [
        snapshot for snapshot in snapshots.values() if snapshot.id not in kept and snapshot.committed_ms < before_ms
    ]
    return [snapshot.id for snapshot in sorted(gone, key=lambda snapshot: (snapshot.committed_ms, snapshot.id))]


def _needed(
    snapshots: Mapping[int, Snapshot], head: int, before_ms: int, stamps: Collection[str]
) -> Iterator[Snapshot]:
    """Yield a branch's snapshots from its head back to the state at a moment."""
    seen: set[str] = set()
    wanted = {name for snapshot in _lineage(snapshots, head) for name in stamps if name in snapshot.summary}
    for snapshot in _lineage(snapshots, head):
        yield snapshot
        seen |= wanted & set(snapshot.summary)
        # Commits within an op have no stamps: they are not states that readers saw.
        if snapshot.committed_ms < before_ms and seen == wanted and (not wanted or wanted & set(snapshot.summary)):
            return


def _lineage(snapshots: Mapping[int, Snapshot], head: int) -> Iterator[Snapshot]:
    current = snapshots.get(head)
    while current is not None:
        yield current
        current = snapshots.get(current.parent) if current.parent is not None else None


def expire(table: IcebergTable, snapshot_ids: Sequence[int]) -> None:
    """Remove snapshots that no branch or tag points to, and the files that no other snapshot needs."""
    with commit_errors(table.identifier):
        # Exactly the named snapshots are removed, whatever their age.
        expiry = table.load().expireSnapshots().expireOlderThan(0)
        for snapshot_id in snapshot_ids:
            expiry = expiry.expireSnapshotId(snapshot_id)
        expiry.cleanExpiredFiles(True).commit()


# Orphans: files in a table's folder that no snapshot references, left by writers that died. They are removed when they
# are old enough, but only if their name and place are those of Iceberg's writers. Any other file stays. Where the
# metadata of another table is in the folder, nothing is removed at all.


# The number of paths in a report; all orphans are removed.
SHOWN = 1000
_LISTING = "org.apache.iceberg.io.SupportsPrefixOperations"
_BULK = "org.apache.iceberg.io.SupportsBulkOperations"
_REMOVED_AT_ONCE = 1000
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
# data/column=value/00000-1-UUID-00001.parquet, of a delete file …-00001-deletes.parquet or .puffin
_DATA = re.compile(
    rf"data/(?:[^/]+=[^/]*/)*\d{{5,}}-\d+-{_UUID}(?:-\d+)?-\d{{5,}}(?:-deletes)?\.(?:parquet|orc|avro|puffin)"
)
_METADATA = re.compile(
    rf"metadata/(?:snap-\d+-\d+-{_UUID}\.avro|(?:optimized-m-)?{_UUID}(?:-m\d+)?\.avro|\d+-{_UUID}\.stats)"
)
_TABLE_METADATA = re.compile(r"metadata/.+\.metadata\.json(?:\.gz)?")


@dataclass(frozen=True)
class Orphans:
    """The orphans that were found, and removed unless in a dry run: their number and some paths.

    ``foreign`` counts other old files that no snapshot references and that Iceberg did not write: they stay.
    ``skipped`` is the reason why there was no search.
    """

    count: int = 0
    paths: tuple[str, ...] = ()
    foreign: int = 0
    foreign_paths: tuple[str, ...] = ()
    skipped: str | None = None


def remove_orphans(
    table: IcebergTable, *, older_than_ms: int, others: Iterable[str] = (), dry_run: bool = False
) -> Orphans:
    """Remove files of the table's folder that no snapshot references; ``others`` are the folders of other tables."""
    java = table.load()
    location = str(java.location())
    reason = why_not_own(location, table.name, others)
    if reason is None and not _is_a(table, java.io(), _LISTING):
        reason = f"{java.io().getClass().getSimpleName()} cannot list files"
    if reason is None and (other := _other_table(java, table)):
        reason = f"{other} is the metadata of another table, whose files may be there too"
    if reason is not None:
        return _skipped(table, reason)
    moment = datetime.fromtimestamp(older_than_ms / 1000, UTC)
    call = (
        f"CALL {CATALOG}.system.remove_orphan_files(table => '{_text(table.identifier)}', prefix_listing => true, "
        f"older_than => TIMESTAMP '{moment:%Y-%m-%d %H:%M:%S}Z', dry_run => true)"
    )
    with commit_errors(table.identifier):
        # Iceberg only lists the files: it would remove foreign ones, too.
        found = table.spark.sql(call)
        own = (row[0] for row in found.toLocalIterator() if is_iceberg_file(row[0], location))
        count, paths = _counted(own) if dry_run else _removed(table, java.io(), own)
        foreign = _counted(row[0] for row in found.toLocalIterator() if not is_iceberg_file(row[0], location))
        return Orphans(count, paths, *foreign)


def is_iceberg_file(path: str, location: str) -> bool:
    """Whether a file has the name and place of a file written by Iceberg for Spark."""
    folder = _plain(location) + "/"
    name = _plain(path).removeprefix(folder)
    known = (_DATA, _METADATA, _TABLE_METADATA)
    return _plain(path).startswith(folder) and any(pattern.fullmatch(name) for pattern in known)


def is_catalog_file(path: str, location: str) -> bool:
    """Whether a file is one that a Hadoop catalog, or Hadoop's local file system, keeps beside Iceberg's files."""
    name = _plain(path).removeprefix(_plain(location) + "/")
    checked = re.fullmatch(r"(.*/)?\.([^/]+)\.crc", name)
    if checked:
        inner = f"{location}/{checked[1] or ''}{checked[2]}"
        return is_iceberg_file(inner, location) or is_catalog_file(inner, location)
    return name == "metadata/version-hint.text"


def is_table_metadata(path: str, location: str) -> bool:
    """Whether a file has the name and place of the metadata of a table as a whole."""
    return _TABLE_METADATA.fullmatch(_plain(path).removeprefix(_plain(location) + "/")) is not None


def _other_table(java: Any, table: IcebergTable) -> str | None:
    """Return a metadata file of another table in the table's folder, whatever its age; None where there is none."""
    jvm: Any = table.spark._jvm
    location, own_id = str(java.location()), str(java.uuid())
    current = java.operations().current()
    known = (current.metadataFileLocation(), *(entry.file() for entry in current.previousFiles()))
    own = {_plain(str(path)) for path in known}
    with commit_errors(table.identifier):
        listed = [*_listed(java.io(), f"{_folder(location)}/metadata/")]
    for path in listed:
        if not is_table_metadata(path, location) or _plain(path) in own:
            continue
        try:
            found = str(jvm.org.apache.iceberg.TableMetadataParser.read(java.io(), path).uuid())
        except Py4JJavaError:
            # It cannot be determined whose it is.
            return path
        if found != own_id:
            return path
    return None


def _listed(io: Any, prefix: str) -> Iterator[str]:
    files = io.listPrefix(prefix).iterator()
    while files.hasNext():
        yield str(files.next().location())


def _counted(paths: Iterable[str]) -> tuple[int, tuple[str, ...]]:
    rest = iter(paths)
    shown = tuple(islice(rest, SHOWN))
    return len(shown) + sum(1 for _ in rest), shown


def _removed(table: IcebergTable, io: Any, paths: Iterable[str]) -> tuple[int, tuple[str, ...]]:
    count, rest = 0, iter(paths)
    shown: list[str] = []
    while chunk := list(islice(rest, _REMOVED_AT_ONCE)):
        _remove(table, io, chunk)
        count += len(chunk)
        shown += chunk[: SHOWN - len(shown)]
    return count, tuple(shown)


def _remove(table: IcebergTable, io: Any, paths: list[str]) -> None:
    if not _is_a(table, io, _BULK):
        for path in paths:
            io.deleteFile(path)
        return
    jvm: Any = table.spark._jvm
    wanted = jvm.java.util.ArrayList()
    for path in paths:
        wanted.add(path)
    io.deleteFiles(wanted)


def _skipped(table: IcebergTable, reason: str) -> Orphans:
    return Orphans(skipped=f"{table.identifier}: orphan files were not looked for: {reason}")


def why_not_own(location: str, name: str, others: Iterable[str]) -> str | None:
    """Return why a folder may hold files of other tables, None where it belongs to this table alone."""
    own = _folder(location)
    if name.casefold() not in unquote(own.rpartition("/")[2]).casefold():
        return f"{location} is not a folder of this table's name: others may keep files there"
    for other in others:
        if _folder(other) == own or _folder(other).startswith(f"{own}/"):
            return f"{other} of another table is in it"
    return None


def _is_a(table: IcebergTable, io: Any, name: str) -> bool:
    jvm: Any = table.spark._jvm
    kind = jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
    return bool(kind.isInstance(io))


def _plain(location: str) -> str:
    """Return the normal form of an address: ``/x`` for ``file:/x``, ``s3://`` for ``s3a://``."""
    text = re.sub(r"^s3[an]?://", "s3://", location.rstrip("/"))
    return re.sub(r"^file:/*", "/", text)


def _folder(location: str) -> str:
    return location.rstrip("/")


def _text(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")


# Purging rows: removing their bytes from a table's files.
# A position delete hides a row and leaves it in its file. Here every file with a row to purge, hidden or not, is
# replaced by one without it, on the branch of an attempt; once no snapshot needs the old files, expiry removes them.


DATA_FILE, POSITION, IS_DELETED = "_file", "_pos", "_deleted"
_PLACE = (DATA_FILE, POSITION)


@dataclass(frozen=True)
class Stored:
    """The storage of some rows in a snapshot: visible rows, rows hidden by deletes, and the files with either."""

    rows: int = 0
    hidden: int = 0
    files: tuple[str, ...] = ()

    def __add__(self, other: Stored) -> Stored:
        return Stored(self.rows + other.rows, self.hidden + other.hidden, (*self.files, *other.files))


def stored_rows(table: IcebergTable, snapshot_id: int) -> DataFrame:
    """Return all rows of a snapshot's data files with file and position, including those hidden by deletes."""
    return table.read(snapshot_id, with_columns=(*_PLACE, IS_DELETED))


def places(rows: DataFrame) -> DataFrame:
    """Return file and position of rows of :func:`stored_rows`, which is all that :func:`purge` needs."""
    return rows.select(*_PLACE, IS_DELETED)


def count_stored(doomed: DataFrame) -> Stored:
    """Count visible and hidden rows in one Spark job; the driver gets one line per file."""
    counts = doomed.groupBy(DATA_FILE).agg(
        F.sum((~F.col(IS_DELETED)).cast("long")), F.sum(F.col(IS_DELETED).cast("long"))
    )
    return sum((Stored(rows, hidden, (file,)) for file, rows, hidden in counts.toLocalIterator()), Stored())


def purge(
    attempt: Attempt, doomed: DataFrame, found: Stored, rewritten: Callable[[DataFrame], DataFrame] | None = None
) -> None:
    """Replace the files of the attempt's base that hold doomed rows; ``found`` are the counts of these rows.

    The new files have no doomed rows; with ``rewritten``, they have all visible rows as it returns them. ``doomed``
    must be persisted by the caller: it is read more than once. Position deletes of other files are
    rewritten, since a delete file may refer to many data files and must not count rows that are gone.
    """
    if not found.files:
        return
    table = attempt.table
    rows = table.read(attempt.base, with_columns=_PLACE).filter(F.col(DATA_FILE).isin(*found.files))
    if rewritten is None:
        kept = rows.join(F.broadcast(doomed.select(*_PLACE)), list(_PLACE), "left_anti").drop(*_PLACE)
    else:
        kept = rewritten(rows.drop(*_PLACE))
    expected = kept.count()
    if expected:
        attempt.append(kept, {}, expected=expected)
    hiding = list(_delete_files(table, attempt.base))
    if hiding:
        hidden = _hidden_elsewhere(table, attempt.base, found.files)
        attempt.commit(_without_delete_files(table, hiding))
    attempt.commit(_without_data_files(table, found.files))
    # Beside those of other files, the entries of removed ones would stay, with the bounds of their values.
    _forget_entries(attempt)
    if hiding and hidden.take(1):
        attempt.delete_keys(hidden, _PLACE, without_nulls=_PLACE)


def expire_unreferenced(table: IcebergTable) -> int:
    """Expire every snapshot that no branch or tag points to, with its files; return the number of snapshots."""
    metadata = table.metadata()
    heads = {head.id for name in metadata.references() if (head := metadata.head(name)) is not None}
    gone = sorted(set(metadata.snapshots()) - heads)
    if gone:
        expire(table, gone)
    return len(gone)


def empty_table(table: IcebergTable) -> None:
    """Remove all rows, branches, tags and former snapshots, with their files; may be repeated.

    What is left are the first snapshot with its tag, and an empty one.
    """
    metadata = table.metadata()
    head = metadata.head()
    if head is not None and any(int(head.summary.get(name, 0)) for name in ("total-data-files", "total-delete-files")):
        table.delete_all(MAIN, {})
    for name in metadata.tags().keys() - {EMPTY_TAG}:
        table.drop_tag(name)
    for name in metadata.branches().keys() - {MAIN}:
        table.drop_branch(name)
    expire_unreferenced(table)


def drop_table(table: IcebergTable, *, removes_files: bool) -> None:
    """Remove an empty table from the catalog, and the metadata that it refers to; some catalogs remove all files."""
    java = table.load()
    # Not by PURGE of Spark, which fills the log with errors about files that it has just removed.
    paths = [] if removes_files else sorted(_metadata_files(java))
    with commit_errors(table.identifier):
        table.spark.sql(f"DROP TABLE {table.identifier}")
    if paths:
        _remove(table, java.io(), paths)


def _metadata_files(java: Any) -> set[str]:
    """Return the metadata files of a table, the lists of manifests of all snapshots, and the manifests."""
    current = java.operations().current()
    found = {str(current.metadataFileLocation()), *(str(entry.file()) for entry in current.previousFiles())}
    for snapshot in java.snapshots():
        found.add(str(snapshot.manifestListLocation()))
        found |= {str(manifest.path()) for manifest in snapshot.allManifests(java.io())}
    return found


def _hidden_elsewhere(table: IcebergTable, snapshot_id: int, files: Collection[str]) -> DataFrame:
    """Return the places of hidden rows outside some files, computed now: afterwards nothing hides them."""
    rows = stored_rows(table, snapshot_id).filter(F.col(IS_DELETED) & ~F.col(DATA_FILE).isin(*files))
    return rows.select(*_PLACE).localCheckpoint(eager=True)


def _delete_files(table: IcebergTable, snapshot_id: int) -> Iterator[Any]:
    java = table.load()
    jvm: Any = table.spark._jvm
    for manifest in java.snapshot(snapshot_id).deleteManifests(java.io()):
        entries = jvm.org.apache.iceberg.ManifestFiles.readDeleteManifest(manifest, java.io(), java.specs())
        # Iceberg reuses the same object for every entry.
        yield from (file.copy() for file in each_of(entries))


def _without_delete_files(table: IcebergTable, files: Sequence[Any]) -> Any:
    update = table.load().newRewrite()
    for file in files:
        update.deleteFile(file)
    return update


# Makes a commit merge all manifests that fit into one; usually a hundred small ones have to come together.
_MERGING = {"commit.manifest.min-count-to-merge": "1", "commit.manifest.target-size-bytes": str(64 << 20)}


def _forget_entries(attempt: Attempt) -> None:
    """Drop the entries of removed files from manifests: merging takes over those of present files alone."""
    attempt.table.set_properties(_MERGING)
    try:
        attempt.commit(attempt.table.load().newAppend())
    finally:
        stop_merging(attempt.table)


def stop_merging(table: IcebergTable) -> None:
    """Make commits write manifests as usual, also where a crash prevented that."""
    metadata = table.metadata()
    if any(metadata.property(name) is not None for name in _MERGING):
        table.set_properties(dict.fromkeys(_MERGING))


def _without_data_files(table: IcebergTable, paths: Sequence[str]) -> Any:
    update = table.load().newDelete()
    update.validateFilesExist()
    jvm: Any = table.spark._jvm
    for path in paths:
        # For a String, py4j would choose an overload that deletes the file from disk at once.
        update.deleteFile(jvm.java.lang.StringBuilder(path))
    return update
