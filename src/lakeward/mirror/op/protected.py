"""The column policy of a table applied to rows that are already in Spark, and not just being read from landing.

These are another copy of the table, which has the source's own values, and rows that were stored before the policy.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakeward import schemas as S
from lakeward.column_policy import MASK, ColumnPolicy, RuleKind, hashed_names
from lakeward.formats.dms.protection import hashes
from lakeward.formats.dms.values import parse_text
from lakeward.spark.marks import in_task
from lakeward.transforms.columns import column

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from lakeward.column_policy import ColumnRule, Rules


def protected_rows(
    rows: DataFrame, policy: ColumnPolicy, types: Mapping[str, str | None], *, is_text: bool
) -> DataFrame:
    """Return rows with the values of each rule's column replaced as in the mirror; names may differ in case.

    ``types`` are the types at the source of hashed columns, which values are converted to where they are text.
    """
    by_lower = {name.lower(): rule for name, rule in policy.rules.items()}
    shown = [_replaced(name, by_lower.get(name.lower())) for name in rows.columns]
    replaced = rows.select(*shown)
    wanted = {name.lower(): types.get(name) for name in hashed_names(policy.rules)}
    found = {name: wanted[name.lower()] for name in rows.columns if name.lower() in wanted}
    return _hashed(replaced, found, policy.key, is_text=is_text) if found and policy.key is not None else replaced


def _replaced(name: str, rule: ColumnRule | None) -> SparkColumn:
    own = column(name)
    if rule is not None and rule.kind is RuleKind.REDACT:
        return F.lit(None).alias(name)
    if rule is not None and rule.kind is RuleKind.MASK:
        return F.when(own.isNotNull(), F.lit(MASK)).alias(name)
    if rule is not None and rule.length is not None:
        return F.substring(own.cast("string"), 1, rule.length).alias(name)
    return own


def _hashed(rows: DataFrame, types: Mapping[str, str | None], key: bytes, *, is_text: bool) -> DataFrame:
    fields = [T.StructField(field.name, T.StringType()) if field.name in types else field for field in rows.schema]

    def convert(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            arrays = [
                _hashes(values, types[name], key, is_text=is_text) if name in types else values
                for name, values in zip(batch.schema.names, batch.columns, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)

    return rows.mapInArrow(in_task(convert), T.StructType(fields))


def _hashes(values: pa.Array, source: str | None, key: bytes, *, is_text: bool) -> pa.Array:
    """Return hashes; a text that is no value of the source's type is hashed as it is, and so equals nothing."""
    if not is_text or source is None or source == "string":
        return hashes(values, key)
    cells = parse_text(values, source)
    parsed = hashes(cells.values, key)
    return parsed if cells.failed is None else pa.compute.coalesce(parsed, hashes(values, key))


# Values that were stored before their column had its rule.
# Whether a value still has to be replaced is seen from the value alone, so that replacing can be repeated after a crash
# and proved by a scan. Only a hash could be taken for a value: stored values must not look like hashes.


_HASH = "^[0-9a-f]{64}$"


def has_stored_value(rules: Rules) -> SparkColumn:
    """Return the condition for rows with a value that its column's rule has not replaced yet."""
    found = [_is_stored_value(column(name), rule) for name, rule in rules.items()]
    return reduce(lambda left, right: left | right, found, F.lit(False))


def _is_stored_value(own: SparkColumn, rule: ColumnRule) -> SparkColumn:
    text = own.cast("string")
    if rule.kind is RuleKind.MASK:
        return own.isNotNull() & (text != MASK)
    if rule.kind is RuleKind.HASH:
        return own.isNotNull() & ~text.rlike(_HASH)
    if rule.length is not None:
        return own.isNotNull() & (F.length(text) > rule.length)
    return own.isNotNull()


def looks_hashed(names: Collection[str], rules: Rules) -> SparkColumn:
    """Return the condition for rows with a value that is to be hashed and looks like a hash."""
    found = [column(name).rlike(_HASH) for name in hashed_names(rules) if name in names]
    return reduce(lambda left, right: left | right, found, F.lit(False))


def without_stored_values(rows: DataFrame, policy: ColumnPolicy) -> DataFrame:
    """Return rows with those values replaced that :func:`has_stored_value` finds, in the columns that rows have.

    Values of dropped columns become NULL: the column itself is dropped later.
    """
    gone = [name for name, rule in policy.rules.items() if rule.kind is RuleKind.DROP and name in rows.columns]
    rows = rows.withColumns({name: F.lit(None).cast(rows.schema[name].dataType) for name in gone})
    rules = {name: rule for name, rule in policy.rules.items() if name in rows.columns and name not in gone}
    kept = {name: f"{S.PREFIX}kept_{number}" for number, name in enumerate(hashed_names(rules))}
    rows = rows.withColumns({to: F.when(column(name).rlike(_HASH), column(name)) for name, to in kept.items()})
    rows = rows.withColumns({name: F.when(column(to).isNull(), column(name)) for name, to in kept.items()})
    done = protected_rows(rows, ColumnPolicy(rules, policy.key), {}, is_text=False)
    whole = {name: F.coalesce(column(name), column(to)) for name, to in kept.items()}
    return done.withColumns(whole).drop(*kept.values())
