"""Two snapshots of one table compared from its metadata: only what was written between them is read.

A row that is in a data file of both snapshots and deleted in neither is the same row. What remains of the past are the
rows of data files that were removed since, and the rows at positions that were deleted since. What remains of the
current side are the rows of data files that were added, and the rows at positions that are no longer deleted. A row
that compaction moved to another file is then on both sides and drops out as equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.pandas.types import to_arrow_schema

from lakeward.diffing.frames.joining import joined
from lakeward.diffing.frames.options import DuplicateKeys
from lakeward.diffing.frames.pairs import ICEBERG, Pairs, PlannedPairs
from lakeward.diffing.plans.buckets import finer_comparator, pair_struct
from lakeward.diffing.plans.iceberg_rows import (
    FILE,
    POSITION,
    NativeBatch,
    NativeSide,
    StagedRead,
    native_fields,
    native_kernel,
    position_read,
    rows_at,
    staged_positions,
)
from lakeward.diffing.plans.kernel import why_not_native
from lakeward.iceberg.define import LAYOUT_PROPERTY
from lakeward.iceberg.file_changes import file_changes, live_files
from lakeward.iceberg.rewrite import metadata_frame
from lakeward.spark.marks import in_task
from lakeward.transforms.columns import column

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from lakeward.diffing.frames.alignment import Alignment
    from lakeward.diffing.frames.options import DiffOptions
    from lakeward.diffing.stored.addresses import IcebergState, Side
    from lakeward.iceberg.file_changes import FileChanges, OneSided
    from lakeward.iceberg.metadata import Snapshot, TableMetadata
    from lakeward.spark.workspace import Workspace

# From this share of the rows on, reading whole files costs less than picking rows from them.
_MOST_PICKED = 0.05
_EQUALITY = "total-equality-deletes"
_VECTORS = 3
# Up to here one task compares a batch.
_MOST_ROWS, _MOST_BYTES = 200_000, 1 << 30
_DEFAULT = "initial-default"


@dataclass(frozen=True)
class _SnapshotSide:
    """One side of the comparison: its snapshot, the schema it had, and the files that only it has."""

    state: IcebergState
    struct: StructType
    snapshot: Snapshot
    schema: Mapping[str, Any]
    own: OneSided
    other: OneSided
    other_id: int


@dataclass(frozen=True)
class _SnapshotPair:
    """Both sides, and the table's files that they do not share.

    ``newer`` is the side that descends from the other. ``is_tidy``: no position is deleted twice, which holds in
    Lakeward's own tables and for deletion vectors.
    """

    metadata: TableMetadata
    changes: FileChanges
    workspace: Workspace
    sides: tuple[_SnapshotSide, _SnapshotSide]
    schemas: int
    newer: int | None
    is_tidy: bool


def iceberg_pairs(
    past: Side, current: Side, alignment: Alignment, options: DiffOptions, *, exact: bool, workspace: Workspace
) -> PlannedPairs | str:
    """Pair the rows that two snapshots of a table do not share, or return why that is not possible."""
    problem = _why_not(past, current, alignment, options, exact=exact)
    if problem:
        return problem
    pair = _snapshot_pair(past, current, workspace)
    if isinstance(pair, str):
        return pair
    past_rows, current_rows = (side.snapshot.rows if pair.is_tidy else None for side in pair.sides)
    pairs = _small_batch(pair, alignment, options)
    if pairs is None:
        sides = [_candidates(pair, side) for side in pair.sides]
        pairs = joined(sides[0], sides[1], alignment, options, whole=False)
    return PlannedPairs(pairs, ICEBERG, _reason(pair.changes), past_rows, current_rows)


def _snapshot_pair(past: Side, current: Side, workspace: Workspace) -> _SnapshotPair | str:
    """Read the metadata of both snapshots, or return why the rows that differ cannot be derived from it."""
    assert past.iceberg is not None
    assert current.iceberg is not None
    table, metadata = past.iceberg.table, past.iceberg.table.metadata()
    snapshots, schemas = metadata.snapshots(), metadata.schemas()
    left, right = snapshots.get(past.iceberg.snapshot_id), snapshots.get(current.iceberg.snapshot_id)
    if left is None or right is None:
        return "one of the snapshots is no longer kept"
    changes = file_changes(table.spark, metadata, left.id, right.id)
    if changes.has_equality_deletes or any(int(snapshot.summary.get(_EQUALITY, 0)) for snapshot in (left, right)):
        return "rows of the table are deleted by their values, not by their positions"
    own_schemas = [_schema_of(schemas, snapshot, metadata) for snapshot in (left, right)]
    sides = (
        _SnapshotSide(past.iceberg, past.frame.schema, left, own_schemas[0], changes.left, changes.right, right.id),
        _SnapshotSide(
            current.iceberg, current.frame.schema, right, own_schemas[1], changes.right, changes.left, left.id
        ),
    )
    if problem := _schema_problem(own_schemas[0]["fields"], own_schemas[1]["fields"]) or _lost_column(metadata, sides):
        return problem
    is_tidy = metadata.property(LAYOUT_PROPERTY) is not None or _format_version(metadata) >= _VECTORS
    return _SnapshotPair(
        metadata, changes, workspace, sides, len(schemas), _related(snapshots, left.id, right.id), is_tidy
    )


def _small_batch(pair: _SnapshotPair, alignment: Alignment, options: DiffOptions) -> Pairs | None:
    """Compare a small batch in one task; return None where it is too large, or DuckDB cannot compare it."""
    if not _is_small(pair) or options.duplicate_keys is not DuplicateKeys.FAIL:
        return None
    if (
        why_not_native(alignment)
        or finer_comparator(alignment)
        or not all(aligned.has_one_type for aligned in alignment.columns)
    ):
        return None
    struct = pair_struct(alignment)
    sides = []
    for side in pair.sides:
        ids = {field["name"]: field["id"] for field in side.schema["fields"]}
        fields = native_fields(alignment, ids, is_left=side is pair.sides[0])
        read = position_read(side.state, pair.metadata, side.struct, fields, pair.schemas)
        if isinstance(read, str):
            return None
        data = tuple(sorted(file.path for file in side.own.data))
        sides.append(
            NativeSide(
                read,
                data,
                tuple(sorted(side.own.deletes, key=lambda delete_file: (delete_file.path, delete_file.offset or 0))),
            )
        )
    keys = {at: aligned.name for at, aligned in enumerate(alignment.columns) if aligned.is_key}
    batch = NativeBatch(sides[0], sides[1], native_kernel(alignment, to_arrow_schema(struct)), keys)
    one_row = pair.sides[0].state.table.spark.range(0, 1, 1, 1)
    return Pairs(one_row.mapInArrow(in_task(batch), struct), alignment, is_whole=False)


def _is_small(pair: _SnapshotPair) -> bool:
    """Whether one task can compare the rows: they are few, the table is small, and its deletes are all known."""
    rows = sum(sum(file.rows for file in side.own.data) for side in pair.sides)
    rows += sum(sum(delete_file.rows for delete_file in side.own.deletes) for side in pair.sides)
    size = max(int(side.snapshot.summary.get("total-files-size", _MOST_BYTES + 1)) for side in pair.sides)
    if not pair.is_tidy or rows > _MOST_ROWS or size > _MOST_BYTES:
        return False
    for at, side in enumerate(pair.sides):
        if any(file.format != "parquet" for file in side.own.data):
            return False
        # Deletes in files that the other side never had are newer than that side; otherwise all deletes are needed.
        has_all = int(side.snapshot.summary.get("total-delete-files", -1)) == len(side.own.deletes)
        is_newer = pair.newer == at
        if side.own.data and not (has_all or is_newer):
            return False
    return True


def _why_not(past: Side, current: Side, alignment: Alignment, options: DiffOptions, *, exact: bool) -> str | None:
    if past.iceberg is None or current.iceberg is None:
        other = past if past.iceberg is None else current
        return f"{other.label} is not a snapshot of a table of the lake"
    if past.iceberg.table.identifier != current.iceberg.table.identifier:
        return "the two are snapshots of different tables"
    if exact:
        return "an exact comparison reads everything"
    if options.include_unchanged:
        return "unchanged rows are wanted too, and they are in files that are otherwise not read"
    keys = {key.name for key in alignment.keys}
    for side in (past, current):
        if keys != set(side.primary_key):
            own = ", ".join(side.primary_key) or "none"
            return f"the key of {side.label} is {own}, and only that key is known to be unique"
    return None


def _candidates(pair: _SnapshotPair, side: _SnapshotSide) -> DataFrame:
    """Return the rows of one side that the other side may not have."""
    now = pair.metadata.java.schema()
    names = {field["name"]: str(now.findField(field["id"]).name()) for field in side.schema["fields"]}
    spark = side.state.table.spark
    parts: list[DataFrame] = []
    read = StagedRead(side.state.table, side.snapshot.id, names, side.struct, pair.workspace)
    if side.own.paths:
        parts.append(read.whole(side.own.paths))
    positions = _positions(pair, side)
    if positions is not None:
        parts.append(_rows_at(pair, read, side, positions))
    if not parts:
        return spark.createDataFrame([], side.struct)
    return parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])


def _positions(pair: _SnapshotPair, side: _SnapshotSide) -> DataFrame | None:
    """Return the positions of this side's rows that only the other side has deleted, in files that both have."""
    table = side.state.table
    if not side.other.deletes:
        return None
    deleted = staged_positions(table, side.other_id, side.other.delete_paths, pair.workspace)
    if deleted is None:
        return None
    gone = sorted(pair.changes.left.paths | pair.changes.right.paths)
    staying = deleted.filter(~column(FILE).isin(gone)) if gone else deleted
    before: DataFrame | None
    if pair.is_tidy:
        before = staged_positions(table, side.snapshot.id, side.own.delete_paths, pair.workspace)
    else:
        before = metadata_frame(table, side.snapshot.id, "position_deletes").select(FILE, POSITION)
        # Two files may delete the same position, and a data file with deletes may have been removed before.
        staying = staying.filter(column(FILE).isin(sorted(live_files(table, side.snapshot.id)))).distinct()
    return staying if before is None else staying.join(before, [FILE, POSITION], "left_anti")


