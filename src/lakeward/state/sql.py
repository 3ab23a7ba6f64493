"""The state store on a SQL database, written in SQLAlchemy Core: SQLite and PostgreSQL."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from sqlalchemy import delete, insert, select, update

from lakeward.state import codec
from lakeward.state.base import Lease, LeaseOwner, RegisteredTable, TableRun
from lakeward.state.leases import is_live, lease_held_error, lease_lost_error
from lakeward.state.rows import get_row, lock_of, put_row, rows_of
from lakeward.state.sql_ledger import SqlLedger
from lakeward.state.tables import leases, registry, runs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

    from lakeward.model import TableId


class SqlStateStore(SqlLedger):
    """A :class:`~lakeward.state.base.StateStore` in one database; safe for threads and processes at once."""

    def close(self) -> None:
        """Let go of connections."""
        self._database.close()

    # Leases

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
        """Give the lease back if it is still ours."""
        with self._database.writing(lock_of(leases, lease.table)) as connection:
            connection.execute(delete(leases).where(rows_of(leases, lease.table), leases.c.token == lease.token))

    def lease_of(self, table: TableId) -> Lease | None:
        """The table's live lease."""
        with self._database.reading() as connection:
            lease = _find_lease(connection, table)
            now = self._database.now(connection)
        return lease if lease is not None and is_live(lease, now) else None

    def leases(self) -> Iterator[Lease]:
        """All live leases by table."""
        with self._database.reading() as connection:
            rows = connection.execute(select(leases)).mappings().all()
            now = self._database.now(connection)
        held = sorted((codec.lease_of_row(row) for row in rows), key=lambda lease: lease.table)
        return iter([lease for lease in held if is_live(lease, now)])

    # Registry

    def register(self, table: TableId, *, active: bool) -> bool:
        """Add a table to the registry if it is new."""
        with self._database.writing(lock_of(registry, table)) as connection:
            return _register(connection, table, active=active)

    def set_table(
        self, table: TableId, *, active: bool | None = None, settings: dict[str, Any] | None = None
    ) -> RegisteredTable:
        """Register if needed, lay ``settings`` over what is set, set the flag if given."""
        with self._database.writing(lock_of(registry, table)) as connection:
            _register(connection, table, active=False)
            row = connection.execute(select(registry).where(rows_of(registry, table))).mappings().one()
            changed = codec.changed_table(codec.registered_table(row), active, settings)
            values = {"active": changed.active, "settings": codec.dump_json(changed.settings)}
            connection.execute(update(registry).where(rows_of(registry, table)).values(values))
            return changed

    def set_error(self, table: TableId, error: str | None) -> None:
        """Keep, or clear, the error that stopped the table last."""
        with self._database.writing(lock_of(registry, table)) as connection:
            if error is not None:
                _register(connection, table, active=False)
            values = {"error": codec.error_text(error)}
            connection.execute(update(registry).where(rows_of(registry, table)).values(values))

    def registered(self) -> Iterator[RegisteredTable]:
        """All registered tables by name."""
        with self._database.reading() as connection:
            rows = connection.execute(select(registry)).mappings().all()
        return iter(sorted((codec.registered_table(row) for row in rows), key=lambda found: found.table))

    def find_table(self, table: TableId) -> RegisteredTable | None:
        """One registered table."""
        with self._database.reading() as connection:
            row = get_row(connection, registry, table)
        return codec.registered_table(row) if row is not None else None

    # Run history

    def record_run(self, run: TableRun) -> None:
        """Add to the run history."""
        with self._database.writing() as connection:
            connection.execute(insert(runs).values(id=codec.new_row_id(), **codec.run_row(run)))

    def runs(self, table: TableId | None = None, *, run_id: str | None = None, limit: int = 50) -> list[TableRun]:
        """Run history by start, newest first."""
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
