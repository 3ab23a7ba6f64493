"""Values as bytes: the quick ways produce the same bytes as the driver."""

from __future__ import annotations

import math
import uuid
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from cassandra import cqltypes
from hypothesis import given
from hypothesis import strategies as st

from lakeward.cassandra.conversion import to_cql
from lakeward.cassandra.cql import parse_cql_type
from lakeward.cassandra.schema import ColumnKind
from lakeward.cassandra.values import arrow_type
from lakeward.cassandra.write_batches import Unfit, listed, serializer
from lakeward.cassandra.write_plan import WriteColumn

if TYPE_CHECKING:
    from collections.abc import Callable

PROTOCOL = 5
DRIVER = {
    "tinyint": cqltypes.ByteType, "smallint": cqltypes.ShortType, "int": cqltypes.Int32Type,
    "bigint": cqltypes.LongType, "timestamp": cqltypes.LongType, "float": cqltypes.FloatType,
    "double": cqltypes.DoubleType, "boolean": cqltypes.BooleanType, "text": cqltypes.UTF8Type,
    "blob": cqltypes.BytesType, "uuid": cqltypes.UUIDType, "decimal": cqltypes.DecimalType,
    "varint": cqltypes.IntegerType, "duration": cqltypes.DurationType,
}  # fmt: skip


def made(source: str, target: str | None = None, kind: ColumnKind = ColumnKind.REGULAR) -> Callable[[pa.Array], Any]:
    types = [parse_cql_type(text, {}) for text in (source, target or source)]
    make = serializer(WriteColumn("v", kind, *types), DRIVER[target or source], PROTOCOL)
    return lambda array: listed(make(array))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("tinyint", [-128, 127, 0, None]),
        ("smallint", [-(2**15), 2**15 - 1]),
        ("int", [None, -(2**31), 2**31 - 1]),
        ("bigint", [-(2**63), 2**63 - 1, 0]),
        ("timestamp", [2**62, -1, None]),
        ("float", [-0.0, math.inf, 1.5]),
        ("double", [0.1, -0.0, -math.inf, None, 5e-324]),
        ("boolean", [True, False, None]),
        ("text", ["", "ü\0€😀", None]),
        ("blob", [b"", b"\0\xff", None]),
        (
            "uuid",
            [
                str(uuid.UUID(int=0)),
                "5132b130-ae79-11e4-ab27-0800200c9a66",
                None,
                "f" * 8 + "-0000" * 3 + "-" + "9" * 12,
            ],
        ),
        ("uuid", ["5132B130-AE79-11E4-AB27-0800200C9A66", "{5132b130ae7911e4ab270800200c9a66}", None]),
        ("decimal", ["0", "-0.00", "-128", "127.5", "128", "1E+50", "-1.5E-7", "0.000", "9" * 1_500, None]),
        ("varint", ["-129", str(10**40), None]),
    ],
)
def test_columns_are_encoded_as_the_driver_encodes_each_value(name: str, values: list[Any]) -> None:
    cql = parse_cql_type(name, {})
    convert = to_cql(cql)
    expected = [None if value is None else DRIVER[name].serialize(convert(value), PROTOCOL) for value in values]
    assert made(name)(pa.array(values, arrow_type(cql))) == expected
    # A part of an array is not the array.
    assert made(name)(pa.array(values * 2, arrow_type(cql)).slice(1, len(values) - 1)) == expected[1:]


@given(st.decimals(allow_nan=False, allow_infinity=False))
def test_any_decimal_is_encoded_as_the_driver_does(number: Any) -> None:
    assert made("decimal")(pa.array([str(number)])) == [cqltypes.DecimalType.serialize(number, PROTOCOL)]


def test_keys_as_text_wider_columns_and_values_that_do_not_fit() -> None:
    assert made("double", kind=ColumnKind.CLUSTERING)(pa.array(["-0.0"])) == [b"\x80" + bytes(7)]
    assert made("int", "bigint")(pa.array([-1, None], pa.int32())) == [b"\xff" * 8, None]
    assert made("int", "varint")(pa.array([255], pa.int32())) == [b"\x00\xff"]
    found = made("uuid")(pa.array(["nothing", str(uuid.UUID(int=1))]))
    assert isinstance(found[0], Unfit)
    assert found[0].reason.startswith("v: 'nothing' is not a valid uuid: ")
    assert found[1] == uuid.UUID(int=1).bytes
    for name, text in {"decimal": "a lot", "duration": "1h", "varint": "many"}.items():
        assert isinstance(made(name)(pa.array([text]))[0], Unfit)
