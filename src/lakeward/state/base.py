"""The state store: registry, leases, ledger cache and run history, behind one interface, and how a store is opened.

It is a cache. Everything in it but the run history and the registration of tables that never ran can be
derived again from the lake, so it may be deleted between any two runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from lakeward.errors import ConfigurationError
from lakeward.redaction import redact_address

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from datetime import datetime
    from pathlib import Path

    from lakeward.config.services import FileAccess
    from lakeward.model import LedgerEntry, Progress, TableId


@dataclass(frozen=True)
class LeaseOwner:
    """Who holds a lease; made by :func:`lakeward.state.leases.current_owner`.

    ``process_started`` distinguishes the owner from a later process with the same id. It is in seconds after boot,
    because times of day move when the clock is set. ``pid_space`` names the boot and the process-id namespace
    (containers may share a host name): only within one of them does an absent process id mean a dead process.
    """

    host: str
    pid: int
    process_started: float
    run_id: str
    pid_space: str = ""

    def __str__(self) -> str:
        return f"run {self.run_id} (process {self.pid} on {self.host})"


@dataclass(frozen=True)
class Lease:
    """The right to write a table until ``expires_at``. ``token`` is never used twice.

    ``expires_at`` is read from the store's clock, which all hosts share; a host's own may differ from it.
    """

    table: TableId
    owner: LeaseOwner
    token: str
    expires_at: datetime


@dataclass(frozen=True)
class RegisteredTable:
    """A table known by discovery or by ``tables set``; ``settings`` holds only what was set by command."""

    table: TableId
    active: bool
    settings: dict[str, Any] = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True)
class TableRun:
    """One table's part in a run, as kept in the history."""

    run_id: str
    table: TableId
    started_at: datetime
    finished_at: datetime
    outcome: str
    report: dict[str, Any]


class StateStore(Protocol):
    """The interface of every store; one contract suite tests them all (``lakeward.testing.state_contract``)."""

    def acquire_lease(self, table: TableId, owner: LeaseOwner, *, seconds: float) -> Lease:
        """Take the table's lease. Raise LeaseHeldError, naming owner and expiry, while a live owner has it.

        An expired lease is taken over; so is one whose owner ran on this host and is dead.
        """

    def renew_lease(self, lease: Lease, *, seconds: float) -> Lease:
        """Extend the lease. Raise ConflictError when it was taken over (another token) or is gone."""

    def release_lease(self, lease: Lease) -> None:
        """Release the lease; do nothing when it is no longer ours."""

    def lease_of(self, table: TableId) -> Lease | None:
        """Return the table's live lease; None when it is free, has expired or its owner is known to be dead."""

    def leases(self) -> Iterator[Lease]:
        """Return all live leases, ordered by table."""

    def ledger_position(self, table: TableId) -> int | None:
        """Return the changelog snapshot that the cached ledger reflects; None when there is no cache."""

    def progress(self, table: TableId) -> Progress | None:
        """Return the cached progress that belongs to :meth:`ledger_position`."""

    def replace_ledger(
        self, table: TableId, snapshot_id: int, progress: Progress, entries: Iterable[LedgerEntry]
    ) -> None:
        """Replace the cache of this table, in one step for readers, streaming ``entries``.

        Entries come in op order; of two with the same path the later counts. They may come slowly (from Spark): no
        other writer waits meanwhile. When they fail midway, the old cache stays.
        """

    def extend_ledger(
        self, table: TableId, *, after: int | None, snapshot_id: int, progress: Progress, entries: Iterable[LedgerEntry]
    ) -> bool:
        """Add one op's entries if the cache is at position ``after``; otherwise change nothing and return False.

        A reader sees the cache before or after the change, or no cache. The same holds after a crash.
        """

    def lookup(self, table: TableId, paths: Collection[str]) -> dict[str, LedgerEntry]:
        """Return the entries of those paths that were recorded; the store pages through any number of paths."""

    def load_parts(self, table: TableId, generation: int) -> list[LedgerEntry]:
        """Return the load parts of a generation, whatever their disposition, ordered by path."""

    def count_files(self, table: TableId) -> int:
        """Return the number of files in the ledger cache, without those that only received their number."""

    def has_files(self, table: TableId, *, generation: int | None = None) -> bool:
        """Whether any file of the table was consumed, in one generation if it is given."""

    def forget_ledger(self, table: TableId) -> None:
        """Drop this table's cached ledger and progress."""

    def register(self, table: TableId, *, active: bool) -> bool:
        """Add a table to the registry if it is new; return whether it was."""

    def set_table(
        self, table: TableId, *, active: bool | None = None, settings: dict[str, Any] | None = None
    ) -> RegisteredTable:
        """Register the table if it is new, merge ``settings`` (a None value unsets), set the flag if given.

        A new table without a flag is inactive.
        """

    def set_error(self, table: TableId, error: str | None) -> None:
        """Store, or clear, the error that stopped the table last; a new table is registered as inactive."""

    def unregister(self, table: TableId) -> bool:
        """Remove a table from the registry; return whether it was there. Its runs stay in the history."""

    def rename_table(self, table: TableId, name: TableId) -> None:
        """Move a table's runs, and its registration unless ``name`` is registered, to ``name``.

        A call that was interrupted is completed by the same call.
        """

    def registered(self) -> Iterator[RegisteredTable]:
        """Return all registered tables, ordered by name."""

    def find_table(self, table: TableId) -> RegisteredTable | None:
        """Return a registered table, None when it is not registered."""

    def record_run(self, run: TableRun) -> None:
        """Add to the run history."""

    def runs(self, table: TableId | None = None, *, run_id: str | None = None, limit: int = 50) -> list[TableRun]:
        """Return the run history by start, newest first: of one table, of one run, or of one table in one run."""

    def prune_runs(self, *, before: datetime) -> int:
        """Delete the history of runs that started before a moment; return the number of entries deleted."""

    def close(self) -> None:
        """Close all connections."""


