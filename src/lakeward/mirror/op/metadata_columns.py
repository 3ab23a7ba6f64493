"""Columns of a mirror that hold where each row comes from: operation, commit time, op number and file.

They are derived from a change's own fields when it is read, and from then on stored, folded and compared like the
source's columns. Every change sets them, partial ones too; where rows are told apart by content they do not count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakeward import schemas as S
from lakeward.columns import Column
from lakeward.transforms.columns import column, columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from lakeward.config import TableSettings

# The type of each kind of metadata column, and the field of a record that it repeats; op numbers come with the op.
_TYPES = {"op": "string", "commit_time": "timestamp", "op_number": "bigint", "file": "string"}
_FIELDS = {"op": S.OPERATION, "commit_time": S.COMMIT_TIME, "file": S.FILE}


def metadata_columns(settings: TableSettings) -> tuple[Column, ...]:
    """Return the metadata columns that the settings ask for."""
    return tuple(Column(name, _TYPES[kind]) for kind, name in settings.metadata_columns.names().items())


def source_columns(present: Iterable[Column], settings: TableSettings) -> tuple[Column, ...]:
    """Return the columns without the metadata columns."""
    return tuple(field for field in present if field.name not in settings.metadata_columns.listed)


def source_names(names: Iterable[str], settings: TableSettings) -> tuple[str, ...]:
    """Return the names without those of metadata columns."""
    return tuple(name for name in names if name not in settings.metadata_columns.listed)


def with_metadata_columns(
    source: Sequence[Column], mirror: Sequence[Column], settings: TableSettings
) -> tuple[Column, ...]:
    """Return all columns of a table: metadata columns keep their position in the mirror, new ones come last.

    ``source`` begins with the mirror's own source columns, in the mirror's order.
    """
    own = {field.name: field for field in metadata_columns(settings)}
    merged = list(source)
    for at, field in enumerate(mirror):
        if field.name in own:
            merged.insert(at, own.pop(field.name))
    return (*merged, *own.values())


def with_metadata(records: DataFrame, wanted: Sequence[Column], settings: TableSettings, op: SparkColumn) -> DataFrame:
    """Return records with ``wanted`` columns after their own fields; metadata columns are set for changes alone."""
    kinds = settings.metadata_columns.names()
    if not kinds:
        return records
    is_change = column(S.KIND) == S.KIND_CHANGE
    values = {name: op.cast("long") if kind == "op_number" else column(_FIELDS[kind]) for kind, name in kinds.items()}
    found = records.withColumns({name: F.when(is_change, value) for name, value in values.items()})
    names = {field.name for field in wanted}
    own = [name for name in records.columns if name not in names]
    return found.select(*columns(own), *columns(field.name for field in wanted))
