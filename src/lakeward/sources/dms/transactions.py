"""Transaction files: ``op,table_name,schema_name,field…`` of many tables in one headerless CSV file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.sources.dms.problems import UnusableFileError
from lakeward.sources.dms.tokens import Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lakeward.sources.base import ReadSpec

_LEADING = 3


def source_names(spec: ReadSpec) -> tuple[str, str]:
    """Give the (schema, table) names that the source knows the table by: its folder's, where one is set."""
    parts = (spec.settings.path or "").strip("/").split("/")
    return (parts[-2], parts[-1]) if len(parts) > 1 else (spec.table.schema, spec.table.name)


def rows_of_table(records: Iterable[tuple[int, Record]], spec: ReadSpec) -> Iterator[tuple[int, Record]]:
    """Give one table's records as ``op, field…``, with their numbers in the whole file and their whole text."""
    schema, table = source_names(spec)
    for row, record in records:
        if len(record.fields) < _LEADING:
            msg = f"record {row} has {len(record.fields)} fields; expected op, table name, schema name and values"
            raise UnusableFileError(msg)
        if record.fields[1] == table and record.fields[2] == schema:
            yield row, without_names(record)


def without_names(record: Record) -> Record:
    """Leave out the table's and schema's names."""
    return Record([record.fields[0], *record.fields[_LEADING:]], record.text, record.is_closed)
