"""The columns under which each op read its files, told from the changelog's own metadata.

A file is read again as it was read then: under later columns a row that was whole would leave some unspoken, and a
headerless record would not fit at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakeward.datatypes import Column, format_ddl
from lakeward.lake.iceberg.define import LOGGED_STAMP
from lakeward.lake.iceberg.types import lake_columns
from lakeward.sources.base import ReadSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lakeward.config import TableSettings
    from lakeward.lake.iceberg.metadata import TableMetadata
    from lakeward.model import OrderBy, TableId


@dataclass(frozen=True)
class OpColumns:
    """Columns that ops ``first`` to ``last`` were read under, by their names of now."""

    first: int
    last: int
    columns: tuple[Column, ...]


@dataclass(frozen=True)
class PastSpecs:
    """How the files of each op are read again. Pickled into Spark tasks."""

    spans: tuple[tuple[int, int, ReadSpec], ...]

    def at(self, op: int) -> ReadSpec | None:
        """Give the way to read an op's files, None where it is no longer known."""
        return next((spec for first, last, spec in self.spans if first <= op <= last), None)


def past_specs(
    table: TableId, spans: Iterable[OpColumns], settings: TableSettings, order_by: OrderBy | None
) -> PastSpecs:
    """Give how to read the files of each op: today's settings, with the columns of the op's day."""
    found = []
    for span in spans:
        columns = _as_declared(span.columns, settings)
        found.append((span.first, span.last, ReadSpec(table, columns, _settings_of(columns, settings), order_by)))
    return PastSpecs(tuple(found))


def op_columns(changelog: TableMetadata, last: int) -> list[OpColumns]:
    """Give the columns of ops up to ``last`` in spans; an op between two that had different columns may be missing."""
    schemas = changelog.schemas()
    now = {one["id"]: one["name"] for one in max(schemas.values(), key=lambda one: one["schema-id"])["fields"]}
    known = {number: _named_now(schema, now) for number, schema in schemas.items()}
    by_op: dict[int, int] = {}
    for one in changelog.snapshots().values():
        op = int(one.summary.get(LOGGED_STAMP, 0))
        if one.schema_id is not None and 0 < op <= last:
            # Maintenance repeats an op's stamp, under the columns of a later day.
            by_op[op] = min(one.schema_id, by_op.get(op, one.schema_id))
    return _spans({op: known[schema] for op, schema in by_op.items()}, known[min(known)])


def _spans(by_op: Mapping[int, tuple[Column, ...]], first: tuple[Column, ...]) -> list[OpColumns]:
    """Join ops to spans. Columns never go back: between two ops that had the same, all ops had."""
    spans: list[OpColumns] = []
    # Before op 1 the table had its first columns: where the oldest op that is kept still has them, all before it did.
    for op, columns in sorted({0: first, **by_op}.items()):
        if spans and spans[-1].columns == columns:
            spans[-1] = OpColumns(spans[-1].first, op, columns)
        else:
            spans.append(OpColumns(op, op, columns))
    return spans


def _named_now(schema: Mapping[str, Any], now: Mapping[int, str]) -> tuple[Column, ...]:
    """Give a schema's columns under their names of now."""
    ids = {one["name"]: one["id"] for one in schema["fields"]}
    return tuple(Column(now[ids[one.name]], one.type) for one in lake_columns(schema))


def _as_declared(columns: tuple[Column, ...], settings: TableSettings) -> tuple[Column, ...]:
    """Give columns the types they are declared with, which are narrower than the lake's where Iceberg has no room."""
    declared = {one.name: one for one in settings.columns or ()}
    found = ((declared.get(one.name, one), one) for one in columns)
    return tuple(wanted if wanted.lake_type == stored.type else stored for wanted, stored in found)


def _settings_of(columns: tuple[Column, ...], settings: TableSettings) -> TableSettings:
    """Declare only the columns of the day: they tell what a headerless record holds."""
    if settings.columns is None:
        return settings
    present = {one.name: one for one in columns}
    declared = tuple(present[one.name] for one in settings.columns if one.name in present)
    return settings.model_copy(update={"table_schema": format_ddl(declared)})
