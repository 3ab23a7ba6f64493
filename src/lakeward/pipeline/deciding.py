"""Decide key by key which changes count where rows change their keys, in Spark tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import types as T

from lakeward import schemas as S
from lakeward.spark.marks import in_task
from lakeward.transforms.moves import CONCERNED, DECIDED, EVENT, FIRST
from lakeward.transforms.occupants import Event, Kind, arrange

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import DataFrame

    from lakeward.transforms.occupants import Arrangement, Reading


def decided(events: DataFrame, reading: Reading | None) -> DataFrame:
    """Return changes with what became of each, the ``DECIDED`` columns, from what ``transforms.moves.events`` found."""
    width = len(events.columns) - len(EVENT) - 2
    # pyspark looks its input's columns up by name, and a name may hold backticks and dots.
    own = [name if name.startswith(S.PREFIX) else f"{S.PREFIX}c{at}" for at, name in enumerate(events.columns)]
    fields = events.schema.fields[:width]
    plain = [T.StructField(name, field.dataType, field.nullable) for name, field in zip(own, fields, strict=False)]

    def decide(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _decide(batches, width, reading)

    found = events.toDF(*own).mapInArrow(in_task(decide), T.StructType([*plain, *DECIDED]))
    return found.toDF(*(field.name for field in (*fields, *DECIDED)))


def _decide(batches: Iterable[pa.RecordBatch], width: int, reading: Reading | None) -> Iterator[pa.RecordBatch]:
    """Decide key by key; the rows of a key follow each other, possibly over several batches."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        starts = [at for at, first in enumerate(batch.column(FIRST).to_pylist()) if first]
        if not starts:
            waiting.append(batch)
            continue
        if waiting or starts[0]:
            waiting.append(batch.slice(0, starts[0]))
            yield _decided(waiting, width, reading)
        if starts[-1] > starts[0]:
            yield _decided([batch.slice(starts[0], starts[-1] - starts[0])], width, reading)
        waiting = [batch.slice(starts[-1])]
    if waiting:
        yield _decided(waiting, width, reading)


def _decided(batches: list[pa.RecordBatch], width: int, reading: Reading | None) -> pa.RecordBatch:
    """Decide the keys whose rows the batches hold in full."""
    rows = pa.Table.from_batches(batches).combine_chunks().to_batches()[0] if len(batches) > 1 else batches[0]
    size = rows.num_rows
    kept, found, doubt = [True] * size, [False] * size, [False] * size
    taken: list[dict[str, Any] | None] = [None] * size
    firsts, concerned = (rows.column(name).to_pylist() for name in (FIRST, CONCERNED))
    starts = [at for at in range(size) if firsts[at] or at == 0]
    if any(concerned):
        values = list(zip(*(rows.column(name).to_pylist() for name in EVENT), strict=True))
        files, numbers = rows.column(S.FILE).to_pylist(), rows.column(S.ROW).to_pylist()
        for start, end in zip(starts, [*starts[1:], size], strict=True):
            if concerned[start]:
                result = arrange([_event(one) for one in values[start:end]], reading)
                kept[start:end], found[start:end] = result.kept, result.found
                taken[start:end] = _takers(result, files[start:end], numbers[start:end])
                if result.doubt is not None:
                    doubt[start + result.doubt] = True
    decided = [
        pa.array(kept, pa.bool_()),
        pa.array(taken, pa.struct([pa.field(S.FILE, pa.string()), pa.field(S.ROW, pa.int64())])),
        pa.array(found, pa.bool_()),
        pa.array(doubt, pa.bool_()),
    ]
    names = [*rows.schema.names[:width], *(one.name for one in DECIDED)]
    return pa.RecordBatch.from_arrays([*rows.columns[:width], *decided], names=names)


def _event(values: tuple[Any, ...]) -> Event:
    kind, commit, known, token, content, arrived, takes, rootless, landed = values
    return Event(
        Kind(kind),
        commit,
        bool(known),
        token,
        None if content is None else tuple(content),
        None if arrived is None else tuple(arrived),
        bool(takes),
        rootless,
        landed,
    )


def _takers(result: Arrangement, files: list[str], rows: list[int]) -> list[dict[str, Any] | None]:
    """Name the moves that took rows away by file and row."""
    return [None if one is None else {S.FILE: files[one], S.ROW: rows[one]} for one in result.taken]
