"""Recomputing a table's rows from scratch: from its landing files, or from its load and its changelog."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from lakeward import schemas as S
from lakeward.column_policy import as_stored, dropped, of_files
from lakeward.columns import Column, format_ddl
from lakeward.config.policy import rules_of
from lakeward.errors import DataError
from lakeward.formats.base import ReadSpec
from lakeward.iceberg.define import LOGGED_STAMP
from lakeward.iceberg.metadata import lake_columns
from lakeward.mirror.op.erased import is_erased
from lakeward.mirror.op.fold import FoldInput, fold_changes, fold_keyless
from lakeward.mirror.op.metadata_columns import source_columns, with_metadata
from lakeward.model import OpKind
from lakeward.transforms.columns import column, columns, conformed
from lakeward.transforms.fold import (
    is_delete,
    is_from_load,
    is_partial,
    is_standing,
    lacking_keys,
    latest_per_key,
    sortable_load_part,
)
from lakeward.transforms.moves import is_arrival
from lakeward.views.verification.landing import read_files
from lakeward.views.verification.report import Basis

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from lakeward.config import TableSettings
    from lakeward.iceberg.metadata import TableMetadata
    from lakeward.mirror.op.as_of import PointInTime
    from lakeward.model import OrderBy, TableId
    from lakeward.spark.workspace import Workspace
    from lakeward.views.verification.landing import FilesRead


# The columns under which each op read its files, from the metadata of the changelog.
# A file is read again as it was read then: under later columns a complete row would lack values, and a record without
# a header would not fit at all.


@dataclass(frozen=True)
class OpColumns:
    """The columns under which ops ``first`` to ``last`` were read, by their present names."""

    first: int
    last: int
    columns: tuple[Column, ...]


@dataclass(frozen=True)
class PastSpecs:
    """The settings for reading the files of each op again. They are pickled into Spark tasks."""

    spans: tuple[tuple[int, int, ReadSpec], ...]

    def at(self, op: int) -> ReadSpec | None:
        """Return how to read an op's files, None where that is no longer known."""
        return next((spec for first, last, spec in self.spans if first <= op <= last), None)


def past_specs(
    table: TableId, spans: Iterable[OpColumns], settings: TableSettings, order_by: OrderBy | None
) -> PastSpecs:
    """Return how to read the files of each op: with today's settings and the columns at the time of the op."""
    found = []
    for span in spans:
        columns = _as_declared(source_columns(span.columns, settings), settings)
        found.append((span.first, span.last, ReadSpec(table, columns, _settings_of(columns, settings), order_by)))
    return PastSpecs(tuple(found))


def op_columns(changelog: TableMetadata, last: int) -> list[OpColumns]:
    """Return the columns of ops up to ``last`` in spans; ops between two with different columns may be missing."""
    schemas = changelog.schemas()
    newest = max(schemas.values(), key=lambda schema: schema["schema-id"])
    now = {field["id"]: field["name"] for field in newest["fields"]}
    known = {number: _named_now(schema, now) for number, schema in schemas.items()}
    by_op: dict[int, int] = {}
    for snapshot in changelog.snapshots().values():
        op = int(snapshot.summary.get(LOGGED_STAMP, 0))
        if snapshot.schema_id is not None and 0 < op <= last:
            # Maintenance repeats an op's stamp under later columns.
            by_op[op] = min(snapshot.schema_id, by_op.get(op, snapshot.schema_id))
    return _spans({op: known[schema] for op, schema in by_op.items()}, known[min(known)])


def _spans(by_op: Mapping[int, tuple[Column, ...]], first: tuple[Column, ...]) -> list[OpColumns]:
    """Join ops to spans. Columns never change back: all ops between two with the same columns had them too."""
    spans: list[OpColumns] = []
    # The table began with its first columns: where the oldest op that is kept has them, all ops before it had them.
    for op, known in sorted({0: first, **by_op}.items()):
        if spans and spans[-1].columns == known:
            spans[-1] = OpColumns(spans[-1].first, op, known)
        else:
            spans.append(OpColumns(op, op, known))
    return spans


