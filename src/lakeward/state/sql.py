"""The state store on a SQL database, written in SQLAlchemy Core so that SQLite need not stay the only one."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from sqlalchemy import and_, delete, exists, func, insert, select, update
from sqlalchemy.schema import CreateTable, DropTable

from lakeward.model import FileClass, LedgerEntry, Progress, TableId
from lakeward.state import codec
from lakeward.state.base import Lease, LeaseOwner, RegisteredTable, TableRun
from lakeward.state.leases import is_live, lease_held_error, lease_lost_error
from lakeward.state.sqlite import SqliteDatabase, read, write
from lakeward.state.tables import files, incoming_files, leases, ledgers, registry, runs

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

    from sqlalchemy import ColumnElement, Connection, RowMapping, Table

Item = TypeVar("Item")

# SQLite allows 999 variables per statement in old builds.
_PAGE = 500


class SqlStateStore:
    """A :class:`~lakeward.state.base.StateStore` in one SQLite file; safe for threads and processes at once."""

    def __init__(self, file: Path) -> None:
        self._database = SqliteDatabase(file)

    def close(self) -> None:
        """Let go of connections."""
        self._database.close()

    # Leases

    def acquire_lease(self, table: TableId, owner: LeaseOwner, *, seconds: float) -> Lease:
        """Take the table's lease, or raise LeaseHeldError."""
        with self._database.writing() as connection:
            held = _find_lease(connection, table)
            if held is not None and is_live(held):
                raise lease_held_error(held)
            lease = Lease(table, owner, uuid4().hex, _end(seconds))
            _put_row(connection, leases, table, codec.lease_row(lease))
            return lease

    def renew_lease(self, lease: Lease, *, seconds: float) -> Lease:
        """Extend the lease, or raise ConflictError when it is no longer ours."""
        with self._database.writing() as connection:
            held = _find_lease(connection, lease.table)
            if held is None:
                raise lease_lost_error(lease.table, "it is gone from the state store")
            if held.token != lease.token:
                raise lease_lost_error(lease.table, f"{held.owner} took it over")
            renewed = replace(lease, expires_at=_end(seconds))
            _put_row(connection, leases, lease.table, codec.lease_row(renewed))
            return renewed

    def release_lease(self, lease: Lease) -> None:
        """Give the lease back if it is still ours."""
        with self._database.writing() as connection:
            connection.execute(delete(leases).where(_of(leases, lease.table), leases.c.token == lease.token))

    def lease_of(self, table: TableId) -> Lease | None:
        """The table's live lease."""
        with self._database.reading() as connection:
            lease = _find_lease(connection, table)
        return lease if lease is not None and is_live(lease) else None

    # Ledger cache

    def ledger_position(self, table: TableId) -> int | None:
        """The changelog snapshot the cached ledger reflects."""
        with self._database.reading() as connection:
            return _position(connection, table)

    def progress(self, table: TableId) -> Progress | None:
        """The cached progress."""
        with self._database.reading() as connection:
            text = connection.execute(select(ledgers.c.progress).where(_of(ledgers, table))).scalar()
        return codec.load_progress(text) if text is not None else None

    def replace_ledger(
        self, table: TableId, snapshot_id: int, progress: Progress, entries: Iterable[LedgerEntry]
    ) -> None:
        """Throw the cache of this table away and fill it anew."""
        with self._database.connected() as connection:
            _collect(connection, table, entries)
            with write(connection):
                connection.execute(delete(files).where(_of(files, table)))
                _adopt(connection, table, snapshot_id, progress)

    def extend_ledger(
        self, table: TableId, *, after: int | None, snapshot_id: int, progress: Progress, entries: Iterable[LedgerEntry]
    ) -> bool:
        """Add one op's entries if the cache stands at ``after``."""
        with self._database.connected() as connection:
            _collect(connection, table, entries)
            with write(connection):
                if _position(connection, table) != after:
                    return False
                again = files.c.path.in_(select(incoming_files.c.path))
                connection.execute(delete(files).where(_of(files, table), again))
                _adopt(connection, table, snapshot_id, progress)
                return True

    def lookup(self, table: TableId, paths: Collection[str]) -> dict[str, LedgerEntry]:
        """Entries of those paths that are in the ledger."""
        found: dict[str, LedgerEntry] = {}
        with self._database.reading() as connection:
            for page in _pages(paths):
                query = select(files).where(_of(files, table), files.c.path.in_(page))
                found.update((row["path"], codec.file_entry(row)) for row in connection.execute(query).mappings())
        return found

    def load_parts(self, table: TableId, generation: int) -> list[LedgerEntry]:
        """Load parts of a generation, by path."""
        is_part = and_(files.c.file_class == FileClass.LOAD.value, files.c.generation == generation)
        with self._database.reading() as connection:
            rows = connection.execute(select(files).where(_of(files, table), is_part)).mappings().all()
        # Databases differ in how they sort text.
        return sorted((codec.file_entry(row) for row in rows), key=lambda entry: entry.path)

    def count_files(self, table: TableId) -> int:
        """Number of files in the ledger cache."""
        with self._database.reading() as connection:
            return connection.execute(select(func.count()).select_from(files).where(_of(files, table))).scalar_one()

    def has_files(self, table: TableId, *, generation: int | None = None) -> bool:
        """Whether the ledger cache holds any file of the table, in one generation if it is given."""
        wanted = _of(files, table)
        if generation is not None:
            wanted = and_(wanted, files.c.generation == generation)
        with self._database.reading() as connection:
            return bool(connection.execute(select(exists().where(wanted))).scalar())

    def forget_ledger(self, table: TableId) -> None:
        """Drop this table's cached ledger and progress."""
        with self._database.writing() as connection:
            connection.execute(delete(files).where(_of(files, table)))
            connection.execute(delete(ledgers).where(_of(ledgers, table)))

    # Registry

    def register(self, table: TableId, *, active: bool) -> bool:
        """Add a table to the registry if it is new."""
        with self._database.writing() as connection:
            return _register(connection, table, active=active)

    def set_table(
        self, table: TableId, *, active: bool | None = None, settings: dict[str, Any] | None = None
    ) -> RegisteredTable:
        """Register if needed, lay ``settings`` over what is set, set the flag if given."""
        with self._database.writing() as connection:
            _register(connection, table, active=False)
            row = connection.execute(select(registry).where(_of(registry, table))).mappings().one()
            found = codec.registered_table(row)
            changed = replace(
                found,
                active=found.active if active is None else active,
                settings=codec.lay_over(found.settings, settings or {}),
            )
            values = {"active": changed.active, "settings": codec.dump_json(changed.settings)}
            connection.execute(update(registry).where(_of(registry, table)).values(values))
            return changed

    def set_error(self, table: TableId, error: str | None) -> None:
        """Keep, or clear, the error that stopped the table last."""
        with self._database.writing() as connection:
            if error is not None:
                _register(connection, table, active=False)
            connection.execute(update(registry).where(_of(registry, table)).values(error=error))

    def registered(self) -> Iterator[RegisteredTable]:
        """All registered tables by name."""
        with self._database.reading() as connection:
            rows = connection.execute(select(registry)).mappings().all()
        return iter(sorted((codec.registered_table(row) for row in rows), key=lambda found: found.table))

    def find_table(self, table: TableId) -> RegisteredTable | None:
        """One registered table."""
        with self._database.reading() as connection:
            row = _get_row(connection, registry, table)
        return codec.registered_table(row) if row is not None else None

    # Run history

    def record_run(self, run: TableRun) -> None:
        """Add to the run history."""
        # Ids sort as they were given, to tell runs that started at the same moment apart.
        row_id = f"{time.time_ns():020d}-{uuid4().hex}"
        with self._database.writing() as connection:
            connection.execute(insert(runs).values(id=row_id, **codec.run_row(run)))

    def runs(self, table: TableId | None = None, *, limit: int = 50) -> list[TableRun]:
        """Run history by start, newest first."""
        query = select(runs).order_by(runs.c.started_at.desc(), runs.c.id.desc()).limit(limit)
        if table is not None:
            query = query.where(_of(runs, table))
        with self._database.reading() as connection:
            return [codec.table_run(row) for row in connection.execute(query).mappings()]


