"""Compaction of a mirror and clustering of a changelog, one slice at a time.

Compaction rewrites data files that are small or have many deleted rows, and merges delete files. A rewritten data file
no longer holds its deleted rows, and their positions leave the delete files in the same commit: the row counts in the
metadata stay exact after every slice.

Clustering sorts a changelog by key, so that a key's history is in few files. A *run* is a range of op numbers whose
changes are sorted by key in files that do not overlap. Ops that were logged since form the next run. Runs of about
equal size are joined: their number grows with the logarithm of the changelog, and a change is rewritten few times.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakeward import schemas as S
from lakeward.errors import BugError
from lakeward.iceberg.attempt import Attempt
from lakeward.iceberg.rewrite import (
    Replacement,
    RewriteLimits,
    choose_files,
    location_of,
    metadata_frame,
    size_of,
    staged_data,
    staged_deletes,
)
from lakeward.mirror.maintenance import WorkKind, WorkReport
from lakeward.mirror.op.apply import carried_stamps
from lakeward.mirror.op.ledger import current_progress
from lakeward.mirror.op.steps import Step
from lakeward.storage.checksum import checksum_of
from lakeward.text import reading_property
from lakeward.transforms.columns import column

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from lakeward.iceberg.metadata import Snapshot
    from lakeward.iceberg.rewrite import Chosen, Staged
    from lakeward.iceberg.table import IcebergTable
    from lakeward.mirror.op.context import TableContext
    from lakeward.mirror.op.effect import Bases


POSITION = ("file_path", "pos")


class Rewritten:
    """The files of a rewrite, and the checksums that they must have: those of rows and those of deleted positions."""

    def __init__(self, files: Replacement) -> None:
        self.files = files
        self.rows: list[str] = []
        self.positions: list[str] = []


def publish_rewritten(
    context: TableContext, table: IcebergTable, base: Snapshot, op: int, write: Callable[[], Rewritten]
) -> Snapshot:
    """Replace data files by rewritten ones with the same rows, made by ``write``; return the new snapshot.

    The new files are committed on a branch and compared with the old ones first.

    Raises:
        BugError: the new files do not hold the same rows. Nothing was published.
        ConflictError: the table has changed since, or the lease was lost. Nothing was published.
    """
    stamps = carried_stamps(table.metadata(), base.id)
    with Attempt(table, op=op, base=base.id) as attempt:
        context.reached(Step.MAINTAIN_BRANCH)
        written = write()
        context.reached(Step.MAINTAIN_WRITE)
        attempt.commit(written.files.update(table, base.id, stamps))
        context.reached(Step.MAINTAIN_COMMIT)
        require_same(table, base, attempt.checked_head(), written)
        context.reached(Step.MAINTAIN_VERIFY)
        published = attempt.publish(before=context.permission.require)
        context.reached(Step.MAINTAIN_PUBLISH)
    return published


def require_same(table: IcebergTable, base: Snapshot, head: Snapshot, written: Rewritten) -> None:
    """Refuse new files whose content differs from the old ones, and a table with another number of rows."""
    if head.rows != base.rows:
        raise _differs(table, f"{head.rows:,} rows", f"{base.rows:,}")
    files = written.files
    new = {location_of(file) for file in files.new}
    found = [_hash_of_data(table, head, new)] if new else []
    if found != written.rows and (found or _have_rows(written.rows)):
        raise _differs(table, f"rows with the hash {found}", str(written.rows))
    deletes = {location_of(file) for file, _ in files.new_deletes}
    positions = _hashes_of_deletes(table, head, deletes) if deletes else []
    if sorted(positions) != sorted(position for position in written.positions if _have_rows([position])):
        raise _differs(table, f"deleted positions with the hashes {positions}", str(written.positions))


def hash_of(rows: DataFrame, names: Sequence[str] | None = None) -> str:
    """Return the checksum of a frame's content as text."""
    return checksum_of(rows, names).text


