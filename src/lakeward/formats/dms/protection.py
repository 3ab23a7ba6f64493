"""Column policy in the reader: values are replaced as they are parsed, so that none leaves the task that read it.

The canonical bytes of a value, of which its hash is made, are those of a plain text: the same value has the same hash
in CSV and Parquet, before and after its column was widened, and anybody who has the key can compute it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lakeward.column_policy import MASK, RuleKind, hashed
from lakeward.errors import BugError
from lakeward.formats.dms.files import UnusableFileError
from lakeward.formats.dms.values import Cells, arrow_type, parse_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakeward.column_policy import ColumnPolicy, ColumnRule
    from lakeward.columns import Column
    from lakeward.formats.base import ReadSpec


def read_text(text: pa.Array, column: Column, spec: ReadSpec) -> Cells:
    """Return a column of texts as the lake stores it; ``column`` has the type it is read with."""
    return protected(text, column, spec.policy, lambda: parse_text(text, column.type, spec.settings.csv.binary))


def protected(source: pa.Array, column: Column, policy: ColumnPolicy, parse: Callable[[], Cells]) -> Cells:
    """Return a column's values after its rule; values that a rule does not need are not parsed.

    Raises:
        UnusableFileError: the column is hashed, and its type at the source is not known.
    """
    rule = policy.rule(column.name)
    if rule is None:
        return parse()
    if rule.needs_no_value:
        return Cells(_without_values(source, column, rule), source)
    if not column.type:
        msg = f"the type of the hashed column {column.name} is not known: declare it in schema:"
        raise UnusableFileError(msg)
    cells = parse()
    return replace(cells, values=_applied(cells.values, rule, policy.key))


def _without_values(source: pa.Array, column: Column, rule: ColumnRule) -> pa.Array:
    if rule.kind is RuleKind.REDACT:
        return pa.nulls(len(source), arrow_type(column.lake_type))
    return pc.if_else(source.is_valid(), pa.scalar(MASK), pa.nulls(len(source), pa.string()))


def _applied(values: pa.Array, rule: ColumnRule, key: bytes | None) -> pa.Array:
    if rule.kind is RuleKind.TRUNCATE:
        return pc.utf8_slice_codeunits(values, 0, rule.length)
    if key is None:
        msg = f"the rule {rule.text} has no key"
        raise BugError(msg)
    return hashes(values, key)


def hashes(values: pa.Array, key: bytes) -> pa.Array:
    """Return the hash of each value, null for null; a repeated value is hashed once."""
    encoded = values.dictionary_encode()
    texts = pa.array([hashed(key, value) for value in canonical(encoded.dictionary)], pa.string())
    return texts.take(encoded.indices)


def canonical(values: pa.Array) -> Iterator[bytes]:
    """Yield the canonical bytes of values without nulls, in their lake types.

    Numbers are written without surplus zeros, so that 7, 7.0 and 7.00 of integers and decimals are one value; times
    with six digits of a second, in UTC; bytes and texts are themselves.
    """
    if pa.types.is_binary(values.type):
        yield from values.to_pylist()
        return
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("us")).cast(pa.string())
    for value in values.to_pylist():
        yield _plain_text(value, values.type).encode()


def _plain_text(value: Any, data_type: pa.DataType) -> str:
    if pa.types.is_boolean(data_type):
        return "true" if value else "false"
    if pa.types.is_decimal(data_type):
        text = format(value, "f")
        return text.rstrip("0").rstrip(".") if "." in text else text
    if pa.types.is_floating(data_type):
        return repr(value + 0.0)  # of the two zeros, which are equal, the positive one
    return value.isoformat() if pa.types.is_date(data_type) else str(value)
