"""What the SQL state store asks of a database: transactions that exclude other writers, and one clock for all hosts."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakeward.state.migrations import migrate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from datetime import datetime

    from sqlalchemy import Connection, Engine


class Database(ABC):
    """An engine, opened and migrated before its first use in each process.

    ``is_shared`` says whether tables of other programs may lie beside Lakeward's.
    """

    is_shared: bool

    def __init__(self, name: str, engine: Engine) -> None:
        self.name = name
        self._engine = engine
        self._lock = threading.Lock()
        self._process = os.getpid()

    @abstractmethod
    def read(self, connection: Connection) -> AbstractContextManager[None]:
        """A transaction with one consistent view, which never waits and makes nobody wait."""

    @abstractmethod
    def write(self, connection: Connection, lock: str | None = None) -> AbstractContextManager[None]:
        """A transaction that no other with the same ``lock`` overlaps, so that what it reads stays true."""

    @abstractmethod
    def now(self, connection: Connection) -> datetime:
        """The time by the clock that all users of the database share."""

    @abstractmethod
    def _is_open(self) -> bool:
        """Whether the database is the one that was opened, by this process."""

    @abstractmethod
    def _prepare(self) -> None:
        """Make sure that the database can be used, before it is migrated."""

    @abstractmethod
    def _mark(self, *, is_open: bool) -> None:
        """Remember what :meth:`_is_open` is asked."""

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        """A connection on which the caller begins transactions by :meth:`read` and :meth:`write`."""
        self._ensure_open()
        with self._engine.connect() as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One consistent view."""
        with self.connected() as connection, self.read(connection):
            yield connection

    @contextmanager
    def writing(self, lock: str | None = None) -> Iterator[Connection]:
        """One transaction that no other with the same ``lock`` overlaps."""
        with self.connected() as connection, self.write(connection, lock):
            yield connection

    def close(self) -> None:
        """Close the connections that nobody uses at the moment."""
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
        # After a fork the connections are the parent's, which goes on using them.
        self._engine.dispose(close=self._process == os.getpid())
        self._process = os.getpid()
        try:
            self._prepare()
            with self._engine.connect() as connection:
                migrate(self, connection)
        except BaseException:
            # Who cannot open a store has nothing to close.
            self._engine.dispose()
            raise
        self._mark(is_open=True)
