from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeward import schemas
from lakeward.columns import lake_type, parse_ddl
from lakeward.formats.dms.values import arrow_type, null_where, parse_text, record_schema, show


def _utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc,arg-type]


GOOD: list[tuple[str, str, Any]] = [
    ("string", " as is ", " as is "),
    ("string", "", ""),
    ("boolean", "true", True), ("boolean", "F", False), ("boolean", "1", True), ("boolean", "0", False),
    ("boolean", "YES", True), ("boolean", "no", False), ("boolean", "T", True),
    ("tinyint", "-128", -128), ("tinyint", "127", 127), ("utinyint", "255", 255),
    ("smallint", "32767", 32767), ("usmallint", "65535", 65535),
    ("int", "007", 7), ("int", "-2147483648", -(2**31)), ("uint", "4294967295", 2**32 - 1),
    ("bigint", "9223372036854775807", 2**63 - 1), ("ubigint", "18446744073709551615", Decimal(2**64 - 1)),
    ("decimal(10,2)", "1.5", Decimal("1.50")), ("decimal(10,2)", "1.500", Decimal("1.50")),
    ("decimal(10,2)", "-99999999.99", Decimal("-99999999.99")), ("decimal(10,2)", "1e2", Decimal(100)),
    ("decimal(10,2)", "1.5E-1", Decimal("0.15")), ("decimal(10,2)", "+2", Decimal(2)),
    ("decimal(10,2)", "1." + "0" * 50, Decimal(1)), ("decimal(10,2)", "0" * 60 + "5", Decimal(5)),
    ("decimal(38,0)", "9" * 38, Decimal("9" * 38)), ("decimal(38,0)", "9" * 38 + ".00", Decimal("9" * 38)),
    ("decimal(38,2)", "-" + "9" * 36 + ".99", Decimal("-" + "9" * 36 + ".99")),
    ("decimal(38,38)", "0." + "1" * 38, Decimal("0." + "1" * 38)), ("decimal(10,2)", "0e99", Decimal(0)),
    ("float", "1.5", 1.5), ("double", "1e300", 1e300), ("double", "-Infinity", -math.inf), ("double", "inf", math.inf),
    ("date", "2024-02-29", date(2024, 2, 29)), ("date", "0001-01-01", date(1, 1, 1)),
    ("date", "9999-12-31", date(9999, 12, 31)), ("date", "1582-10-10", date(1582, 10, 10)),
    ("timestamp_ntz", "2024-01-02 03:04:05", datetime(2024, 1, 2, 3, 4, 5)),
    ("timestamp_ntz", "2024-01-02T03:04:05.1", datetime(2024, 1, 2, 3, 4, 5, 100000)),
    ("timestamp_ntz", "0001-01-01 00:00:00.000001", datetime(1, 1, 1, 0, 0, 0, 1)),
    ("timestamp_ntz", "9999-12-31 23:59:59.999999", datetime(9999, 12, 31, 23, 59, 59, 999999)),
    ("timestamp_ntz", "2024-01-02 03:04:05.123456000", datetime(2024, 1, 2, 3, 4, 5, 123456)),
    ("timestamp", "1899-01-02 03:04:05.000001", _utc(1899, 1, 2, 3, 4, 5, 1)),
    ("timestamp", "2024-01-02 03:04:05Z", _utc(2024, 1, 2, 3, 4, 5)),
    ("timestamp", "2024-01-02T03:04:05.5+02:00", _utc(2024, 1, 2, 1, 4, 5, 500000)),
    ("timestamp", "2024-01-02 03:04:05.5000000-0530", _utc(2024, 1, 2, 8, 34, 5, 500000)),
    ("time", "12:34:56", "12:34:56"), ("time", "12:34:56.000", "12:34:56"),
    ("time", "00:00:00.5", "00:00:00.500000"), ("time", "23:59:59.999999", "23:59:59.999999"),
    ("binary", "0xCAFE", b"\xca\xfe"), ("binary", "cafe", b"\xca\xfe"), ("binary", "", b""),
]  # fmt: skip
BAD = [
    ("boolean", ["", "maybe", " true", "2", "tru"]),
    ("tinyint", ["128", "-129", "1.0"]), ("utinyint", ["-1", "256"]), ("smallint", ["70000", "-32769"]),
    ("usmallint", ["-1", "65536"]), ("uint", ["-1", "4294967296"]), ("ubigint", ["-1", "18446744073709551616"]),
    ("int", ["", " 1", "1 ", "+1", "0x1F", "0X1f", "1.0", "1e3", "2147483648", "1_000", "\uff11", "1,000", "NaN"]),
    ("bigint", ["9223372036854775808", "--1"]),
    ("decimal(10,2)", ["1.005", "", " 1", "1 ", "123456789.1", "NaN", "inf", "1,5", "0x1", "1e9", "1e-3", "1e99999",
                       "e5", ".", "-"]),
    ("decimal(38,0)", ["9" * 39, str(2**128 + 1), str(2**127 + 5), "1" * 50, "0." + "0" * 38 + "1", "1e38"]),
    ("decimal(38,2)", ["9" * 37, "9" * 37 + ".99", "1e36"]),
    ("float", ["1e50", "", " 1", "1 ", "abc", "0x10", "1e"]), ("double", ["1e400", "nan(1)", "1d", "infinit", "-"]),
    ("date", ["2023-02-29", "0000-01-01", "20240101", "2024-1-1", "2024-01-01 ", "10000-01-01", "", "01/02/2024",
              "2024-01-01 00:00:00"]),
    ("timestamp_ntz", ["2024-01-01", "2024-01-01 00:00", "2024-01-01 24:00:00", "2024-01-01 00:00:60", "",
                       "2024-01-01 00:00:00.1234567", "2024-01-01 00:00:00Z", "2024-01-01 00:00:00+01:00",
                       "0000-01-01 00:00:00", " 2024-01-01 00:00:00", "2024-01-01 00:00:00."]),
    ("timestamp", ["2024-01-01", "2024-01-01 00+02:00", "2024-01-01 00:00+02:00", "2024-01-01 00:00:00+25:00",
                   "2024-01-01 00:00:00.1234567Z", "2024-01-01 00:00:00 UTC"]),
    ("time", ["24:00:00", "12:00", "1:2:3", "12:00:60", "-01:00:00", "838:59:59", "12:00:00.1234567", ""]),
    ("binary", ["0", "0x0", "xy", "ca fe", "0x0xca"]),
]  # fmt: skip


