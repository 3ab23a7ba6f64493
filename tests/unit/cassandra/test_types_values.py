"""Values of every type, from the driver to Arrow and back to a statement."""

from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from cassandra.cqltypes import DecimalType, LongType, UTF8Type
from cassandra.util import Date, Duration, OrderedMapSerializedKey, SortedSet, Time
from hypothesis import given
from hypothesis import strategies as st
from tests.cassandra.strategies import canonical, types, user_types, values

from lakeward.cassandra.conversion import CqlMapEntries, cql_literal, to_arrow, to_cql
from lakeward.cassandra.cql import CqlType, parse_cql_type
from lakeward.cassandra.values import arrow_type, decimal_text, is_key_text, spark_type, uuid_text
from lakeward.errors import DataError


def kind(text: str) -> CqlType:
    return parse_cql_type(text, {"address": (("street", "text"), ("No.", "frozen<list<int>>"))})


def through_arrow(cql: CqlType, given_values: list[Any], *, key: bool = False) -> list[Any]:
    held = to_arrow(cql, key=key)(given_values)
    assert held.type == arrow_type(cql, key=key)
    back = to_cql(cql, key=key)
    return [back(value) for value in held.to_pylist()]


@st.composite
def typed_values(draw: Any) -> tuple[CqlType, list[Any]]:
    cql = draw(types(draw(user_types())))
    return cql, draw(st.lists(st.none() | values(cql), max_size=4))


@st.composite
def typed_keys(draw: Any) -> tuple[CqlType, list[Any]]:
    cql = draw(types(draw(user_types()), ordered=True))
    return cql, draw(st.lists(st.none() | values(cql), max_size=4))


@given(typed_values())
def test_values_survive_a_round_trip_through_arrow(case):
    cql, given_values = case
    assert canonical(through_arrow(cql, given_values)) == canonical(given_values)


@given(typed_keys())
def test_keys_survive_a_round_trip_through_arrow(case):
    cql, given_values = case
    assert canonical(through_arrow(cql, given_values, key=True)) == canonical(given_values)


@given(typed_keys())
def test_keys_are_equal_as_text_where_they_are_equal(case):
    cql, given_values = case
    if is_key_text(cql):
        texts = to_arrow(cql, key=True)(given_values).to_pylist()
        for value, text in zip(given_values, texts, strict=True):
            for other, other_text in zip(given_values, texts, strict=True):
                assert (text == other_text) == (canonical(value) == canonical(other))


@given(typed_values())
def test_spark_and_arrow_have_the_same_types(case):
    from pyspark.sql.pandas.types import from_arrow_type

    cql, _ = case
    assert from_arrow_type(arrow_type(cql)) == spark_type(cql)
    assert from_arrow_type(arrow_type(cql, key=True)) == spark_type(cql, key=True)


def test_values_that_only_the_driver_creates_are_accepted():
    timestamps = OrderedMapSerializedKey(LongType, 5)
    timestamps._insert_unchecked(2**62, LongType.serialize(2**62, 5), "late")
    empty = OrderedMapSerializedKey(UTF8Type, 5)
    assert through_arrow(kind("map<timestamp, text>"), [timestamps, empty]) == [[(2**62, "late")], []]
    assert to_arrow(kind("set<text>"))([SortedSet(["b", "a"])]).to_pylist() == [["a", "b"]]
    assert to_arrow(kind("time"))([Time(7), None]).to_pylist() == [7, None]


@pytest.mark.parametrize(
    ("text", "value", "held"),
    [
        ("decimal", Decimal("1.50E-1000"), "1.50E-1000"),
        ("decimal", Decimal("-12E+7"), "-1.2E+8"),
        ("varint", -(10**40), "-1" + "0" * 40),
        ("date", Date(2**31 - 1), 2**31 - 1),
        ("date", Date(-(2**31)), -(2**31)),
        ("timestamp", -(2**63), -(2**63)),
        ("duration", Duration(-1, 0, -(2**63)), "-1mo0d9223372036854775808ns"),
        ("duration", Duration(), "0mo0d0ns"),
        ("blob", b"", b""),
        ("text", "", ""),
        ("frozen<list<int>>", [], []),
        ("tuple<int, text>", (None, ""), {"f1": None, "f2": ""}),
        ("frozen<address>", ("x", []), {"street": "x", "No.": []}),
        ("map<double, int>", CqlMapEntries([(-0.0, 1), (0.0, 2)]), [("-0.0", 1), ("0.0", 2)]),
        ("vector<timestamp, 2>", [-(2**62), 2**62], [-(2**62), 2**62]),
    ],
)
def test_values_are_kept_exactly(text, value, held):
    cql = kind(text)
    assert to_arrow(cql)([value, None]).to_pylist() == [held, None]
    assert through_arrow(cql, [value, None]) == [value, None]


