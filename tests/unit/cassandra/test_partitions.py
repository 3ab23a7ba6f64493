"""Sizes of partitions while ranges are read, in batches of any size and ranges in any order."""

from __future__ import annotations

import random
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from tests.cassandra.hand_made import schema_of

from lakeward.cassandra.budget import RateLimits
from lakeward.cassandra.counting import PartitionsRequest
from lakeward.cassandra.cql import TableName, parse_cql_type
from lakeward.cassandra.edits import MOST_SECONDS, EditRequest, whole_seconds
from lakeward.cassandra.jobs import AppliedState, Job, JobEffect, edit_outcome, state_after
from lakeward.cassandra.partitions import PartitionSize, PartitionTally, bytes_before, largest
from lakeward.cassandra.read_plan import ReadPlan
from lakeward.cassandra.reading import BatchMaker
from lakeward.cassandra.scans import LiveScan, complete_rows, free_name, read_column
from lakeward.cassandra.schema import ColumnKind, CqlColumn, TableSchema
from lakeward.cassandra.snapshots import snapshot_arrow_schema
from lakeward.cassandra.values import arrow_type
from lakeward.errors import ConfigurationError

SCHEMA = schema_of("p text pk, n int pk, c int ck, s text static, v text, w list<text>")
Rows = list[tuple[Any, ...]]


def batch_of(rows: Rows, schema: TableSchema = SCHEMA) -> pa.RecordBatch:
    arrow = snapshot_arrow_schema(schema)
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(arrow)
    return pa.RecordBatch.from_arrays(
        [pa.array(values, field.type) for values, field in zip(columns, arrow, strict=True)], schema=arrow
    )


def test_rows_and_partitions_are_counted_however_pages_cut_them() -> None:
    shuffle = random.Random(7)
    for _ in range(50):
        ranges: dict[int, Rows] = {}
        expected: Counter[tuple[str, int]] = Counter()
        for place in range(3):
            ranges[place] = []
            for number in range(shuffle.randrange(4)):
                key = (f"p{place}", number)
                many = shuffle.randrange(4)
                expected[key] = many
                clustering = range(many) if many else [None]
                ranges[place] += [(*key, c, "static", None, None) for c in clustering]
        tally = PartitionTally(SCHEMA, limit=2)
        waiting = {place: list(rows) for place, rows in ranges.items()}
        while any(waiting.values()):
            place = shuffle.choice([place for place, rows in waiting.items() if rows])
            size = shuffle.randrange(1, 4)
            tally.add(place, batch_of(waiting[place][:size]))
            waiting[place] = waiting[place][size:]
        found = tally.result()
        assert (found.rows, found.partitions) == (sum(expected.values()), len(expected))
        sizes = sorted(expected.values(), reverse=True)[:2]
        assert sorted((size.rows for size in found.largest), reverse=True) == sizes
        assert all(expected[size.key["p"].strip("'"), int(size.key["n"])] == size.rows for size in found.largest)


def test_bytes_are_those_of_values_and_statics_count_once() -> None:
    rows: Rows = [
        ("a", 1, 1, "static", "xy", ["1", "22"]),
        ("a", 1, 2, "static", None, None),
        ("b", 1, 1, None, "", []),
    ]
    tally = PartitionTally(SCHEMA, limit=5, by="bytes")
    tally.add(0, batch_of(rows))
    found = {size.key["p"]: size.bytes for size in tally.result().largest}
    # Each row has the bytes of its key: a text of 1 and two numbers of 4.
    assert found == {"'a'": 2 * 9 + 6 + 2 + 3, "'b'": 9}


@pytest.mark.parametrize(
    ("cql", "values", "sizes"),
    [
        ("int", [1, None, 3], [4, 0, 4]),
        ("boolean", [True, None], [1, 0]),
        ("text", ["ab", None, ""], [2, 0, 0]),
        ("blob", [b"\0" * 5, b""], [5, 0]),
        ("list<frozen<list<int>>>", [[[1, 2], []], None, [[3]]], [8, 0, 4]),
        ("map<text, bigint>", [[("k", 1), ("key", 2)], []], [1 + 8 + 3 + 8, 0]),
        ("frozen<tuple<int, text>>", [{"f1": 1, "f2": "abc"}, None, {"f1": None, "f2": "a"}], [7, 0, 1]),
    ],
)
def test_bytes_of_every_kind_of_value(cql: str, values: list[Any], sizes: list[int]) -> None:
    array = pa.array([*values, values[0]], arrow_type(parse_cql_type(cql, {})))
    expected = [*sizes, sizes[0]]
    assert list(bytes_before(array)) == [sum(expected[:at]) for at in range(len(expected) + 1)]
    part = array.slice(1)
    assert list(bytes_before(part)) == [sum(expected[1:at]) for at in range(1, len(expected) + 1)]
    assert list(bytes_before(array.slice(0, 0))) == [0]


