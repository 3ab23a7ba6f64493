"""Values of every type on a real server: written, read, held in a Parquet file, written back, and the same."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cassandra.util import Date, Duration

from lakeward.cassandra.conversion import cql_literal, to_arrow, to_cql
from lakeward.cassandra.cql import TableName, parse_cql_type
from lakeward.cassandra.schema import ColumnKind, CqlColumn, TableSchema, differences
from lakeward.cassandra.snapshots import snapshot_arrow_schema
from tests.cassandra.scene import create_table, fill, insert, read_cells, renamed, set_apart
from tests.cassandra.strategies import PLAIN, canonical, drawn, filled_tables

if TYPE_CHECKING:
    from pathlib import Path

    from cassandra.cluster import Session

EXTREMES: dict[str, list[Any]] = {
    "ascii": ["", "\x00\x7f"],
    "text": ["", "\x00", "\U0010ffff", "a'b\"c\n", "x" * 70_000],
    "blob": [b"", b"\x00\xff", bytes(70_000)],
    "boolean": [True, False],
    "tinyint": [-(2**7), 2**7 - 1],
    "smallint": [-(2**15), 2**15 - 1],
    "int": [-(2**31), 2**31 - 1],
    "bigint": [-(2**63), 2**63 - 1],
    "varint": [0, 10**40, -(10**40), 10**5000, -(2**63) - 1],
    "decimal": [
        Decimal("1" * 50 + "." + "9" * 30),
        Decimal("0.00"),
        Decimal("7E+1000"),
        Decimal("-7E-1000"),
        Decimal("1" * 5000),
        Decimal("1E+2147483647"),
        Decimal("1E-2147483647"),
    ],
    "float": [-0.0, float("nan"), float("inf"), 2.0**-149, 3.4028234663852886e38],
    "double": [-0.0, float("nan"), float("-inf"), 5e-324, 0.1],
    "date": [Date(-(2**31)), Date(2**31 - 1), Date(0), Date(2_932_897)],
    "time": [0, 86_399_999_999_999],
    "timestamp": [-(2**63), 2**63 - 1, 2**62, -(2**62), 0, -1],
    "duration": [Duration(), Duration(2**31 - 1, 2**31 - 1, 2**63 - 1), Duration(-1, 1 - 2**31, 1 - 2**63)],
    "inet": ["0.0.0.0", "255.255.255.255", "::", "::ffff:1.2.3.4", "fe80::1"],
}
NESTED = {
    "frozen<list<int>>": [[], [1, 1]],
    "list<timestamp>": [[2**62, 2**62]],
    "set<double>": [[0.0, -0.0, float("nan")]],
    "frozen<set<frozen<set<int>>>>": [[], [[], [1], [2], [1, 2]]],
    "map<float, text>": [{0.5: ""}],
    "frozen<map<frozen<list<int>>, timestamp>>": [],
    "tuple<int, text, timestamp>": [(None, None, None), (1, "", -(2**62))],
    "vector<timestamp, 2>": [[-(2**63), 2**63 - 1]],
    "vector<time, 1>": [[86_399_999_999_999]],
    "vector<frozen<address>, 1>": [[("x", None, None)]],
    "frozen<address>": [(None, None, None), ("", [2**62], ([],))],
    "address": [("street", [], ([1],))],
    "list<vector<date, 1>>": [[[Date(2**31 - 1)]]],
}
UDTS = {
    "part": (("list", "frozen<list<int>>"),),
    "address": (("Street & No", "text"), ("select", "frozen<list<timestamp>>"), ("p", "frozen<part>")),
}


def copied(session: Session, source: TableSchema, target: TableSchema, folder: Path) -> pa.Table:
    """Copy a table through a Parquet file, with nothing but the functions that exports and imports are made of."""
    rows = list(session.execute(f"SELECT {', '.join(column.cql for column in source.columns)} FROM {source.name.cql}"))
    held = snapshot_arrow_schema(source)
    arrays = [
        to_arrow(column.type, key=column.kind.is_key)([row[at] for row in rows])
        for at, column in enumerate(source.columns)
    ]
    pq.write_table(pa.Table.from_arrays(arrays, schema=held), folder / "rows.parquet")
    table = pq.read_table(folder / "rows.parquet")
    back = {column.name: to_cql(column.type, key=column.kind.is_key) for column in target.columns}
    lists = {name: table[name].to_pylist() for name in table.column_names}
    for at in range(table.num_rows):
        row = {name: back[name](column[at]) for name, column in lists.items()}
        if any(row[column.name] is None for column in target.clustering):
            whole = (ColumnKind.PARTITION_KEY, ColumnKind.STATIC)
            row = {name: value for name, value in row.items() if target.column(name).kind in whole}
        insert(session, target, row)
    return table


@pytest.fixture
def session(cassandra_server: Any) -> Session:
    return cassandra_server.session()


def test_every_value_is_the_same_after_a_parquet_file(session, keyspace, tmp_path):
    cases = {**{name: EXTREMES.get(name, []) for name in PLAIN}, **NESTED}
    types = {f"C {number}": parse_cql_type(text, UDTS) for number, text in enumerate(cases)}
    key = CqlColumn("select", parse_cql_type("int", {}), ColumnKind.PARTITION_KEY, 0)
    columns = [CqlColumn(name, data_type, ColumnKind.REGULAR, -1) for name, data_type in types.items()]
    source = create_table(session, TableSchema(TableName(keyspace, "source"), (key, *columns), UDTS))
    given = dict(zip(types, cases.values(), strict=True))
    most = max(map(len, given.values()))
    for number in range(most):
        present = {name: some[number] for name, some in given.items() if number < len(some)}
        insert(session, source, {"select": number, **present})
    target = create_table(session, source, TableName(keyspace, "target"))
    held = copied(session, source, target, tmp_path)
    typed = create_table(session, source, TableName(keyspace, "typed"))
    # Not every decimal, nor an IPv4 address in the form of IPv6, has a text that CQL takes for it.
    without_text = [name for name, data_type in types.items() if data_type.name in ("decimal", "inet")]
    for row in held.drop_columns(without_text).to_pylist():
        names = ", ".join(typed.column(name).cql for name in row)
        literals = ", ".join(cql_literal(typed.column(name).type, value) for name, value in row.items())
        session.execute(f"INSERT INTO {typed.name.cql} ({names}) VALUES ({literals})")

    cells = read_cells(session, source)
    assert read_cells(session, target) == cells
    assert len(cells) == most
    for name, some in given.items():
        # Cassandra sorts what is in sets and maps: these are only compared with each other.
        if types[name].name not in ("set", "map"):
            read = [cells["row", (number,)].get(name) for number in range(len(some))]
            assert read == [(canonical(item),) for item in some], types[name].cql
    assert cells["row", (0,)][f"C {list(cases).index('set<double>')}"] == (canonical([-0.0, 0.0, math.nan]),)
    for cell in cells.values():
        for name in without_text:
            cell.pop(name, None)
    assert read_cells(session, typed) == cells


def test_random_tables_are_the_same_after_a_parquet_file(session, keyspace, tmp_path):
    for number, (schema, filling) in enumerate(drawn(filled_tables(), 6)):
        source = create_table(session, set_apart(schema, number), TableName(keyspace, f"source_{number}"))
        assert source == renamed(set_apart(schema, number), source.name)
        fill(session, source, filling)
        target = create_table(session, source, TableName(keyspace, f"target_{number}"))
        assert differences(source, target) == []
        copied(session, source, target, tmp_path)
        assert read_cells(session, target) == read_cells(session, source)