def _hash_of_data(table: IcebergTable, head: Snapshot, paths: set[str]) -> str:
    with staged_data(table, head.id, paths) as staged:
        return hash_of(staged.read())


def _hashes_of_deletes(table: IcebergTable, head: Snapshot, paths: set[str]) -> list[str]:
    found = []
    for group in staged_deletes(table, head.id, paths):
        with group as staged:
            found.append(hash_of(staged.read(), POSITION))
    return found


def _have_rows(checksums: Sequence[str]) -> bool:
    return any(not checksum.startswith("0:") for checksum in checksums)


def _differs(table: IcebergTable, found: str, expected: str) -> BugError:
    msg = f"{table.identifier}: rewritten files hold {found}, expected {expected}; nothing was published"
    return BugError(msg, hint="please report it; the table is as it was")


# Positions in one delete file: they are sorted by one task.
_POSITIONS_PER_FILE = 5_000_000


def plan_compaction(context: TableContext, base: Snapshot) -> Chosen:
    """Return the files of the next slice."""
    limits = context.settings.maintenance
    return choose_files(
        context.mirror, base, RewriteLimits(limits.deleted_share, limits.file_bytes, limits.slice_bytes)
    )  # fmt: skip


def planned_compaction(context: TableContext, base: Snapshot) -> WorkReport | None:
    """Return what the next slice would take up."""
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
    """Compact one slice of the mirror and publish it; None where nothing is worth compacting."""
    base = bases.mirror
    if base is None:
        return None
    context.adapt_plans(wanted=True)
    chosen = plan_compaction(context, base)
    context.reached(Step.MAINTAIN_PLAN)
    if not chosen:
        return None
    files = Replacement()
    head = publish_rewritten(
        context, context.mirror, base, bases.applied, lambda: _write_compacted(context, base, chosen, files)
    )
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
        bytes_written=size_of([*files.new, *(file for file, _ in files.new_deletes)]),
    )


def _total(snapshot: Snapshot, name: str) -> int:
    return int(snapshot.summary.get(f"total-{name}", 0))


def _write_compacted(context: TableContext, base: Snapshot, chosen: Chosen, files: Replacement) -> Rewritten:
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
    # Each split becomes a file. Rows of a partition must be in one task, or each task would write its own files.
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


# A property of the changelog.
RUNS_PROPERTY = "lakeward.clustered"


@dataclass(frozen=True)
class LogFile:
    """A data file of a changelog: its size, and the smallest and greatest op number in it."""

    path: str
    size: int
    first: int
    last: int


@dataclass(frozen=True)
class SortedRun:
    """A range of ops, both ends included, whose changes are sorted together."""

    first: int
    last: int

    def holds(self, file: LogFile) -> bool:
        """Whether all of a file's ops are in the run."""
        return self.first <= file.first and file.last <= self.last

    def meets(self, file: LogFile) -> bool:
        """Whether any op of a file may be in the run."""
        return file.first <= self.last and self.first <= file.last


@dataclass(frozen=True)
class Clustering:
    """Files to be sorted together, and the runs after that."""

    files: tuple[LogFile, ...]
    runs: tuple[SortedRun, ...]

    @property
    def size(self) -> int:
        """Bytes of the files."""
        return sum(file.size for file in self.files)


def read_runs(text: str | None) -> tuple[SortedRun, ...]:
    """Read what :func:`write_runs` wrote."""
    with reading_property(RUNS_PROPERTY, of="changelog"):
        return tuple(SortedRun(int(first), int(last)) for first, last in json.loads(text)) if text else ()


def write_runs(runs: Iterable[SortedRun]) -> str:
    """Return runs as text for the changelog's property."""
    return json.dumps([(run.first, run.last) for run in runs])


def unsorted_files(files: Iterable[LogFile], runs: Sequence[SortedRun]) -> list[LogFile]:
    """Return the files that no run holds, oldest ops first."""
    return sorted((file for file in files if not any(run.holds(file) for run in runs)), key=_by_op)


