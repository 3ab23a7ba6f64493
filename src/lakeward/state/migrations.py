"""Numbered steps from an empty store to today's tables, each applied and recorded in one transaction.

A released migration never changes: its SQL is frozen here, and a test compares the outcome with
:mod:`lakeward.state.tables`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sqlalchemy import func, insert, inspect, select, text

from lakeward.errors import ConfigurationError
from lakeward.state import tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from lakeward.state.database import Database


@dataclass(frozen=True)
class Migration:
    """One step; ``statements`` are SQL that every supported database reads."""

    version: int
    name: str
    statements: tuple[str, ...]


_CREATE_MIGRATIONS = """
    CREATE TABLE IF NOT EXISTS lakeward_migrations (
        version BIGINT NOT NULL PRIMARY KEY, name TEXT NOT NULL, applied_at TEXT NOT NULL)
"""

MIGRATIONS: tuple[Migration, ...] = (
    Migration(
        1,
        "registry, leases, ledger cache, run history",
        (
            """
            CREATE TABLE lakeward_tables (
                table_schema TEXT NOT NULL, table_name TEXT NOT NULL, active BOOLEAN NOT NULL,
                settings TEXT NOT NULL, error TEXT, PRIMARY KEY (table_schema, table_name))
            """,
            """
            CREATE TABLE lakeward_leases (
                table_schema TEXT NOT NULL, table_name TEXT NOT NULL, host TEXT NOT NULL, pid BIGINT NOT NULL,
                process_started DOUBLE PRECISION NOT NULL, run_id TEXT NOT NULL, pid_space TEXT NOT NULL,
                token TEXT NOT NULL, expires_at TEXT NOT NULL, PRIMARY KEY (table_schema, table_name))
            """,
            """
            CREATE TABLE lakeward_ledgers (
                table_schema TEXT NOT NULL, table_name TEXT NOT NULL, snapshot_id BIGINT NOT NULL,
                progress TEXT NOT NULL, PRIMARY KEY (table_schema, table_name))
            """,
            """
            CREATE TABLE lakeward_files (
                table_schema TEXT NOT NULL, table_name TEXT NOT NULL, path TEXT NOT NULL, size BIGINT NOT NULL,
                mtime_us BIGINT NOT NULL, etag TEXT, content_hash TEXT NOT NULL, row_count BIGINT NOT NULL,
                disposition TEXT NOT NULL, generation BIGINT NOT NULL, op BIGINT NOT NULL, file_class TEXT NOT NULL,
                file_time TEXT NOT NULL, PRIMARY KEY (table_schema, table_name, path))
            """,
            """
            CREATE INDEX lakeward_files_by_class
                ON lakeward_files (table_schema, table_name, file_class, generation)
            """,
            """
            CREATE TABLE lakeward_runs (
                id TEXT NOT NULL PRIMARY KEY, run_id TEXT NOT NULL, table_schema TEXT NOT NULL,
                table_name TEXT NOT NULL, started_at TEXT NOT NULL, finished_at TEXT NOT NULL,
                outcome TEXT NOT NULL, report TEXT NOT NULL)
            """,
            "CREATE INDEX lakeward_runs_by_start ON lakeward_runs (started_at, id)",
            "CREATE INDEX lakeward_runs_by_table ON lakeward_runs (table_schema, table_name, started_at, id)",
        ),
    ),
    Migration(
        2,
        "find a run by its id; keep planners without statistics from looking up paths by class",
        (
            "CREATE INDEX lakeward_runs_by_run ON lakeward_runs (run_id, started_at, id)",
            "DROP INDEX lakeward_files_by_class",
            """
            CREATE INDEX lakeward_files_by_generation
                ON lakeward_files (generation, table_schema, table_name, file_class)
            """,
        ),
    ),
)


def migrate(database: Database, connection: Connection, steps: Sequence[Migration] = MIGRATIONS) -> None:
    """Bring a store to the newest version; only one of several processes at once does each step.

    Raises:
        ConfigurationError: a newer Lakeward wrote the store, or it belongs to another program.
    """
    with database.read(connection):
        version = _require_known(database, connection, steps)
    for step in steps:
        if step.version > version:
            with database.write(connection, tables.migrations.name):
                _apply(database, connection, step, steps)


def _apply(database: Database, connection: Connection, step: Migration, steps: Sequence[Migration]) -> None:
    """Apply one step unless another process did since the version was read."""
    if _require_known(database, connection, steps) >= step.version:
        return
    connection.execute(text(_CREATE_MIGRATIONS))
    for statement in step.statements:
        connection.execute(text(statement))
    record = {"version": step.version, "name": step.name, "applied_at": datetime.now(UTC)}
    connection.execute(insert(tables.migrations).values(record))


def _require_known(database: Database, connection: Connection, steps: Sequence[Migration]) -> int:
    """The store's version; refuse a store that this version of Lakeward must not touch."""
    if not inspect(connection).has_table(tables.migrations.name):
        _require_no_stranger(database, connection)
        return 0
    version = connection.execute(select(func.max(tables.migrations.c.version))).scalar() or 0
    newest = max(step.version for step in steps)
    if version > newest:
        found = f"its version is {version}, this one knows up to {newest}"
        msg = f"{database.name} was written by a newer Lakeward: {found}"
        raise ConfigurationError(msg, hint="upgrade lakeward, or name another store under state: in lakeward.yaml")
    return int(version)


def _require_no_stranger(database: Database, connection: Connection) -> None:
    found = inspect(connection).get_table_names()
    if found and not database.is_shared:
        msg = f"{database.name} is not a Lakeward state store: it holds the tables {', '.join(sorted(found)[:5])}"
        raise ConfigurationError(msg, hint="name a file of its own under state: in lakeward.yaml")