def _of(rows: Table, table: TableId) -> ColumnElement[bool]:
    return and_(rows.c.table_schema == table.schema, rows.c.table_name == table.name)


def _end(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


def _get_row(connection: Connection, rows: Table, table: TableId) -> RowMapping | None:
    return connection.execute(select(rows).where(_of(rows, table))).mappings().one_or_none()


def _put_row(connection: Connection, rows: Table, table: TableId, values: dict[str, Any]) -> None:
    """Replace a table's one row; the write lock is held, so nobody sees it missing."""
    connection.execute(delete(rows).where(_of(rows, table)))
    connection.execute(insert(rows).values(values))


def _find_lease(connection: Connection, table: TableId) -> Lease | None:
    row = _get_row(connection, leases, table)
    return codec.lease_of_row(row) if row is not None else None


def _position(connection: Connection, table: TableId) -> int | None:
    position: int | None = connection.execute(select(ledgers.c.snapshot_id).where(_of(ledgers, table))).scalar()
    return position


def _register(connection: Connection, table: TableId, *, active: bool) -> bool:
    if _get_row(connection, registry, table) is not None:
        return False
    values = {**codec.table_key(table), "active": active, "settings": codec.dump_json({}), "error": None}
    connection.execute(insert(registry).values(values))
    return True


def _collect(connection: Connection, table: TableId, entries: Iterable[LedgerEntry]) -> None:
    """Bring all entries into the connection's temporary table, without the write lock.

    Entries may take Spark minutes; a lock held so long would end the leases of every other writer.
    """
    with read(connection):
        connection.execute(DropTable(incoming_files, if_exists=True))
        connection.execute(CreateTable(incoming_files))
        for page in _pages(entries):
            rows = {entry.path: codec.file_row(table, entry) for entry in page}
            connection.execute(delete(incoming_files).where(incoming_files.c.path.in_(rows)))
            connection.execute(insert(incoming_files), list(rows.values()))


def _adopt(connection: Connection, table: TableId, snapshot_id: int, progress: Progress) -> None:
    """Move the collected entries into the ledger and set where it stands."""
    names = [column.name for column in files.columns]
    connection.execute(insert(files).from_select(names, select(incoming_files)))
    connection.execute(DropTable(incoming_files))
    values = {**codec.table_key(table), "snapshot_id": snapshot_id, "progress": codec.dump_progress(progress)}
    _put_row(connection, ledgers, table, values)


def _pages(items: Iterable[Item]) -> Iterator[list[Item]]:
    iterator = iter(items)
    while page := list(islice(iterator, _PAGE)):
        yield page
