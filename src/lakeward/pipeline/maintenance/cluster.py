"""Sort a changelog by key: the small files of many ops become few in which a key's history lies close together."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from lakeward import schemas as S
from lakeward.lake.iceberg.file_choice import metadata_frame
from lakeward.lake.iceberg.staging import Replacement, size_of, staged_data
from lakeward.pipeline.ledger import current_progress
from lakeward.pipeline.maintenance.report import WorkKind, WorkReport
from lakeward.pipeline.maintenance.rewriting import Rewritten, hash_of, publish_rewritten
from lakeward.pipeline.maintenance.runs import (
    RUNS_PROPERTY,
    Clustering,
    LogFile,
    plan_clustering,
    read_runs,
    write_runs,
)
from lakeward.pipeline.steps import Step
from lakeward.transforms.columns import column

if TYPE_CHECKING:
    from pyspark.sql import Column

    from lakeward.lake.iceberg.metadata import Snapshot
    from lakeward.pipeline.context import TableContext
    from lakeward.pipeline.effect import Bases

# A key's history is found by the files' statistics: smaller ones leave less to be read.
_FILE_BYTES = 32 << 20
_ORDER = (S.GENERATION, S.SEQUENCE, S.FILE_TIME, S.FILE, S.ROW, S.STEP, S.OP)


def planned_clustering(context: TableContext, base: Snapshot) -> WorkReport | None:
    """Say what the next slice would take up."""
    plan = _plan(context, base)
    if plan is None:
        return None
    return WorkReport(WorkKind.CLUSTER, "changelog", removed_files=len(plan.files), bytes_read=plan.size)


def cluster_slice(context: TableContext, bases: Bases) -> WorkReport | None:
    """Sort the next files of the changelog together and publish them; None where there is nothing to sort."""
    base = bases.changelog
    if base is None:
        return None
    context.adapt_plans(wanted=True)
    plan = _plan(context, base)
    context.reached(Step.MAINTAIN_PLAN)
    if plan is None:
        return None
    files, progress = Replacement(), current_progress(context, base.id)
    head = publish_rewritten(context, context.changelog, base, bases.logged, lambda: _write(context, base, plan, files))
    # The ledger is what it was: without this the next run would read it anew from the lake.
    context.state.extend_ledger(context.table, after=base.id, snapshot_id=head.id, progress=progress, entries=())
    context.reached(Step.MAINTAIN_LEDGER)
    context.changelog.set_properties({RUNS_PROPERTY: write_runs(plan.runs)})
    return WorkReport(
        kind=WorkKind.CLUSTER,
        target="changelog",
        removed_files=len(files.old),
        added_files=len(files.new),
        bytes_read=size_of(files.old),
        bytes_written=size_of(files.new),
    )


def _plan(context: TableContext, base: Snapshot) -> Clustering | None:
    """Choose files; their list comes to the driver, as Iceberg's own for every query does."""
    bounds = f"readable_metrics.`{S.OP}`"
    found = metadata_frame(context.changelog, base.id, "data_files").select(
        "file_path", "file_size_in_bytes", f"{bounds}.lower_bound", f"{bounds}.upper_bound"
    )
    files = [LogFile(*row) for row in found.collect()]
    runs = read_runs(context.changelog.property(RUNS_PROPERTY))
    return plan_clustering(files, runs, max_bytes=context.settings.maintenance.slice_bytes)


def _write(context: TableContext, base: Snapshot, plan: Clustering, files: Replacement) -> Rewritten:
    written = Rewritten(files)
    with staged_data(context.changelog, base.id, {one.path for one in plan.files}) as staged:
        rows, order = staged.read(), _order(context)
        tasks = math.ceil(plan.size / _FILE_BYTES)
        gathered = rows.coalesce(1) if tasks == 1 else rows.repartitionByRange(tasks, *order)
        files.old += staged.files
        files.new += staged.write(gathered.sortWithinPartitions(*order), {"distribution-mode": "none"})
        written.rows.append(hash_of(staged.read()))
    return written


def _order(context: TableContext) -> list[Column]:
    """Sort by key, rows without one first: they tell of ops and files. Within a key changes keep their order."""
    present = {one.name for one in context.mirror.columns()}
    keys = [name for name in context.settings.primary_key if name in present]
    return [column(name).asc_nulls_first() for name in (*keys, *_ORDER)]
