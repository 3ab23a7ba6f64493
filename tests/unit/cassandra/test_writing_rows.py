"""Which statements write a row, without a server."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from pyspark.sql.types import IntegerType
from tests.unit.cassandra.writing import TABLE, TIME, plan_of

from lakeward.cassandra.cql import parse_cql_type
from lakeward.cassandra.keyspaces import WriteLimits
from lakeward.cassandra.schema import ColumnKind, CqlColumn, TableSchema
from lakeward.cassandra.write_frames import SourceColumn, matched
from lakeward.cassandra.write_plan import CHANGED, INSERTED
from lakeward.cassandra.write_rows import RowPlanner, StatementShape, Verb, WriteOperation, list_shift, packed_time
from lakeward.errors import RefusedInputError

UNSET = object()


PLAIN = {"p": "text", "c": "int", "a": "text", "b": "int"}


def shown(operations: list[WriteOperation] | None, shift: int = 0) -> list[tuple[str, list[Any]]]:
    return [(operation.shape.cql(TABLE), operation.at(shift)) for operation in operations or []]


def test_statements_name_the_whole_key_and_have_a_timestamp() -> None:
    keys = ("p", "c")
    table = 'ks"."Weird Table"'
    assert StatementShape(Verb.INSERT, keys, ("a",)).cql(TABLE) == (
        f'INSERT INTO "{table} ("p", "c", "a") VALUES (?, ?, ?) USING TIMESTAMP ?'
    )
    assert StatementShape(Verb.UPDATE, keys, ("a", "b"), expires=True).cql(TABLE) == (
        f'UPDATE "{table} USING TIMESTAMP ? AND TTL ? SET "a" = ?, "b" = ? WHERE "p" = ? AND "c" = ?'
    )
    assert (
        StatementShape(Verb.DELETE, keys).cql(TABLE)
        == f'DELETE FROM "{table} USING TIMESTAMP ? WHERE "p" = ? AND "c" = ?'
    )
    assert (
        StatementShape(Verb.DELETE, ("p",), ("s",)).cql(TABLE)
        == f'DELETE "s" FROM "{table} USING TIMESTAMP ? WHERE "p" = ?'
    )
    assert (
        StatementShape(Verb.INSERT, keys, is_timed=False).cql(TABLE) == f'INSERT INTO "{table} ("p", "c") VALUES (?, ?)'
    )


def test_an_inserted_row_has_its_marker_and_no_nulls() -> None:
    planner = RowPlanner(plan_of(PLAIN), UNSET)
    ((query, values),) = shown(planner.writing(INSERTED, None, [b"k", b"1"], [b"x", None]))
    assert query.startswith("INSERT")
    assert values == [b"k", b"1", b"x", UNSET, packed_time(TIME)]
    # A row of nothing but its key is a row.
    ((query, values),) = shown(planner.writing(INSERTED, None, [b"k", b"1"], [None, None]))
    assert values == [b"k", b"1", UNSET, UNSET, packed_time(TIME)]


def test_a_ttl_holds_for_every_cell_and_for_the_row_itself() -> None:
    for ttl in (60, 0):
        planner = RowPlanner(plan_of({**PLAIN, "l": "list<text>"}, ttl=ttl), UNSET)
        assert planner.insert is None, "the fast path has no TTL"
        lasting = [ttl or None] * 3
        whole = shown(planner.writing(INSERTED, None, [b"k", b"1"], [b"x", None, b"l"], expiries=lasting))
        end = [packed_time(TIME), struct.pack(">i", ttl)]
        assert [(query.split()[0], values) for query, values in whole] == [
            ("INSERT", [b"k", b"1", b"x", UNSET, *end]),
            ("UPDATE", [*end, b"l", b"k", b"1"]),
        ]
        # A row of nothing but its key ends as well.
        ((_, values),) = shown(planner.writing(INSERTED, None, [b"k", b"1"], [None] * 3, expiries=lasting))
        assert values == [b"k", b"1", UNSET, UNSET, *end]


def test_a_changed_row_writes_what_changed_and_null_only_where_a_value_became_null() -> None:
    planner = RowPlanner(plan_of(PLAIN, has_actions=True), UNSET)
    ((query, values),) = shown(planner.writing(CHANGED, ["a"], [b"k", b"1"], [None, b"y"]))
    assert query.startswith("UPDATE")
    assert values == [packed_time(TIME), None, UNSET, b"k", b"1"]
    # A cell that was written again with its old value is written, too; columns that the target does not have are not.
    ((_, values),) = shown(planner.writing(CHANGED, ["_lw_writetime_b", "other"], [b"k", b"1"], [b"x", b"y"]))
    assert values == [packed_time(TIME), UNSET, b"y", b"k", b"1"]
    assert planner.writing(CHANGED, ["other"], [b"k", b"1"], [b"x", b"y"]) == []


def test_a_changed_row_with_only_key_columns_is_written_as_its_marker() -> None:
    planner = RowPlanner(plan_of({**PLAIN, "l": "list<int>"}, has_actions=True, has_expiries=True), UNSET)
    forever = struct.pack(">i", 0)
    operations = planner.writing(CHANGED, ["a"], [b"k", b"1"], [None, None, None], (), [None] * 3, 100)
    ((query, values),) = shown(operations)
    assert query.startswith("INSERT")
    assert values == [b"k", b"1", None, UNSET, packed_time(TIME), forever]
    # By a list alone, too; and not where a list is what is left.
    operations = planner.writing(CHANGED, ["l"], [b"k", b"1"], [None, None, None], (), [None] * 3, 100)
    assert [query.split()[0] for query, _ in shown(operations)] == ["INSERT", "UPDATE"]
    operations = planner.writing(CHANGED, ["a"], [b"k", b"1"], [None, None, b"[]"], (), [None] * 3, 100)
    assert [query.split()[0] for query, _ in shown(operations)] == ["UPDATE"]
    assert planner.writing(CHANGED, ["other"], [b"k", b"1"], [None, None, None], (), [None] * 3, 100) == []


def test_nothing_is_written_or_deleted_by_a_part_of_a_key() -> None:
    planner = RowPlanner(plan_of(PLAIN, has_actions=True), UNSET)
    assert planner.why_unwritable([b"k", b"1"], [None, None]) is None
    for keys in ([b"k", None], [None, b"1"], [None, None]):
        assert "key column" in str(planner.why_unwritable(keys, [None, None]))
    ((query, values),) = shown(planner.deleting([b"k", b"1"]))
    assert '"p" = ? AND "c" = ?' in query
    assert values == [packed_time(TIME), b"k", b"1"]


def test_a_row_without_clustering_key_is_the_static_part_of_its_partition() -> None:
    columns = {"p": "text", "c": "int", "s1": "text", "s2": "int", "a": "text"}
    planner = RowPlanner(plan_of(columns, has_actions=True, has_static_rows=True), UNSET)
    keys, values = [b"k", None], [b"x", None, None]
    assert planner.why_unwritable(keys, values) is None
    assert "regular columns" in str(planner.why_unwritable(keys, [None, None, b"y"]))
    assert "key column" in str(planner.why_unwritable([None, None], values))
    ((query, bound),) = shown(planner.writing(INSERTED, None, keys, values))
    assert query == 'UPDATE "ks"."Weird Table" USING TIMESTAMP ? SET "s1" = ?, "s2" = ? WHERE "p" = ?'
    assert bound == [packed_time(TIME), b"x", UNSET, b"k"]
    ((query, bound),) = shown(planner.deleting(keys))
    assert query == 'DELETE "s1", "s2" FROM "ks"."Weird Table" USING TIMESTAMP ? WHERE "p" = ?'
    assert bound == [packed_time(TIME), b"k"]
    # Without a static column to name, the statement would delete all rows of the partition.
    dropped = RowPlanner(plan_of({"p": "text", "c": "int", "a": "text"}, has_actions=True, has_static_rows=True), UNSET)
    assert dropped.deleting(keys) == []
    # Of a regular row that has both, each part is written separately.
    both = shown(planner.writing(INSERTED, None, [b"k", b"1"], [b"x", None, b"y"]))
    assert [query.split()[0] for query, _ in both] == ["INSERT", "UPDATE"]


def test_every_try_at_a_list_is_at_a_later_time() -> None:
    planner = RowPlanner(plan_of({**PLAIN, "l": "list<int>", "f": "frozen<list<int>>"}, has_actions=True), UNSET)
    operations = planner.writing(INSERTED, None, [b"k", b"1"], [b"x", None, b"[]", b"f"])
    first, again = shown(operations, 1), shown(operations, 2)
    assert [query.split()[0] for query, _ in first] == ["INSERT", "UPDATE"]
    assert first[0] == again[0], "all that is no list is written at one time"
    assert (first[1][1][0], again[1][1][0]) == (packed_time(TIME + 1), packed_time(TIME + 2))
    shifts = [list_shift(run, unit) + number for run in range(3) for unit in range(31) for number in range(32)]
    assert len(set(shifts)) == len(shifts)


def test_cells_are_grouped_by_time_and_the_marker_has_the_oldest() -> None:
    planner = RowPlanner(plan_of(PLAIN, has_writetimes=True), UNSET)
    operations = planner.writing(INSERTED, None, [b"k", b"1"], [b"x", b"y"], [30, 20])
    assert shown(operations) == [
        (StatementShape(Verb.UPDATE, ("p", "c"), ("a", "b")).cql(TABLE), [packed_time(30), b"x", UNSET, b"k", b"1"]),
        (StatementShape(Verb.INSERT, ("p", "c"), ("a", "b")).cql(TABLE), [b"k", b"1", UNSET, b"y", packed_time(20)]),
    ]


@pytest.mark.parametrize(
    ("expiries", "marker"), [([None, 150], 0), ([120, 150], 50), ([90, 150], 50)], ids=["stays", "goes", "partly"]
)
def test_cells_that_expire_keep_their_time_and_the_row_lives_as_long_as_its_last(
    expiries: list[int | None], marker: int
) -> None:
    planner = RowPlanner(plan_of(PLAIN, has_expiries=True), UNSET)
    operations = planner.writing(INSERTED, None, [b"k", b"1"], [b"x", b"y"], (), expiries, 100)
    inserts = [values for query, values in shown(operations) if query.startswith("INSERT")]
    assert [struct.unpack(">i", values[-1])[0] for values in inserts] == [marker]
    lives = {
        int(struct.unpack(">i", values[1])[0]) for query, values in shown(operations) if query.startswith("UPDATE")
    }
    assert lives == {expiry - 100 for expiry in expiries if expiry is not None and expiry > 100} - {marker}


def test_expired_rows_are_skipped_and_expired_changes_delete_what_was_there() -> None:
    planner = RowPlanner(plan_of(PLAIN, has_expiries=True, has_actions=True), UNSET)
    assert planner.writing(INSERTED, None, [b"k", b"1"], [b"x", None], (), [90, None], 100) is None
    ((_, values),) = shown(planner.writing(CHANGED, ["a"], [b"k", b"1"], [b"x", b"y"], (), [90, None], 100))
    assert values == [packed_time(TIME), struct.pack(">i", 0), None, UNSET, b"k", b"1"]


def test_statements_have_no_more_columns_than_the_server_takes() -> None:
    limits = WriteLimits(batch_rows=10, batch_bytes=4096, columns=2, columns_with_ttl=1)
    columns = {"p": "text", "c": "int", **{f"v{number}": "text" for number in range(5)}}
    planner = RowPlanner(plan_of(columns, limits), UNSET)
    assert planner.insert is None
    operations = planner.writing(INSERTED, None, [b"k", b"1"], [b"0", None, None, None, b"4"])
    assert [operation.shape.cells for operation in operations or []] == [("v0", "v1"), ("v4",)]
    assert [operation.shape.verb for operation in operations or []] == [Verb.INSERT, Verb.UPDATE]
    lasting = RowPlanner(plan_of(columns, limits, has_expiries=True), UNSET)
    operations = lasting.writing(INSERTED, None, [b"k", b"1"], [b"0", None, None, None, b"4"], (), [None] * 5, 1)
    assert [operation.shape.cells for operation in operations or []] == [("v0",), ("v4",)]


def test_a_table_that_does_not_accept_times_gets_none() -> None:
    planner = RowPlanner(plan_of({**PLAIN, "l": "list<int>"}, is_timed=False), UNSET)
    operations = planner.writing(INSERTED, None, [b"k", b"1"], [b"x", None, b"[]"])
    assert shown(operations, 5) == [
        ('INSERT INTO "ks"."Weird Table" ("p", "c", "a", "b") VALUES (?, ?, ?, ?)', [b"k", b"1", b"x", UNSET]),
        ('UPDATE "ks"."Weird Table" SET "l" = ? WHERE "p" = ? AND "c" = ?', [b"[]", b"k", b"1"]),
    ]


def test_rows_by_a_part_of_the_table_s_key_are_refused() -> None:
    kinds = {"k": ColumnKind.PARTITION_KEY, "c": ColumnKind.CLUSTERING, "a": ColumnKind.REGULAR}
    columns = tuple(CqlColumn(name, parse_cql_type("int", {}), kind, 0) for name, kind in kinds.items())
    target = TableSchema(TABLE, columns)
    value: Any = None
    found = {name: SourceColumn(IntegerType(), value) for name in kinds}
    assert [column.column.name for column in matched("x", found, ("c", "k"), None, target)] == ["k", "c", "a"]
    for keys in (("k",), ("k", "c", "a"), ("k", "a")):
        with pytest.raises(RefusedInputError, match=r"its key is .*, the table's is \(k, c\)"):
            matched("x", found, keys, None, target)
