"""CSV files as rows: names in the first line, quotes doubled inside quotes, an empty field for null.

Fields are read as texts and typed afterwards. Many exports quote every field, so that ``""`` is an empty text where the
column holds texts or bytes, and null where it holds anything else. Spark takes it for a value that does not fit there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakeward.datatypes import quote_name
from lakeward.diffing.refusals import unfit_value
from lakeward.errors import ConfigurationError, RefusedInputError
from lakeward.snapshots.versions.layouts import EMPTY_TEXT
from lakeward.transforms.columns import column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame, DataFrameReader

OPTIONS = {
    "mode": "FAILFAST",
    "header": "true",
    # Each file's first line is held against that of the first one: a column in another place is told, not taken for
    # its neighbour.
    "enforceSchema": "false",
    "escape": '"',
    # Quotes that are escaped by a backslash, as Spark does by itself, would come out as garbage.
    "unescapedQuoteHandling": "RAISE_ERROR",
    "multiLine": "true",
    "emptyValue": EMPTY_TEXT,
}
_SHOWN_LENGTH = 100


def read_csv(
    reader: DataFrameReader, path: str, first: str, struct: T.StructType, folders: Sequence[str], label: str
) -> DataFrame:
    """Read files with the columns of a schema, found by the names in the first line, then those that folders tell.

    ``reader`` has :data:`OPTIONS`, ``first`` is one of the files, ``folders`` are columns that folders tell.

    Raises:
        ConfigurationError: the schema has nested columns.
        RefusedInputError: the first line has other names than the schema.
    """
    if nested := [f"{one.name} {one.dataType.simpleString()}" for one in struct if not _is_flat(one.dataType)]:
        msg = f"CSV cannot hold nested values: {', '.join(nested)}"
        raise ConfigurationError(msg, hint="say 'string' for such a column: it is compared as the text that it is")
    names = reader.load(first).columns
    _require_names(names, [one.name for one in struct if one.name not in folders], label)
    texts = [T.StructField(name, T.StringType()) for name in (*names, *(one for one in folders if one in struct.names))]
    rows = reader.schema(T.StructType(texts)).load(path)
    others = [column(name) for name in rows.columns if name not in struct.names]
    return rows.select(*[_typed(one) for one in struct], *others)


def _is_flat(data_type: T.DataType) -> bool:
    return isinstance(data_type, T.AtomicType)


def _require_names(found: Sequence[str], expected: Sequence[str], label: str) -> None:
    if sorted(found) != sorted(expected):
        msg = f"{label}: the first line has {', '.join(found) or 'nothing'}, the schema has {', '.join(expected)}"
        raise RefusedInputError(msg, hint="the first line must name the columns of --schema, in any order")


def _typed(one: T.StructField) -> Column:
    text, kind = column(one.name), one.dataType
    is_empty = text == F.lit(EMPTY_TEXT)
    if isinstance(kind, T.StringType | T.BinaryType):
        return F.when(is_empty, F.lit("")).otherwise(text).cast(kind).alias(one.name)
    # An expression of text, as older versions of Spark have no method for it.
    value = F.expr(f"try_cast({quote_name(one.name)} AS {kind.simpleString()})")
    shown = F.substring(text, 1, _SHOWN_LENGTH)
    unfit = unfit_value(F.input_file_name(), F.lit(f": column {one.name} holds '"), shown, F.lit("', which is no "
                        f"{kind.simpleString()}"))  # fmt: skip
    return F.when(text.isNull() | is_empty | value.isNotNull(), value).when(unfit, value).alias(one.name)
