"""How every table stands: state, rows, what waits, what nobody can read, what needs a decision."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from lakeward.errors import LakewardError
from lakeward.pipeline.choose import pending_files
from lakeward.pipeline.effect import capture
from lakeward.pipeline.ledger import current_progress
from lakeward.pipeline.quarantine import count_bad_rows
from lakeward.pipeline.recover import unfinished_op
from lakeward.sources.dms.listing import list_unknown

if TYPE_CHECKING:
    from lakeward.controller.tables import KnownTable
    from lakeward.model import Progress
    from lakeward.pipeline.context import TableContext

_UNKNOWN_SHOWN = 20


@dataclass(frozen=True)
class TableStatus:
    """One table as `lakeward status` shows it.

    ``state`` is ``inactive``, ``failed``, ``interrupted`` (an op is logged and not yet applied), ``pending`` or
    ``current``; ``next_command`` is what helps where something waits for a person.
    """

    table: str
    state: str
    generation: int | None = None
    op: int = 0
    rows: int | None = None
    files_consumed: int = 0
    files_pending: int = 0
    bytes_pending: int = 0
    oldest_pending_seconds: float | None = None
    unknown_files: tuple[str, ...] = ()
    unknown_count: int = 0
    quarantined: int = 0
    error: str | None = None
    locked_by: str | None = None
    last_run: str | None = None
    next_command: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Give plain data for JSON."""
        return asdict(self)


def table_status(context: TableContext, known: KnownTable) -> TableStatus:
    """Look at one table; one that cannot be looked at is reported with the reason and does not hide the others."""
    try:
        return _looked_at(context, known)
    except LakewardError as error:
        hint = f" (try: {error.hint})" if error.hint else ""
        return TableStatus(str(context.table), "failed", error=f"{error.message}{hint}")


def _looked_at(context: TableContext, known: KnownTable) -> TableStatus:
    bases = capture(context)
    progress = current_progress(context, bases.changelog.id if bases.changelog else None)
    pending = _pending(context, progress)
    quarantined = count_bad_rows(context)
    unknown = [file.path for file in list_unknown(context.storage, context.folder, context.settings)]
    lease = context.state.lease_of(context.table)
    runs = context.state.runs(context.table, limit=1)
    interrupted = unfinished_op(context, bases) is not None if bases.changelog else False
    state = _state(known, interrupted=interrupted, pending=pending[0])
    return TableStatus(
        table=str(context.table),
        state=state,
        generation=progress.generation.number if progress.generation else None,
        op=progress.op,
        rows=bases.mirror.rows if bases.mirror else None,
        files_consumed=context.state.count_files(context.table),
        files_pending=pending[0],
        bytes_pending=pending[1],
        oldest_pending_seconds=pending[2],
        unknown_files=tuple(sorted(unknown)[:_UNKNOWN_SHOWN]),
        unknown_count=len(unknown),
        quarantined=quarantined,
        error=known.error,
        locked_by=str(lease.owner) if lease else None,
        last_run=runs[0].finished_at.isoformat() if runs else None,
        next_command=_next_command(known, state, quarantined),
    )


def _pending(context: TableContext, progress: Progress) -> tuple[int, int, float | None]:
    """Count what waits: files, bytes, age of the oldest in seconds."""
    count, size, oldest = 0, 0, None
    for file in pending_files(context, progress):
        count += 1
        size += file.identity.size
        oldest = min(oldest or file.identity.mtime_us, file.identity.mtime_us)
    return count, size, max(0.0, time.time() - oldest / 1e6) if oldest else None


def _state(known: KnownTable, *, interrupted: bool, pending: int) -> str:
    if not known.active:
        return "inactive"
    if known.error:
        return "failed"
    if interrupted:
        return "interrupted"
    return "pending" if pending else "current"


def _next_command(known: KnownTable, state: str, quarantined: int) -> str | None:
    if state == "inactive":
        return f"lakeward tables set {known.table} --primary-key COLUMN --activate"
    if state in ("pending", "interrupted"):
        return f"lakeward run {known.table}"
    if state == "failed":
        return f"lakeward plan {known.table}"
    return f"lakeward quarantine list {known.table}" if quarantined else None
