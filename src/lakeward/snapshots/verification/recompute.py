"""A table's rows computed again from scratch: from its landing files, or from its load and its changelog."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakeward import schemas as S
from lakeward.errors import DataError
from lakeward.model import OpKind
from lakeward.pipeline.erased import is_erased
from lakeward.pipeline.folding import FoldInput, fold_changes, fold_keyless
from lakeward.snapshots.verification.files import read_files
from lakeward.snapshots.verification.report import Basis
from lakeward.snapshots.verification.schemas import op_columns, past_specs
from lakeward.transforms.columns import column, columns, conformed
from lakeward.transforms.fold import is_delete, is_partial
from lakeward.transforms.keys import lacking_keys
from lakeward.transforms.moves import is_arrival
from lakeward.transforms.order import is_from_load, latest_per_key, sortable_load_part
from lakeward.transforms.standing import is_standing

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from lakeward.datatypes import Column
    from lakeward.pipeline.as_of import Standpoint
    from lakeward.pipeline.workspace import Workspace
    from lakeward.snapshots.verification.files import FilesRead

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


def find_origin(at: Standpoint, workspace: Workspace, wanted: tuple[Column, ...], basis: Basis) -> Origin:
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


def recomputed(at: Standpoint, workspace: Workspace, origin: Origin, names: tuple[str, ...]) -> DataFrame:
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


def _from_changelog(at: Standpoint, wanted: tuple[Column, ...], reason: str) -> Origin:
    load = at.load_rows()
    loaded = conformed(load, wanted, {}) if load is not None else None
    changes = conformed(at.changes().drop(S.OP), wanted, {})
    rows = (at.load.rows if at.load else 0) + changes.count()
    return Origin(loaded, changes, rows, Basis.CHANGELOG, reason)


def _read_again(at: Standpoint, workspace: Workspace, wanted: tuple[Column, ...]) -> FilesRead:
    context = at.context
    spans = op_columns(context.changelog.metadata(), at.progress.op)
    specs = past_specs(context.table, spans, context.settings, at.generation.order_by)
    return read_files(at, workspace, _log(at), specs, wanted)


def _from_files(at: Standpoint, read: FilesRead, wanted: tuple[Column, ...], reason: str) -> Origin:
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


def _changes_without_files(at: Standpoint) -> DataFrame:
    """Give rows that were put back from quarantine, and repairs: what stands in a file for them is not what counts."""
    log = _log(at).filter((column(S.OP) <= at.progress.op) & is_standing(at.progress.undone))
    own = (column(S.KIND) == S.KIND_CONTROL) & column(S.FILE).isNull()
    kind = F.get_json_object(column(S.DETAIL), "$.kind")
    ops = log.filter(own & kind.isin(*[one.value for one in _WITHOUT_FILES])).select(S.OP)
    changes = log.filter((column(S.KIND) == S.KIND_CHANGE) & (column(S.GENERATION) == at.generation.number))
    return changes.join(ops, on=S.OP, how="left_semi").drop(S.OP, S.GENERATION)


def _log(at: Standpoint) -> DataFrame:
    context = at.context
    snapshot = at.bases.changelog or context.changelog.require_head()
    return context.changelog.read(snapshot.id)
