"""Maintenance of a table: its reports, the work that is due by metadata alone, snapshot expiry and orphan files."""

from __future__ import annotations

import json
import math
import re
import time
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from lakeward.documents import Document, Record
from lakeward.iceberg.attempt import ROWS_STAMP, Attempt
from lakeward.iceberg.cleanup import Orphans, expirable, expire, remove_orphans
from lakeward.iceberg.define import APPLIED_STAMP, LOAD_STAMP, history_of
from lakeward.iceberg.rewrite import debt_of
from lakeward.mirror.op.apply import CARRIED, UNDONE_TAG_PREFIX, carried_stamps
from lakeward.mirror.op.steps import Step
from lakeward.text import json_object, reading_property

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from lakeward.config.tables import MaintenanceSettings
    from lakeward.iceberg.metadata import TableMetadata
    from lakeward.iceberg.rewrite import Debt
    from lakeward.iceberg.table import IcebergTable
    from lakeward.mirror.op.context import TableContext
    from lakeward.mirror.op.effect import Bases
    from lakeward.mirror.op.report import Outcome


class WorkKind(StrEnum):
    """Kinds of maintenance, in the order in which they are done."""

    COMPACT = "compact"
    CLUSTER = "cluster"
    EXPIRE = "expire"
    ORPHANS = "orphans"


@dataclass(frozen=True)
class WorkReport(Document):
    """The result of one kind of work on one of a table's tables: ``mirror``, ``changelog`` or ``history``.

    ``removed_files`` are data and delete files that readers no longer open, or orphans deleted from storage; ``paths``
    lists some of these. ``bytes_read`` were rewritten as ``bytes_written``.
    """

    kind: WorkKind
    target: str
    slices: int = 1
    removed_files: int = 0
    added_files: int = 0
    removed_delete_files: int = 0
    removed_deleted_rows: int = 0
    removed_snapshots: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    paths: tuple[str, ...] = ()
    seconds: float = 0.0

    def __add__(self, other: WorkReport) -> WorkReport:
        sums = {
            name: getattr(self, name) + getattr(other, name)
            for name in asdict(self)
            if name not in ("kind", "target", "paths")
        }
        return replace(self, **sums, paths=(self.paths + other.paths)[:_SHOWN])


_SHOWN = 1000


@dataclass(frozen=True)
class TableMaintenance(Document):
    """One table's part in maintenance; with ``dry_run`` what would be done, of the first slice of each kind of work.

    ``before`` and ``after`` are the mirror's debt, ``changelog_before`` and ``changelog_after`` the changelog's.
    """

    table: str
    outcome: Outcome
    work: tuple[WorkReport, ...] = ()
    before: Debt | None = None
    after: Debt | None = None
    changelog_before: Debt | None = None
    changelog_after: Debt | None = None
    dry_run: bool = False
    message: str | None = None
    hint: str | None = None
    exit_code: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class MaintenanceReport(Document, keys=("seconds", "exit_code", "tables")):
    """Maintenance of several tables."""

    tables: tuple[TableMaintenance, ...] = ()
    seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        """0 when no table failed; 2 when all failures are refused configuration; else 3."""
        return max((table.exit_code for table in self.tables), default=0)


def summed(work: Iterable[WorkReport]) -> tuple[WorkReport, ...]:
    """Return one report for each kind of work on each target, in order."""
    found: dict[tuple[str, str], WorkReport] = {}
    for report in work:
        key = (report.kind, report.target)
        found[key] = found[key] + report if key in found else report
    return tuple(found.values())


# Snapshots that one slice expires.
_AT_A_TIME = 100
_UNDO = re.compile(re.escape(UNDONE_TAG_PREFIX) + r"(?P<op>\d+)(?:-.*)?")
# The load stamp does not mark a state of main.
_STAMPS = tuple(name for name in CARRIED if name != LOAD_STAMP)


def targets(context: TableContext) -> Iterator[tuple[str, IcebergTable]]:
    """Yield the Iceberg tables of a table whose snapshots expire, with their roles."""
    yield "mirror", context.mirror
    yield "changelog", context.changelog
    yield "history", history_of(context.spark, context.table)


def expirable_count(context: TableContext, metadata: TableMetadata) -> int:
    """Return how many snapshots may expire."""
    return len(_expirable(metadata, _border(context), outdated_tags(metadata, _border(context))))