def _named_now(schema: Mapping[str, Any], now: Mapping[int, str]) -> tuple[Column, ...]:
    """Return a schema's columns under their present names, without those that were dropped since."""
    ids = {field["name"]: field["id"] for field in schema["fields"]}
    named = ((now.get(ids[lake_column.name]), lake_column) for lake_column in lake_columns(schema))
    return tuple(Column(name, lake_column.type) for name, lake_column in named if name is not None)


def _as_declared(columns: tuple[Column, ...], settings: TableSettings) -> tuple[Column, ...]:
    """Return columns with their declared types, which are narrower than the lake's where Iceberg lacks the type."""
    rules = rules_of(settings)
    stored_as = as_stored(of_files(settings.columns or (), rules), rules)
    declared = {lake_column.name: lake_column for lake_column in stored_as}
    found = ((declared.get(lake_column.name, lake_column), lake_column) for lake_column in columns)
    return tuple(wanted if wanted.lake_type == stored.type else stored for wanted, stored in found)


def _settings_of(columns: tuple[Column, ...], settings: TableSettings) -> TableSettings:
    """Return settings that declare only these columns, which define the fields of a record without a header.

    The columns that a rule drops have their places in it, too.
    """
    if settings.columns is None:
        return settings
    present, out = {lake_column.name: lake_column for lake_column in columns}, dropped(rules_of(settings))
    declared = tuple(
        present.get(lake_column.name, lake_column)
        for lake_column in settings.columns
        if lake_column.name in present or lake_column.name in out
    )
    return settings.model_copy(update={"table_schema": format_ddl(declared)})


# Changes of these ops are not in any file.
_WITHOUT_FILES = (OpKind.RETRY, OpKind.REPAIR)


@dataclass(frozen=True)
class Origin:
    """The input of a recomputation: the load's rows, each key once, and all changes that were not undone.

    ``rows`` is the approximate number of both.
    """

    load: DataFrame | None
    changes: DataFrame
    rows: int
    basis: Basis
    reason: str


def find_origin(at: PointInTime, workspace: Workspace, wanted: tuple[Column, ...], basis: Basis) -> Origin:
    """Choose what to recompute from: the files where all of them are still as they were consumed.

    Raises:
        DataError: files were requested, and some are gone or changed.
    """
    if basis is Basis.CHANGELOG:
        return _from_changelog(at, wanted, "as requested")
    read = _read_again(at, workspace, wanted)
    if read.problem is None:
        reason = "as requested" if basis is Basis.FILES else "all consumed files are still there, unchanged"
        return _from_files(at, read, wanted, reason)
    if basis is Basis.FILES:
        msg = f"{at.context.table}: {read.problem}"
        raise DataError(msg, hint=f"lakeward verify {at.context.table} --basis changelog")
    return _from_changelog(at, wanted, read.problem)


def recomputed(at: PointInTime, workspace: Workspace, origin: Origin, names: tuple[str, ...]) -> DataFrame:
    """Fold all changes over the load's rows."""
    keys = at.context.settings.primary_key
    load = origin.load
    if not keys:
        source = FoldInput(workspace, origin.changes, origin.rows, (), names)
        inserted = fold_keyless(source, at.generation.order_by).rows.select(*columns(names))
        return inserted if load is None else load.select(*columns(names)).unionByName(inserted)
    partial, moves = origin.changes.agg(F.max(is_partial()), F.max(is_arrival())).collect()[0]
    source = FoldInput(
        workspace, origin.changes, origin.rows, keys, names, bool(partial), bool(moves), load,
        key_moves=at.context.settings.key_moves, table=str(at.context.table),
        metadata=at.context.settings.metadata_columns.listed,
    )  # fmt: skip
    folded = fold_changes(source)
    writes = folded.rows.filter(~is_delete()).select(*columns(names))
    if load is None:
        return writes
    others = lacking_keys(load.select(*columns(names)), folded.rows.select(*columns(keys)), keys=keys)
    return others.unionByName(writes)


