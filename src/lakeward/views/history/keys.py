"""Row keys as users write them (``id=7``), converted to values of the exact column type."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F

from lakeward.errors import ConfigurationError
from lakeward.formats.dms.values import arrow_type, parse_text
from lakeward.schemas import spark_type
from lakeward.transforms.columns import column

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

    from lakeward.columns import Column

NULL = "NULL"
_HASH = re.compile("[0-9a-f]{64}")
_QUOTE = "'"


@dataclass(frozen=True)
class RowKey:
    """The key of one row: Arrow values by column, in the order of the table's key."""

    values: Mapping[str, pa.Scalar]
    types: Mapping[str, str]

    def matches(self) -> SparkColumn:
        """Return the condition for rows of this key: a plain comparison with literals, by which Iceberg skips files."""
        conditions = [
            column(name).isNull() if not value.is_valid else column(name) == self._literal(name)
            for name, value in self.values.items()
        ]
        return reduce(lambda left, right: left & right, conditions)

    def frame(self, spark: SparkSession) -> DataFrame:
        """Return the key as a frame of one row."""
        return spark.range(1).select(*[self._literal(name).alias(name) for name in self.values])

    def is_text(self, texts: Mapping[str, str | None], binary: str) -> bool:
        """Whether texts, as read from a file, are this key."""
        return all(name in texts and self._is_value(name, texts[name], binary) for name in self.values)

    def shown(self) -> dict[str, Any]:
        """Return the key as plain values: numbers and text as they are, times as ISO text."""
        return {name: _plain(value) for name, value in self.values.items()}

    def _is_value(self, name: str, text: str | None, binary: str) -> bool:
        if text is None:
            return not self.values[name].is_valid
        cells = parse_text(pa.array([text], pa.string()), self.types[name], binary)
        return cells.failed is None and cells.values[0] == self.values[name]

    def _literal(self, name: str) -> SparkColumn:
        value, data_type = self.values[name], spark_type(self.types[name])
        if not value.is_valid:
            return F.lit(None).cast(data_type)
        if pa.types.is_timestamp(value.type):
            instant = F.timestamp_micros(F.lit(value.value))
            # A time without a zone stores its microseconds as if it were UTC.
            return instant if value.type.tz else F.lit(_plain(value)).cast(data_type)
        return F.lit(value.as_py()).cast(data_type)


def read_assignments(texts: Iterable[str]) -> dict[str, str | None]:
    """Read ``id=7`` and ``code='NULL'``; an unquoted NULL means that there is no value.

    Raises:
        ConfigurationError: a text is not an assignment, or a column is named twice.
    """
    found: dict[str, str | None] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name or name in found:
            what = f"names {name} again" if name in found else "is not COLUMN=VALUE"
            msg = f"--key {text!r} {what}"
            raise ConfigurationError(msg, hint="--key id=7, one for each key column")
        found[name] = None if value == NULL else _unquoted(value)
    return found


def row_key(table: object, columns: Sequence[Column], keys: Sequence[str], given: Mapping[str, Any]) -> RowKey:
    """Build a key from values by column: texts are parsed as the column's type, other values are converted exactly.

    Raises:
        ConfigurationError: columns are missing or unknown, or a value does not fit.
    """
    if not keys:
        msg = f"{table} has no primary key: its rows cannot be identified"
        raise ConfigurationError(msg, hint=f"lakeward changes {table} lists its rows as they came")
    if set(given) != set(keys):
        msg = f"the key of {table} is {', '.join(keys)}; found {', '.join(given) or 'none'}"
        raise ConfigurationError(msg, hint=" ".join(f"--key {name}=…" for name in keys))
    types = {lake_column.name: lake_column.lake_type for lake_column in columns}
    hashed = {lake_column.name for lake_column in columns if lake_column.source is not None}
    for name in hashed & {*keys}:
        _require_hash(table, name, given[name])
    values = {name: _value(table, name, types[name], given[name]) for name in keys}
    return RowKey(values, {name: types[name] for name in keys})


def _require_hash(table: object, name: str, given: Any) -> None:
    """Refuse a value of the source for a hashed column: the row would not be found, whether it is there or not."""
    if given is not None and not (isinstance(given, str) and _HASH.fullmatch(given)):
        msg = f"{table}: the key column {name} holds hashes (columns:); expected 64 hexadecimal digits"
        raise ConfigurationError(msg, hint=f"lakeward tables hash {table} {name}   computes those of values it reads")


def _value(table: object, name: str, lake_type: str, given: Any) -> pa.Scalar:
    wanted = arrow_type(lake_type)
    try:
        if not isinstance(given, str) or lake_type == "string":
            return pa.scalar(given, None if given is not None else wanted).cast(wanted)
        cells = parse_text(pa.array([given], pa.string()), lake_type)
        if cells.failed is None:
            return cells.values[0]
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise _no_value(table, name, lake_type, given) from error
    raise _no_value(table, name, lake_type, given)


def _no_value(table: object, name: str, lake_type: str, given: Any) -> ConfigurationError:
    msg = f"{table}: {given!r} is not a value of the key column {name}, which is of type {lake_type}"
    return ConfigurationError(msg, hint=f"--key {name}=VALUE, or {name}=NULL for no value")


def _unquoted(value: str) -> str:
    is_quoted = len(value) > 1 and value.startswith(_QUOTE) and value.endswith(_QUOTE)
    return value[1:-1] if is_quoted else value


def _plain(value: pa.Scalar) -> Any:
    if not value.is_valid:
        return None
    if pa.types.is_timestamp(value.type):
        moment = value.cast(pa.timestamp("us")).as_py()
        return moment.isoformat(timespec="microseconds") + ("Z" if value.type.tz else "")
    if pa.types.is_date(value.type):
        return value.as_py().isoformat()
    return value.as_py()