def test_a_number_may_have_more_digits_than_python_converts():
    assert through_arrow(kind("varint"), [10**5000]) == [10**5000]


def test_zeros_with_and_without_sign_are_different_keys():
    held = to_arrow(kind("double"), key=True)([0.0, -0.0, float("nan"), float("-inf"), 0.1, None])
    assert held.to_pylist() == ["0.0", "-0.0", '"nan"', '"-inf"', "0.1", None]
    pairs = CqlMapEntries([(-0.0, b"\x00"), (0.0, b"")])
    nested = to_arrow(kind("tuple<int, frozen<map<float, blob>>>"), key=True)([(1, pairs), (None, None)])
    assert nested.to_pylist() == ['[1,[["-0.0","00"],["0.0",""]]]', "[null,null]"]
    assert to_arrow(kind("int"), key=True)([1]).type == pa.int32()


def test_a_wider_column_takes_what_a_narrower_one_held():
    assert to_cql(kind("varint"))(7) == 7
    assert to_cql(kind("decimal"))("12") == Decimal(12)
    assert to_cql(kind("list<decimal>"))([7]) == [Decimal(7)]


def test_a_text_that_is_not_a_duration_is_refused():
    with pytest.raises(DataError, match="'1 day' is not a duration; expected one such as 1mo2d3ns"):
        to_cql(kind("duration"))("1 day")


@pytest.mark.parametrize(
    ("text", "value", "literal"),
    [
        ("text", "it's", "'it''s'"),
        ("blob", b"\x01\xff", "0x01ff"),
        ("date", -1, "'1969-12-31'"),
        ("date", -719_162, "2146764486"),
        ("date", 2**31 - 1, "4294967295"),
        ("timestamp", -1, "'1969-12-31T23:59:59.999Z'"),
        ("timestamp", 2**62, str(2**62)),
        ("time", 1, "'00:00:00.000000001'"),
        ("float", float("nan"), "NaN"),
        ("double", float("-inf"), "-Infinity"),
        ("boolean", True, "true"),
        ("map<text, int>", [("a", None)], "{'a': null}"),
        ("map<float, int>", [("-0.0", 1)], "{-0.0: 1}"),
        ("set<inet>", ["::1"], "{'::1'}"),
        ("vector<float, 1>", [1.5], "[1.5]"),
        ("tuple<int, text>", {"f1": 1, "f2": None}, "(1, null)"),
        ("frozen<address>", {"street": "x", "No.": [1]}, '{"street": \'x\', "No.": [1]}'),
        ("duration", "-1mo2d3ns", "-1mo2d3ns"),
    ],
)
def test_literals(text, value, literal):
    assert cql_literal(kind(text), value) == literal


@given(number=st.integers(-(10**60), 10**60), scale=st.integers(-50, 80))
def test_a_decimal_of_bytes_is_written_as_python_writes_it(number: int, scale: int) -> None:
    packed = DecimalType.serialize(Decimal(f"{number}e{-scale}"), 5)
    assert decimal_text(packed) == decimal_text(Decimal(f"{number}e{-scale}")) == str(Decimal(f"{number}e{-scale}"))


@pytest.mark.parametrize("in_bytes", [True, False])
@given(given=st.lists(st.one_of(st.uuids(), st.none()), max_size=5))
def test_a_column_of_uuids_equals_uuids_written_singly(given: list[UUID | None], in_bytes: bool) -> None:
    column = [value.bytes if in_bytes and value is not None else value for value in given]
    found = to_arrow(kind("uuid"))([*column, *([b""] if in_bytes else [])])
    assert found.type == pa.string()
    assert found.to_pylist()[: len(given)] == [None if value is None else str(value) for value in given]
    whole = [value.bytes if in_bytes else value for value in given if value is not None]
    assert to_arrow(kind("timeuuid"))(whole).to_pylist() == [str(value) for value in given if value is not None]


@given(st.uuids())
def test_a_uuid_of_bytes_is_written_as_python_writes_it(value: UUID) -> None:
    assert uuid_text(value.bytes) == uuid_text(value) == str(value)


def test_empty_bytes_are_not_a_value() -> None:
    assert uuid_text(b"") is None and decimal_text(b"") is None
