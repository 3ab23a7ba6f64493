"""Digests of ranges: the same rows give the same one wherever batches end, any other value gives another."""

import struct
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeward.cassandra.cql import TableName, parse_cql_type
from lakeward.cassandra.digests import RangeDigest, fitted_batch, widened
from lakeward.cassandra.schema import ColumnKind, CqlColumn, TableSchema
from lakeward.cassandra.snapshots import snapshot_arrow_schema

SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "at": pa.string(),
        "flag": pa.bool_(),
        "price": pa.float64(),
        "data": pa.binary(),
        "tags": pa.list_(pa.string()),
        "sizes": pa.map_(pa.int32(), pa.list_(pa.int16())),
        "place": pa.struct({"street": pa.string(), "number": pa.int8()}),
    }
)
TEXTS = st.none() | st.text(max_size=3)
ROWS = st.fixed_dictionaries(
    {
        "id": st.integers(0, 3),
        "at": TEXTS,
        "flag": st.none() | st.booleans(),
        "price": st.none() | st.floats(),
        "data": st.none() | st.binary(max_size=3),
        "tags": st.none() | st.lists(TEXTS, max_size=3),
        "sizes": st.none()
        | st.lists(
            st.tuples(st.integers(0, 3), st.none() | st.lists(st.none() | st.integers(0, 9), max_size=2)), max_size=2
        ),
        "place": st.none() | st.fixed_dictionaries({"street": TEXTS, "number": st.none() | st.integers(0, 9)}),
    }
)


def digest(batches: list[pa.RecordBatch], clustering: str | None = "at") -> tuple[int, str]:
    found = RangeDigest(SCHEMA.names, clustering)
    for entry in batches:
        found.add(entry)
    return found.rows, found.text()


def batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, SCHEMA)


def _bits(value: Any) -> Any:
    return struct.pack("<d", value) if isinstance(value, float) else value


@given(st.lists(ROWS, max_size=8), st.lists(st.integers(0, 8), max_size=3), st.integers(0, 3))
def test_the_size_of_batches_does_not_matter(rows, cuts, before):
    whole = batch(rows)
    ends = sorted({0, len(rows), *[min(cut, len(rows)) for cut in cuts]})
    parts = [whole.slice(first, last - first) for first, last in pairwise(ends)]
    # Also as a part of something larger, whose buffers begin elsewhere.
    larger = batch([*rows[:before], *rows]).slice(len(rows[:before]))
    assert digest(parts) == digest([whole]) == digest([larger]) == digest([batch([]), whole, batch([])])


@given(st.lists(ROWS, max_size=4), st.lists(ROWS, max_size=4))
def test_other_rows_have_another_digest(some, others):
    same = digest([batch(some)], clustering=None) == digest([batch(others)], clustering=None)
    flat = [[[_bits(row[name]) for name in SCHEMA.names] for row in rows] for rows in (some, others)]
    assert same == (flat[0] == flat[1])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"tags": []}, {"tags": None}),
        ({"tags": ["ab", "c"]}, {"tags": ["a", "bc"]}),
        ({"tags": [None]}, {"tags": [""]}),
        ({"data": b""}, {"data": None}),
        ({"price": 0.0}, {"price": -0.0}),
        ({"sizes": [(1, [2])]}, {"sizes": [(1, [2, None])]}),
        ({"place": {"street": None, "number": None}}, {"place": None}),
        ({"flag": False}, {"flag": None}),
    ],
)
def test_nearly_equal_values_are_distinguished(one, other):
    base: dict[str, Any] = dict.fromkeys(SCHEMA.names) | {"id": 1, "at": "x"}
    assert digest([batch([base | one])]) != digest([batch([base | other])])
    # A value that moves to the next row is another table, too.
    assert digest([batch([base | one, base | other])]) != digest([batch([base | other, base | one])])


def test_static_rows_may_be_at_other_positions():
    static = dict.fromkeys(SCHEMA.names) | {"id": 1, "data": b"s"}
    row = dict.fromkeys(SCHEMA.names) | {"id": 1, "at": "x"}
    assert digest([batch([static, row, row])]) == digest([batch([row, static]), batch([row])])
    assert digest([batch([static, row])]) != digest([batch([row])])


def test_values_in_a_wider_type_have_the_digest_of_that_type():
    narrow, wide = (
        TableSchema(
            TableName("shop", "orders"),
            (
                CqlColumn("id", parse_cql_type("int", {}), ColumnKind.PARTITION_KEY, 0),
                *(
                    CqlColumn(f"c{at}", parse_cql_type(data_type, {}), ColumnKind.REGULAR, -1)
                    for at, data_type in enumerate(types)
                ),
            ),
        )
        for types in (
            ("int", "bigint", "float", "list<int>", "map<text, tinyint>", "text"),
            ("varint", "decimal", "double", "list<varint>", "map<text, bigint>", "blob"),
        )
    )
    assert [column.type.cql for column in widened(wide, narrow).columns] == [column.type.cql for column in wide.columns]
    shown = widened(narrow, wide)
    # Texts are no blobs: what no type holds is left as it is.
    assert [column.type.cql for column in shown.columns[1:]] == [
        *(column.type.cql for column in wide.columns[1:-1]),
        "text",
    ]
    rows = [(1, -7, 2**40, 0.5, [3, None], [("a", 1)], "x"), (2, *[None] * 6)]
    texts = [(1, "-7", str(2**40), 0.5, ["3", None], [("a", 1)], "x"), (2, *[None] * 6)]
    digests = []
    for schema, values in ((narrow, rows), (shown, texts)):
        found = snapshot_arrow_schema(schema)
        columns = [
            pa.array(list(entry), kind.type) for entry, kind in zip(zip(*values, strict=True), found, strict=True)
        ]
        digest = RangeDigest(schema.names, None)
        batch = pa.RecordBatch.from_arrays(columns, schema=found)
        digest.add(fitted_batch(batch, snapshot_arrow_schema(shown)))
        digests.append(digest.text())
    assert digests[0] == digests[1]
