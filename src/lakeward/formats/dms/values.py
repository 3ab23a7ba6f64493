"""Conversion of text to typed values, and record batches of them.

The conversion is strict: nothing is rounded, trimmed or guessed, and what does not fit its type is a bad value.

Arrow's own parsers are used where they are exact. They are not everywhere: text of more than 38 digits wraps around
silently in ``cast(decimal128)``, ``0x1F`` is read as an integer, and ``1e400`` becomes infinite. A converter raises
``ArrowInvalid`` when it refuses any value of the column; :func:`convert_each` finds which.
"""

from __future__ import annotations

import base64
import binascii
import decimal
import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeward import schemas
from lakeward.columns import MAX_PRECISION, decimal_parts, lake_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import numpy.typing as npt

    from lakeward.columns import Column
    from lakeward.formats.base import FileSummary, ReadSpec


if TYPE_CHECKING:
    Mask = npt.NDArray[np.bool_]
    Convert = Callable[[pa.Array], pa.Array]


@dataclass(frozen=True)
class Cells:
    """A column's values in their lake type, null where a value does not fit.

    ``failed`` marks those rows, None when there are none; ``source`` holds the values as the file has them.
    """

    values: pa.Array
    source: pa.Array
    failed: Mask | None = None

    def shown(self, index: int) -> str | None:
        """Return one value as the file has it, for a message."""
        return show(self.source[index])


def show(scalar: pa.Scalar) -> str | None:
    """Return a value as text, for a message."""
    if pa.types.is_temporal(scalar.type):
        scalar = scalar.cast(pa.string())  # Python's own times support neither nanoseconds nor the year 10000
    if not scalar.is_valid:
        return None
    if pa.types.is_string(scalar.type) or pa.types.is_binary(scalar.type):
        return decoded(scalar)
    return str(scalar.as_py())


def decoded(scalar: pa.Scalar) -> str:
    r"""Return a text or binary value as text, bytes that are not UTF-8 as ``\xNN``; Arrow does not check them."""
    return str(scalar.as_buffer().to_pybytes().decode("utf-8", "backslashreplace"))


def convert_each(source: pa.Array, convert: Convert, target: pa.DataType) -> Cells:
    """Convert a column as a whole; if that fails, find exactly the values that are refused."""
    try:
        return Cells(convert(source), source)
    except pa.ArrowInvalid:
        failed = np.zeros(len(source), dtype=bool)
        pieces = _halve(source, 0, convert, target, failed)
        return Cells(pa.concat_arrays(pieces), source, failed)


def _halve(source: pa.Array, start: int, convert: Convert, target: pa.DataType, failed: Mask) -> list[pa.Array]:
    """Convert in halves, down to the single values that are refused: cheap while these are few."""
    try:
        return [convert(source)]
    except pa.ArrowInvalid:
        if len(source) == 1:
            failed[start] = True
            return [pa.nulls(1, target)]
    middle = len(source) // 2
    return [
        *_halve(source.slice(0, middle), start, convert, target, failed),
        *_halve(source.slice(middle), start + middle, convert, target, failed),
    ]


def to_mask(array: pa.Array) -> Mask:
    """Return a boolean array as a numpy mask; null counts as false."""
    filled = array.fill_null(False) if array.null_count else array
    mask: Mask = filled.to_numpy(zero_copy_only=False)
    return mask


def any_true(mask: Mask | None) -> bool:
    """Whether a mask marks any row."""
    return mask is not None and bool(mask.any())


def null_where(marked: pa.Array, values: pa.Array) -> pa.Array:
    """Return null where marked, and the values elsewhere.

    Not by ``if_else(marked, None, values)``: with a null scalar and a slice of text Arrow 23 and older return garbage
    (apache/arrow issue 49410).
    """
    return pc.if_else(marked, pa.nulls(len(values), values.type), values)