def plan_clustering(files: Sequence[LogFile], runs: Sequence[SortedRun], *, max_bytes: int) -> Clustering | None:
    """Return the next files to be sorted together, None where there would be fewer than two."""
    loose = unsorted_files(files, runs)
    # A file across the border of a run breaks it: its ops are no longer sorted together.
    whole = [run for run in sorted(runs, key=lambda run: run.first) if not any(run.meets(file) for file in loose)]
    loose = unsorted_files(files, whole)
    if not loose:
        return None
    taken = _up_to(loose, max_bytes)
    first, last = min(file.first for file in taken), max(file.last for file in taken)
    kept = [run for run in whole if run.last < first]
    others = [run for run in whole if run.first > last]
    while kept and (joined := _joined(kept[-1], taken, files, max_bytes)):
        taken, first = joined, kept.pop().first
    if len(taken) < 2:
        return None
    return Clustering(tuple(taken), (*kept, SortedRun(first, last), *others))


def _up_to(files: Sequence[LogFile], max_bytes: int) -> list[LogFile]:
    """Return the first files up to a number of bytes; at least two, as one alone would not change much."""
    taken: list[LogFile] = []
    for file in files:
        if len(taken) >= 2 and sum(chosen.size for chosen in taken) + file.size > max_bytes:
            break
        taken.append(file)
    return taken


def _joined(run: SortedRun, taken: Sequence[LogFile], files: Sequence[LogFile], max_bytes: int) -> list[LogFile] | None:
    """Return the files with those of the run before them, if that is not larger than they are and all fit."""
    own = [file for file in files if run.holds(file)]
    size, new = sum(file.size for file in own), sum(file.size for file in taken)
    return [*own, *taken] if size <= new and size + new <= max_bytes else None


def _by_op(file: LogFile) -> tuple[int, int, str]:
    return (file.first, file.last, file.path)


# A key's history is found by the files' statistics: with smaller files, less has to be read.
_FILE_BYTES = 32 << 20
_ORDER = (S.GENERATION, S.SEQUENCE, S.FILE_TIME, S.FILE, S.ROW, S.STEP, S.OP)


def planned_clustering(context: TableContext, base: Snapshot) -> WorkReport | None:
    """Return what the next slice would take up."""
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
    head = publish_rewritten(
        context, context.changelog, base, bases.logged, lambda: _write_sorted(context, base, plan, files)
    )
    # The ledger has not changed: without this the next run would rebuild it from the lake.
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
    """Return the files to sort; their list is collected on the driver, as Iceberg does for every query."""
    bounds = f"readable_metrics.`{S.OP}`"
    found = metadata_frame(context.changelog, base.id, "data_files").select(
        "file_path", "file_size_in_bytes", f"{bounds}.lower_bound", f"{bounds}.upper_bound"
    )
    files = [LogFile(*row) for row in found.collect()]
    runs = read_runs(context.changelog.property(RUNS_PROPERTY))
    return plan_clustering(files, runs, max_bytes=context.settings.maintenance.slice_bytes)


def _write_sorted(context: TableContext, base: Snapshot, plan: Clustering, files: Replacement) -> Rewritten:
    written = Rewritten(files)
    with staged_data(context.changelog, base.id, {file.path for file in plan.files}) as staged:
        rows, order = staged.read(), _order(context)
        tasks = math.ceil(plan.size / _FILE_BYTES)
        gathered = rows.coalesce(1) if tasks == 1 else rows.repartitionByRange(tasks, *order)
        files.old += staged.files
        files.new += staged.write(gathered.sortWithinPartitions(*order), {"distribution-mode": "none"})
        written.rows.append(hash_of(staged.read()))
    return written


def _order(context: TableContext) -> list[Column]:
    """Return the sort order: by key, control rows without a key first; within a key changes keep their order."""
    present = {field.name for field in context.mirror.columns()}
    keys = [name for name in context.settings.primary_key if name in present]
    return [column(name).asc_nulls_first() for name in (*keys, *_ORDER)]
