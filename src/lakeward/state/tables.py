"""The state store's tables as SQLAlchemy Core sees them; :mod:`lakeward.state.migrations` creates them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, Boolean, Column, Double, Index, MetaData, Table, Text
from sqlalchemy.types import TypeDecorator

from lakeward.state import codec

if TYPE_CHECKING:
    from sqlalchemy.engine import Dialect


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

# Belongs to one connection and not to the schema: entries wait here until all of them have come.
incoming_files = Table("lakeward_incoming_files", MetaData(), *_file_columns(), prefixes=["TEMPORARY"])
