"""Deciding over Arrow batches: keys end where they end, wherever the batches are cut."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeward import schemas as S
from lakeward.mirror.op.fold import _decide
from lakeward.transforms.moves import CONCERNED, DECIDED, DOUBT, EVENT, FIRST
from lakeward.transforms.occupants import EventKind

STRUCT = pa.schema(
    [
        *[pa.field(S.FILE, pa.string()), pa.field(S.ROW, pa.int64()), pa.field("id", pa.int64())],
        *zip(
            EVENT,
            [
                pa.int32(), pa.string(), pa.bool_(), pa.string(), pa.list_(pa.int64()), pa.list_(pa.int64()),
                pa.bool_(), pa.bool_(),
            ],
            strict=True,
        ),
        *[pa.field(FIRST, pa.bool_()), pa.field(CONCERNED, pa.bool_())],
    ]
)  # fmt: skip


def shifted(keys):
    """The events of a table whose rows 1 to ``keys`` are all shifted by one."""
    rows = []
    for key in range(1, keys + 2):
        own = []
        if key <= keys:
            own.append((None, None, key, int(EventKind.BASE), "load:base", False, None, [key], None, False))
        if key > 1:
            own.append(("f", key - 1, key, int(EventKind.ARRIVE), "7", False, None, [key - 1], None, False))
        if key <= keys:
            own.append(("f", key, key, int(EventKind.LEAVE), "7", False, None, None, [key], False))
        rows += [(*found, None, number == 0, True) for number, found in enumerate(own)]
    columns = list(zip(*rows, strict=True))
    arrays = [pa.array(values, field.type) for values, field in zip(columns, STRUCT, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=STRUCT)


def decide(batches):
    return pa.Table.from_batches(list(_decide(batches, 3, None)))


@settings(max_examples=30, deadline=None)
@given(st.sets(st.integers(1, 17)))
def test_batches_may_be_cut_anywhere(cuts):
    events = shifted(6)
    whole = decide([events])
    pieces = [events.slice(start, end - start) for start, end in pairwise(sorted({0, *cuts, events.num_rows}))]
    assert decide(pieces).to_pylist() == whole.to_pylist()
    kept = [(row["id"], row[S.ROW]) for row in whole.to_pylist() if row[DECIDED[0].name]]
    # Under the first key only the departure counts, under every other the arrival.
    assert [file for file in kept if file[1] is not None] == [(1, 1), *((key, key - 1) for key in range(2, 8))]
    assert not any(whole.column(DOUBT).to_pylist())
