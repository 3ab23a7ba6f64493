"""Bad rows that wait for a decision: found in the changelog, and their number carried from op to op.

Every op stamps the number into its commit, so that it can be told without reading the changelog.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakeward import schemas as S
from lakeward.transforms.columns import column
from lakeward.transforms.standing import is_standing

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from lakeward.model import Progress
    from lakeward.pipeline.context import TableContext
    from lakeward.pipeline.effect import Prepared
    from lakeward.pipeline.records import Resolution


def open_rows(log: DataFrame, progress: Progress) -> DataFrame:
    """Keep bad rows of ops that stand, at the progress given, and that no standing resolution names."""
    standing = is_standing(progress.undone)
    bad = log.filter((column(S.KIND) == S.KIND_BAD) & standing)
    decided = f"{S.PREFIX}decided"
    resolved = log.filter((column(S.KIND) == S.KIND_CONTROL) & column(S.FILE).isNotNull() & standing)
    last = resolved.groupBy(S.FILE, S.ROW).agg(F.max(S.OP).alias(decided))
    # A reload reads files again: what was decided on a row before says nothing of the same row read after.
    is_open = column(decided).isNull() | (column(decided) < column(S.OP))
    return bad.join(last, on=[S.FILE, S.ROW], how="left").filter(is_open).drop(decided)


def is_named(ids: Collection[str]) -> SparkColumn:
    """Tell rows by the name that commands use: file and row number."""
    return F.concat(column(S.FILE), F.lit(":"), column(S.ROW)).isin(*ids)


def open_after(context: TableContext, prepared: Prepared, resolutions: Sequence[Resolution]) -> int:
    """Count the bad rows that wait once an op is logged; only ops that take some away have to look for them."""
    added = sum(one.bad for one in prepared.summaries)
    base, record = prepared.bases.changelog, prepared.record
    if base is None or (record.back_to is None and not resolutions):
        return prepared.bases.bad_rows + added
    rows = open_rows(context.changelog.read(base.id), record.progress)
    if resolutions:
        rows = rows.filter(~is_named({f"{one.file}:{one.row}" for one in resolutions}))
    return rows.count() + added