@pytest.mark.parametrize(("column_type", "text", "value"), GOOD)
def test_text_becomes_its_value(column_type: str, text: str, value: Any) -> None:
    cells = parse_text(pa.array([None, text]), column_type)
    assert cells.failed is None
    assert cells.values.type == arrow_type(lake_type(column_type))
    assert cells.values.to_pylist() == [None, value]


@pytest.mark.parametrize(("column_type", "text"), [(name, text) for name, texts in BAD for text in texts])
def test_text_that_does_not_fit_is_refused(column_type: str, text: str) -> None:
    cells = parse_text(pa.array([text]), column_type)
    assert cells.failed is not None
    assert cells.failed.tolist() == [True]
    assert cells.values.to_pylist() == [None]
    assert cells.shown(0) == text


@pytest.mark.parametrize(("column_type", "texts"), BAD)
def test_exactly_the_failing_rows_are_found(column_type: str, texts: list[str]) -> None:
    fine, value = next((text, value) for name, text, value in GOOD if name == column_type)
    mixed = [fine] * 5 + [texts[0], None, fine, texts[-1]] + [fine] * 3
    cells = parse_text(pa.array(mixed), column_type)
    assert cells.failed is not None
    assert [index for index, failed in enumerate(cells.failed) if failed] == [5, 8]
    assert cells.values.to_pylist() == [value] * 5 + [None, None, value, None] + [value] * 3


@pytest.mark.parametrize("text", ["NaN", "nan", "-nan"])
@pytest.mark.parametrize("column_type", ["float", "double"])
def test_not_a_number(column_type: str, text: str) -> None:
    cells = parse_text(pa.array([text]), column_type)
    assert cells.failed is None
    assert math.isnan(cells.values[0].as_py())


