"""Rows of one table of the source, in any table of the SQL state store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, delete, insert, select

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, RowMapping, Table

    from lakeward.model import TableId


def rows_of(rows: Table, table: TableId) -> ColumnElement[bool]:
    """The condition that picks a table's rows."""
    return and_(rows.c.table_schema == table.schema, rows.c.table_name == table.name)


def lock_of(rows: Table, table: TableId) -> str:
    """The lock for changing a table's rows: leases do not wait for a ledger that is being filled."""
    return f"{rows.name} {table}"


def get_row(connection: Connection, rows: Table, table: TableId) -> RowMapping | None:
    """A table's one row."""
    return connection.execute(select(rows).where(rows_of(rows, table))).mappings().one_or_none()


def put_row(connection: Connection, rows: Table, table: TableId, values: dict[str, Any]) -> None:
    """Replace a table's one row; the lock is held, so nobody sees it missing."""
    connection.execute(delete(rows).where(rows_of(rows, table)))
    connection.execute(insert(rows).values(values))
