"""The state store in memory, for tests and experiments: nothing outlives the process."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from lakeward.model import Disposition, FileClass, LedgerEntry, Progress, TableId
from lakeward.state import codec
from lakeward.state.base import Lease, LeaseOwner, RegisteredTable, TableRun
from lakeward.state.leases import is_live, lease_held_error, lease_lost_error

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator


@dataclass(frozen=True)
class _Ledger:
    snapshot_id: int
    progress: Progress
    entries: dict[str, LedgerEntry] = field(default_factory=dict)


class MemoryStateStore:
    """A :class:`~lakeward.state.base.StateStore` for the threads of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._leases: dict[TableId, Lease] = {}
        self._ledgers: dict[TableId, _Ledger] = {}
        self._registry: dict[TableId, RegisteredTable] = {}
        self._runs: list[dict[str, Any]] = []

    def close(self) -> None:
        """Do nothing: there is no connection."""

    def acquire_lease(self, table: TableId, owner: LeaseOwner, *, seconds: float) -> Lease:
        """Take the table's lease, or raise LeaseHeldError."""
        with self._lock:
            held = self._leases.get(table)
            if held is not None and is_live(held, datetime.now(UTC)):
                raise lease_held_error(held)
            lease = self._leases[table] = Lease(table, owner, uuid4().hex, _end(seconds))
            return lease

    def renew_lease(self, lease: Lease, *, seconds: float) -> Lease:
        """Extend the lease, or raise ConflictError when it is no longer ours."""
        with self._lock:
            held = self._leases.get(lease.table)
            if held is None:
                raise lease_lost_error(lease.table, "it is gone from the state store")
            if held.token != lease.token:
                raise lease_lost_error(lease.table, f"{held.owner} took it over")
            renewed = self._leases[lease.table] = replace(lease, expires_at=_end(seconds))
            return renewed

    def release_lease(self, lease: Lease) -> None:
        """Release the lease if it is still ours."""
        with self._lock:
            held = self._leases.get(lease.table)
            if held is not None and held.token == lease.token:
                del self._leases[lease.table]

    def lease_of(self, table: TableId) -> Lease | None:
        """Return the table's live lease."""
        with self._lock:
            lease = self._leases.get(table)
        return lease if lease is not None and is_live(lease, datetime.now(UTC)) else None

    def leases(self) -> Iterator[Lease]:
        """Return all live leases, ordered by table."""
        with self._lock:
            held = [self._leases[table] for table in sorted(self._leases)]
        now = datetime.now(UTC)
        return iter([lease for lease in held if is_live(lease, now)])

    def ledger_position(self, table: TableId) -> int | None:
        """Return the changelog snapshot that the cached ledger reflects."""
        ledger = self._ledger(table)
        return ledger.snapshot_id if ledger is not None else None

    def progress(self, table: TableId) -> Progress | None:
        """Return the cached progress."""
        ledger = self._ledger(table)
        return ledger.progress if ledger is not None else None

    def replace_ledger(
        self, table: TableId, snapshot_id: int, progress: Progress, entries: Iterable[LedgerEntry]
    ) -> None:
        """Replace the cache of this table."""
        by_path = {entry.path: entry for entry in entries}
        with self._lock:
            self._ledgers[table] = _Ledger(snapshot_id, progress, by_path)

    def extend_ledger(
        self, table: TableId, *, after: int | None, snapshot_id: int, progress: Progress, entries: Iterable[LedgerEntry]
    ) -> bool:
        """Add one op's entries if the cache is at position ``after``."""
        by_path = {entry.path: entry for entry in entries}
        with self._lock:
            ledger = self._ledgers.get(table)
            if (ledger.snapshot_id if ledger is not None else None) != after:
                return False
            earlier = ledger.entries if ledger is not None else {}
            self._ledgers[table] = _Ledger(snapshot_id, progress, {**earlier, **by_path})
            return True

    def lookup(self, table: TableId, paths: Collection[str]) -> dict[str, LedgerEntry]:
        """Return the entries of those paths that are in the ledger."""
        entries = self._entries(table)
        return {path: entries[path] for path in paths if path in entries}

    def load_parts(self, table: TableId, generation: int) -> list[LedgerEntry]:
        """Return the load parts of a generation, ordered by path."""
        parts = [
            entry
            for entry in self._entries(table).values()
            if entry.file_class is FileClass.LOAD and entry.generation == generation
        ]
        return sorted(parts, key=lambda entry: entry.path)

    def count_files(self, table: TableId) -> int:
        """Return the number of files in the ledger cache, without those that only received their number."""
        return sum(entry.disposition is not Disposition.ARRIVED for entry in self._entries(table).values())

    def has_files(self, table: TableId, *, generation: int | None = None) -> bool:
        """Whether the ledger cache holds any file of the table, in one generation if it is given."""
        entries = self._entries(table).values()
        return any(generation is None or entry.generation == generation for entry in entries)

    def forget_ledger(self, table: TableId) -> None:
        """Drop this table's cached ledger and progress."""
        with self._lock:
            self._ledgers.pop(table, None)

    def register(self, table: TableId, *, active: bool) -> bool:
        """Add a table to the registry if it is new."""
        with self._lock:
            is_new = table not in self._registry
            if is_new:
                self._registry[table] = RegisteredTable(table, active)
            return is_new

    def set_table(
        self, table: TableId, *, active: bool | None = None, settings: dict[str, Any] | None = None
    ) -> RegisteredTable:
        """Register the table if it is new, merge ``settings``, set the flag if given."""
        with self._lock:
            found = self._registry.get(table) or RegisteredTable(table, active=False)
            changed = self._registry[table] = codec.changed_table(found, active, settings)
            return _copy(changed)

    def set_error(self, table: TableId, error: str | None) -> None:
        """Store, or clear, the error that stopped the table last."""
        with self._lock:
            found = self._registry.get(table)
            if found is not None or error is not None:
                known = found or RegisteredTable(table, active=False)
                self._registry[table] = replace(known, error=codec.error_text(error))

    def unregister(self, table: TableId) -> bool:
        """Remove a table from the registry."""
        with self._lock:
            return self._registry.pop(table, None) is not None

    def rename_table(self, table: TableId, name: TableId) -> None:
        """Move a table's registration and runs to another name."""
        with self._lock:
            found = self._registry.pop(table, None)
            if found is not None:
                self._registry.setdefault(name, replace(found, table=name))
            key = codec.table_key(table)
            for row in self._runs:
                if key.items() <= row.items():
                    row.update(codec.table_key(name))

    def registered(self) -> Iterator[RegisteredTable]:
        """Return all registered tables, ordered by name."""
        with self._lock:
            return iter([_copy(self._registry[table]) for table in sorted(self._registry)])

    def find_table(self, table: TableId) -> RegisteredTable | None:
        """Return a registered table, None when it is not registered."""
        with self._lock:
            found = self._registry.get(table)
            return _copy(found) if found is not None else None

    def record_run(self, run: TableRun) -> None:
        """Add to the run history."""
        with self._lock:
            self._runs.append(codec.run_row(run))

    def runs(self, table: TableId | None = None, *, run_id: str | None = None, limit: int = 50) -> list[TableRun]:
        """Return the run history by start, newest first."""
        with self._lock:
            # Reversed first: the sort is stable, so that of two runs with the same start the later one comes first.
            found = [codec.table_run(row) for row in reversed(self._runs)]
        wanted = [run for run in found if table in (None, run.table) and run_id in (None, run.run_id)]
        return sorted(wanted, key=lambda run: run.started_at, reverse=True)[:limit]

    def prune_runs(self, *, before: datetime) -> int:
        """Delete the history of runs that started before a moment."""
        moment = codec.with_zone(before)
        with self._lock:
            kept = [row for row in self._runs if row["started_at"] >= moment]
            pruned = len(self._runs) - len(kept)
            self._runs = kept
            return pruned

    def _ledger(self, table: TableId) -> _Ledger | None:
        with self._lock:
            return self._ledgers.get(table)

    def _entries(self, table: TableId) -> dict[str, LedgerEntry]:
        ledger = self._ledger(table)
        return ledger.entries if ledger is not None else {}


def _end(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


def _copy(found: RegisteredTable) -> RegisteredTable:
    """Return a copy whose settings the caller may change."""
    return codec.changed_table(found, None, None)