# Record batches, with the Arrow equivalent of ``schemas.record_struct``.
_SIMPLE_ARROW: dict[str, pa.DataType] = {
    "boolean": pa.bool_(), "int": pa.int32(), "bigint": pa.int64(), "float": pa.float32(), "double": pa.float64(),
    "string": pa.string(), "binary": pa.binary(), "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip
_RECORD_FIELDS = (
    pa.field(schemas.KIND, pa.string(), nullable=False),
    pa.field(schemas.OPERATION, pa.string()),
    pa.field(schemas.SEQUENCE, pa.string()),
    pa.field(schemas.COMMIT_TIME, pa.timestamp("us", "UTC")),
    pa.field(schemas.FILE, pa.string()),
    pa.field(schemas.FILE_TIME, pa.string()),
    pa.field(schemas.ROW, pa.int64()),
    pa.field(schemas.STEP, pa.int32()),
    pa.field(schemas.UNCHANGED, pa.list_(pa.string())),
    pa.field(schemas.DETAIL, pa.string()),
    pa.field(schemas.RAW, pa.string()),
)


@dataclass(frozen=True)
class RefusedRow:
    """A row that does not fit: its number, the reason, and its text where that may be kept."""

    row: int
    reason: str
    column: str | None
    value: str | None
    raw: str | None

    @property
    def detail(self) -> str:
        """The record's detail: why the row was refused."""
        return json.dumps({"reason": self.reason, "column": self.column, "value": self.value}, ensure_ascii=False)


def arrow_type(lake_type: str) -> pa.DataType:
    """Return the Arrow type of a lake type."""
    if parts := decimal_parts(lake_type):
        return pa.decimal128(*parts)
    return _SIMPLE_ARROW[lake_type]


def record_schema(columns: Iterable[Column]) -> pa.Schema:
    """Return the Arrow schema of ``schemas.record_struct(columns)``."""
    return pa.schema([*_RECORD_FIELDS, *(pa.field(column.name, arrow_type(column.lake_type)) for column in columns)])


def build_batch(schema: pa.Schema, size: int, fields: Mapping[str, object]) -> pa.RecordBatch:
    """Return a record batch of the given fields: arrays, or a value for all rows; every other field is null."""
    arrays = []
    for field in schema:
        value = fields.get(field.name)
        if value is None:
            arrays.append(pa.nulls(size, field.type))
        elif isinstance(value, pa.Array):
            arrays.append(value)
        else:
            arrays.append(pa.repeat(pa.scalar(value, field.type), size))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def bad_batch(spec: ReadSpec, path: str, time: str, bad: list[RefusedRow]) -> pa.RecordBatch:
    """Return the records of bad rows; of a table with a column policy without any value."""
    if spec.hides_values:
        bad = [replace(row, value=None, raw=None) for row in bad]
    fields = {
        schemas.KIND: schemas.KIND_BAD,
        schemas.FILE: path,
        schemas.FILE_TIME: time,
        schemas.ROW: pa.array([row.row for row in bad], pa.int64()),
        schemas.STEP: schemas.STEP_ONLY,
        schemas.DETAIL: pa.array([row.detail for row in bad], pa.string()),
        schemas.RAW: pa.array([row.raw for row in bad], pa.string()),
    }
    return build_batch(record_schema(spec.columns), len(bad), fields)


def file_batch(schema: pa.Schema, summary: FileSummary) -> pa.RecordBatch:
    """Return the record of the file itself."""
    fields = {
        schemas.KIND: schemas.KIND_FILE,
        schemas.FILE: summary.path,
        schemas.FILE_TIME: summary.time,
        schemas.DETAIL: summary.to_json(),
    }
    return build_batch(schema, 1, fields)


# The Arrow type whose range a declared integer type has.
INTEGER_RANGE: dict[str, pa.DataType] = {
    "tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64(),
    "utinyint": pa.uint8(), "usmallint": pa.uint16(), "uint": pa.uint32(), "ubigint": pa.uint64(),
}  # fmt: skip
_TRUE, _FALSE = ("true", "t", "1", "yes", "y"), ("false", "f", "0", "no", "n")
_TRUTH = pa.array([*_TRUE, *_FALSE])
_TRUTH_VALUES = pa.array([True] * len(_TRUE) + [False] * len(_FALSE))
_NOT_FINITE = r"^[+-]?(?:nan|inf|infinity)$"
_ZONED = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)$"
_SURPLUS_ZEROS = r"(\.[0-9]{6})0+"
_SECONDS_LENGTH = len("2020-01-01 00:00:00")
_TIME_LENGTH = len("00:00:00")
# Years 1 to 9999: others cannot be written as a date, nor be ordered as text.
DAYS = (-719162, 2932896)
MICROSECONDS = (DAYS[0] * 86_400_000_000, (DAYS[1] + 1) * 86_400_000_000 - 1)
# Digits of a fraction beyond microseconds, up to nanoseconds.
_FINER = r"(?P<micros>\.[0-9]{6})(?P<finer>[0-9]{1,3})(?P<zone>Z|[+-][0-9:]*)?$"
_HEX = re.compile(r"(?:0[xX])?((?:[0-9a-fA-F]{2})*)")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?", re.ASCII)


