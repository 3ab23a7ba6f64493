"""A SQLite file shared by threads and processes: opening, transactions, and what its errors mean."""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, Connection, create_engine, event

from lakeward.config.services import create_file, create_folder
from lakeward.errors import ConfigurationError, LakewardError, RetriableError
from lakeward.state.database import Database

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sqlalchemy import Engine
    from sqlalchemy.engine import ExceptionContext

    from lakeward.config.services import FileAccess

BUSY_SECONDS = 30.0
_WRITES = "lakeward_writes"
_PRIMARY_CODE = 0xFF
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_REFUSED = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_FAULTY_DISK = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR}

logger = logging.getLogger(__name__)


class SqliteDatabase(Database):
    """Transactions on one file, which is opened and migrated again when it was deleted or replaced.

    A deleted file lives on for the processes that have it open, unseen by others: a lease in it would exclude no other
    process. So each transaction first checks that the file is still the one that was opened.
    """

    is_shared = False

    def __init__(self, file: Path, access: FileAccess = "private") -> None:
        super().__init__(str(file), _engine(file))
        self.file = file
        self._access = access
        self._opened: tuple[int, int, int] | None = None
        self._ensure_open()

    @contextmanager
    def read(self, connection: Connection) -> Iterator[None]:
        """Run a transaction that only reads; it neither waits nor blocks others."""
        with connection.execution_options(**{_WRITES: False}).begin():
            yield

    @contextmanager
    def write(self, connection: Connection, lock: str | None = None) -> Iterator[None]:
        """Run a transaction that holds the file's only write lock from its start, whatever ``lock`` is."""
        with connection.execution_options(**{_WRITES: True}).begin():
            yield

    def now(self, connection: Connection) -> datetime:
        """Return the host's time: a file in WAL mode is never shared between hosts."""
        return datetime.now(UTC)

    def _is_open(self) -> bool:
        return self._opened is not None and self._opened == self._identity()

    def _prepare(self) -> None:
        if self._opened is not None and self._opened[0] == os.getpid():
            logger.warning("%s was deleted or replaced while open; it is opened again", self.file)
        _prepare(self.file, self._access)

    def _mark(self, *, is_open: bool) -> None:
        self._opened = self._identity() if is_open else None

    def _identity(self) -> tuple[int, int, int] | None:
        """Return the identity of the file at the path, for this process; None if there is none."""
        try:
            found = self.file.stat()
        except FileNotFoundError:
            return None
        return (os.getpid(), found.st_dev, found.st_ino)


def _engine(file: Path) -> Engine:
    # Autocommit leaves BEGIN to us: the driver's own comes late and is never IMMEDIATE.
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


def _prepare(file: Path, access: FileAccess) -> None:
    """Create the folder and the file, and turn WAL on, so that readers and writers do not block each other."""
    try:
        create_folder(file.parent, access)
    except OSError as error:
        msg = f"cannot create the folder of the state file {file}: {error.strerror}"
        raise ConfigurationError(msg, hint="name a writable place under state: in lakeward.yaml") from error
    # If the file cannot be created, SQLite cannot open it either; that error is translated below.
    with suppress(OSError):
        create_file(file, access)
    try:
        with closing(sqlite3.connect(file, timeout=BUSY_SECONDS, isolation_level=None)) as connection:
            mode = _switch_to_wal(connection)
    except sqlite3.Error as error:
        raise (_explain(error, file) or error) from error
    if mode != "wal":
        msg = f"the file system of {file} does not let processes share the state file (journal mode {mode!r})"
        raise ConfigurationError(msg, hint="name a file on a local disk under state: in lakeward.yaml")


def _switch_to_wal(connection: sqlite3.Connection) -> str:
    """Turn WAL on and return the mode; SQLite's own busy timeout does not cover this switch."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return str(connection.execute("PRAGMA journal_mode=WAL").fetchone()[0])
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & _PRIMARY_CODE not in _BUSY or time.monotonic() > deadline:
                raise
        time.sleep(0.02)


def _explain(error: BaseException | None, file: Path) -> LakewardError | None:
    """Return the error to raise for one of SQLite; None for what only a bug can cause."""
    if not isinstance(error, sqlite3.Error):
        return None
    code = getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE
    if code in _DAMAGED or "no such table" in str(error):
        msg = f"the state file {file} is damaged or not a SQLite file: {error}"
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
