"""Change sets in JSON and CSV that say nothing of their types: their values are read by those of the target.

Times are in such files as Spark writes them (``2026-11-15T10:30:00.000Z``, ``2026-11-15``), as CQL does (a time of day
is ``10:30:00.5``), or as the numbers that a snapshot holds. Which of them a value is shows in the value: Spark itself
would take a number for seconds, where a snapshot has milliseconds. Numbers of any size are taken as they are written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakeward.cassandra.types import spark_type
from lakeward.datatypes import quote_name
from lakeward.diffing.inputs.files import format_of_name
from lakeward.diffing.refusals import unfit_value
from lakeward.errors import RefusedInputError
from lakeward.transforms.columns import column

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column, DataFrame

    from lakeward.cassandra.schema import TableSchema
    from lakeward.diffing.options import DiffOptions

_NUMBER = r"^-?\d{1,19}$"
_TIME = r"^([01]?\d|2[0-3]):([0-5]\d):([0-5]\d)(?:\.(\d{1,9}))?$"
_SHOWN = 100


def text_struct(target: TableSchema) -> T.StructType:
    """Return the columns of a table as they are read from JSON or CSV: times as texts, all others as a snapshot."""
    return T.StructType(
        [
            T.StructField(
                one.name, T.StringType() if one.type.name in _READ else spark_type(one.type, key=one.kind.is_key)
            )
            for one in target.columns
        ]
    )


def require_told_bytes(target: TableSchema, paths: Iterable[str], label: str) -> None:
    """Refuse blobs in CSV: nothing says how their bytes are written.

    Raises:
        RefusedInputError: naming the columns.
    """
    blobs = [one.name for one in target.columns if one.type.name == "blob"]
    if blobs and any(format_of_name(path) == "csv" for path in paths):
        msg = f"{label} is CSV, which does not say how the bytes of {', '.join(blobs)} are written"
        raise RefusedInputError(msg, hint="write it as JSON (in base64) or Parquet")


def typed(frame: DataFrame, target: TableSchema, options: DiffOptions) -> DataFrame:
    """Return a change set with the texts of times as a snapshot has them; a text that is none makes the job fail."""
    sides = (options.left_column_prefix, options.right_column_prefix)
    kinds = {f"{side}_{one.name}": one.type.name for one in target.columns for side in sides if not one.kind.is_key}
    kinds.update({one.name: one.type.name for one in target.columns if one.kind.is_key})
    return frame.select(
        *[
            _READ[kinds[one.name]](one.name).alias(one.name)
            if isinstance(one.dataType, T.StringType) and kinds.get(one.name) in _READ
            else column(one.name)
            for one in frame.schema.fields
        ]
    )


def _timestamp(name: str) -> Column:
    moment = F.expr(f"try_cast({quote_name(name)} AS timestamp)")
    # Cassandra counts milliseconds: a finer time would become another one.
    is_whole = F.unix_micros(moment) % 1_000 == 0
    return _either(name, F.when(is_whole, F.unix_millis(moment)), "bigint", "timestamp of milliseconds")


def _date(name: str) -> Column:
    return _either(name, F.unix_date(F.expr(f"try_cast({quote_name(name)} AS date)")), "int", "date")


def _time(name: str) -> Column:
    part = [F.regexp_extract(column(name), _TIME, number) for number in (1, 2, 3, 4)]
    hours, minutes, seconds = (one.cast("bigint") for one in part[:3])
    nanoseconds = F.rpad(part[3], 9, "0").cast("bigint")
    whole = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000_000 + nanoseconds
    return _either(name, F.when(column(name).rlike(_TIME), whole), "bigint", "time")


def _either(name: str, read: Column, number: str, what: str) -> Column:
    """Return a number as it is, and any other text as it is read; null where there is none."""
    text = column(name)
    value = F.when(text.rlike(_NUMBER), F.expr(f"try_cast({quote_name(name)} AS {number})")).otherwise(read)
    shown = F.substring(text, 1, _SHOWN)
    unfit = unfit_value(F.lit(f"the column {name} holds '"), shown, F.lit(f"', which is no {what}"))
    return F.when(text.isNull() | value.isNotNull(), value).when(unfit, value)


_READ = {"timestamp": _timestamp, "date": _date, "time": _time}
