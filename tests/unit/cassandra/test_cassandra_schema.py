"""Schemas of tables: from the server, in manifests, as statements, and what keeps one from fitting another."""

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from pyspark.sql.pandas.types import from_arrow_schema
from tests.cassandra.strategies import tables

from lakeward.cassandra.cql import TableName, parse_cql_type
from lakeward.cassandra.schema import ColumnKind, CqlColumn, TableSchema, differences, read_table_schema
from lakeward.cassandra.snapshots import snapshot_arrow_schema, snapshot_struct
from lakeward.errors import ConfigurationError

SOURCE = TableName("shop", "orders")
TYPES = [
    ("shop_line", ["item", "count"], ["frozen<item>", "int"]),
    ("item", ["name"], ["text"]),
    ("unused", ["x"], ["int"]),
]
COLUMNS = [
    ("Total", "decimal", "regular", -1, "none"),
    ("at", "timestamp", "clustering", 0, "desc"),
    ("id", "uuid", "partition_key", 1, "none"),
    ("lines", "list<frozen<shop_line>>", "regular", -1, "none"),
    ("no", "int", "clustering", 1, "asc"),
    ("shop", "text", "partition_key", 0, "none"),
    ("vip", "boolean", "static", -1, "none"),
]


class SystemSchema:
    """Answers queries of ``system_schema``."""

    def execute(self, query: str, names: tuple[str, ...] = ()) -> list[tuple[Any, ...]]:
        table = query.partition("system_schema.")[2].split()[0]
        if table == "columns":
            return COLUMNS if names == ("shop", "orders") else []
        return {"types": TYPES, "keyspaces": [("shop",), ("system",)], "tables": [("orders",)], "views": [("by_day",)]}[
            table
        ]


@pytest.fixture
def schema() -> TableSchema:
    return read_table_schema(SystemSchema(), SOURCE)


def test_columns_are_in_the_order_of_the_key(schema):
    assert schema.names == ("shop", "id", "at", "no", "vip", "Total", "lines")
    assert schema.primary_key == ("shop", "id", "at", "no")
    assert [column.descending for column in schema.clustering] == [True, False]
    assert [column.name for column in (*schema.statics, *schema.regulars)] == ["vip", "Total", "lines"]
    assert schema.column("vip").kind == ColumnKind.STATIC
    assert list(schema.udts) == ["item", "shop_line"]
    assert not schema.has_counters
    with pytest.raises(KeyError, match="nothing"):
        schema.column("nothing")


def test_tables_are_created_elsewhere_after_their_types(schema):
    assert schema.create_statements(TableName("Copy", "o")) == [
        'CREATE TYPE IF NOT EXISTS "Copy"."item" ("name" text)',
        'CREATE TYPE IF NOT EXISTS "Copy"."shop_line" ("item" frozen<item>, "count" int)',
        (
            'CREATE TABLE IF NOT EXISTS "Copy"."o" '
            '("shop" text, "id" uuid, "at" timestamp, "no" int, "vip" boolean STATIC, '
            '"Total" decimal, "lines" list<frozen<shop_line>>, PRIMARY KEY (("shop", "id"), "at", "no")) '
            'WITH CLUSTERING ORDER BY ("at" DESC, "no" ASC)'
        ),
    ]


@given(tables())
def test_schemas_survive_the_manifest(table):
    assert TableSchema.from_dict(json.loads(json.dumps(table.to_dict()))) == table
    assert differences(table, table) == []


@given(tables())
def test_a_snapshot_has_the_same_columns_for_spark_and_for_arrow(table):
    arrow = snapshot_arrow_schema(table, writetime=True)
    assert from_arrow_schema(arrow) == snapshot_struct(table, writetime=True)
    assert len(arrow) == 2 * len(table.columns) - len(table.primary_key)


def test_a_snapshot_of_some_columns_has_the_key_and_the_times_of_the_values(schema):
    names = snapshot_arrow_schema(schema, ["Total"], ttl=True).names
    assert names == ["shop", "id", "at", "no", "Total", "_lw_writetime_Total", "_lw_expires_Total"]
    assert snapshot_arrow_schema(schema).field("lines").type == pa.list_(
        pa.struct([("item", pa.struct([("name", pa.string())])), ("count", pa.int32())])
    )


def test_a_column_of_an_unknown_type_is_named_and_can_be_left_out(monkeypatch):
    odd = ("odd", "'org.apache.cassandra.db.marshal.EmptyType'", "regular", -1, "none")
    monkeypatch.setitem(globals(), "COLUMNS", [*COLUMNS, odd])
    with pytest.raises(ConfigurationError, match=r"column shop\.orders\.odd: cannot read the type") as refused:
        read_table_schema(SystemSchema(), SOURCE, ["odd"])
    assert "--columns" in refused.value.hint
    with pytest.raises(ConfigurationError, match="odd"):
        read_table_schema(SystemSchema(), SOURCE)
    assert "odd" not in read_table_schema(SystemSchema(), SOURCE, ["Total"]).names


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        (TableName("shpo", "orders"), "the cluster has no keyspace 'shpo'", "shop"),
        (TableName("shop", "order"), "the keyspace 'shop' has no table 'order'", "shop.orders"),
        (TableName("shop", "by_dy"), "the keyspace 'shop' has no table 'by_dy'", "shop.by_day"),
        (TableName("shop", "zzz"), "the keyspace 'shop' has no table 'zzz'", None),
    ],
)
def test_an_absent_table_is_reported_with_the_nearest_name(name, message, hint):
    with pytest.raises(ConfigurationError) as error:
        read_table_schema(SystemSchema(), name)
    assert (error.value.message, error.value.hint) == (message, hint)


def changed(schema: TableSchema, name: str, **more: Any) -> TableSchema:
    return replace(
        schema, columns=tuple(replace(column, **more) if column.name == name else column for column in schema.columns)
    )


def without(schema: TableSchema, name: str) -> TableSchema:
    return replace(schema, columns=tuple(column for column in schema.columns if column.name != name))


def test_values_that_fit_are_not_reported(schema):
    wider = changed(schema, "no", type=parse_cql_type("bigint", {}), descending=True)
    further = CqlColumn("further", parse_cql_type("int", {}), ColumnKind.REGULAR, -1)
    assert differences(schema, replace(wider, columns=(*wider.columns, further))) == []
    assert differences(schema, without(schema, "Total"), ["lines"]) == []


def test_values_that_do_not_fit_are_reported(schema):
    assert differences(schema, without(schema, "Total")) == ["the column 'Total' (decimal) is missing"]
    assert differences(schema, changed(schema, "no", type=parse_cql_type("smallint", {}))) == [
        "the column 'no' is smallint, which does not hold every int"
    ]
    assert differences(schema, changed(schema, "vip", kind=ColumnKind.REGULAR)) == [
        "the column 'vip' is regular, but that of the rows is static"
    ]
    assert differences(schema, without(schema, "no")) == [
        "the clustering is (at), but that of the rows is (at, no)",
        "the column 'no' (int) is missing",
    ]
