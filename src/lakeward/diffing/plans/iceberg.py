"""Two snapshots of one table compared from its metadata: only what was written between them is read.

A row that is in a data file of both snapshots and deleted in neither is the same row. What is left are, of the past,
the rows of data files that are no longer there and those at positions that were deleted since; of the current side,
the rows of data files that came and those at positions that are deleted no more. A row that was only moved to another
file, by compaction, is on both sides then and drops out as equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.pandas.types import to_arrow_schema

from lakeward.diffing.frames.joining import joined
from lakeward.diffing.frames.options import DuplicateKeys
from lakeward.diffing.frames.pairs import ICEBERG, Pairs, Planned
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
class _Half:
    """One side of the comparison: its snapshot, the schema it had, and the files that only it has."""

    state: IcebergState
    struct: StructType
    snapshot: Snapshot
    schema: Mapping[str, Any]
    own: OneSided
    other: OneSided
    other_id: int


@dataclass(frozen=True)
class _Scene:
    """Both sides, and the table's files that they do not share.

    ``newer`` is the side that descends from the other. ``is_tidy``: no position is deleted twice, which holds in
    Lakeward's own tables and for deletion vectors.
    """

    metadata: TableMetadata
    changes: FileChanges
    workspace: Workspace
    halves: tuple[_Half, _Half]
    schemas: int
    newer: int | None
    is_tidy: bool


def iceberg_pairs(
    past: Side, current: Side, alignment: Alignment, options: DiffOptions, *, exact: bool, workspace: Workspace
) -> Planned | str:
    """Pair the rows that two snapshots of a table do not share; a text says why that cannot be."""
    problem = _why_not(past, current, alignment, options, exact=exact)
    if problem:
        return problem
    scene = _scene(past, current, workspace)
    if isinstance(scene, str):
        return scene
    past_rows, current_rows = (half.snapshot.rows if scene.is_tidy else None for half in scene.halves)
    pairs = _small_batch(scene, alignment, options)
    if pairs is None:
        sides = [_candidates(scene, half) for half in scene.halves]
        pairs = joined(sides[0], sides[1], alignment, options, whole=False)
    return Planned(pairs, ICEBERG, _reason(scene.changes), past_rows, current_rows)


def _scene(past: Side, current: Side, workspace: Workspace) -> _Scene | str:
    """Look at the metadata; a text says why it does not tell which rows differ."""
    assert past.iceberg is not None
    assert current.iceberg is not None
    table, metadata = past.iceberg.table, past.iceberg.table.metadata()
    snapshots, schemas = metadata.snapshots(), metadata.schemas()
    left, right = snapshots.get(past.iceberg.snapshot_id), snapshots.get(current.iceberg.snapshot_id)
    if left is None or right is None:
        return "one of the snapshots is no longer kept"
    changes = file_changes(table.spark, metadata, left.id, right.id)
    if changes.has_equality_deletes or any(int(one.summary.get(_EQUALITY, 0)) for one in (left, right)):
        return "rows of the table are deleted by their values, not by their positions"
    told = [_schema_of(schemas, one, metadata) for one in (left, right)]
    halves = (
        _Half(past.iceberg, past.frame.schema, left, told[0], changes.left, changes.right, right.id),
        _Half(current.iceberg, current.frame.schema, right, told[1], changes.right, changes.left, left.id),
    )
    if problem := _schema_problem(told[0]["fields"], told[1]["fields"]) or _lost_column(metadata, halves):
        return problem
    is_tidy = metadata.property(LAYOUT_PROPERTY) is not None or _format_version(metadata) >= _VECTORS
    return _Scene(metadata, changes, workspace, halves, len(schemas), _related(snapshots, left.id, right.id), is_tidy)


def _small_batch(scene: _Scene, alignment: Alignment, options: DiffOptions) -> Pairs | None:
    """Compare a small batch in one task; None where it is not small, or not for DuckDB."""
    if not _is_small(scene) or options.duplicate_keys is not DuplicateKeys.FAIL:
        return None
    if (
        why_not_native(alignment)
        or finer_comparator(alignment)
        or not all(one.has_one_type for one in alignment.columns)
    ):
        return None
    struct = pair_struct(alignment)
    sides = []
    for half in scene.halves:
        ids = {one["name"]: one["id"] for one in half.schema["fields"]}
        fields = native_fields(alignment, ids, is_left=half is scene.halves[0])
        read = position_read(half.state, scene.metadata, half.struct, fields, scene.schemas)
        if isinstance(read, str):
            return None
        data = tuple(sorted(one.path for one in half.own.data))
        sides.append(
            NativeSide(read, data, tuple(sorted(half.own.deletes, key=lambda one: (one.path, one.offset or 0))))
        )
    keys = {at: one.name for at, one in enumerate(alignment.columns) if one.is_key}
    batch = NativeBatch(sides[0], sides[1], native_kernel(alignment, to_arrow_schema(struct)), keys)
    one_row = scene.halves[0].state.table.spark.range(0, 1, 1, 1)
    return Pairs(one_row.mapInArrow(in_task(batch), struct), alignment, is_whole=False)


def _is_small(scene: _Scene) -> bool:
    """Whether one task may do it: few rows, in files of a table that is not large, whose deletes are all known."""
    rows = sum(sum(one.rows for one in half.own.data) for half in scene.halves)
    rows += sum(sum(delete.rows for delete in half.own.deletes) for half in scene.halves)
    size = max(int(half.snapshot.summary.get("total-files-size", _MOST_BYTES + 1)) for half in scene.halves)
    if not scene.is_tidy or rows > _MOST_ROWS or size > _MOST_BYTES:
        return False
    for at, half in enumerate(scene.halves):
        if any(one.format != "parquet" for one in half.own.data):
            return False
        # Deletes of files that the other side never had are newer than it, or all deletes must be at hand.
        has_all = int(half.snapshot.summary.get("total-delete-files", -1)) == len(half.own.deletes)
        is_newer = scene.newer == at
        if half.own.data and not (has_all or is_newer):
            return False
    return True


def _why_not(past: Side, current: Side, alignment: Alignment, options: DiffOptions, *, exact: bool) -> str | None:
    if past.iceberg is None or current.iceberg is None:
        other = past if past.iceberg is None else current
        return f"{other.label} is no snapshot of a table of the lake"
    if past.iceberg.table.identifier != current.iceberg.table.identifier:
        return "the two are snapshots of different tables"
    if exact:
        return "everything shall be read"
    if options.include_unchanged:
        return "unchanged rows are wanted too, and they are in files that need not be read otherwise"
    keys = {key.name for key in alignment.keys}
    for side in (past, current):
        if keys != set(side.primary_key):
            own = ", ".join(side.primary_key) or "none"
            return f"the key of {side.label} is {own}, and only of that is it known that no value comes twice"
    return None


def _candidates(scene: _Scene, half: _Half) -> DataFrame:
    """Return the rows of one side that the other side may not have."""
    now = scene.metadata.java.schema()
    names = {one["name"]: str(now.findField(one["id"]).name()) for one in half.schema["fields"]}
    spark = half.state.table.spark
    parts: list[DataFrame] = []
    read = StagedRead(half.state.table, half.snapshot.id, names, half.struct, scene.workspace)
    if half.own.paths:
        parts.append(read.whole(half.own.paths))
    positions = _positions(scene, half)
    if positions is not None:
        parts.append(_rows_at(scene, read, half, positions))
    if not parts:
        return spark.createDataFrame([], half.struct)
    return parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])


def _positions(scene: _Scene, half: _Half) -> DataFrame | None:
    """Return the positions of this side's rows that only the other side has deleted, in files that both have."""
    table = half.state.table
    if not half.other.deletes:
        return None
    deleted = staged_positions(table, half.other_id, half.other.delete_paths, scene.workspace)
    if deleted is None:
        return None
    gone = sorted(scene.changes.left.paths | scene.changes.right.paths)
    staying = deleted.filter(~column(FILE).isin(gone)) if gone else deleted
    before: DataFrame | None
    if scene.is_tidy:
        before = staged_positions(table, half.snapshot.id, half.own.delete_paths, scene.workspace)
    else:
        before = metadata_frame(table, half.snapshot.id, "position_deletes").select(FILE, POSITION)
        # A position may be deleted by two files, and one of a data file that was gone already.
        staying = staying.filter(column(FILE).isin(sorted(live_files(table, half.snapshot.id)))).distinct()
    return staying if before is None else staying.join(before, [FILE, POSITION], "left_anti")


