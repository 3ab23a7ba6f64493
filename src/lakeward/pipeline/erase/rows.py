"""Rows of erased keys among records just read, and among bad rows, whose keys only their text tells."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakeward import schemas as S
from lakeward.model import Operation
from lakeward.pipeline.erase.erased import is_erased, is_erased_key
from lakeward.sources.base import ReadSpec
from lakeward.sources.dms.raw import TOLD, keys_of_raw
from lakeward.spark.marks import in_task
from lakeward.transforms.columns import column

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    from lakeward.pipeline.context import TableContext
    from lakeward.pipeline.erase.erased import ErasedKeys
    from lakeward.pipeline.workspace import Workspace
    from lakeward.sources.base import FileSummary

_RAW_FIELDS = (S.FILE, S.FILE_TIME, S.ROW, S.RAW)


def without_erased(
    workspace: Workspace,
    records: DataFrame,
    summaries: Sequence[FileSummary],
    spec: ReadSpec,
    erased: ErasedKeys | None,
) -> tuple[DataFrame, list[FileSummary]]:
    """Leave rows of erased keys out of records just read, and out of what the files' summaries count.

    Whoever reads landing files goes through here. Without erasures nothing happens.
    """
    if erased is None or not spec.key:
        return records, list(summaries)
    forbidden = (column(S.KIND) == S.KIND_CHANGE) & is_erased(records, spec.key, erased)
    gone = _counted(workspace, records, forbidden)
    kept = records.filter(~forbidden)
    bad: dict[str, int] = {}
    if any(one.bad for one in summaries):
        named = workspace.keep(forbidden_bad_rows(records, spec, erased))
        bad = {row[0]: row[1] for row in named.groupBy(S.FILE).count().toLocalIterator()}
        if bad:
            kept = _joined(kept, named, S.KIND_BAD, "left_anti")
    return kept, [_without(one, gone.get(one.path), bad.get(one.path, 0)) for one in summaries]


def bad_rows_of_keys(context: TableContext, bad: DataFrame, salt: str, hashes: Iterable[str]) -> DataFrame:
    """Give file and row of those logged bad rows whose text holds one of the keys."""
    keys = keys_of_bad_rows(context, bad)
    own = is_erased_key(keys, context.settings.primary_key, salt, hashes)
    return keys.filter(column(TOLD) & own).select(S.FILE, S.ROW).distinct()


def keys_of_bad_rows(context: TableContext, bad: DataFrame) -> DataFrame:
    """Give the keys that logged bad rows' texts hold: two where a key changed, none where it cannot be told."""
    return _keys(bad, ReadSpec(context.table, context.mirror.columns(), context.settings))


def forbidden_bad_rows(records: DataFrame, spec: ReadSpec, erased: ErasedKeys) -> DataFrame:
    """Give file and row of those bad rows just read that an erasure forbids."""
    keys = _keys(records.filter(column(S.KIND) == S.KIND_BAD), spec)
    return keys.filter(column(TOLD) & is_erased(keys, spec.key, erased)).select(S.FILE, S.ROW).distinct()


def _keys(bad: DataFrame, spec: ReadSpec) -> DataFrame:
    own = [one for one in spec.columns if one.name in spec.key]
    fields = [
        T.StructField(S.FILE, T.StringType()),
        T.StructField(S.FILE_TIME, T.StringType()),
        T.StructField(S.ROW, T.LongType()),
        T.StructField(S.COMMIT_TIME, T.TimestampType()),
        T.StructField(TOLD, T.BooleanType()),
        *S.table_struct(own).fields,
    ]

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return (keys_of_raw(batch, spec) for batch in batches)

    return bad.select(*_RAW_FIELDS).mapInArrow(in_task(read), T.StructType(fields))


def _counted(workspace: Workspace, records: DataFrame, forbidden: Column) -> dict[str, dict[str, int]]:
    """Count per file what is left out: whole rows by what they do, and halves of key changes.

    A key change is one row and two records; where one of them stays, the row stays.
    """
    rows = workspace.keep(records.filter(forbidden).select(S.FILE, S.ROW).distinct())
    if not rows.take(1):
        return {}
    needed = records.select(S.KIND, S.FILE, S.ROW, S.STEP, S.OPERATION, forbidden.alias("gone"))
    by_row = (
        _joined(needed, rows, S.KIND_CHANGE, "left_semi")
        .groupBy(S.FILE, S.ROW)
        .agg(
            F.count(F.lit(1)).alias("all"),
            _sum(column("gone")).alias("left_out"),
            F.max_by(column(S.OPERATION), column(S.STEP)).alias("does"),
        )
    )
    is_whole = column("all") == column("left_out")
    by_file = by_row.groupBy(S.FILE).agg(
        _sum(column("all") > 1).alias("moves"),
        _sum(is_whole).alias("rows"),
        *[_sum(is_whole & (column("does") == one.value)).alias(one.value) for one in Operation],
    )
    return {row[S.FILE]: row.asDict() for row in by_file.toLocalIterator()}


def _without(summary: FileSummary, gone: dict[str, int] | None, bad: int) -> FileSummary:
    found = gone or {}
    rows = found.get("rows", 0) + bad
    if not rows and not found:
        return summary
    return replace(
        summary,
        rows=summary.rows - rows,
        inserts=summary.inserts - found.get(Operation.INSERT.value, 0),
        updates=summary.updates - found.get(Operation.UPDATE.value, 0),
        deletes=summary.deletes - found.get(Operation.DELETE.value, 0),
        moves=summary.moves - found.get("moves", 0),
        bad=summary.bad - bad,
        erased=rows,
    )


def _sum(condition: Column) -> Column:
    return F.sum(condition.cast("long"))


def _joined(records: DataFrame, rows: DataFrame, kind: str, how: str) -> DataFrame:
    """Keep records of a kind that are of some rows, or all others, without moving a column."""
    file, row = f"{S.PREFIX}of_file", f"{S.PREFIX}of_row"
    named = rows.select(column(S.FILE).alias(file), column(S.ROW).alias(row))
    is_named = (column(S.KIND) == kind) & (column(S.FILE) == column(file)) & (column(S.ROW) == column(row))
    return records.join(F.broadcast(named), is_named, how)
