"""Which maintenance a table needs, told from metadata alone, and what the last one left."""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lakeward.documents import Record
from lakeward.lake.iceberg.debt import debt_of
from lakeward.pipeline.maintenance.expire import expirable_count, targets
from lakeward.pipeline.maintenance.report import WorkKind
from lakeward.pipeline.steps import Step
from lakeward.reading_back import json_object, reading_property

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward.config.maintenance import MaintenanceSettings
    from lakeward.lake.iceberg.debt import Debt
    from lakeward.lake.iceberg.metadata import TableMetadata
    from lakeward.pipeline.context import TableContext

# A property of the mirror.
MAINTAINED_PROPERTY = "lakeward.maintained"


@dataclass(frozen=True)
class Maintained(Record):
    """What maintenance left when it was last done: some files stay, as in partitions with one small file each.

    ``at`` and ``orphans`` are seconds since 1970: when it was done, and when orphan files were last looked for.
    """

    at: float = 0.0
    orphans: float = 0.0
    spare_files: int = 0
    delete_files: int = 0
    changelog_files: int = 0


def last_maintained(mirror: TableMetadata) -> Maintained:
    """Read what the mirror says of its last maintenance."""
    text = mirror.property(MAINTAINED_PROPERTY)
    if not text:
        return Maintained()
    with reading_property(MAINTAINED_PROPERTY, of="mirror"):
        return Maintained.from_dict(json_object(text))


def maintained_at(mirror: TableMetadata) -> str | None:
    """Give when a table was last maintained, as text; None: never."""
    at = last_maintained(mirror).at
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds") if at else None


def record_maintained(context: TableContext, *, orphans: bool) -> None:
    """Note on the mirror what maintenance left."""
    mirror, changelog = context.mirror.metadata(), context.changelog.metadata()
    debt, now = debt_of(mirror), time.time()
    noted = Maintained(
        at=now,
        orphans=now if orphans else last_maintained(mirror).orphans,
        spare_files=spare_files(debt, context.settings.maintenance.file_bytes),
        delete_files=debt.delete_files,
        changelog_files=debt_of(changelog).data_files,
    )
    context.mirror.set_properties({MAINTAINED_PROPERTY: json.dumps(noted.to_dict())})
    context.reached(Step.MAINTAIN_RECORD)


def spare_files(debt: Debt, file_bytes: int) -> int:
    """Give how many data files a table has more than its size needs."""
    size = debt.average_file_bytes * (debt.data_files + debt.delete_files)
    return max(0, debt.data_files - max(1, math.ceil(size / file_bytes)))


def due_work(context: TableContext, mirror: TableMetadata, changelog: TableMetadata) -> Iterator[WorkKind]:
    """Give the kinds of work whose debt is beyond the table's limits."""
    limits, last, debt = context.settings.maintenance, last_maintained(mirror), debt_of(mirror)
    if is_worn(debt, last, limits):
        yield WorkKind.COMPACT
    if debt_of(changelog).data_files - last.changelog_files >= limits.small_files:
        yield WorkKind.CLUSTER
    if any(_has_old(context, table.look(), limits) for _, table in targets(context)):
        yield WorkKind.EXPIRE
    if time.time() - (last.orphans or _made(mirror)) >= limits.orphan_age:
        yield WorkKind.ORPHANS


def is_worn(debt: Debt, last: Maintained, limits: MaintenanceSettings) -> bool:
    """Tell whether a mirror's files have too many deleted rows, or have become too many since they were merged."""
    return (
        debt.deleted_share >= limits.deleted_share
        or debt.delete_files - last.delete_files >= limits.delete_files
        or spare_files(debt, limits.file_bytes) - last.spare_files >= limits.small_files
    )


def _has_old(context: TableContext, metadata: TableMetadata | None, limits: MaintenanceSettings) -> bool:
    if metadata is None or metadata.snapshot_count() < limits.snapshots:
        return False
    return expirable_count(context, metadata) >= limits.snapshots


def _made(mirror: TableMetadata) -> float:
    """Give when a table was made, in seconds since 1970: it has no old files before it is old itself."""
    return min((one.committed_ms for one in mirror.snapshots().values()), default=0) / 1000
