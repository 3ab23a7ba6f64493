"""Conditions on the rows of a table, in SQL, which Spark evaluates.

A condition is never part of a statement that is sent to a cluster. Its columns have the types of SQL: a ``timestamp``
is a timestamp, a ``date`` a date, a ``decimal`` a ``decimal(38,18)`` and a ``varint`` a ``decimal(38,0)``; all others
are as in a snapshot. A value that does not fit its type exactly ends the job, and is not compared as another value. A
row meets a condition only where it is true: neither false nor null.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from lakeward.cassandra.values import spark_type
from lakeward.columns import quote_name
from lakeward.diffing.frames.refusals import refusal
from lakeward.errors import ConfigurationError
from lakeward.session.statements import unsafe_part
from lakeward.spark import signs
from lakeward.spark.errors import Failure, spark_faults, translated
from lakeward.spark.refusals import refused_row
from lakeward.transforms.columns import column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import Column, SparkSession

    from lakeward.cassandra.schema import CqlColumn, TableSchema
    from lakeward.errors import LakewardError

_EXAMPLE = "--where \"day < '2026-01-01' AND status = 'expired'\"   (in SQL)"
# The first and the last millisecond that a timestamp of Spark, which counts microseconds, can hold.
_MOST_MILLIS = (2**63 - 1) // 1_000
_SHOWN = 100


@dataclass(frozen=True)
class Condition:
    """A condition, and the columns that it reads."""

    text: str
    columns: tuple[str, ...]

    @property
    def holds(self) -> Column:
        """Whether a row with columns from :func:`sql_value` meets the condition."""
        return F.coalesce(F.expr(self.text), F.lit(False))

    @contextmanager
    def errors(self, what: str) -> Iterator[None]:
        """Translate errors of a query that evaluates the condition on the rows of ``what``.

        Raises:
            RefusedInputError: a value does not fit the type that it has in SQL.
            ConfigurationError: the condition fails at a row.
        """

        def failed(failure: Failure) -> LakewardError | None:
            found = signs.CONDITION.search(failure.message)
            msg = f"the condition {self.text!r} fails at a row of {what}: {found[0].strip()}" if found else None
            return ConfigurationError(msg, hint=_EXAMPLE) if msg is not None else None

        with translated(refused_row("leave such rows out: try_cast, or a condition before it"), *spark_faults(what),
                        failed):  # fmt: skip
            yield


def parse_condition(spark: SparkSession, schema: TableSchema, text: str) -> Condition:
    """Return a condition on a table, after Spark has analysed it; nothing is run.

    Raises:
        ConfigurationError: it cannot be parsed, is no condition on one row of the table, changes from call to call, or
            calls more than Spark's own functions.
    """
    # An own row of nulls: only the types matter.
    values = [F.lit(None).cast(spark_type(own.type, key=own.kind.is_key)).alias(own.name) for own in schema.columns]
    raw = spark.range(0).select(*values)
    typed = raw.select(*[sql_value(own).alias(own.name) for own in schema.columns])
    try:
        plan: Any = typed.filter(F.expr(text))._jdf.queryExecution().analyzed()
    except PySparkException as error:
        found = signs.CONDITION.search(str(error))
        reason = found[0].strip() if found else Failure(error).headline
        msg = f"{schema.name}: the condition {text!r} is not valid: {reason}"
        raise ConfigurationError(msg, hint=_EXAMPLE) from error
    if (wrong := _unfit(plan)) is not None:
        msg = f"{schema.name}: the condition {text!r} {wrong}"
        raise ConfigurationError(msg, hint=_EXAMPLE)
    read = set(_names(plan.condition()))
    return Condition(text, tuple(own.name for own in schema.columns if own.name in read))


def _unfit(plan: Any) -> str | None:
    """Return why an analysed plan is not that of a condition on a row; None if it is."""
    if str(plan.nodeName()) != "Filter":
        return "is more than a condition on a row"
    condition = plan.condition()
    if not plan.subqueries().isEmpty():
        return "reads other tables"
    if (what := unsafe_part(condition)) is not None:
        return f"calls {what}; only Spark's own functions may be called"
    return None if condition.deterministic() else "is not the same each time it is evaluated"


def _names(expression: Any) -> Iterator[str]:
    found = expression.references().iterator()
    while found.hasNext():
        yield str(found.next().name())


def sql_value(own: CqlColumn) -> Column:
    """Return the value of a column of a snapshot in its type in SQL."""
    make = {} if own.type.parameters else _TYPED
    return make.get(own.type.name, column)(own.name)


def _timestamp(name: str) -> Column:
    fits = column(name).between(F.lit(-_MOST_MILLIS), F.lit(_MOST_MILLIS))
    return _exact(name, fits, F.timestamp_millis(F.when(fits, column(name))), "timestamp")


def _date(name: str) -> Column:
    return F.date_from_unix_date(column(name))


def _number(name: str, scale: int) -> Column:
    text, kind = column(name), f"decimal(38,{scale})"
    value = F.expr(f"try_cast({quote_name(name)} AS {kind})")
    exponent = F.expr(f"coalesce(try_cast(regexp_extract({quote_name(name)}, '[eE]([+-]?[0-9]+)$', 1) AS int), 0)")
    places = F.length(F.regexp_extract(text, r"\.([0-9]+)", 1)) - exponent
    return _exact(name, value.isNotNull() & (places <= scale), value, kind)


def _exact(name: str, fits: Column, value: Column, kind: str) -> Column:
    """Return a value that fits; another one ends the job."""
    shown = F.substring(column(name).cast("string"), 1, _SHOWN)
    unfit = refusal(f"the column {name} holds ", shown, f", which is not a {kind}: the condition cannot be evaluated")
    return F.when(column(name).isNull() | fits, value).when(unfit, value)


_TYPED: dict[str, Callable[[str], Column]] = {
    "timestamp": _timestamp,
    "date": _date,
    "decimal": partial(_number, scale=18),
    "varint": partial(_number, scale=0),
}
