"""Let old snapshots go: what is older than the undo window and needed by nothing else."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from lakeward.lake.iceberg.attempt import ROWS_STAMP, Attempt
from lakeward.lake.iceberg.define import APPLIED_STAMP, LOAD_STAMP, history_of
from lakeward.lake.iceberg.expiry import expirable, expire
from lakeward.pipeline.load_branches import UNDONE_TAG_PREFIX
from lakeward.pipeline.maintenance.report import WorkKind, WorkReport
from lakeward.pipeline.stamps import CARRIED, carried_stamps
from lakeward.pipeline.steps import Step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward.lake.iceberg.metadata import TableMetadata
    from lakeward.lake.iceberg.table import IcebergTable
    from lakeward.pipeline.context import TableContext
    from lakeward.pipeline.effect import Bases

# Snapshots of one slice.
_AT_A_TIME = 100
_UNDO = re.compile(re.escape(UNDONE_TAG_PREFIX) + r"(?P<op>\d+)(?:-.*)?")
# What a load alone says is no state of main.
_STAMPS = tuple(name for name in CARRIED if name != LOAD_STAMP)


def targets(context: TableContext) -> Iterator[tuple[str, IcebergTable]]:
    """Give the tables whose snapshots expire, by what they are to the table."""
    yield "mirror", context.mirror
    yield "changelog", context.changelog
    yield "history", history_of(context.spark, context.table)


def expirable_count(context: TableContext, metadata: TableMetadata) -> int:
    """Count the snapshots that may go."""
    return len(_expirable(metadata, _border(context), outdated_tags(metadata, _border(context))))


def planned_expiry(context: TableContext) -> Iterator[WorkReport]:
    """Say how many snapshots of which table would go."""
    for name, table in targets(context):
        metadata = table.look()
        if metadata is not None and (count := expirable_count(context, metadata)):
            yield WorkReport(WorkKind.EXPIRE, name, removed_snapshots=count)


def expire_slice(context: TableContext, bases: Bases) -> WorkReport | None:
    """Let the oldest snapshots of the first table that has some go; None where nothing may go."""
    border = _border(context)
    for name, table in targets(context):
        metadata = table.look()
        if metadata is None:
            continue
        tags = outdated_tags(metadata, border)
        if not _expirable(metadata, border, tags):
            continue
        for tag in tags:
            table.drop_tag(tag)
        context.reached(Step.MAINTAIN_TAGS)
        _say_stamps_again(context, table, bases)
        context.reached(Step.MAINTAIN_STAMP)
        gone = _expirable(table.metadata(), border, ())[:_AT_A_TIME]
        context.permission.require()
        expire(table, gone)
        context.reached(Step.MAINTAIN_EXPIRE)
        return WorkReport(WorkKind.EXPIRE, name, removed_snapshots=len(gone))
    return None


def outdated_tags(metadata: TableMetadata, border: int) -> tuple[str, ...]:
    """Give the tags of undone states that no undo reaches any more: their undo is older than the window."""
    return tuple(
        tag
        for tag in metadata.tags()
        if (match := _UNDO.fullmatch(tag)) and _was_reached_before(metadata, int(match["op"]), border)
    )


def _was_reached_before(metadata: TableMetadata, op: int, border: int) -> bool:
    """Tell whether an op was applied before a moment: a kept snapshot of ``main`` from then says it, or a later one."""
    head = metadata.head()
    found = metadata.lineage(head.id) if head else ()
    return any(one.committed_ms < border and int(one.summary.get(APPLIED_STAMP, 0)) >= op for one in found)


def _expirable(metadata: TableMetadata, border: int, tags: tuple[str, ...]) -> list[int]:
    kept_tags = {name: one for name, one in metadata.tags().items() if name not in tags}
    return expirable(
        metadata.snapshots(), branches=metadata.branches(), tags=kept_tags, before_ms=border, stamps=_STAMPS
    )


def _border(context: TableContext) -> int:
    """Give the moment at which the undo window begins."""
    return int((time.time() - context.settings.undo_window) * 1000)


def _say_stamps_again(context: TableContext, table: IcebergTable, bases: Bases) -> None:
    """Let the head say what only older commits say, so that these may go."""
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
