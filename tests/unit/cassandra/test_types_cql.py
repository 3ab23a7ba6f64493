"""Types as text: read, written, widened."""

import pytest
from hypothesis import given
from tests.cassandra.strategies import tables, types

from lakeward.cassandra.cql import CqlType, parse_cql_type
from lakeward.cassandra.values import widens
from lakeward.errors import ConfigurationError

UDTS = {
    "address": (("street", "text"), ("lines", "frozen<list<text>>")),
    "Odd name": (("to", "frozen<address>"),),
    "int": (("a", "int"),),
    "list": (("a", "int"),),
    "frozen": (("a", "int"),),
}


@given(types())
def test_types_are_read_as_they_are_written(cql):
    assert parse_cql_type(cql.cql, {}) == cql


@given(tables())
def test_types_of_tables_are_read_as_they_are_written(schema):
    for column in schema.columns:
        assert parse_cql_type(column.type.cql, schema.udts) == column.type


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("varchar", "text"),
        ("list<list<int>>", "list<frozen<list<int>>>"),
        ("tuple<int, text>", "frozen<tuple<int, text>>"),
        ("frozen<map<text, tuple<int>>>", "frozen<map<text, frozen<tuple<int>>>>"),
        ("vector<set<int>, 2>", "vector<frozen<set<int>>, 2>"),
        ("frozen<vector<float,3>>", "vector<float, 3>"),
        ("address", "address"),
        ('list<"Odd name">', 'list<frozen<"Odd name">>'),
        ('frozen<"int">', 'frozen<"int">'),
        ("frozen<list>", 'frozen<"list">'),
        ("list<frozen<list>>", 'list<frozen<"list">>'),
        ("map<int, frozen>", 'map<int, frozen<"frozen">>'),
    ],
)
def test_types_are_written_as_the_server_does(text, written):
    assert parse_cql_type(text, UDTS).cql == written


def test_parts_of_types():
    odd = parse_cql_type('"Odd name"', UDTS)
    assert (odd.name, odd.udt, odd.fields, odd.is_multi_cell) == ("udt", "Odd name", ("to",), True)
    assert odd.parameters[0].fields == ("street", "lines")
    assert odd.parameters[0].frozen
    assert not odd.parameters[0].is_multi_cell
    assert parse_cql_type("counter", {}).is_counter
    assert parse_cql_type("vector<float, 3>", {}) == CqlType("vector", (CqlType("float"),), dimension=3)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("'org.apache.cassandra.db.marshal.DynamicCompositeType'", "it is a Java class of the server"),
        ("nothing", "there is no type 'nothing'"),
        ("map<int>", "1 types instead of 2"),
        ("list<int", "'>' is missing"),
        ("int int", "unexpected text at its end"),
        ("vector<int, x>", "'x' is not a dimension"),
        ("", "the name of a type is missing"),
    ],
)
def test_text_that_is_not_a_type_is_refused(text, reason):
    with pytest.raises(ConfigurationError, match=f"cannot read the type .*: {reason}"):
        parse_cql_type(text, {})


@pytest.mark.parametrize(
    ("source", "target", "fits"),
    [
        ("int", "int", True),
        ("int", "bigint", True),
        ("bigint", "int", False),
        ("tinyint", "varint", True),
        ("varint", "decimal", True),
        ("float", "double", True),
        ("int", "text", False),
        ("int", "double", False),
        ("list<int>", "list<bigint>", True),
        ("list<int>", "frozen<list<int>>", True),
        ("frozen<list<int>>", "list<int>", False),
        ("list<int>", "set<int>", False),
        ("vector<float, 2>", "vector<float, 3>", False),
        ("tuple<int, text>", "tuple<bigint, text>", True),
        ("tuple<int>", "tuple<int, text>", False),
        ("frozen<address>", 'frozen<"Odd name">', False),
        ("int", "list<int>", False),
    ],
)
def test_wider_types(source, target, fits):
    assert widens(parse_cql_type(source, UDTS), parse_cql_type(target, UDTS)) is fits