def narrowed(origin: Origin, wanted: SparkColumn) -> Origin:
    """Restrict the origin to some keys, unless rows changed their key: then they may come from other keys."""
    if origin.changes.filter(is_arrival()).take(1):
        return origin
    load = origin.load.filter(wanted) if origin.load is not None else None
    return Origin(load, origin.changes.filter(wanted), origin.rows, origin.basis, origin.reason)


def _from_changelog(at: PointInTime, wanted: tuple[Column, ...], reason: str) -> Origin:
    load = at.load_rows()
    loaded = conformed(load, wanted, {}) if load is not None else None
    changes = conformed(at.changes().drop(S.OP), wanted, {})
    rows = (at.load.rows if at.load else 0) + changes.count()
    return Origin(loaded, changes, rows, Basis.CHANGELOG, reason)


def _read_again(at: PointInTime, workspace: Workspace, wanted: tuple[Column, ...]) -> FilesRead:
    context = at.context
    sources = {lake_column.name: lake_column.source for lake_column in at.bases.columns}
    spans = [
        replace(span, columns=tuple(replace(known, source=sources.get(known.name)) for known in span.columns))
        for span in op_columns(context.changelog.metadata(), at.progress.op)
    ]
    specs = past_specs(context.table, spans, context.settings, at.generation.order_by)
    return read_files(at, workspace, _log(at), specs, wanted)


def _from_files(at: PointInTime, read: FilesRead, wanted: tuple[Column, ...], reason: str) -> Origin:
    keys, erased = at.context.settings.primary_key, at.bases.erased
    rows = with_metadata(read.records, wanted, at.context.settings, column(S.OP))
    rows = rows.filter(column(S.KIND) == S.KIND_CHANGE)
    if erased is not None and keys:
        rows = rows.filter(~is_erased(rows, keys, erased))
    changes = rows.filter(~is_from_load()).drop(S.OP)
    load = _load_once_per_key(rows.filter(is_from_load()), keys)
    by_hand = conformed(_changes_without_files(at), wanted, {})
    names = tuple(lake_column.name for lake_column in wanted)
    return Origin(load.select(*columns(names)), changes.unionByName(by_hand), read.rows, Basis.FILES, reason)


def _load_once_per_key(rows: DataFrame, keys: tuple[str, ...]) -> DataFrame:
    """Return the last row of each key in the order of ops, parts and rows: later parts replace rows."""
    if not keys:
        return rows
    by_op = F.lpad(column(S.OP).cast("string"), 20, "0")
    ordered = rows.withColumn(S.SEQUENCE, by_op).withColumn(S.FILE, sortable_load_part())
    return latest_per_key(ordered, keys=keys)


def _changes_without_files(at: PointInTime) -> DataFrame:
    """Return rows that were put back from quarantine, and repairs: for these the files do not count."""
    log = _log(at).filter((column(S.OP) <= at.progress.op) & is_standing(at.progress.undone))
    own = (column(S.KIND) == S.KIND_CONTROL) & column(S.FILE).isNull()
    kind = F.get_json_object(column(S.DETAIL), "$.kind")
    ops = log.filter(own & kind.isin(*[op_kind.value for op_kind in _WITHOUT_FILES])).select(S.OP)
    changes = log.filter((column(S.KIND) == S.KIND_CHANGE) & (column(S.GENERATION) == at.generation.number))
    return changes.join(ops, on=S.OP, how="left_semi").drop(S.OP, S.GENERATION)


def _log(at: PointInTime) -> DataFrame:
    context = at.context
    snapshot = at.bases.changelog or context.changelog.require_head()
    return context.changelog.read(snapshot.id)