def test_zoned_and_local_times_mix() -> None:
    texts = ["2024-01-01 00:00:00", "2024-01-01 00:00:00+01:00", None, "bad", "2024-01-01 00:00:00.1230000Z"]
    cells = parse_text(pa.array(texts), "timestamp")
    assert cells.failed is not None
    assert cells.failed.tolist() == [False, False, False, True, False]
    assert cells.values.to_pylist()[1] == _utc(2023, 12, 31, 23)


def test_binary_encodings() -> None:
    assert parse_text(pa.array(["yv4="]), "binary", "base64").values.to_pylist() == [b"\xca\xfe"]
    assert parse_text(pa.array(["ä"]), "binary", "utf8").values.to_pylist() == ["ä".encode()]
    failed = parse_text(pa.array(["yv4", "y v4=", "yv4="]), "binary", "base64").failed
    assert failed is not None
    assert failed.tolist() == [True, True, False]


@pytest.mark.parametrize("column_type", sorted({name for name, _, _ in GOOD}))
def test_empty_and_null_columns(column_type: str) -> None:
    for values in ([], [None, None]):
        cells = parse_text(pa.array(values, pa.string()), column_type)
        assert cells.failed is None
        assert cells.values.to_pylist() == values


def test_many_failures_are_found_in_reasonable_time() -> None:
    cells = parse_text(pa.array(["x"] * 5000), "int")
    assert cells.failed is not None
    assert cells.failed.all()


@given(st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**12), max_value=10**12))
def test_decimals_are_exact_or_refused(number: Decimal) -> None:
    cells = parse_text(pa.array([str(number)]), "decimal(14,2)")
    if number == round(number, 2) and abs(number) < 10**12:
        assert cells.failed is None
        assert cells.values[0].as_py() == number
    else:
        assert cells.failed is not None


@given(st.datetimes())
def test_timestamps_round_trip(moment: datetime) -> None:
    assert parse_text(pa.array([str(moment)]), "timestamp_ntz").values.to_pylist() == [moment]
    assert parse_text(pa.array([str(moment)]), "timestamp").values.to_pylist() == [moment.replace(tzinfo=UTC)]


@given(st.integers(-(2**70), 2**70))
def test_integers_are_exact_or_refused(number: int) -> None:
    ranges = (("int", -(2**31), 2**31 - 1), ("bigint", -(2**63), 2**63 - 1), ("uint", 0, 2**32 - 1))
    for column_type, low, high in ranges:
        cells = parse_text(pa.array([str(number)]), column_type)
        assert (cells.failed is None) == (low <= number <= high)


def test_record_schema_is_the_twin_of_the_spark_struct() -> None:
    ddl = ", ".join(f"c{i} {name}" for i, name in enumerate(sorted({name for name, _, _ in GOOD})))
    columns = parse_ddl(ddl)
    from pyspark.sql.pandas.types import to_arrow_type

    struct, schema = schemas.record_struct(columns), record_schema(columns)
    assert schema.names == struct.names
    for field, spark_field in zip(schema, struct.fields, strict=True):
        expected = to_arrow_type(spark_field.dataType)
        assert field.nullable == spark_field.nullable
        assert str(field.type).replace("item", "element") == str(expected).replace("item", "element")


@given(st.lists(st.one_of(st.none(), st.text(max_size=9)), min_size=2), st.data())
def test_null_where_is_right_on_slices(values: list[str | None], data: st.DataObject) -> None:
    marks = data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values)))
    start = data.draw(st.integers(0, len(values) - 1))
    result = null_where(pa.array(marks).slice(start), pa.array(values, pa.string()).slice(start))
    result.validate(full=True)
    pairs = zip(marks[start:], values[start:], strict=True)
    assert result.to_pylist() == [None if mark else value for mark, value in pairs]


def test_show() -> None:
    assert show(pa.scalar(b"a\xff")) == "a\\xff"
    assert show(pa.scalar(None, pa.string())) is None
    assert show(pa.scalar(1, pa.timestamp("ns"))) == "1970-01-01 00:00:00.000000001"