def planned_expiry(context: TableContext) -> Iterator[WorkReport]:
    """Yield how many snapshots of which Iceberg table would expire."""
    for name, table in targets(context):
        metadata = table.find_metadata()
        if metadata is not None and (count := expirable_count(context, metadata)):
            yield WorkReport(WorkKind.EXPIRE, name, removed_snapshots=count)


def expire_slice(context: TableContext, bases: Bases) -> WorkReport | None:
    """Expire the oldest snapshots of the first Iceberg table that has some; None where none may expire.

    Snapshots expire once they are older than the undo window and nothing else needs them.
    """
    border = _border(context)
    for name, table in targets(context):
        metadata = table.find_metadata()
        if metadata is None:
            continue
        tags = outdated_tags(metadata, border)
        if not _expirable(metadata, border, tags):
            continue
        for tag in tags:
            table.drop_tag(tag)
        context.reached(Step.MAINTAIN_TAGS)
        _repeat_stamps(context, table, bases)
        context.reached(Step.MAINTAIN_STAMP)
        gone = _expirable(table.metadata(), border, ())[:_AT_A_TIME]
        context.permission.require()
        expire(table, gone)
        context.reached(Step.MAINTAIN_EXPIRE)
        return WorkReport(WorkKind.EXPIRE, name, removed_snapshots=len(gone))
    return None


def outdated_tags(metadata: TableMetadata, border: int) -> tuple[str, ...]:
    """Return the tags of undone states that can no longer be restored: their undo is older than the undo window."""
    return tuple(
        tag
        for tag in metadata.tags()
        if (match := _UNDO.fullmatch(tag)) and _was_applied_before(metadata, int(match["op"]), border)
    )


def _was_applied_before(metadata: TableMetadata, op: int, border: int) -> bool:
    """Whether an op was applied before a moment, as shown by a kept snapshot of ``main`` from before it."""
    head = metadata.head()
    found = metadata.lineage(head.id) if head else ()
    return any(
        snapshot.committed_ms < border and int(snapshot.summary.get(APPLIED_STAMP, 0)) >= op for snapshot in found
    )


def _expirable(metadata: TableMetadata, border: int, tags: tuple[str, ...]) -> list[int]:
    kept_tags = {name: tag for name, tag in metadata.tags().items() if name not in tags}
    return expirable(
        metadata.snapshots(), branches=metadata.branches(), tags=kept_tags, before_ms=border, stamps=_STAMPS
    )


def _border(context: TableContext) -> int:
    """Return the start of the undo window, in milliseconds since 1970."""
    return int((time.time() - context.settings.undo_window) * 1000)


def _repeat_stamps(context: TableContext, table: IcebergTable, bases: Bases) -> None:
    """Repeat on the head the stamps that only older commits carry, so that these may expire."""
    metadata = table.metadata()
    head = metadata.head()
    if head is None:
        return
    stamps = carried_stamps(metadata, head.id)
    if all(name in head.summary for name in stamps):
        return
    stamps.pop(ROWS_STAMP, None)
    with Attempt(table, op=bases.applied, base=head.id) as attempt:
        attempt.stamp(stamps)
        attempt.publish(before=context.permission.require)


# A property of the mirror.
MAINTAINED_PROPERTY = "lakeward.maintained"


@dataclass(frozen=True)
class MaintenanceRecord(Record):
    """The debt that the last maintenance left: some files remain, as in partitions with one small file each.

    ``at`` and ``orphans`` are seconds since 1970: when it was done, and when orphan files were last searched for.
    """

    at: float = 0.0
    orphans: float = 0.0
    spare_files: int = 0
    delete_files: int = 0
    changelog_files: int = 0


def last_maintained(mirror: TableMetadata) -> MaintenanceRecord:
    """Return the mirror's record of its last maintenance."""
    text = mirror.property(MAINTAINED_PROPERTY)
    if not text:
        return MaintenanceRecord()
    with reading_property(MAINTAINED_PROPERTY, of="mirror"):
        return MaintenanceRecord.from_dict(json_object(text))


def maintained_at(mirror: TableMetadata) -> str | None:
    """Return when a table was last maintained, as text, None if it never was."""
    at = last_maintained(mirror).at
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds") if at else None


