"""Remove orphan files of a table: needs no lease, as what it takes is older than anything that is being written."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from lakeward.lake.iceberg.orphans import Orphans, remove_orphans
from lakeward.pipeline.maintenance.expire import targets
from lakeward.pipeline.maintenance.report import WorkKind, WorkReport
from lakeward.pipeline.steps import Step

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from lakeward.pipeline.context import TableContext

_SHOWN = 5


def locations(context: TableContext) -> tuple[str, ...]:
    """Give the folders of a table's tables."""
    found = (table.look() for _, table in targets(context))
    return tuple(str(one.java.location()) for one in found if one is not None)


def clear_orphans(
    context: TableContext, others: Collection[str], *, dry_run: bool
) -> Iterator[tuple[WorkReport | None, str | None]]:
    """Remove orphan files of each of a table's tables; give what was done, or why nothing was.

    ``others`` are the folders of other tables.
    """
    older_than = int((time.time() - context.settings.maintenance.orphan_age) * 1000)
    own = locations(context)
    for name, table in targets(context):
        metadata = table.look()
        if metadata is None:
            continue
        here = str(metadata.java.location())
        apart = {*others, *own} - {here}
        found = remove_orphans(table, older_than_ms=older_than, others=apart, dry_run=dry_run)
        context.reached(Step.MAINTAIN_ORPHANS)
        report = WorkReport(WorkKind.ORPHANS, name, removed_files=found.count, paths=found.paths)
        yield (report if found.count else None), found.skipped or _foreign(table.identifier, found)


def _foreign(identifier: str, found: Orphans) -> str | None:
    if not found.foreign:
        return None
    more = f" and {found.foreign - _SHOWN} more" if found.foreign > _SHOWN else ""
    shown = ", ".join(found.foreign_paths[:_SHOWN]) + more
    return f"{identifier}: its folder holds old files that Iceberg did not write; they were left: {shown}"
