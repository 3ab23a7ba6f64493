"""Values of a query as text, converted by Spark: it supports dates, zones and types that Python does not."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakeward.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import Column, DataFrame

_JSON_OPTIONS = {"ignoreNullFields": "false"}
# Characters that start a formula in spreadsheets, also in the wide forms of East Asian scripts.
_FORMULA = frozenset("=+-@|%＝＋－＠")  # noqa: RUF001
# Types that JSON has, too.
_NATIVE = (T.BooleanType, T.IntegralType, T.FloatType, T.DoubleType, T.StringType, T.VariantType)


def json_rows(frame: DataFrame) -> DataFrame | None:
    """Return each row as one JSON object; None for a statement that has no columns.

    Raises:
        ConfigurationError: two columns have the same name, so that an object would lose a value.
    """
    _require_distinct(frame.schema, "the query")
    if not frame.columns:
        return None
    flat = _by_position(frame)
    values = [_readable(flat[name], field.dataType).alias(field.name) for name, field in _fields(flat, frame)]
    return flat.select(F.to_json(F.struct(*values), _JSON_OPTIONS))


def text_rows(frame: DataFrame) -> DataFrame:
    """Return every column as text, nested values as JSON; NULL stays NULL."""
    flat = _by_position(frame)
    return flat.select(*[_as_text(flat[name], field.dataType).alias(name) for name, field in _fields(flat, frame)])


def numeric_columns(frame: DataFrame) -> list[bool]:
    """Return which columns are numbers."""
    return [isinstance(field.dataType, T.NumericType) for field in frame.schema.fields]


def csv_record(values: Iterable[str | None]) -> str:
    """Return a record of CSV as defined by RFC 4180; NULL is an empty field, an empty text is quoted."""
    return ",".join(_csv_field(value) for value in values) + "\r\n"


def without_formula(value: str | None) -> str | None:
    """Return a text with an apostrophe before it if a spreadsheet would treat it as a formula."""
    return f"'{value}" if value and (value[0] in "\t\r\n" or value.lstrip()[:1] in _FORMULA) else value


def _csv_field(value: str | None) -> str:
    if value is None:
        return ""
    if value == "" or any(character in value for character in ',"\r\n') or value != value.strip():
        return '"' + value.replace('"', '""') + '"'
    return value


def _by_position(frame: DataFrame) -> DataFrame:
    """Name columns by position: their own names may repeat, or hold dots and quotes."""
    return frame.toDF(*[f"c{position}" for position in range(len(frame.columns))])


def _fields(flat: DataFrame, frame: DataFrame) -> Iterator[tuple[str, T.StructField]]:
    return zip(flat.columns, frame.schema.fields, strict=True)


def _as_text(column: Column, data_type: T.DataType) -> Column:
    readable = _readable(column, data_type)
    if isinstance(data_type, T.StructType | T.ArrayType | T.MapType | T.VariantType):
        return F.to_json(readable, _JSON_OPTIONS)
    return readable.cast("string")


def _readable(column: Column, data_type: T.DataType) -> Column:
    """Return a column with values that JSON cannot hold as text, at any depth."""
    if isinstance(data_type, T.StructType):
        inner = [_readable(column.getField(field.name), field.dataType).alias(field.name) for field in data_type.fields]
        return F.when(column.isNotNull(), F.struct(*inner))
    if isinstance(data_type, T.ArrayType):
        element = data_type.elementType
        return F.transform(column, lambda value: _readable(value, element))
    if isinstance(data_type, T.MapType):
        return _readable_map(column, data_type)
    return _scalar(column, data_type)


def _readable_map(column: Column, data_type: T.MapType) -> Column:
    entries = F.transform(
        F.map_entries(column),
        lambda entry: F.struct(
            _as_text(entry.getField("key"), data_type.keyType).alias("key"),
            _readable(entry.getField("value"), data_type.valueType).alias("value"),
        ),
    )
    return F.map_from_entries(entries)


def _scalar(column: Column, data_type: T.DataType) -> Column:
    if isinstance(data_type, T.BinaryType):
        return F.base64(column)
    if isinstance(data_type, T.TimestampType):
        return F.concat(_iso(column), F.date_format(column, "XXX"))
    if isinstance(data_type, T.TimestampNTZType):
        return _iso(column)
    return column if isinstance(data_type, _NATIVE) else column.cast("string")


def _iso(column: Column) -> Column:
    return F.replace(column.cast("string"), F.lit(" "), F.lit("T"))


def _require_distinct(schema: T.StructType, where: str) -> None:
    counted = Counter(field.name for field in schema.fields)
    if repeated := sorted(name for name, times in counted.items() if times > 1):
        msg = f"{where} has several columns of one name, and a JSON object keeps only one: {', '.join(repeated)}"
        raise ConfigurationError(msg, hint="name them differently with AS")
    for field in schema.fields:
        for struct in _structs(field.dataType):
            _require_distinct(struct, f"column {field.name}")


def _structs(data_type: Any) -> Iterator[T.StructType]:
    if isinstance(data_type, T.StructType):
        yield data_type
    elif isinstance(data_type, T.ArrayType):
        yield from _structs(data_type.elementType)
    elif isinstance(data_type, T.MapType):
        yield from _structs(data_type.keyType)
        yield from _structs(data_type.valueType)