def record_maintained(context: TableContext, *, orphans: bool) -> None:
    """Store in the mirror what maintenance left."""
    mirror, changelog = context.mirror.metadata(), context.changelog.metadata()
    debt, now = debt_of(mirror), time.time()
    record = MaintenanceRecord(
        at=now,
        orphans=now if orphans else last_maintained(mirror).orphans,
        spare_files=spare_files(debt, context.settings.maintenance.file_bytes),
        delete_files=debt.delete_files,
        changelog_files=debt_of(changelog).data_files,
    )
    context.mirror.set_properties({MAINTAINED_PROPERTY: json.dumps(record.to_dict())})
    context.reached(Step.MAINTAIN_RECORD)


def spare_files(debt: Debt, file_bytes: int) -> int:
    """Return how many more data files a table has than its size needs."""
    size = debt.average_file_bytes * (debt.data_files + debt.delete_files)
    return max(0, debt.data_files - max(1, math.ceil(size / file_bytes)))


def due_work(context: TableContext, mirror: TableMetadata, changelog: TableMetadata) -> Iterator[WorkKind]:
    """Yield the kinds of work whose debt exceeds the table's limits."""
    limits, last, debt = context.settings.maintenance, last_maintained(mirror), debt_of(mirror)
    if needs_compaction(debt, last, limits):
        yield WorkKind.COMPACT
    if debt_of(changelog).data_files - last.changelog_files >= limits.small_files:
        yield WorkKind.CLUSTER
    if any(_has_old(context, table.find_metadata(), limits) for _, table in targets(context)):
        yield WorkKind.EXPIRE
    if time.time() - (last.orphans or _creation_time(mirror)) >= limits.orphan_age:
        yield WorkKind.ORPHANS


def needs_compaction(debt: Debt, last: MaintenanceRecord, limits: MaintenanceSettings) -> bool:
    """Whether a mirror has too many deleted rows, or too many new files since it was last compacted."""
    return (
        debt.deleted_share >= limits.deleted_share
        or debt.delete_files - last.delete_files >= limits.delete_files
        or spare_files(debt, limits.file_bytes) - last.spare_files >= limits.small_files
    )


def _has_old(context: TableContext, metadata: TableMetadata | None, limits: MaintenanceSettings) -> bool:
    if metadata is None or metadata.snapshot_count() < limits.snapshots:
        return False
    return expirable_count(context, metadata) >= limits.snapshots


def _creation_time(mirror: TableMetadata) -> float:
    """Return when a table was created, in seconds since 1970: a new table has no old files."""
    return min((snapshot.committed_ms for snapshot in mirror.snapshots().values()), default=0) / 1000


_SHOWN_ORPHANS = 5


def locations(context: TableContext) -> tuple[str, ...]:
    """Return the folders of a table's Iceberg tables."""
    found = (table.find_metadata() for _, table in targets(context))
    return tuple(str(metadata.java.location()) for metadata in found if metadata is not None)


def clear_orphans(
    context: TableContext, others: Collection[str], *, dry_run: bool
) -> Iterator[tuple[WorkReport | None, str | None]]:
    """Remove orphan files of a table's Iceberg tables; yield what was done, or why nothing was.

    Needs no lease, as the files are older than any that is being written. ``others`` are the folders of other tables.
    """
    older_than = int((time.time() - context.settings.maintenance.orphan_age) * 1000)
    own = locations(context)
    for name, table in targets(context):
        metadata = table.find_metadata()
        if metadata is None:
            continue
        # Another table may have the same folder: one that was renamed leaves its files where they were.
        apart = {*others, *({*own} - {str(metadata.java.location())})}
        found = remove_orphans(table, older_than_ms=older_than, others=apart, dry_run=dry_run)
        context.reached(Step.MAINTAIN_ORPHANS)
        report = WorkReport(WorkKind.ORPHANS, name, removed_files=found.count, paths=found.paths)
        yield (report if found.count else None), found.skipped or _foreign(table.identifier, found)


def _foreign(identifier: str, found: Orphans) -> str | None:
    if not found.foreign:
        return None
    more = f" and {found.foreign - _SHOWN_ORPHANS} more" if found.foreign > _SHOWN_ORPHANS else ""
    shown = ", ".join(found.foreign_paths[:_SHOWN_ORPHANS]) + more
    return f"{identifier}: its folder holds old files that Iceberg did not write; they were left: {shown}"
