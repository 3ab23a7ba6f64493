"""What maintenance did to a table and what it saved, as typed values."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from lakeward.documents import Document

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakeward.lake.iceberg.debt import Debt
    from lakeward.pipeline.report import Outcome


class WorkKind(StrEnum):
    """Kinds of maintenance, in the order in which they are done."""

    COMPACT = "compact"
    CLUSTER = "cluster"
    EXPIRE = "expire"
    ORPHANS = "orphans"


@dataclass(frozen=True)
class WorkReport:
    """What one kind of work did to one of a table's tables: ``mirror``, ``changelog`` or ``history``.

    ``removed_files`` are data and delete files that readers no longer open, or orphans deleted from storage, of which
    ``paths`` names some. ``bytes_read`` were rewritten and became ``bytes_written``.
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
        return max((one.exit_code for one in self.tables), default=0)


def summed(work: Iterable[WorkReport]) -> tuple[WorkReport, ...]:
    """Give one report for each kind of work on each target, in order."""
    found: dict[tuple[str, str], WorkReport] = {}
    for one in work:
        key = (one.kind, one.target)
        found[key] = found[key] + one if key in found else one
    return tuple(found.values())