def parse_text(text: pa.Array, column_type: str, binary: str = "hex") -> Cells:
    """Convert a column of text to the lake type of a declared type; nulls stay null."""
    if column_type == "string":
        return Cells(text, text)
    return convert_each(text, _converter(column_type, binary), arrow_type(lake_type(column_type)))


def _converter(column_type: str, binary: str) -> Convert:
    if column_type in INTEGER_RANGE:
        return lambda text: _integers(text, column_type)
    if column_type in ("float", "double"):
        return lambda text: _floats(text, arrow_type(column_type))
    if parts := decimal_parts(column_type):
        return lambda text: _decimals(text, *parts)
    if column_type == "binary":
        return lambda text: _binaries(text, _DECODERS[binary])
    return _SIMPLE[column_type]


def _require(holds: pa.Array, message: str) -> None:
    """Refuse the column unless a condition holds for every value that is not null."""
    if not pc.all(holds, min_count=0).as_py():
        raise pa.ArrowInvalid(message)


def require_between(numbers: pa.Array, bounds: tuple[int, int]) -> None:
    """Refuse the column unless every number that is not null is within bounds, both included."""
    found = pc.min_max(numbers).as_py()
    if found["min"] is not None and (found["min"] < bounds[0] or found["max"] > bounds[1]):
        msg = "outside the years 1 to 9999"
        raise pa.ArrowInvalid(msg)


def _integers(text: pa.Array, column_type: str) -> pa.Array:
    numbers = text.cast(INTEGER_RANGE[column_type])
    _require(pc.invert(pc.match_substring(text, "x", ignore_case=True)), "hexadecimal")
    return numbers.cast(arrow_type(lake_type(column_type)))


def _floats(text: pa.Array, target: pa.DataType) -> pa.Array:
    numbers = text.cast(target)
    finite = pc.is_finite(numbers)
    if not pc.all(finite, min_count=0).as_py():
        named = pc.match_substring_regex(text, _NOT_FINITE, ignore_case=True)
        _require(pc.or_(finite, named), "out of range")
    return numbers


def _decimals(text: pa.Array, precision: int, scale: int) -> pa.Array:
    """Convert decimals exactly; those that may not fit Arrow's 128 bits through Python's type."""
    longest = pc.max(pc.binary_length(text)).as_py() or 0
    exponents = pc.any(pc.match_substring(text, "e", ignore_case=True)).as_py()
    if longest + scale > MAX_PRECISION or exponents:
        numbers = [None if value is None else _decimal(value, precision, scale) for value in text.to_pylist()]
        return pa.array(numbers, pa.decimal128(precision, scale))
    return text.cast(pa.decimal128(precision, scale))


def _decimal(text: str, precision: int, scale: int) -> decimal.Decimal:
    if not _DECIMAL.fullmatch(text):
        raise pa.ArrowInvalid(text)
    number = decimal.Decimal(text)
    if not number:
        return decimal.Decimal(0)
    if number.adjusted() >= precision - scale:
        raise pa.ArrowInvalid(text)
    # Enough digits for the whole text, so that only inexact results are refused.
    context = decimal.Context(prec=len(text) + precision, traps=[decimal.Inexact, decimal.InvalidOperation])
    try:
        return number.quantize(decimal.Decimal(1).scaleb(-scale), context=context)
    except (decimal.Inexact, decimal.InvalidOperation) as error:
        raise pa.ArrowInvalid(text) from error


