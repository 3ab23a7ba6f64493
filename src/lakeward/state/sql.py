"""The state store on a SQL database, written in SQLAlchemy Core: SQLite and PostgreSQL."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from sqlalchemy import and_, delete, exists, func, insert, select, update
from sqlalchemy.schema import CreateTable, DropTable

from lakeward.model import Disposition, FileClass, LedgerEntry, Progress, TableId
from lakeward.state import codec
from lakeward.state.base import Lease, LeaseOwner, RegisteredTable, TableRun
from lakeward.state.database import files, incoming_files, leases, ledgers, registry, runs
from lakeward.state.leases import is_live, lease_held_error, lease_lost_error

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from sqlalchemy import ColumnElement, Connection, RowMapping, Table

    from lakeward.state.database import Database


def rows_of(rows: Table, table: TableId) -> ColumnElement[bool]:
    """Return the condition that selects the rows of a source table."""
    return and_(rows.c.table_schema == table.schema, rows.c.table_name == table.name)


def lock_of(rows: Table, table: TableId) -> str:
    """Return the lock for changing a table's rows; leases do not wait for a ledger that is being filled."""
    return f"{rows.name} {table}"


def get_row(connection: Connection, rows: Table, table: TableId) -> RowMapping | None:
    """Return the only row of a source table, None if there is none."""
    return connection.execute(select(rows).where(rows_of(rows, table))).mappings().one_or_none()


def put_row(connection: Connection, rows: Table, table: TableId, values: dict[str, Any]) -> None:
    """Replace the only row of a source table; the lock is held, so that no reader finds it missing."""
    connection.execute(delete(rows).where(rows_of(rows, table)))
    connection.execute(insert(rows).values(values))


T = TypeVar("T")

# SQLite allows 999 variables per statement in old builds.
_PAGE = 500


class SqlLedger:
    """The part of :class:`SqlStateStore` that records consumed files."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def ledger_position(self, table: TableId) -> int | None:
        """Return the changelog snapshot that the cached ledger reflects."""
        with self._database.reading() as connection:
            return _position(connection, table)

    def progress(self, table: TableId) -> Progress | None:
        """Return the cached progress."""
        with self._database.reading() as connection:
            text = connection.execute(select(ledgers.c.progress).where(rows_of(ledgers, table))).scalar()
        return codec.load_progress(table, text) if text is not None else None

    def replace_ledger(
        self, table: TableId, snapshot_id: int, progress: Progress, entries: Iterable[LedgerEntry]
    ) -> None:
        """Replace the cache of this table."""
        with self._database.connected() as connection:
            self._collect(connection, table, entries)
            with self._database.write(connection, lock_of(files, table)):
                connection.execute(delete(files).where(rows_of(files, table)))
                _adopt(connection, table, snapshot_id, progress)

    def extend_ledger(
        self, table: TableId, *, after: int | None, snapshot_id: int, progress: Progress, entries: Iterable[LedgerEntry]
    ) -> bool:
        """Add one op's entries if the cache is at position ``after``."""
        with self._database.connected() as connection:
            self._collect(connection, table, entries)
            with self._database.write(connection, lock_of(files, table)):
                if _position(connection, table) != after:
                    return False
                is_replaced = files.c.path.in_(select(incoming_files.c.path))
                connection.execute(delete(files).where(rows_of(files, table), is_replaced))
                _adopt(connection, table, snapshot_id, progress)
                return True

    def lookup(self, table: TableId, paths: Collection[str]) -> dict[str, LedgerEntry]:
        """Return the entries of those paths that are in the ledger."""
        found: dict[str, LedgerEntry] = {}
        with self._database.reading() as connection:
            for page in _pages(paths):
                query = select(files).where(rows_of(files, table), files.c.path.in_(page))
                found.update((row["path"], codec.file_entry(row)) for row in connection.execute(query).mappings())
        return found

    def load_parts(self, table: TableId, generation: int) -> list[LedgerEntry]:
        """Return the load parts of a generation, ordered by path."""
        is_part = and_(files.c.file_class == FileClass.LOAD.value, files.c.generation == generation)
        with self._database.reading() as connection:
            rows = connection.execute(select(files).where(rows_of(files, table), is_part)).mappings().all()
        # Databases differ in how they sort text.
        return sorted((codec.file_entry(row) for row in rows), key=lambda entry: entry.path)

    def count_files(self, table: TableId) -> int:
        """Return the number of files in the ledger cache, without those that only received their number."""
        counted = and_(rows_of(files, table), files.c.disposition != Disposition.ARRIVED.value)
        with self._database.reading() as connection:
            return connection.execute(select(func.count()).select_from(files).where(counted)).scalar_one()

    def has_files(self, table: TableId, *, generation: int | None = None) -> bool:
        """Whether the ledger cache holds any file of the table, in one generation if it is given."""
        wanted = rows_of(files, table)
        if generation is not None:
            wanted = and_(wanted, files.c.generation == generation)
        with self._database.reading() as connection:
            return bool(connection.execute(select(exists().where(wanted))).scalar())

    def forget_ledger(self, table: TableId) -> None:
        """Drop this table's cached ledger and progress."""
        with self._database.writing(lock_of(files, table)) as connection:
            connection.execute(delete(files).where(rows_of(files, table)))
            connection.execute(delete(ledgers).where(rows_of(ledgers, table)))

    def _collect(self, connection: Connection, table: TableId, entries: Iterable[LedgerEntry]) -> None:
        """Collect all entries in the connection's temporary table, page by page and without a lock.

        Spark may take minutes to produce entries. A lock held that long would let the leases of all other writers
        expire, and some servers end a transaction that stays open that long.
        """
        with self._database.read(connection):
            connection.execute(DropTable(incoming_files, if_exists=True))
            connection.execute(CreateTable(incoming_files))
        for page in _pages(entries):
            rows = {entry.path: codec.file_row(table, entry) for entry in page}
            with self._database.read(connection):
                is_replaced = incoming_files.c.path.in_(rows)
                connection.execute(delete(incoming_files).where(rows_of(incoming_files, table), is_replaced))
                connection.execute(insert(incoming_files), list(rows.values()))


