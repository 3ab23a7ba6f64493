"""A PostgreSQL database shared by hosts: connections, locks, its clock, and what its errors mean."""

from __future__ import annotations

import difflib
import hashlib
import os
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, Connection, create_engine, event, func, make_url, select, text
from sqlalchemy.exc import ArgumentError

from lakeward.errors import ConfigurationError, LakewardError, RetriableError
from lakeward.state.database import Database

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from sqlalchemy import Engine
    from sqlalchemy.engine import ExceptionContext

LOCK_SECONDS = 30
# A server that vanishes must be noticed before a lease ends. Options in the URI override these.
_CONNECTION_DEFAULTS = {
    "application_name": "lakeward",
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "2",
    "tcp_user_timeout": "20000",
}
_FORM = "postgresql://user@host:5432/database"
_HINT = f"state: {_FORM}, with the password in PGPASSWORD"
_NO_TABLE = "42P01"
# Authorization, database, schema, privilege: the first characters of their SQLSTATE.
_REFUSED = ("28", "3D000", "3F000", "42501")
# Connection, resources, rollback by conflict, lock timeout, shutdown and cancel, a standby after a failover.
_PASSING = ("08", "53", "40", "55P03", "57", "25006")
# libpq reports no SQLSTATE while connecting.
_REFUSED_TEXT = re.compile(
    r"authentication failed|no password supplied|no pg_hba\.conf entry|"
    r'(role|database) "[^"]*" does not exist|permission denied|server does not support SSL|certificate|'
    r"invalid connection option|invalid [\w ]*value|service file|definition of service",
)


class PostgresDatabase(Database):
    """Transactions on one database, whose tables are created again when they were dropped."""

    is_shared = True

    def __init__(self, uri: str) -> None:
        url = _parse(uri)
        super().__init__(_without_secrets(url), _engine(url, self._explain))
        self._opened: int | None = None
        self._ensure_open()

    @contextmanager
    def read(self, connection: Connection) -> Iterator[None]:
        """Run a transaction that sees one moment."""
        with connection.execution_options(isolation_level="REPEATABLE READ").begin():
            yield

    @contextmanager
    def write(self, connection: Connection, lock: str | None = None) -> Iterator[None]:
        """Run a transaction that first waits for ``lock``; each of its statements sees what is committed by then.

        An advisory lock excludes others even where there is no row yet that could be locked.
        """
        with connection.execution_options(isolation_level="READ COMMITTED").begin():
            if lock is not None:
                connection.execute(select(func.pg_advisory_xact_lock(_lock_number(lock))))
            yield

    def now(self, connection: Connection) -> datetime:
        """Return the server's time at this moment, not at the beginning of the transaction."""
        moment: datetime = connection.execute(select(func.clock_timestamp())).scalar_one()
        return moment

    def _is_open(self) -> bool:
        return self._opened == os.getpid()

    def _prepare(self) -> None:
        with self._engine.connect() as connection:
            encoding = connection.execute(text("SHOW server_encoding")).scalar_one()
        if encoding != "UTF8":
            msg = f"{self.name} stores text as {encoding}, which cannot hold every file name; expected UTF8"
            raise ConfigurationError(msg, hint="CREATE DATABASE lakeward ENCODING 'UTF8' TEMPLATE template0")

    def _mark(self, *, is_open: bool) -> None:
        self._opened = os.getpid() if is_open else None

    def _explain(self, error: BaseException | None) -> LakewardError | None:
        """Return the error to raise for one of PostgreSQL; None for what only a bug can cause."""
        code = getattr(error, "sqlstate", None) or ""
        # The first line; further ones show statements or the addresses that were tried.
        reason = str(error).strip().partition("\n")[0]
        if code == _NO_TABLE:
            self._mark(is_open=False)
            msg = f"tables of the state store {self.name} are gone: {reason}"
            return RetriableError(msg, hint="try again: they are created again")
        if code.startswith(_REFUSED) or (not code and (_REFUSED_TEXT.search(reason) or _is_usage_error(error))):
            msg = f"the state store {self.name} refuses: {reason}"
            return ConfigurationError(msg, hint="check user, PGPASSWORD, database and grants (docs/state.md)")
        if code.startswith(_PASSING) or (not code and _is_connection_error(error)):
            msg = f"the state store {self.name} does not answer: {reason}"
            return RetriableError(msg, hint="check that the server runs and can be reached, then try again")
        return None


def _parse(uri: str) -> URL:
    """Return the URI as SQLAlchemy reads it; no message repeats it, because it may hold a password."""
    try:
        url = make_url(uri)
    except (ArgumentError, ValueError):
        msg = f"state: the postgresql:// URI cannot be read; expected {_FORM}"
        raise ConfigurationError(msg, hint="write @ : / ? # in a password as %40 %3A %2F %3F %23") from None
    if url.drivername not in ("postgresql", "postgresql+psycopg"):
        msg = f"state: {url.drivername}:// is not supported; expected {_FORM}"
        raise ConfigurationError(msg, hint=_HINT)
    if not url.database:
        msg = f"state: {_without_secrets(url)} names no database; expected {_FORM}"
        raise ConfigurationError(msg, hint=_HINT)
    return url.set(drivername="postgresql+psycopg")


def _without_secrets(url: URL) -> str:
    shown = URL.create("postgresql", url.username, None, url.host, url.port, url.database)
    return shown.render_as_string()


def _engine(url: URL, explain: Any) -> Engine:
    settings = {name: value for name, value in _CONNECTION_DEFAULTS.items() if name not in url.query}
    try:
        # A pooled connection that a restart of the server broke is replaced before it is used.
        engine = create_engine(url, connect_args=settings, pool_pre_ping=True, pool_size=5, max_overflow=-1)
    except ModuleNotFoundError as error:
        msg = "state: PostgreSQL needs the driver psycopg, which is not installed"
        raise ConfigurationError(msg, hint="pip install 'lakeward[postgres]'") from error
    _require_known_options(url)

    def configure(connection: Any, _record: object) -> None:
        connection.autocommit = True
        connection.execute(f"SET lock_timeout = '{LOCK_SECONDS}s'")
        connection.autocommit = False

    def translate(context: ExceptionContext) -> None:
        if context.is_pre_ping:
            return
        explained = explain(context.original_exception)
        if explained is not None:
            raise explained from context.original_exception

    event.listen(engine, "connect", configure)
    event.listen(engine, "handle_error", translate)
    return engine


def _require_known_options(url: URL) -> None:
    """Refuse options that libpq does not have: the driver would treat some of them as its own arguments.

    Raises:
        ConfigurationError: naming the option and the closest known one.
    """
    from psycopg.pq import Conninfo

    known = [option.keyword.decode() for option in Conninfo.get_defaults()]
    for name in url.query:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            msg = f"state: {_without_secrets(url)} has the unknown option {name!r}"
            hint = f"?{near[0]}=…" if near else "options are those of libpq, such as sslmode and connect_timeout"
            raise ConfigurationError(msg, hint=hint)


def _is_connection_error(error: BaseException | None) -> bool:
    """Whether the driver reported the error: the connection cannot be made, or broke."""
    import psycopg

    return isinstance(error, psycopg.OperationalError)


def _is_usage_error(error: BaseException | None) -> bool:
    """Whether the driver refused the arguments before it called the server."""
    import psycopg

    return isinstance(error, psycopg.ProgrammingError)


def _lock_number(lock: str) -> int:
    """Return a lock's number in this database; locks with the same number would only wait for each other."""
    return int.from_bytes(hashlib.blake2b(lock.encode(), digest_size=8).digest(), signed=True)