_SUPPORTED = (
    "sqlite:///file (relative to lakeward.yaml), sqlite:////absolute/file, postgresql://user@host/database, "
    "dynamodb://table?region=…, memory://"
)


def open_state(uri: str, base: Path, access: FileAccess = "private") -> StateStore:
    """Open the store that ``uri`` names; relative paths count from ``base``, ``access`` is for files that are created.

    Raises:
        ConfigurationError: the kind of store is unknown, or the store cannot be opened.
        RetriableError: the store does not answer at the moment.
    """
    scheme, separator, rest = uri.partition("://")
    # Never print the whole URI: it may hold a password.
    shown = redact_address(uri)
    if not separator:
        msg = f"state: {shown!r} is not a URI; supported: {_SUPPORTED}"
        is_file = shown == uri and "//" not in uri
        raise ConfigurationError(msg, hint=f"state: sqlite:///{uri or 'lakeward.db'}" if is_file else None)
    match scheme.lower().partition("+")[0]:
        case "memory":
            from lakeward.state.memory import MemoryStateStore

            return MemoryStateStore()
        case "sqlite":
            return _open_sqlite(_sqlite_file(uri, rest, base), access)
        case "postgresql":
            return _open_postgres(uri)
        case "dynamodb":
            from lakeward.state.dynamodb import DynamoStateStore

            return DynamoStateStore(uri)
    msg = f"state: unknown kind of store {redact_address(scheme)}://; supported: {_SUPPORTED}"
    raise ConfigurationError(msg, hint="state: sqlite:///lakeward.db")


def _open_sqlite(file: Path, access: FileAccess) -> StateStore:
    from lakeward.state.sql import SqlStateStore
    from lakeward.state.sqlite import SqliteDatabase

    return SqlStateStore(SqliteDatabase(file, access))


def _open_postgres(uri: str) -> StateStore:
    from lakeward.state.postgres import PostgresDatabase
    from lakeward.state.sql import SqlStateStore

    return SqlStateStore(PostgresDatabase(uri))


def _sqlite_file(uri: str, rest: str, base: Path) -> Path:
    """Return the file after ``sqlite:///``; a fourth slash makes it absolute."""
    name, shown = rest.removeprefix("/"), redact_address(uri)
    if not rest.startswith("/") or not name or name.endswith("/"):
        msg = f"state: {shown} names no file; supported: {_SUPPORTED}"
        raise ConfigurationError(msg, hint="state: sqlite:///lakeward.db")
    if name == ":memory:":
        msg = f"state: {shown}: an in-memory database differs per connection"
        raise ConfigurationError(msg, hint="state: memory://")
    if "?" in name:
        msg = f"state: {shown} has options after '?', but SQLite stores take none"
        raise ConfigurationError(msg, hint=f"state: {redact_address(uri.partition('?')[0])}")
    return (base / name).resolve()
