"""A table's rows computed again from scratch: from its landing files, or from its load and its changelog."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from lakeward import schemas as S
from lakeward.columns import Column, format_ddl
from lakeward.errors import DataError
from lakeward.formats.base import ReadSpec
from lakeward.iceberg.define import LOGGED_STAMP
from lakeward.iceberg.metadata import lake_columns
from lakeward.mirror.op.erased import is_erased
from lakeward.mirror.op.fold import FoldInput, fold_changes, fold_keyless
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


# The columns under which each op read its files, told from the changelog's own metadata.
# A file is read again as it was read then: under later columns a row that was whole would leave some unspoken, and a
# headerless record would not fit at all.


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
        """Return the way to read an op's files, None where it is no longer known."""
        return next((spec for first, last, spec in self.spans if first <= op <= last), None)


def past_specs(
    table: TableId, spans: Iterable[OpColumns], settings: TableSettings, order_by: OrderBy | None
) -> PastSpecs:
    """Return how to read the files of each op: today's settings, with the columns of the op's day."""
    found = []
    for span in spans:
        columns = _as_declared(span.columns, settings)
        found.append((span.first, span.last, ReadSpec(table, columns, _settings_of(columns, settings), order_by)))
    return PastSpecs(tuple(found))


def op_columns(changelog: TableMetadata, last: int) -> list[OpColumns]:
    """Return columns of ops up to ``last`` in spans; an op between two that had different columns may be missing."""
    schemas = changelog.schemas()
    now = {one["id"]: one["name"] for one in max(schemas.values(), key=lambda one: one["schema-id"])["fields"]}
    known = {number: _named_now(schema, now) for number, schema in schemas.items()}
    by_op: dict[int, int] = {}
    for snapshot in changelog.snapshots().values():
        op = int(snapshot.summary.get(LOGGED_STAMP, 0))
        if snapshot.schema_id is not None and 0 < op <= last:
            # Maintenance repeats an op's stamp, under the columns of a later day.
            by_op[op] = min(snapshot.schema_id, by_op.get(op, snapshot.schema_id))
    return _spans({op: known[schema] for op, schema in by_op.items()}, known[min(known)])


def _spans(by_op: Mapping[int, tuple[Column, ...]], first: tuple[Column, ...]) -> list[OpColumns]:
    """Join ops to spans. Columns never go back: between two ops that had the same, all ops had."""
    spans: list[OpColumns] = []
    # Before op 1 the table had its first columns: where the oldest op that is kept still has them, all before it did.
    for op, known in sorted({0: first, **by_op}.items()):
        if spans and spans[-1].columns == known:
            spans[-1] = OpColumns(spans[-1].first, op, known)
        else:
            spans.append(OpColumns(op, op, known))
    return spans


def _named_now(schema: Mapping[str, Any], now: Mapping[int, str]) -> tuple[Column, ...]:
    """Return a schema's columns under their names of now."""
    ids = {one["name"]: one["id"] for one in schema["fields"]}
    return tuple(Column(now[ids[lake_column.name]], lake_column.type) for lake_column in lake_columns(schema))


def _as_declared(columns: tuple[Column, ...], settings: TableSettings) -> tuple[Column, ...]:
    """Return columns the types they are declared with, which are narrower than the lake's where Iceberg has no room."""
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


# Changes of these ops stand in no file.
_WITHOUT_FILES = (OpKind.RETRY, OpKind.REPAIR)


@dataclass(frozen=True)
class Origin:
    """What a recomputation starts from: the load's rows, each key once, and all changes that stand.

    ``rows`` is about how many there are of both.
    """

    load: DataFrame | None
    changes: DataFrame
    rows: int
    basis: Basis
    reason: str


def find_origin(at: PointInTime, workspace: Workspace, wanted: tuple[Column, ...], basis: Basis) -> Origin:
    """Choose what to recompute from: the files wherever they are all still as they were consumed.

    Raises:
        DataError: files were asked for, and some are gone or changed.
    """
    if basis is Basis.CHANGELOG:
        return _from_changelog(at, wanted, "as asked for")
    read = _read_again(at, workspace, wanted)
    if read.problem is None:
        reason = "as asked for" if basis is Basis.FILES else "all consumed files are still there, unchanged"
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
    )  # fmt: skip
    folded = fold_changes(source)
    writes = folded.rows.filter(~is_delete()).select(*columns(names))
    if load is None:
        return writes
    others = lacking_keys(load.select(*columns(names)), folded.rows.select(*columns(keys)), keys=keys)
    return others.unionByName(writes)


def narrowed(origin: Origin, wanted: SparkColumn) -> Origin:
    """Keep only some keys, if that is the same before and after folding: no row comes from another key."""
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
    spans = op_columns(context.changelog.metadata(), at.progress.op)
    specs = past_specs(context.table, spans, context.settings, at.generation.order_by)
    return read_files(at, workspace, _log(at), specs, wanted)


def _from_files(at: PointInTime, read: FilesRead, wanted: tuple[Column, ...], reason: str) -> Origin:
    keys, erased = at.context.settings.primary_key, at.bases.erased
    rows = read.records.filter(column(S.KIND) == S.KIND_CHANGE)
    if erased is not None and keys:
        rows = rows.filter(~is_erased(rows, keys, erased))
    changes = rows.filter(~is_from_load()).drop(S.OP)
    load = _load_once_per_key(rows.filter(is_from_load()), keys)
    by_hand = conformed(_changes_without_files(at), wanted, {})
    names = tuple(one.name for one in wanted)
    return Origin(load.select(*columns(names)), changes.unionByName(by_hand), read.rows, Basis.FILES, reason)


def _load_once_per_key(rows: DataFrame, keys: tuple[str, ...]) -> DataFrame:
    """Keep each key's last row in the order of ops, parts and rows: a part that came later replaces rows."""
    if not keys:
        return rows
    by_op = F.lpad(column(S.OP).cast("string"), 20, "0")
    ordered = rows.withColumn(S.SEQUENCE, by_op).withColumn(S.FILE, sortable_load_part())
    return latest_per_key(ordered, keys=keys)


def _changes_without_files(at: PointInTime) -> DataFrame:
    """Return rows that were put back from quarantine, and repairs.

    What stands in a file for them is not what counts.
    """
    log = _log(at).filter((column(S.OP) <= at.progress.op) & is_standing(at.progress.undone))
    own = (column(S.KIND) == S.KIND_CONTROL) & column(S.FILE).isNull()
    kind = F.get_json_object(column(S.DETAIL), "$.kind")
    ops = log.filter(own & kind.isin(*[file.value for file in _WITHOUT_FILES])).select(S.OP)
    changes = log.filter((column(S.KIND) == S.KIND_CHANGE) & (column(S.GENERATION) == at.generation.number))
    return changes.join(ops, on=S.OP, how="left_semi").drop(S.OP, S.GENERATION)


def _log(at: PointInTime) -> DataFrame:
    context = at.context
    snapshot = at.bases.changelog or context.changelog.require_head()
    return context.changelog.read(snapshot.id)