def _position(connection: Connection, table: TableId) -> int | None:
    position: int | None = connection.execute(select(ledgers.c.snapshot_id).where(rows_of(ledgers, table))).scalar()
    return position


def _adopt(connection: Connection, table: TableId, snapshot_id: int, progress: Progress) -> None:
    """Move the collected entries into the ledger and set its position."""
    names = [column.name for column in files.columns]
    connection.execute(insert(files).from_select(names, select(incoming_files)))
    connection.execute(DropTable(incoming_files))
    values = {**codec.table_key(table), "snapshot_id": snapshot_id, "progress": codec.dump_progress(progress)}
    put_row(connection, ledgers, table, values)


def _pages(items: Iterable[T]) -> Iterator[list[T]]:
    iterator = iter(items)
    while page := list(islice(iterator, _PAGE)):
        yield page


class SqlStateStore(SqlLedger):
    """A :class:`~lakeward.state.base.StateStore` in one database; safe for concurrent threads and processes."""

    def close(self) -> None:
        """Close all connections."""
        self._database.close()

    def acquire_lease(self, table: TableId, owner: LeaseOwner, *, seconds: float) -> Lease:
        """Take the table's lease, or raise LeaseHeldError."""
        with self._database.writing(lock_of(leases, table)) as connection:
            held = _find_lease(connection, table)
            now = self._database.now(connection)
            if held is not None and is_live(held, now):
                raise lease_held_error(held)
            lease = Lease(table, owner, uuid4().hex, now + timedelta(seconds=seconds))
            put_row(connection, leases, table, codec.lease_row(lease))
            return lease

    def renew_lease(self, lease: Lease, *, seconds: float) -> Lease:
        """Extend the lease, or raise ConflictError when it is no longer ours."""
        with self._database.writing(lock_of(leases, lease.table)) as connection:
            held = _find_lease(connection, lease.table)
            if held is None:
                raise lease_lost_error(lease.table, "it is gone from the state store")
            if held.token != lease.token:
                raise lease_lost_error(lease.table, f"{held.owner} took it over")
            renewed = replace(lease, expires_at=self._database.now(connection) + timedelta(seconds=seconds))
            put_row(connection, leases, lease.table, codec.lease_row(renewed))
            return renewed

    def release_lease(self, lease: Lease) -> None:
        """Release the lease if it is still ours."""
        with self._database.writing(lock_of(leases, lease.table)) as connection:
            connection.execute(delete(leases).where(rows_of(leases, lease.table), leases.c.token == lease.token))

    def lease_of(self, table: TableId) -> Lease | None:
        """Return the table's live lease."""
        with self._database.reading() as connection:
            lease = _find_lease(connection, table)
            now = self._database.now(connection)
        return lease if lease is not None and is_live(lease, now) else None

    def leases(self) -> Iterator[Lease]:
        """Return all live leases, ordered by table."""
        with self._database.reading() as connection:
            rows = connection.execute(select(leases)).mappings().all()
            now = self._database.now(connection)
        held = sorted((codec.lease_of_row(row) for row in rows), key=lambda lease: lease.table)
        return iter([lease for lease in held if is_live(lease, now)])

    def register(self, table: TableId, *, active: bool) -> bool:
        """Add a table to the registry if it is new."""
        with self._database.writing(lock_of(registry, table)) as connection:
            return _register(connection, table, active=active)

    def set_table(
        self, table: TableId, *, active: bool | None = None, settings: dict[str, Any] | None = None
    ) -> RegisteredTable:
        """Register the table if it is new, merge ``settings``, set the flag if given."""
        with self._database.writing(lock_of(registry, table)) as connection:
            _register(connection, table, active=False)
            row = connection.execute(select(registry).where(rows_of(registry, table))).mappings().one()
            changed = codec.changed_table(codec.registered_table(row), active, settings)
            values = {"active": changed.active, "settings": codec.dump_json(changed.settings)}
            connection.execute(update(registry).where(rows_of(registry, table)).values(values))
            return changed

    def set_error(self, table: TableId, error: str | None) -> None:
        """Store, or clear, the error that stopped the table last."""
        with self._database.writing(lock_of(registry, table)) as connection:
            if error is not None:
                _register(connection, table, active=False)
            values = {"error": codec.error_text(error)}
            connection.execute(update(registry).where(rows_of(registry, table)).values(values))

    def unregister(self, table: TableId) -> bool:
        """Remove a table from the registry."""
        with self._database.writing(lock_of(registry, table)) as connection:
            return bool(connection.execute(delete(registry).where(rows_of(registry, table))).rowcount)

    def rename_table(self, table: TableId, name: TableId) -> None:
        """Move a table's registration and runs to another name."""
        values = codec.table_key(name)
        with self._database.writing(lock_of(registry, name)) as connection:
            if get_row(connection, registry, name) is None:
                connection.execute(update(registry).where(rows_of(registry, table)).values(values))
            connection.execute(delete(registry).where(rows_of(registry, table)))
            connection.execute(update(runs).where(rows_of(runs, table)).values(values))

    def registered(self) -> Iterator[RegisteredTable]:
        """Return all registered tables, ordered by name."""
        with self._database.reading() as connection:
            rows = connection.execute(select(registry)).mappings().all()
        return iter(sorted((codec.registered_table(row) for row in rows), key=lambda found: found.table))

    def find_table(self, table: TableId) -> RegisteredTable | None:
        """Return a registered table, None when it is not registered."""
        with self._database.reading() as connection:
            row = get_row(connection, registry, table)
        return codec.registered_table(row) if row is not None else None

    def record_run(self, run: TableRun) -> None:
        """Add to the run history."""
        with self._database.writing() as connection:
            connection.execute(insert(runs).values(id=codec.new_row_id(), **codec.run_row(run)))

    def runs(self, table: TableId | None = None, *, run_id: str | None = None, limit: int = 50) -> list[TableRun]:
        """Return the run history by start, newest first."""
        query = select(runs).order_by(runs.c.started_at.desc(), runs.c.id.desc()).limit(limit)
        if table is not None:
            query = query.where(rows_of(runs, table))
        if run_id is not None:
            query = query.where(runs.c.run_id == run_id)
        with self._database.reading() as connection:
            return [codec.table_run(row) for row in connection.execute(query).mappings()]

    def prune_runs(self, *, before: datetime) -> int:
        """Delete the history of runs that started before a moment."""
        moment = codec.with_zone(before)
        with self._database.writing() as connection:
            return connection.execute(delete(runs).where(runs.c.started_at < moment)).rowcount


def _find_lease(connection: Connection, table: TableId) -> Lease | None:
    row = get_row(connection, leases, table)
    return codec.lease_of_row(row) if row is not None else None


def _register(connection: Connection, table: TableId, *, active: bool) -> bool:
    if get_row(connection, registry, table) is not None:
        return False
    values = {**codec.table_key(table), "active": active, "settings": codec.dump_json({}), "error": None}
    connection.execute(insert(registry).values(values))
    return True
