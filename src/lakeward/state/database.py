"""The SQL state store's database: its tables and their migrations, transactions, and one clock for all hosts."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    MetaData,
    Table,
    Text,
    func,
    insert,
    inspect,
    select,
    text,
)
from sqlalchemy.types import TypeDecorator

from lakeward.errors import ConfigurationError
from lakeward.state import codec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from sqlalchemy import Connection, Engine
    from sqlalchemy.engine import Dialect


# The tables as SQLAlchemy Core sees them. The migrations below create them.


class UtcTime(TypeDecorator[datetime]):
    """A moment as text whose order is the order in time."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> str | None:
        """Write as text."""
        return None if value is None else codec.time_text(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> datetime | None:
        """Read what :meth:`process_bind_param` wrote."""
        return None if value is None else codec.time_of(value)


def _table_key() -> tuple[Column[str], Column[str]]:
    return Column("table_schema", Text, primary_key=True), Column("table_name", Text, primary_key=True)


def _file_columns() -> tuple[Column[Any], ...]:
    return (
        *_table_key(),
        Column("path", Text, primary_key=True),
        Column("size", BigInteger, nullable=False),
        Column("mtime_us", BigInteger, nullable=False),
        Column("etag", Text),
        Column("content_hash", Text, nullable=False),
        Column("row_count", BigInteger, nullable=False),
        Column("disposition", Text, nullable=False),
        Column("generation", BigInteger, nullable=False),
        Column("op", BigInteger, nullable=False),
        Column("file_class", Text, nullable=False),
        Column("file_time", Text, nullable=False),
    )


metadata = MetaData()

migrations = Table(
    "lakeward_migrations",
    metadata,
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("name", Text, nullable=False),
    Column("applied_at", UtcTime, nullable=False),
)

registry = Table(
    "lakeward_tables",
    metadata,
    *_table_key(),
    Column("active", Boolean, nullable=False),
    Column("settings", Text, nullable=False),
    Column("error", Text),
)

leases = Table(
    "lakeward_leases",
    metadata,
    *_table_key(),
    Column("host", Text, nullable=False),
    Column("pid", BigInteger, nullable=False),
    Column("process_started", Double, nullable=False),
    Column("run_id", Text, nullable=False),
    Column("pid_space", Text, nullable=False),
    Column("token", Text, nullable=False),
    Column("expires_at", UtcTime, nullable=False),
)

ledgers = Table(
    "lakeward_ledgers",
    metadata,
    *_table_key(),
    Column("snapshot_id", BigInteger, nullable=False),
    Column("progress", Text, nullable=False),
)

files = Table("lakeward_files", metadata, *_file_columns())
Index("lakeward_files_by_generation", files.c.generation, files.c.table_schema, files.c.table_name, files.c.file_class)

runs = Table(
    "lakeward_runs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("run_id", Text, nullable=False),
    Column("table_schema", Text, nullable=False),
    Column("table_name", Text, nullable=False),
    Column("started_at", UtcTime, nullable=False),
    Column("finished_at", UtcTime, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("report", Text, nullable=False),
)
Index("lakeward_runs_by_start", runs.c.started_at, runs.c.id)
Index("lakeward_runs_by_run", runs.c.run_id, runs.c.started_at, runs.c.id)
Index("lakeward_runs_by_table", runs.c.table_schema, runs.c.table_name, runs.c.started_at, runs.c.id)

# Belongs to one connection and not to the schema: entries are collected here until all of them have arrived.
incoming_files = Table("lakeward_incoming_files", MetaData(), *_file_columns(), prefixes=["TEMPORARY"])

# Numbered steps from an empty store to today's tables, each applied and recorded in one transaction.
# A released migration never changes: its SQL is frozen here, and a test compares the outcome with the tables above.


@dataclass(frozen=True)
class Migration:
    """A numbered step; ``statements`` are SQL that every supported database understands."""

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
    """Bring a store to the newest version; of several processes only one applies each step.

    Raises:
        ConfigurationError: a newer Lakeward wrote the store, or it belongs to another program.
    """
    with database.read(connection):
        version = _require_known(database, connection, steps)
    for step in steps:
        if step.version > version:
            with database.write(connection, migrations.name):
                _apply(database, connection, step, steps)


def _apply(database: Database, connection: Connection, step: Migration, steps: Sequence[Migration]) -> None:
    """Apply one step unless another process did since the version was read."""
    if _require_known(database, connection, steps) >= step.version:
        return
    connection.execute(text(_CREATE_MIGRATIONS))
    for statement in step.statements:
        connection.execute(text(statement))
    record = {"version": step.version, "name": step.name, "applied_at": datetime.now(UTC)}
    connection.execute(insert(migrations).values(record))


def _require_known(database: Database, connection: Connection, steps: Sequence[Migration]) -> int:
    """Return the store's version; refuse a store that this version of Lakeward must not touch."""
    if not inspect(connection).has_table(migrations.name):
        _require_own_database(database, connection)
        return 0
    version = connection.execute(select(func.max(migrations.c.version))).scalar() or 0
    newest = max(step.version for step in steps)
    if version > newest:
        found = f"its version is {version}, this one knows up to {newest}"
        msg = f"{database.name} was written by a newer Lakeward: {found}"
        raise ConfigurationError(msg, hint="upgrade lakeward, or name another store under state: in lakeward.yaml")
    return int(version)


def _require_own_database(database: Database, connection: Connection) -> None:
    found = inspect(connection).get_table_names()
    if found and not database.is_shared:
        msg = f"{database.name} is not a Lakeward state store: it holds the tables {', '.join(sorted(found)[:5])}"
        raise ConfigurationError(msg, hint="name a file of its own under state: in lakeward.yaml")


class Database(ABC):
    """An engine, opened and migrated before its first use in each process.

    ``is_shared``: whether it may hold tables of other programs as well.
    """

    is_shared: bool

    def __init__(self, name: str, engine: Engine) -> None:
        self.name = name
        self._engine = engine
        self._lock = threading.Lock()
        self._process = os.getpid()

    @abstractmethod
    def read(self, connection: Connection) -> AbstractContextManager[None]:
        """Return a transaction with one consistent view; it neither waits nor blocks others."""

    @abstractmethod
    def write(self, connection: Connection, lock: str | None = None) -> AbstractContextManager[None]:
        """Return a transaction that excludes others with the same ``lock``, so that what it reads stays true."""

    @abstractmethod
    def now(self, connection: Connection) -> datetime:
        """Return the time by the clock that all users of the database share."""

    @abstractmethod
    def _is_open(self) -> bool:
        """Whether the database is the one that was opened, by this process."""

    @abstractmethod
    def _prepare(self) -> None:
        """Make sure that the database can be used, before it is migrated."""

    @abstractmethod
    def _mark(self, *, is_open: bool) -> None:
        """Record whether the database is open, for :meth:`_is_open`."""

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        """Yield a connection on which the caller begins transactions by :meth:`read` and :meth:`write`."""
        self._ensure_open()
        with self._engine.connect() as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Yield a connection inside a transaction that reads."""
        with self.connected() as connection, self.read(connection):
            yield connection

    @contextmanager
    def writing(self, lock: str | None = None) -> Iterator[Connection]:
        """Yield a connection inside a transaction that excludes others with the same ``lock``."""
        with self.connected() as connection, self.write(connection, lock):
            yield connection

    def close(self) -> None:
        """Close the connections that are not in use."""
        with self._lock:
            self._engine.dispose()
            self._mark(is_open=False)

    def _ensure_open(self) -> None:
        if self._is_open():
            return
        with self._lock:
            if not self._is_open():
                self._open()

    def _open(self) -> None:
        # After a fork the connections belong to the parent, which keeps using them.
        self._engine.dispose(close=self._process == os.getpid())
        self._process = os.getpid()
        try:
            self._prepare()
            with self._engine.connect() as connection:
                migrate(self, connection)
        except BaseException:
            # A caller that cannot open the store has nothing to close.
            self._engine.dispose()
            raise
        self._mark(is_open=True)
