"""Rows as the driver gives them, as Arrow batches of a snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lakeward.cassandra.reading.plan import Part
from lakeward.cassandra.schema import ColumnKind
from lakeward.cassandra.snapshot_columns import EXPIRES, WRITETIME, snapshot_arrow_schema
from lakeward.cassandra.types import to_arrow
from lakeward.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from lakeward.cassandra.reading.plan import Cell, ReadPlan


class BatchMaker:
    """Makes batches of the pages of one range, which must come in their order.

    Cassandra repeats the static values of a partition in each of its rows. Here they are a row of their own, and null
    in all others: a change of one is then one change.
    """

    def __init__(self, plan: ReadPlan) -> None:
        self.schema = snapshot_arrow_schema(plan.schema, plan.columns or None, writetime=plan.writetime, ttl=plan.ttl)
        self._plan, self._cells = plan, plan.cells
        self._makers = [_maker(one) for one in self._cells]
        self._statics = [one.name for one in plan.selected if one.kind is ColumnKind.STATIC]
        self._last: tuple[Any, ...] | None = None

    def batch(self, rows: Sequence[tuple[Any, ...]], read_at: int) -> pa.RecordBatch:
        """Give rows as a batch; ``read_at`` is the second of their reading, from which what they have left counts."""
        if not rows:
            return pa.RecordBatch.from_pylist([], schema=self.schema)
        columns = dict(zip([one.field for one in self._cells], zip(*rows, strict=True), strict=True))
        found = {one.field: make(columns, read_at) for one, make in zip(self._cells, self._makers, strict=True)}
        self._fill_times(found)
        whole = pa.RecordBatch.from_arrays([found[name] for name in self.schema.names], schema=self.schema)
        self._require_keys(whole)
        return self._split(whole) if self._plan.schema.statics else whole

    def _require_keys(self, rows: pa.RecordBatch) -> None:
        """Refuse keys of no bytes, which Cassandra allows and the driver gives as nothing: rows would be lost.

        Only the static part of a partition has no clustering key; then it has none at all, and no regular value.
        """
        schema = self._plan.schema
        absent = [one for one in schema.partition_key if rows.column(one.name).null_count]
        clustering = [rows.column(one.name).is_null() for one in schema.clustering]
        if any(one.true_count for one in clustering):
            others = [one.name for one in self._plan.selected if one.kind is ColumnKind.REGULAR]
            has_value = [pc.and_(clustering[0], rows.column(name).is_valid()).true_count for name in others]
            is_alike = all(one.equals(clustering[0]) for one in clustering)
            absent += schema.clustering if not (schema.statics and is_alike) or any(has_value) else ()
        if absent:
            names = ", ".join(one.name for one in absent)
            msg = f"{schema.name} has rows whose key is empty in {names}: the driver cannot tell them from others"
            raise DataError(msg, hint="remove or rewrite the rows whose key was made by blobAs…(0x)")

    def _fill_times(self, found: dict[str, pa.Array]) -> None:
        """Give collections whose times the server does not tell the latest ones that it tells of the row."""
        for column in self._plan.untold:
            same = [one.name for one in self._plan.selected if one.kind is column.kind]
            nothing = pa.nulls(len(found[column.name]), pa.int64())
            for mark in (WRITETIME, EXPIRES):
                known = [name for name in same if mark + name in found]
                latest = pc.max_element_wise(*[found[mark + name] for name in known]) if known else nothing
                for name in known if mark == EXPIRES else ():
                    # A value without an expiry stays for ever, and so may the collection.
                    stays = pc.and_(pc.is_valid(found[name]), pc.is_null(found[mark + name]))
                    latest = pc.if_else(stays, nothing, latest)
                found[mark + column.name] = pc.if_else(pc.is_valid(found[column.name]), latest, nothing)

    def _split(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Set static values apart: one row for each partition that has any, before its others."""
        schema = self._plan.schema
        statics, regulars = self._static_places(rows), _places_of_valid(rows.column(schema.clustering[0].name))
        in_static = pa.array([*statics, *[None] * len(regulars)], pa.int64())
        in_regular = pa.array([*[None] * len(statics), *regulars], pa.int64())
        in_both = pa.array([*statics, *regulars], pa.int64())
        places = {ColumnKind.PARTITION_KEY: in_both, ColumnKind.STATIC: in_static}
        kinds = {prefix + one.name: one.kind for one in self._plan.selected for prefix in ("", WRITETIME, EXPIRES)}
        arrays = [
            array.take(places.get(kinds[name], in_regular))
            for name, array in zip(self.schema.names, rows.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _static_places(self, rows: pa.RecordBatch) -> list[int]:
        """Give the first row of each partition that begins here and has a static value."""
        # As snapshots hold them, keys that are told apart by Cassandra differ, and others do not: NaN equals NaN.
        keys = list(zip(*[rows.column(one.name).to_pylist() for one in self._plan.schema.partition_key], strict=True))
        before = [self._last, *keys]
        self._last = keys[-1]
        valid = [rows.column(name).is_valid().to_pylist() for name in self._statics]
        return [at for at, key in enumerate(keys) if key != before[at] and any(one[at] for one in valid)]


def _places_of_valid(array: pa.Array) -> list[int]:
    return [at for at, is_valid in enumerate(array.is_valid().to_pylist()) if is_valid]


def _maker(cell: Cell) -> Callable[[Mapping[str, Sequence[Any]], int], pa.Array]:
    name, cql = cell.column.name, cell.column.type
    if cell.part is Part.VALUE:
        change = to_arrow(cql, key=cell.column.kind.is_key)
        return lambda columns, _: change(columns[name])
    if cell.part is Part.WRITETIME:
        return lambda columns, _: pa.array(columns[cell.field], pa.int64())
    if not cql.is_multi_cell:
        return lambda columns, read_at: _moments(columns[cell.field], read_at)
    left = _left_of_elements if cql.is_collection else _left_of_fields
    return lambda columns, read_at: _moments(map(left, columns[cell.field], columns[name]), read_at)


def _moments(left: Iterable[int | None], read_at: int) -> pa.Array:
    """Give the seconds in which values expire, from how long each has left."""
    return pa.array([None if one is None else read_at + one for one in left], pa.int64())


def _left_of_elements(left: Sequence[int | None] | None, _: Any = None) -> int | None:
    """Give the longest time that an element has left; None where one stays for ever."""
    found = [one for one in left or () if one is not None]
    return max(found) if found and len(found) == len(left or ()) else None


def _left_of_fields(left: Sequence[int | None] | None, value: Sequence[Any] | None) -> int | None:
    """Give the longest time that a field has left; those without a value have no time either."""
    pairs = zip(left or (), value or (), strict=True)
    return _left_of_elements([one for one, part in pairs if part is not None])