def _booleans(text: pa.Array) -> pa.Array:
    position = pc.index_in(pc.utf8_lower(text), value_set=_TRUTH)
    _require(pc.or_(pc.is_valid(position), pc.is_null(text)), "not a truth value")
    return _TRUTH_VALUES.take(position)


def _dates(text: pa.Array) -> pa.Array:
    days = text.cast(pa.date32())
    require_between(days.cast(pa.int32()), DAYS)
    return days


def _local_times(text: pa.Array) -> pa.Array:
    """Convert ``yyyy-MM-dd HH:mm:ss[.f…]`` without a zone; shorter forms that Arrow accepts are refused."""
    _require(pc.greater_equal(pc.binary_length(text), _SECONDS_LENGTH), "no seconds")
    try:
        moments = text.cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        moments = pc.replace_substring_regex(text, _SURPLUS_ZEROS, r"\1").cast(pa.timestamp("us"))
    require_between(moments.cast(pa.int64()), MICROSECONDS)
    return moments


def _instants(text: pa.Array) -> pa.Array:
    """Convert times with or without a zone; without one they are UTC."""
    try:
        return _local_times(text).cast(pa.timestamp("us", "UTC"))
    except pa.ArrowInvalid:
        zoned = pc.match_substring_regex(text, _ZONED)
        if not pc.any(zoned).as_py():
            raise
    local = _local_times(null_where(zoned, text)).cast(pa.timestamp("us", "UTC"))
    exact = pc.replace_substring_regex(null_where(pc.invert(zoned), text), _SURPLUS_ZEROS, r"\1")
    moments = pc.coalesce(local, exact.cast(pa.timestamp("us", "UTC")))
    # A zone can move a time of the years 1 and 9999 out of them.
    require_between(moments.cast(pa.int64()), MICROSECONDS)
    return moments


def parse_commit_times(text: pa.Array) -> Cells:
    """Convert commit times of text; digits beyond microseconds are dropped here and kept by :func:`finer_digits`."""
    return convert_each(text, _commit_times, pa.timestamp("us", "UTC"))


def _commit_times(text: pa.Array) -> pa.Array:
    return _instants(pc.replace_substring_regex(text, _FINER, r"\1\3"))


def finer_digits(source: pa.Array) -> pa.Array | None:
    """Return the digits of commit times beyond microseconds, empty where there are none; None where no row has any.

    Appended to a time with six digits, they sort like the times.
    """
    if pa.types.is_timestamp(source.type) and source.type.unit != "ns":
        return None
    text = source.cast(pa.timestamp("ns")).cast(pa.string()) if pa.types.is_timestamp(source.type) else source
    digits = pc.struct_field(pc.extract_regex(text, _FINER), "finer")
    digits = pc.utf8_rtrim(pc.fill_null(digits, ""), "0")
    return digits if pc.any(pc.not_equal(digits, ""), min_count=0).as_py() else None


def _times(text: pa.Array) -> pa.Array:
    """Normalise times of day to ``HH:MM:SS`` with six digits of fraction where there is one."""
    _require(pc.greater_equal(pc.binary_length(text), _TIME_LENGTH), "no seconds")
    return format_times(_local_times(pc.binary_join_element_wise("1970-01-01", text, " ")).cast(pa.time64("us")))


def format_times(times: pa.Array) -> pa.Array:
    """Write times of day as ``HH:MM:SS``, with six digits of fraction where there is one."""
    return pc.replace_substring_regex(times.cast(pa.time64("us")).cast(pa.string()), r"\.000000$", "")


def _binaries(text: pa.Array, decode: Callable[[str], bytes]) -> pa.Array:
    return pa.array([None if value is None else decode(value) for value in text.to_pylist()], pa.binary())


def _from_hex(text: str) -> bytes:
    match = _HEX.fullmatch(text)
    if match is None:
        raise pa.ArrowInvalid(text)
    return bytes.fromhex(match[1])


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise pa.ArrowInvalid(text) from error


_DECODERS: dict[str, Callable[[str], bytes]] = {"hex": _from_hex, "base64": _from_base64, "utf8": str.encode}
_SIMPLE: dict[str, Convert] = {
    "boolean": _booleans, "date": _dates, "timestamp": _instants, "timestamp_ntz": _local_times, "time": _times,
}  # fmt: skip
