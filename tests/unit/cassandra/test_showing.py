"""Values as people read them."""

from __future__ import annotations

from typing import Any

import pytest

from lakeward.cassandra.cql import TableName, parse_cql_type
from lakeward.cassandra.schema import ColumnKind, CqlColumn, TableSchema
from lakeward.cassandra.snapshots import shown_like_cql, shown_value
from lakeward.diffing.examples import Example
from lakeward.diffing.stored.addresses import Side

NO_FRAME: Any = None


@pytest.mark.parametrize(
    ("cql", "text", "shown"),
    [
        ("date", "20771", "2026-11-14"),
        ("date", "-719162", "0001-01-01"),
        ("date", "-719163", "-719163"),
        ("date", "2147483647", "2147483647"),
        ("timestamp", "1690914239476", "2023-08-01T18:23:59.476Z"),
        ("timestamp", "-1", "1969-12-31T23:59:59.999Z"),
        ("timestamp", str(2**62), str(2**62)),
        ("time", "0", "00:00:00.000000000"),
        ("time", "86399999999999", "23:59:59.999999999"),
        ("time", "86400000000000", "86400000000000"),
        ("int", "20771", "20771"),
        ("text", "20771", "20771"),
        ("uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        ("duration", "1mo2d3ns", "1mo2d3ns"),
        ("blob", "0xAB", "0xAB"),
        ("list<date>", "[20771,null]", '["2026-11-14",null]'),
        ("map<date, time>", '{"20771":1}', '{"2026-11-14":"00:00:00.000000001"}'),
        ("tuple<text, timestamp>", '{"f1":"ü","f2":0}', '{"f1":"ü","f2":"1970-01-01T00:00:00.000Z"}'),
        ("set<frozen<list<date>>>", "[[1]]", '[["1970-01-02"]]'),
        ("list<date>", "[20771,2077…", "[20771,2077…"),
        ("list<int>", "[1]", "[1]"),
    ],
)
def test_dates_and_times_are_shown_as_cql_writes_them(cql: str, text: str, shown: str) -> None:
    assert shown_value(parse_cql_type(cql, {}), text) == shown


def test_examples_of_exports_are_shown_in_cql_and_others_unchanged() -> None:
    schema = TableSchema(
        TableName("shop", "orders"),
        (
            CqlColumn("day", parse_cql_type("date", {}), ColumnKind.PARTITION_KEY, 0),
            CqlColumn("at", parse_cql_type("time", {}), ColumnKind.REGULAR, -1),
        ),
    )
    block = {
        "cluster": "prod", "schema": schema.to_dict(), "started": "2026-11-15T10:30:00+00:00",
        "ended": "2026-11-15T10:30:00+00:00", "writetime": False, "ttl": False,
    }  # fmt: skip
    export = Side("/1", NO_FRAME, identity={"cassandra": block})
    shown = shown_like_cql(Side("/0", NO_FRAME), export)
    assert shown is not None
    found = shown(Example("C", {"day": "1"}, {"at": None}, {"at": "1", "other": "2"}, ("at",)))
    assert found == Example(
        "C", {"day": "1970-01-02"}, {"at": None}, {"at": "00:00:00.000000001", "other": "2"}, ("at",)
    )
    assert shown(Example("D", {"day": "1"}, {"at": "x"}, None, ())).right is None
    assert shown_like_cql(Side("/0", NO_FRAME)) is None
