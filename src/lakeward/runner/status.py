"""The status of tables: state, rows, waiting and unknown files, and decisions to be made.

Everything is read from listings, table metadata and the state store: no Spark job, unless the state store was wiped
and a table's ledger must be read from the lake again.
"""

from __future__ import annotations

import shlex
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lakeward.documents import Document
from lakeward.formats.file_order import is_time
from lakeward.iceberg.rewrite import Debt, debt_of
from lakeward.mirror.maintenance import maintained_at
from lakeward.mirror.op.choose import Earliest, Scan, pending_files
from lakeward.mirror.op.effect import bases_of
from lakeward.mirror.op.erased import unfinished_erasure
from lakeward.mirror.op.ledger import progress_of
from lakeward.mirror.op.loads import undecided_loads
from lakeward.mirror.op.report import Outcome
from lakeward.mirror.run import unfinished_op
from lakeward.runner.freshness import Applied, Freshness, judge_freshness, unknown_freshness
from lakeward.session.sessions import table_session
from lakeward.spark.errors import as_lakeward_error
from lakeward.views.verification.verify import last_verified
from lakeward.views.versions.schedule import SnapshotSchedule, describe_schedule

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakeward.formats.dms.listing import UnreadFile
    from lakeward.mirror.op.context import TableContext
    from lakeward.model import Progress
    from lakeward.runner.tables import KnownTable
    from lakeward.runner.workbench import Workbench
    from lakeward.state.base import TableRun
    from lakeward.views.verification.report import Verified


@dataclass(frozen=True)
class TableStatus(Document):
    """One table as `lakeward status` shows it.

    ``state`` is ``inactive``, ``failed``, ``interrupted`` (an op is logged and not yet applied), ``pending`` or
    ``current``; ``rows_ignored`` counts updates and deletes that were left out since the last load, because the table
    has no key; ``unread_files`` are the first of those that no rule reads, each with the reason and a pattern that
    would read it, ``unknown_files`` their paths; ``unfinished_erasure`` is the op of an erasure that was interrupted;
    ``next_command`` is the command for a person to call next; ``schedule`` what the table's schedule of snapshots has
    made and what is due.
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
    hint: str | None = None
    locked_by: str | None = None
    last_run: str | None = None
    last_outcome: str | None = None
    last_seconds: float | None = None
    rows_per_second: float | None = None
    debt: Debt | None = None
    changelog_debt: Debt | None = None
    maintained: str | None = None
    verified: Verified | None = None
    unfinished_erasure: int | None = None
    warnings: tuple[str, ...] = ()
    next_command: str | None = None
    freshness: Freshness | None = None
    rows_ignored: int = 0
    unread_files: tuple[UnreadFile, ...] = ()
    schedule: SnapshotSchedule | None = None

    @property
    def waits_for_decision(self) -> bool:
        """Whether a person has to do something that no later run does."""
        is_erasing = self.unfinished_erasure is not None
        return self.state in ("inactive", "failed") or bool(self.quarantined) or is_erasing or bool(self.warnings)


@dataclass(frozen=True)
class StatusTotals(Document):
    """All tables together; the age is that of the oldest file that waits.

    ``states`` counts the tables by state, ``freshness`` those with an objective by verdict.
    """

    tables: int = 0
    states: dict[str, int] = field(default_factory=dict)
    rows: int = 0
    files_pending: int = 0
    bytes_pending: int = 0
    oldest_pending_seconds: float | None = None
    quarantined: int = 0
    freshness: dict[str, int] = field(default_factory=dict)
    rows_ignored: int = 0


@dataclass(frozen=True)
class _Pending:
    files: int
    size: int
    earliest: Earliest

    @property
    def oldest_seconds(self) -> float | None:
        modified = self.earliest.mtime_us
        return max(0.0, time.time() - modified / 1e6) if modified is not None else None


def status_totals(statuses: Sequence[TableStatus]) -> StatusTotals:
    """Return the totals of statuses."""
    ages = [status.oldest_pending_seconds for status in statuses if status.oldest_pending_seconds is not None]
    return StatusTotals(
        tables=len(statuses),
        states=dict(Counter(status.state for status in statuses)),
        rows=sum(status.rows or 0 for status in statuses),
        files_pending=sum(status.files_pending for status in statuses),
        bytes_pending=sum(status.bytes_pending for status in statuses),
        oldest_pending_seconds=max(ages, default=None),
        quarantined=sum(status.quarantined for status in statuses),
        freshness=dict(Counter(status.freshness.verdict.value for status in statuses if status.freshness)),
        rows_ignored=sum(status.rows_ignored for status in statuses),
    )


def table_statuses(bench: Workbench, tables: Iterable[KnownTable]) -> list[TableStatus]:
    """Return the status of tables; one that cannot be read is reported with the reason and does not hide the others.

    They share one session, as every new session opens the catalog again. Several tables are read at the same time:
    with lake and landing in a remote store, most of the time is spent waiting.
    """
    held = {lease.table: str(lease.owner) for lease in bench.state.leases()}
    spark = table_session(bench.spark)

    def look(known: KnownTable) -> TableStatus:
        return _status(bench.context(known, spark=spark), known, held.get(known.table))

    with ThreadPoolExecutor(bench.config.parallel, "status") as pool:
        try:
            return list(pool.map(look, tables))
        except BaseException:
            # Ctrl-C must not wait for hundreds of tables.
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _status(context: TableContext, known: KnownTable, holder: str | None) -> TableStatus:
    try:
        return _read_status(context, known, holder)
    except Exception as error:
        stopped = as_lakeward_error(error, str(known.table))
        command = f"lakeward plan {known.table}"
        objective = _objective(known)
        return TableStatus(
            str(known.table),
            "failed",
            error=stopped.message,
            hint=stopped.hint,
            locked_by=holder,
            next_command=command,
            freshness=unknown_freshness(objective, "its status cannot be read") if objective is not None else None,
        )


def _read_status(context: TableContext, known: KnownTable, holder: str | None) -> TableStatus:
    changelog, mirror = context.changelog.find_metadata(), context.mirror.find_metadata()
    bases = bases_of(changelog, mirror)
    progress = progress_of(context, bases)
    scan = Scan(logged_op=unfinished_op(context, bases) if bases.changelog else None)
    pending = _pending(context, progress, scan)
    erasing = unfinished_erasure(changelog)
    state = _state(known, interrupted=scan.logged_op is not None, pending=pending.files)
    undecided = undecided_loads(context, progress.generation)
    return TableStatus(
        table=str(context.table),
        state=state,
        generation=progress.generation.number if progress.generation else None,
        op=progress.op,
        rows=bases.mirror.rows if bases.mirror else None,
        files_consumed=context.state.count_files(context.table),
        files_pending=pending.files,
        bytes_pending=pending.size,
        oldest_pending_seconds=pending.oldest_seconds,
        unknown_files=tuple(file.path for file in scan.unread),
        unknown_count=scan.unread_count,
        unread_files=tuple(scan.unread),
        quarantined=bases.bad_rows,
        rows_ignored=progress.rows_ignored,
        error=known.error,
        locked_by=holder,
        debt=debt_of(mirror) if mirror else None,
        changelog_debt=debt_of(changelog) if changelog else None,
        maintained=maintained_at(mirror) if mirror else None,
        verified=last_verified(mirror, progress) if mirror else None,
        unfinished_erasure=erasing.op if erasing else None,
        warnings=(undecided,) if undecided else (),
        next_command=_next_command(known, state, bases.bad_rows, is_erasing=erasing is not None),
        freshness=_freshness(known, progress, pending, scan, undecided),
        schedule=describe_schedule(context, mirror, progress, _waiting_since(pending, scan)) if known.active else None,
        **_last_run(context.state.runs(context.table, limit=1)),
    )


def _last_run(runs: Sequence[TableRun]) -> dict[str, Any]:
    """Return the end, outcome, duration and speed of the last run."""
    if not runs:
        return {}
    last, report = runs[0], runs[0].report
    seconds = sum(op["seconds"] for op in report["ops"])
    return {
        "last_run": last.finished_at.isoformat(),
        "last_outcome": last.outcome,
        "last_seconds": report["seconds"],
        "rows_per_second": report["rows_in"] / seconds if report["rows_in"] and seconds else None,
        "hint": report["hint"] if last.outcome == Outcome.FAILED else None,
    }


def _pending(context: TableContext, progress: Progress, scan: Scan) -> _Pending:
    count, size, earliest = 0, 0, Earliest()
    for file in pending_files(context, progress, scan):
        count += 1
        size += file.identity.size
        earliest.add(file)
    return _Pending(count, size, earliest)


def _objective(known: KnownTable) -> float | None:
    """Return the freshness objective of a table, None without one; an inactive table has none to meet."""
    return known.settings.freshness if known.active else None


def _freshness(
    known: KnownTable, progress: Progress, pending: _Pending, scan: Scan, undecided: str | None
) -> Freshness | None:
    """Return whether the table meets its objective; the files of an op that is not applied yet wait, too."""
    objective = _objective(known)
    if objective is None:
        return None
    is_applied = scan.logged_op is None
    applied = Applied(
        newest_commit=progress.newest_commit if is_applied else None,
        newest_name=_newest_name(progress) if is_applied else "",
        waiting_since=_waiting_since(pending, scan),
        obstacle=_obstacle(known, progress, scan, undecided),
    )
    return judge_freshness(objective, applied, now=time.time_ns() // 1000)


def _newest_name(progress: Progress) -> str:
    """Return the time in the name of the file with the newest change; names of the user's own choice hold none."""
    found = progress.last_place.file_time if progress.last_place else ""
    return found if is_time(found) else ""