def test_the_largest_are_in_order_and_keys_are_shown_as_cql() -> None:
    sizes = [PartitionSize({"p": key}, rows) for key, rows in (("'b'", 2), ("'a'", 2), ("'c'", 3))]
    assert [size.key["p"] for size in largest(sizes, 2, "rows")] == ["'c'", "'a'"]
    schema = schema_of("p double pk, t frozen<list<text>> pk, v text")
    tally = PartitionTally(schema, limit=1)
    tally.add(0, batch_of([("-0.0", ["it's"], "x")], schema))
    assert [size.key for size in tally.result().largest] == [{"p": "-0.0", "t": "['it''s']"}]


def test_memory_does_not_grow_with_partitions() -> None:
    tally = PartitionTally(SCHEMA, limit=3)
    for number in range(1_000):
        tally.add(0, batch_of([(f"p{number}", 1, 1, None, None, None)]))
    assert len(tally._heap) == 3 and len(tally._open) == 1
    assert tally.result().partitions == 1_000


@pytest.mark.parametrize(("limit", "by"), [(0, "rows"), (1, "cells")])
def test_measures_that_are_none_are_refused(limit: int, by: str) -> None:
    with pytest.raises(ConfigurationError, match="expected 1 or more, by rows or bytes"):
        PartitionsRequest(cast("Any", None), limit, by)


def scan() -> LiveScan:
    return LiveScan(cast("Any", None), SCHEMA, "Murmur3Partitioner", (), None)


def test_only_what_is_needed_is_read() -> None:
    assert scan().plan([]).statement.startswith('SELECT "p", "n", "c" FROM')
    assert scan().plan(["v", "p", "s"]).statement.startswith('SELECT "p", "n", "c", "s", "v" FROM')
    assert ReadPlan(cast("Any", None), SCHEMA).chosen is None


def test_static_values_are_in_every_row_and_rows_without_a_clustering_key_are_no_rows() -> None:
    plan = scan().plan(["s"])
    rows = [("a", 1, 1, "x"), ("a", 1, 2, "x"), ("b", 1, None, "y")]
    batch = BatchMaker(plan).batch(rows, 0)
    assert batch.column("s").to_pylist() == ["x", "x", "y"]
    assert complete_rows(batch, "c").column("c").to_pylist() == [1, 2]
    assert complete_rows(batch, None).num_rows == 3


def test_own_columns_have_names_that_are_free() -> None:
    schema = schema_of("p text pk, _lw_read int, _lw_read_ int")
    assert read_column(schema) == "_lw_read__"
    assert free_name("a", ()) == "a"


def edit(**choices: Any) -> EditRequest:
    return EditRequest("here", TableName("ks", "t"), **{"timestamp": "read", **choices})


def test_requests_that_make_no_sense_are_refused() -> None:
    assert edit(ttl=0).kind == "ttl" and edit().kind == "delete"
    for ttl in (-1, MOST_SECONDS + 1):
        with pytest.raises(ConfigurationError, match="a TTL is at most"):
            edit(ttl=ttl)
    with pytest.raises(ConfigurationError, match="expected read or now"):
        edit(timestamp="snapshot")
    for seconds in (-1, 0.5):
        with pytest.raises(ConfigurationError, match="a whole number of seconds"):
            whole_seconds(seconds)
    assert whole_seconds(3600.0) == 3600
    assert edit(limits=RateLimits(1, 2, 3)).limits.for_reading() == RateLimits(1, None, 3)


def test_an_edit_leaves_a_copy_with_unknown_content_and_records_nothing_of_other_tables() -> None:
    job = Job("delete-1", "delete", 8, 5_000, {"location": "the delete of rows of t where x"})
    assert edit_outcome(None, job).effect is JobEffect.KEEPS
    moment: Any = SimpleNamespace()
    assert state_after(None, job, edit_outcome(None, job), [], at=moment) is None
    last = AppliedState({"location": "exports/1", "rows": 3}, "set", moment, timestamp=7_000)
    outcome = edit_outcome(last, job)
    after = state_after(last, job, outcome, [], at=moment)
    assert after is not None
    assert (after.identity, after.unknown, after.timestamp) == (last.identity, job.identity["location"], 7_000)
    # What was unknown before stays part of the reason.
    again = edit_outcome(after, Job("ttl-1", "ttl", 8, 9_000, {"location": "the TTL"}))
    assert again.why == "the delete of rows of t where x; the TTL"


def test_a_column_of_any_kind_has_a_place() -> None:
    column = CqlColumn("p", parse_cql_type("text", {}), ColumnKind.PARTITION_KEY, 0)
    assert PartitionTally(TableSchema(TableName("k", "t"), (column,))).result().partitions == 0