def _rows_at(pair: _SnapshotPair, read: StagedRead, side: _SnapshotSide, positions: DataFrame) -> DataFrame:
    """Read rows at positions natively, or by Spark where they are many or cannot be read natively."""
    few = sum(delete_file.rows for delete_file in side.other.deletes) <= _MOST_PICKED * max(side.snapshot.rows, 1)
    native = (
        position_read(side.state, pair.metadata, side.struct, _fields(side), pair.schemas) if few else "they are many"
    )
    if isinstance(native, str):
        return read.at(positions)
    tasks = max(1, len({delete_file.of or delete_file.path for delete_file in side.other.deletes}))
    spark = side.state.table.spark
    return rows_at(positions, native, side.struct, min(tasks, 2 * spark.sparkContext.defaultParallelism))


def _fields(side: _SnapshotSide) -> tuple[tuple[int, Any], ...]:
    """Return a side's columns by field id, as it has them."""
    arrow = to_arrow_schema(side.struct)
    return tuple((field["id"], arrow.field(field["name"])) for field in side.schema["fields"])


def _lost_column(metadata: TableMetadata, sides: Sequence[_SnapshotSide]) -> str | None:
    """Return why a column that the table no longer has prevents it: files are read by the present schema."""
    now = metadata.java.schema()
    known = {int(field.fieldId()) for field in now.columns()}
    for side in sides:
        for field in side.schema["fields"]:
            if field["id"] not in known:
                return f"the column {field['name']} is no longer in the table, so that its former values cannot be read"
    return None