def _waiting_since(pending: _Pending, scan: Scan) -> int | None:
    """Return the earliest time of the files that are not applied, in microseconds since 1970."""
    waiting = [time for time in (pending.earliest.micros, scan.logged.micros) if time is not None]
    return min(waiting, default=None)


def _obstacle(known: KnownTable, progress: Progress, scan: Scan, undecided: str | None) -> str | None:
    """Return why a mirror may lack more than the files that wait; None if nothing shows that."""
    if progress.generation is None:
        return "nothing was loaded yet"
    if known.error:
        return "its last run failed"
    if undecided:
        return "load files wait for a decision"
    if scan.logged_op is not None and scan.logged.micros is None:
        return f"op {scan.logged_op} is logged and not applied, and none of its files is in landing"
    return None


def _state(known: KnownTable, *, interrupted: bool, pending: int) -> str:
    if not known.active:
        return "inactive"
    if known.error:
        return "failed"
    if interrupted:
        return "interrupted"
    return "pending" if pending else "current"


def _next_command(known: KnownTable, state: str, quarantined: int, *, is_erasing: bool) -> str | None:
    table = shlex.quote(str(known.table))
    if is_erasing:
        return f"lakeward erase {table} --resume"
    if state == "inactive" and not known.settings.primary_key:
        return f"lakeward tables set {table} --primary-key COLUMN --activate"
    if state == "inactive":
        return f"lakeward tables activate {table}"
    if state in ("pending", "interrupted"):
        return f"lakeward run {table}"
    if state == "failed":
        return f"lakeward plan {table}"
    return f"lakeward quarantine list {table}" if quarantined else None
