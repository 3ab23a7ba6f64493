"""The column policy of a table applied to another copy of it, which has the source's own values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakeward.column_policy import MASK, RuleKind, hashed_names
from lakeward.formats.dms.protection import hashes
from lakeward.formats.dms.values import parse_text
from lakeward.spark.marks import in_task
from lakeward.transforms.columns import column

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from lakeward.column_policy import ColumnPolicy, ColumnRule


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
