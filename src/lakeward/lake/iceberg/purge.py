"""Removing rows from a table's files for good: bytes too, not only from sight.

A position delete hides a row and leaves it in its file. Here every file that holds a doomed row, hidden or not, is
replaced by one without it, on the branch of an attempt; once no snapshot needs the old files, expiry removes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from lakeward.lake.iceberg.expiry import expire
from lakeward.lake.iceberg.metadata import each_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from pyspark.sql import DataFrame

    from lakeward.lake.iceberg.attempt import Attempt
    from lakeward.lake.iceberg.table import IcebergTable

DATA_FILE, POSITION, IS_DELETED = "_file", "_pos", "_deleted"
_PLACE = (DATA_FILE, POSITION)


@dataclass(frozen=True)
class Stored:
    """What a snapshot stores of some rows: those that readers see, those that deletes hide, the files with either."""

    rows: int = 0
    hidden: int = 0
    files: tuple[str, ...] = ()

    def __add__(self, other: Stored) -> Stored:
        return Stored(self.rows + other.rows, self.hidden + other.hidden, (*self.files, *other.files))


def stored_rows(table: IcebergTable, snapshot_id: int) -> DataFrame:
    """Read everything in a snapshot's data files, rows that deletes hide included, with file and position."""
    return table.read(snapshot_id, with_columns=(*_PLACE, IS_DELETED))


def places(rows: DataFrame) -> DataFrame:
    """Give where rows of :func:`stored_rows` lie, which is all that :func:`purge` needs."""
    return rows.select(*_PLACE, IS_DELETED)


def count_stored(doomed: DataFrame) -> Stored:
    """Count rows by what hides them, in one Spark job; what comes to the driver is one line per file."""
    counts = doomed.groupBy(DATA_FILE).agg(
        F.sum((~F.col(IS_DELETED)).cast("long")), F.sum(F.col(IS_DELETED).cast("long"))
    )
    return sum((Stored(rows, hidden, (file,)) for file, rows, hidden in counts.toLocalIterator()), Stored())


def purge(attempt: Attempt, doomed: DataFrame, found: Stored) -> None:
    """Replace the files that hold doomed rows of the attempt's base; ``found`` is what was counted of them.

    ``doomed`` must be kept by the caller: it is read more than once. Positions that hide rows of other files are
    written anew, since delete files may speak of many data files and must not count rows that are gone.
    """
    if not found.files:
        return
    table = attempt.table
    rows = table.read(attempt.base, with_columns=_PLACE).filter(F.col(DATA_FILE).isin(*found.files))
    kept = rows.join(F.broadcast(doomed.select(*_PLACE)), list(_PLACE), "left_anti").drop(*_PLACE)
    expected = kept.count()
    if expected:
        attempt.append(kept, {}, expected=expected)
    hiding = list(_delete_files(table, attempt.base))
    if hiding:
        hidden = _hidden_elsewhere(table, attempt.base, found.files)
        attempt.commit(_without_delete_files(table, hiding))
    attempt.commit(_without_data_files(table, found.files))
    if hiding and hidden.take(1):
        attempt.delete_keys(hidden, _PLACE, without_nulls=_PLACE)


def expire_unreferenced(table: IcebergTable) -> int:
    """Expire every snapshot that no branch or tag stands at, with the files that only these need; give their number."""
    metadata = table.metadata()
    heads = {head.id for name in metadata.references() if (head := metadata.head(name)) is not None}
    gone = sorted(set(metadata.snapshots()) - heads)
    if gone:
        expire(table, gone)
    return len(gone)


def _hidden_elsewhere(table: IcebergTable, snapshot_id: int, files: Collection[str]) -> DataFrame:
    """Give the places of hidden rows outside of some files, computed now: afterwards nothing hides them."""
    rows = stored_rows(table, snapshot_id).filter(F.col(IS_DELETED) & ~F.col(DATA_FILE).isin(*files))
    return rows.select(*_PLACE).localCheckpoint(eager=True)


def _delete_files(table: IcebergTable, snapshot_id: int) -> Iterator[Any]:
    java = table.load()
    jvm: Any = table.spark._jvm
    for manifest in java.snapshot(snapshot_id).deleteManifests(java.io()):
        entries = jvm.org.apache.iceberg.ManifestFiles.readDeleteManifest(manifest, java.io(), java.specs())
        # Iceberg hands out one object again and again.
        yield from (file.copy() for file in each_of(entries))


def _without_delete_files(table: IcebergTable, files: Sequence[Any]) -> Any:
    update = table.load().newRewrite()
    for file in files:
        update.deleteFile(file)
    return update


def _without_data_files(table: IcebergTable, paths: Sequence[str]) -> Any:
    update = table.load().newDelete()
    update.validateFilesExist()
    jvm: Any = table.spark._jvm
    for path in paths:
        # For a String the bridge finds another method of this name, which removes the file from the disk at once.
        update.deleteFile(jvm.java.lang.StringBuilder(path))
    return update
