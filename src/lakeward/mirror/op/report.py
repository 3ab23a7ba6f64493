"""Reports of runs and plans: the library's return values, which the commands print."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from lakeward.documents import Document

if TYPE_CHECKING:
    from lakeward.mirror.maintenance import TableMaintenance
    from lakeward.mirror.op.changelog import LoadDecision
    from lakeward.mirror.op.check import RowChanges
    from lakeward.mirror.op.effect import PreparedOp


class Outcome(StrEnum):
    """The outcome of a run for one table."""

    DONE = "done"
    IDLE = "idle"
    WAITING = "waiting"
    LOCKED = "locked"
    FAILED = "failed"


@dataclass(frozen=True)
class RowCounts(Document):
    """Rows read from files, by what they are."""

    rows: int = 0
    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    bad: int = 0
    erased: int = 0
    ignored: int = 0

    def __add__(self, other: RowCounts) -> RowCounts:
        return RowCounts(
            self.rows + other.rows,
            self.inserts + other.inserts,
            self.updates + other.updates,
            self.deletes + other.deletes,
            self.bad + other.bad,
            self.erased + other.erased,
            self.ignored + other.ignored,
        )


@dataclass(frozen=True)
class OpReport(Document):
    """One op: what it read, how it was applied, and the state it left.

    ``writes`` and ``removals`` count keys of the mirror; None where the strategy does not count them. ``is_last``:
    nothing else waited when the op's files were chosen. ``decision`` explains how a load was interpreted.
    """

    op: int
    kind: str
    generation: int
    files: int
    size: int
    read: RowCounts
    writes: int | None
    removals: int | None
    strategy: str
    reason: str
    schema_changes: tuple[str, ...] = ()
    unstable_files: tuple[str, ...] = ()
    late: bool = False
    recovered: bool = False
    is_last: bool = False
    decision: LoadDecision | None = None
    changelog_snapshot: int | None = None
    mirror_snapshot: int | None = None
    mirror_rows: int | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class ScheduledSnapshot(Document):
    """What a run did with the snapshot of a day or hour by the schedule: ``made``, ``renewed`` or ``dropped`` it."""

    version: str
    action: str
    location: str
    rows: int
    op: int


@dataclass(frozen=True)
class TableReport(Document, also=("rows_in", "rows_applied", "rows_quarantined", "rows_ignored")):
    """One table's part in a run. ``warnings`` are repeated until the user answers the question they raise."""

    table: str
    outcome: Outcome
    ops: tuple[OpReport, ...] = ()
    message: str | None = None
    hint: str | None = None
    error_kind: str | None = None
    exit_code: int = 0
    mirror_rows: int | None = None
    maintenance: TableMaintenance | None = None
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0
    snapshots: tuple[ScheduledSnapshot, ...] = ()

    @property
    def rows_in(self) -> int:
        """Rows read from files."""
        return sum(op.read.rows for op in self.ops)

    @property
    def rows_applied(self) -> int:
        """Good rows of ops that reached the mirror."""
        return sum(op.read.rows - op.read.bad for op in self.ops)

    @property
    def rows_quarantined(self) -> int:
        """Rows set aside."""
        return sum(op.read.bad for op in self.ops)

    @property
    def rows_ignored(self) -> int:
        """Updates and deletes that were left out because the table has no key; not counted in ``rows_in``."""
        return sum(op.read.ignored for op in self.ops)


@dataclass(frozen=True)
class RunReport(Document, keys=("run_id", "seconds", "exit_code", "tables")):
    """A whole run."""

    run_id: str
    tables: tuple[TableReport, ...] = field(default_factory=tuple)
    seconds: float = 0.0

    @property
    def failed(self) -> tuple[TableReport, ...]:
        """Tables that failed."""
        return tuple(table for table in self.tables if table.outcome is Outcome.FAILED)

    @property
    def exit_code(self) -> int:
        """0 when no table failed; 2 when all failures are refused configuration; else 3."""
        codes = {table.exit_code for table in self.failed}
        return 0 if not codes else max(codes)

    def table(self, name: str) -> TableReport:
        """Return one table's report by name."""
        return next(table for table in self.tables if table.table == name)


@dataclass(frozen=True)
class Marked(Document):
    """A publication or tag that contains ops which are undone."""

    kind: str
    version: str
    location: str
    op: int


@dataclass(frozen=True)
class TablePlan(Document):
    """The next op that a run would apply to one table. ``replaces`` counts the rows that a reload would change.

    ``snapshots_due`` are the scheduled snapshots that are due now.
    """

    table: str
    outcome: Outcome
    op: OpReport | None = None
    files: tuple[str, ...] = ()
    files_waiting: int = 0
    replaces: RowChanges | None = None
    message: str | None = None
    hint: str | None = None
    error_kind: str | None = None
    exit_code: int = 0
    snapshots_due: tuple[str, ...] = ()


def op_report(prepared: PreparedOp) -> OpReport:
    """Return the report of a prepared op."""
    read = [
        RowCounts(file.rows, file.inserts, file.updates, file.deletes, file.bad, file.erased, file.ignored)
        for file in prepared.summaries
    ]
    folded = prepared.effect.folded
    return OpReport(
        op=prepared.record.op,
        kind=prepared.record.kind,
        generation=prepared.record.generation,
        files=len(prepared.summaries),
        size=sum(summary.identity.size for summary in prepared.summaries),
        read=sum(read, RowCounts()),
        writes=folded.writes if folded else None,
        removals=folded.deletes if folded else None,
        strategy=prepared.effect.plan.strategy,
        reason=prepared.effect.plan.reason,
        schema_changes=prepared.schema_changes,
        unstable_files=prepared.unstable,
        late=prepared.record.late,
        recovered=prepared.is_logged,
        is_last=prepared.is_last,
        decision=prepared.record.decision,
    )
