"""Compact a mirror: worn and small data files are rewritten, delete files merged, one slice at a time.

A data file's deleted rows leave it when it is rewritten, and their positions leave the delete files in the same commit:
the rows that the metadata counts stay exact after every slice.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakeward.lake.iceberg.file_choice import Limits, choose_files
from lakeward.lake.iceberg.staging import Replacement, size_of, staged_data, staged_deletes
from lakeward.pipeline.maintenance.report import WorkKind, WorkReport
from lakeward.pipeline.maintenance.rewriting import POSITION, Rewritten, hash_of, publish_rewritten
from lakeward.pipeline.steps import Step

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import DataFrame, SparkSession

    from lakeward.lake.iceberg.file_choice import Chosen
    from lakeward.lake.iceberg.metadata import Snapshot
    from lakeward.lake.iceberg.staging import Staged
    from lakeward.pipeline.context import TableContext
    from lakeward.pipeline.effect import Bases

# Positions of one delete file: they are sorted by one task.
_POSITIONS_PER_FILE = 5_000_000


def plan_compaction(context: TableContext, base: Snapshot) -> Chosen:
    """Choose the files of the next slice."""
    limits = context.settings.maintenance
    return choose_files(
        context.mirror, base, Limits(limits.deleted_share, limits.file_bytes, limits.slice_bytes)
    )  # fmt: skip


def planned_compaction(context: TableContext, base: Snapshot) -> WorkReport | None:
    """Say what the next slice would take up."""
    chosen = plan_compaction(context, base)
    if not chosen:
        return None
    files = len(chosen.data) + len(chosen.deletes)
    return WorkReport(
        WorkKind.COMPACT,
        "mirror",
        removed_files=files,
        removed_delete_files=len(chosen.deletes),
        bytes_read=chosen.size,
    )


def compact_slice(context: TableContext, bases: Bases) -> WorkReport | None:
    """Compact one slice of the mirror and publish it; None where nothing is worth it."""
    base = bases.mirror
    if base is None:
        return None
    context.adapt_plans(wanted=True)
    chosen = plan_compaction(context, base)
    context.reached(Step.MAINTAIN_PLAN)
    if not chosen:
        return None
    files = Replacement()
    head = publish_rewritten(context, context.mirror, base, bases.applied, lambda: _write(context, base, chosen, files))
    return WorkReport(
        kind=WorkKind.COMPACT,
        target="mirror",
        removed_files=len(files.old)
        + _total(base, "delete-files")
        - _total(head, "delete-files")
        + len(files.new_deletes),
        added_files=len(files.new) + len(files.new_deletes),
        removed_delete_files=_total(base, "delete-files") - _total(head, "delete-files"),
        removed_deleted_rows=_total(base, "position-deletes") - _total(head, "position-deletes"),
        bytes_read=size_of([*files.old, *files.old_deletes]),
        bytes_written=size_of([*files.new, *(one for one, _ in files.new_deletes)]),
    )


def _total(snapshot: Snapshot, name: str) -> int:
    return int(snapshot.summary.get(f"total-{name}", 0))


def _write(context: TableContext, base: Snapshot, chosen: Chosen, files: Replacement) -> Rewritten:
    written = Rewritten(files)
    if chosen.data:
        with staged_data(context.mirror, base.id, chosen.data) as staged:
            _write_data(context, staged, written)
    if chosen.deletes:
        for group in staged_deletes(context.mirror, base.id, chosen.deletes):
            with group as staged:
                _write_deletes(context.spark, staged, chosen.data, written)
    return written


def _write_data(context: TableContext, staged: Staged, written: Rewritten) -> None:
    target = context.settings.maintenance.file_bytes
    is_partitioned = bool(context.settings.partition_by)
    # Each split becomes a file; rows of a partition must meet in one task, or each task would write files of its own.
    rows = staged.read(split_bytes=target)
    context.adapt_plans(wanted=is_partitioned)
    options = {
        "target-file-size-bytes": str(2 * target),
        "distribution-mode": "hash" if is_partitioned else "none",
    }
    written.files.old += staged.files
    written.files.new += staged.write(rows, options)
    written.rows.append(hash_of(staged.read()))


def _write_deletes(spark: SparkSession, staged: Staged, gone: Collection[str], written: Rewritten) -> None:
    """Merge delete files of one partition, without the positions of data files that are rewritten."""
    count = sum(int(file.recordCount()) for file in staged.files)
    kept = staged.read()
    if gone:
        kept = kept.join(F.broadcast(_paths(spark, gone)), "file_path", "left_anti").select(*kept.columns)
    tasks = math.ceil(count / _POSITIONS_PER_FILE)
    gathered = kept.coalesce(1) if tasks == 1 else kept.repartitionByRange(tasks, F.col("file_path").asc())
    written.files.old_deletes += staged.files
    new = staged.write(gathered.sortWithinPartitions(*POSITION), {})
    newest = max(int(file.dataSequenceNumber()) for file in staged.files)
    written.files.new_deletes += [(file, newest) for file in new]
    written.positions.append(hash_of(kept, POSITION))


def _paths(spark: SparkSession, paths: Collection[str]) -> DataFrame:
    text = F.lit(json.dumps(sorted(paths)))
    return spark.range(0, 1, 1, 1).select(F.explode(F.from_json(text, "array<string>")).alias("file_path"))