def _related(snapshots: Mapping[int, Snapshot], left: int, right: int) -> int | None:
    """Return the side that descends from the other: 0 for the past, 1 for the current side, None for neither."""
    for number, (start, wanted) in enumerate(((left, right), (right, left))):
        current: int | None = start
        while current is not None and current in snapshots:
            if current == wanted:
                return number
            current = snapshots[current].parent
    return None


def _schema_problem(left: Sequence[Mapping[str, Any]], right: Sequence[Mapping[str, Any]]) -> str | None:
    """Return why rows of shared files may differ nevertheless: a column was renamed or changed its type.

    A column that only one side has was added after the other, and is null in files of both.
    """
    other = {field["id"]: field for field in right}
    for field in left:
        found = other.pop(field["id"], field)
        if found["name"] != field["name"]:
            return f"the column {field['name']} is called {found['name']} on the other side"
        if found["type"] != field["type"] and isinstance(field["type"], dict):
            return f"the nested column {field['name']} has changed"
    if filled := next((field["name"] for field in (*left, *right) if _DEFAULT in field), None):
        return f"the column {filled} has a default value in files that do not hold it"
    return None


def _schema_of(
    schemas: Mapping[int, Mapping[str, Any]], snapshot: Snapshot, metadata: TableMetadata
) -> Mapping[str, Any]:
    number = snapshot.schema_id if snapshot.schema_id in schemas else int(metadata.java.schema().schemaId())
    return schemas[number] if number is not None else {}


def _format_version(metadata: TableMetadata) -> int:
    return int(metadata.java.operations().current().formatVersion())


def _reason(changes: FileChanges) -> str:
    left, right = changes.left, changes.right
    return (
        f"two snapshots of one table: {len(left.data)} data and {len(left.deletes)} delete files are gone, "
        f"{len(right.data)} and {len(right.deletes)} are new; all others are shared and not read"
    )
