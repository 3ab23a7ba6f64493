"""Partition folders of a lake that another system wrote: ``dept=toys/part-00000.parquet``.

Spark writes the values of partition columns into the names of folders, and there alone: as text, with ``%XX`` for
characters that paths reserve, and with one name for NULL and the empty text. Their types are not in the lake.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa

from lakeward.formats.dms.files import UnusableFileError
from lakeward.formats.dms.values import INTEGER_RANGE, arrow_type, parse_text, to_mask

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.columns import Column
    from lakeward.formats.base import ReadSpec

# The name of the folder for NULL, and for the empty text.
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_INTEGER = re.compile(r"0|-?[1-9][0-9]*", re.ASCII)


def folder_texts(path: str) -> dict[str, str]:
    """Return the values in a path's folders by column, as text; :data:`NO_VALUE` stays as it is.

    Raises:
        UnusableFileError: a folder is not ``name=value``, or a column occurs twice.
    """
    found: dict[str, str] = {}
    for folder in path.split("/")[:-1]:
        name, equals, value = folder.partition("=")
        if not (name and equals):
            msg = f"its folder {folder!r} is not a partition folder; expected name=value"
            raise UnusableFileError(msg)
        column = unquote(name)
        if column in found:
            msg = f"two of its folders hold a value of column {column!r}"
            raise UnusableFileError(msg)
        found[column] = unquote(value)
    return found


def folder_values(path: str, spec: ReadSpec) -> dict[str, pa.Scalar]:
    """Return the values in a path's folders by column of the table, with the types that the table has.

    Raises:
        UnusableFileError: the type of a column is unknown, or a value is not one of its type.
    """
    types = {column.name: column for column in spec.columns}
    found = {}
    for name, text in folder_texts(path).items():
        renamed = spec.settings.renames.get(name, name)
        if renamed not in types:
            msg = f"the type of partition column {renamed!r} is unknown: folders hold texts only"
            raise UnusableFileError(msg)
        found[name] = _value(text, types[renamed], spec)
    return found


def with_folder_columns(schema: pa.Schema, values: Mapping[str, pa.Scalar]) -> pa.Schema:
    """Return a file's schema with the columns of its folders.

    Raises:
        UnusableFileError: the file has such a column itself.
    """
    if both := sorted(values.keys() & {*schema.names}):
        msg = f"columns {', '.join(both)} are in the file and in the names of its folders"
        raise UnusableFileError(msg)
    for name, value in values.items():
        schema = schema.append(pa.field(name, value.type))
    return schema


def _value(text: str, column: Column, spec: ReadSpec) -> pa.Scalar:
    target = arrow_type(column.lake_type)
    adopt = spec.settings.adopt
    if text == NO_VALUE:
        if column.type != "string":
            return pa.scalar(None, target)
        meaning = adopt.empty_partition if adopt is not None else None
        if meaning is None:
            msg = (
                f"the folder {column.name}={NO_VALUE} holds rows with NULL and rows with the empty text alike: "
                "adopt.empty_partition decides which it was (null or empty)"
            )
            raise UnusableFileError(msg)
        return pa.scalar("" if meaning == "empty" else None, target)
    cells = parse_text(pa.array([text], pa.string()), column.type)
    # A number is never written with leading zeros: such a text is not a value of this type.
    is_odd = column.type in INTEGER_RANGE and not _INTEGER.fullmatch(text)
    if is_odd or (cells.failed is not None and bool(cells.failed[0])) or bool(to_mask(cells.values.is_null())[0]):
        msg = f"the value {text!r} in its folder is not one of column {column.name}, which is {column.type}"
        raise UnusableFileError(msg)
    return cells.values[0]
