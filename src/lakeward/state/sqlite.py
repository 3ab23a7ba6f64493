"""One SQLite file shared by threads and processes: opening, transactions, and errors that say what to do."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, Connection, create_engine, event

from lakeward.errors import ConfigurationError, LakewardError, RetriableError
from lakeward.state.migrations import migrate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sqlalchemy import Engine
    from sqlalchemy.engine import ExceptionContext

BUSY_SECONDS = 30.0
_WRITES = "lakeward_writes"
_PRIMARY_CODE = 0xFF
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_REFUSED = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_FAULTY_DISK = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR}

logger = logging.getLogger(__name__)


class SqliteDatabase:
    """Transactions on one file, which is opened, and migrated, again when someone deletes or replaces it.

    A deleted file lives on, unseen by others, for those who have it open: a lease in it would exclude nobody.
    So each transaction begins by asking whether the file is still the one that was opened.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._opened: tuple[int, int, int] | None = None
        self._engine = _engine(file)
        self._ensure_open()

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        """A connection on which the caller begins transactions by :func:`read` and :func:`write`."""
        self._ensure_open()
        with self._engine.connect() as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One consistent view."""
        with self.connected() as connection, read(connection):
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """One transaction that no other writer overlaps."""
        with self.connected() as connection, write(connection):
            yield connection

    def close(self) -> None:
        """Close the connections that nobody uses at the moment."""
        with self._lock:
            self._engine.dispose()
            self._opened = None

    def _ensure_open(self) -> None:
        if self._is_open():
            return
        with self._lock:
            if not self._is_open():
                self._open()

    def _is_open(self) -> bool:
        return self._opened is not None and self._opened == self._identity()

    def _open(self) -> None:
        # After a fork the connections are the parent's, which goes on using them.
        is_forked = self._process != os.getpid()
        if self._opened is not None and not is_forked:
            logger.warning("%s was deleted or replaced while open; it is opened anew", self.file)
        self._engine.dispose(close=not is_forked)
        self._process = os.getpid()
        _prepare(self.file)
        migrate(self._migration_reading, self._migration_writing, str(self.file))
        self._opened = self._identity()

    @contextmanager
    def _migration_reading(self) -> Iterator[Connection]:
        with self._engine.connect() as connection, read(connection):
            yield connection

    @contextmanager
    def _migration_writing(self) -> Iterator[Connection]:
        with self._engine.connect() as connection, write(connection):
            yield connection

    def _identity(self) -> tuple[int, int, int] | None:
        """What the path names now, seen from this process."""
        try:
            found = self.file.stat()
        except FileNotFoundError:
            return None
        return (os.getpid(), found.st_dev, found.st_ino)


@contextmanager
def read(connection: Connection) -> Iterator[None]:
    """A transaction that only reads: never waits and makes nobody wait."""
    with connection.execution_options(**{_WRITES: False}).begin():
        yield


@contextmanager
def write(connection: Connection) -> Iterator[None]:
    """A transaction that has the write lock from its first moment, so that what it reads stays true."""
    with connection.execution_options(**{_WRITES: True}).begin():
        yield


def _engine(file: Path) -> Engine:
    # autocommit leaves BEGIN to us: the driver's own comes late and is never IMMEDIATE.
    url = URL.create("sqlite", database=str(file))
    engine = create_engine(
        url, connect_args={"timeout": BUSY_SECONDS, "isolation_level": None}, pool_size=5, max_overflow=-1
    )

    def configure(connection: Any, _record: object) -> None:
        # With WAL a power cut can lose the last commits but never the file; a cache needs no more.
        connection.execute("PRAGMA synchronous=NORMAL").close()

    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get(_WRITES, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    def explain(context: ExceptionContext) -> None:
        explained = _explain(context.original_exception, file)
        if explained is not None:
            raise explained from context.original_exception

    event.listen(engine, "connect", configure)
    event.listen(engine, "begin", begin)
    event.listen(engine, "handle_error", explain)
    return engine


def _prepare(file: Path) -> None:
    """Create the folder and the file, and make sure that readers and writers do not block each other (WAL)."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"cannot create the folder of the state file {file}: {error.strerror}"
        raise ConfigurationError(msg, hint="name a writable place under state: in lakeward.yaml") from error
    try:
        with closing(sqlite3.connect(file, timeout=BUSY_SECONDS, isolation_level=None)) as connection:
            mode = _switch_to_wal(connection)
    except sqlite3.Error as error:
        raise (_explain(error, file) or error) from error
    if mode != "wal":
        msg = f"the file system of {file} does not let processes share the state file (journal mode {mode!r})"
        raise ConfigurationError(msg, hint="name a file on a local disk under state: in lakeward.yaml")


def _switch_to_wal(connection: sqlite3.Connection) -> str:
    """Turn WAL on and return the mode. SQLite's own busy timeout does not cover this switch."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return str(connection.execute("PRAGMA journal_mode=WAL").fetchone()[0])
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & _PRIMARY_CODE not in _BUSY or time.monotonic() > deadline:
                raise
        time.sleep(0.02)


def _explain(error: BaseException | None, file: Path) -> LakewardError | None:
    """Say what a fault of SQLite means for the user; None for what only a bug can cause."""
    if not isinstance(error, sqlite3.Error):
        return None
    code = getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE
    if code in _DAMAGED or "no such table" in str(error):
        msg = f"the state file {file} is damaged or no SQLite file: {error}"
        return ConfigurationError(msg, hint=f"delete {file} (and {file.name}-wal, -shm), then: lakeward state rebuild")
    if code in _REFUSED:
        msg = f"the state file {file} cannot be opened for writing: {error}"
        return ConfigurationError(msg, hint="make file and folder writable, or name another file under state:")
    if code in _BUSY:
        msg = f"the state file {file} was locked by another process for more than {BUSY_SECONDS:.0f} seconds"
        return RetriableError(msg, hint="try again; find the holder with: fuser -v " + str(file))
    if code in _FAULTY_DISK:
        msg = f"the state file {file} cannot be read or written: {error}"
        return RetriableError(msg, hint="free disk space or repair the disk, then try again")
    return None