def _rows_at(scene: _Scene, read: StagedRead, half: _Half, positions: DataFrame) -> DataFrame:
    """Read rows at positions natively, or by Spark where they are many or cannot be read natively."""
    few = sum(delete.rows for delete in half.other.deletes) <= _MOST_PICKED * max(half.snapshot.rows, 1)
    native = (
        position_read(half.state, scene.metadata, half.struct, _fields(half), scene.schemas) if few else "they are many"
    )
    if isinstance(native, str):
        return read.at(positions)
    tasks = max(1, len({delete.of or delete.path for delete in half.other.deletes}))
    spark = half.state.table.spark
    return rows_at(positions, native, half.struct, min(tasks, 2 * spark.sparkContext.defaultParallelism))


def _fields(half: _Half) -> tuple[tuple[int, Any], ...]:
    """Return a side's columns by field id, as it has them."""
    arrow = to_arrow_schema(half.struct)
    return tuple((one["id"], arrow.field(one["name"])) for one in half.schema["fields"])


def _lost_column(metadata: TableMetadata, halves: Sequence[_Half]) -> str | None:
    """Find a column that a side had and the table has no more: files are read under today's schema."""
    now = metadata.java.schema()
    known = {int(one.fieldId()) for one in now.columns()}
    for half in halves:
        for one in half.schema["fields"]:
            if one["id"] not in known:
                return f"the column {one['name']} is no longer in the table, and with it go its former values"
    return None


def _related(snapshots: Mapping[int, Snapshot], left: int, right: int) -> int | None:
    """Return the side that descends from the other: 0 the past, 1 the current one, None neither."""
    for number, (start, wanted) in enumerate(((left, right), (right, left))):
        current: int | None = start
        while current is not None and current in snapshots:
            if current == wanted:
                return number
            current = snapshots[current].parent
    return None


def _schema_problem(left: Sequence[Mapping[str, Any]], right: Sequence[Mapping[str, Any]]) -> str | None:
    """Return why rows of files that both sides have may differ all the same: by what their columns are called, or hold.

    A column that only one side has was added after the other, and is null in files of both.
    """
    other = {one["id"]: one for one in right}
    for one in left:
        found = other.pop(one["id"], one)
        if found["name"] != one["name"]:
            return f"the column {one['name']} is called {found['name']} on the other side"
        if found["type"] != one["type"] and isinstance(one["type"], dict):
            return f"the nested column {one['name']} has changed"
    if filled := next((one["name"] for one in (*left, *right) if _DEFAULT in one), None):
        return f"the column {filled} has a value in files that do not hold it"
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
        f"{len(right.data)} and {len(right.deletes)} came; all others are shared and not read"
    )
