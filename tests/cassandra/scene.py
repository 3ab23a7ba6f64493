"""Tables on a real server: made, filled, and read back cell for cell."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lakeward.cassandra.cql import TableName
from lakeward.cassandra.schema import ColumnKind, CqlColumn, TableSchema, read_table_schema
from lakeward.cassandra.write_job import WriteJob
from tests.cassandra.strategies import canonical

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pytest
    from cassandra.cluster import Session

    from lakeward.cassandra.write_plan import WriteReport
    from tests.cassandra.strategies import Filling, Row, Step

# Cells by what they belong to: ("row", whole key) or ("static", partition key). A row of nothing but a key has none.
Cells = dict[tuple[str, Any], dict[str, Any]]


def create_table(session: Session, schema: TableSchema, name: TableName | None = None) -> TableSchema:
    """Make a table like ``schema``, and return its schema as the server has it."""
    target = name or schema.name
    for statement in schema.create_statements(target):
        session.execute(statement, timeout=60)
    return read_table_schema(session, target)


def fill(session: Session, schema: TableSchema, filling: Filling, *, timestamp: int | None = None) -> None:
    """Insert rows and static values; a null is not written at all."""
    for row in filling.rows:
        insert(session, schema, row, timestamp=timestamp)
    for row in filling.statics:
        if any(row[column.name] is not None for column in schema.statics):
            insert(session, schema, row, timestamp=timestamp)


def insert(
    session: Session, schema: TableSchema, row: Row, *, timestamp: int | None = None, ttl: int | None = None
) -> None:
    """Insert one row by its key, or static values by their partition's."""
    present = {name: value for name, value in row.items() if value is not None}
    columns = ", ".join(schema.column(name).cql for name in present)
    marks = ", ".join("?" for _ in present)
    using = _using(timestamp=timestamp, ttl=ttl)
    run(session, f"INSERT INTO {schema.name.cql} ({columns}) VALUES ({marks}){using}", present.values())


def update(session: Session, schema: TableSchema, row: Row, *, timestamp: int | None = None) -> None:
    """Set cells of a row, or of a partition's static part; None deletes a cell."""
    keys = [name for name in row if schema.column(name).kind.is_key]
    others = [name for name in row if name not in keys]
    assignments = ", ".join(f"{schema.column(name).cql} = ?" for name in others)
    query = f"UPDATE {schema.name.cql}{_using(timestamp=timestamp)} SET {assignments} WHERE {_where(schema, keys)}"
    run(session, query, [row[name] for name in (*others, *keys)])


def edit(session: Session, schema: TableSchema, row: Row, sign: str) -> None:
    """Add to a collection, or take away from it."""
    *keys, name = row
    column = schema.column(name).cql
    query = f"UPDATE {schema.name.cql} SET {column} = {column} {sign} ? WHERE {_where(schema, keys)}"
    run(session, query, [row[key] for key in (name, *keys)])


def work(session: Session, schema: TableSchema, steps: Iterable[Step]) -> None:
    """Execute a workload."""
    for step in steps:
        if step.kind == "edit":
            edit(session, schema, step.row, step.sign)
        else:
            {"insert": insert, "update": update, "delete": delete}[step.kind](session, schema, step.row)


def delete(session: Session, schema: TableSchema, key: Row, *, timestamp: int | None = None) -> None:
    """Delete a row by its whole key, or a partition by its own."""
    query = f"DELETE FROM {schema.name.cql}{_using(timestamp=timestamp)} WHERE {_where(schema, key)}"
    run(session, query, key.values())


def run(session: Session, query: str, values: Iterable[Any]) -> Any:
    """Run a prepared statement."""
    return session.execute(session.prepare(query), list(values))


def read_cells(session: Session, schema: TableSchema, *, writetime: bool = False, ttl: bool = False) -> Cells:
    """Read a whole table: every cell that is not null, with the time it was written (the latest of a collection's).

    With ``ttl`` the seconds that a cell has left are there too, except for those of collections.
    """
    found = _read(session, schema, (*schema.partition_key, *schema.clustering), schema.regulars, writetime, ttl)
    cells: Cells = {("row", key): values for key, values in found if None not in key[len(schema.partition_key) :]}
    if schema.statics:
        read = _read(session, schema, schema.partition_key, schema.statics, writetime, ttl)
        cells.update({("static", key): values for key, values in read if values})
    return cells


def _read(
    session: Session,
    schema: TableSchema,
    keys: Sequence[CqlColumn],
    columns: Sequence[CqlColumn],
    writetime: bool,
    ttl: bool,
) -> list[tuple[Any, dict[str, Any]]]:
    asked = [column.cql for column in (*keys, *columns)]
    asked += [f"maxwritetime({column.cql})" for column in columns] if writetime else []
    lasting = [column for column in columns if not column.type.is_multi_cell] if ttl else []
    asked += [f"ttl({column.cql})" for column in lasting]
    distinct = "DISTINCT " if columns and columns[0].kind == ColumnKind.STATIC else ""
    found = []
    # Of static columns alone DISTINCT may be asked, and then not for the times of writing.
    for row in session.execute(
        f"SELECT {'' if writetime or ttl else distinct}{', '.join(asked)} FROM {schema.name.cql}"
    ):
        rest = iter(row[len(keys) + len(columns) :])
        values: dict[str, Any] = {}
        for column, value in zip(columns, row[len(keys) :], strict=False):
            if value is not None:
                values[column.name] = (canonical(value),)
        for more in ([columns] if writetime else []) + ([lasting] if ttl else []):
            for column in more:
                one = next(rest)
                if column.name in values:
                    values[column.name] += (one,)
        found.append((canonical(row[: len(keys)]), values))
    return found


def set_apart(schema: TableSchema, number: int) -> TableSchema:
    """Return the same table with types under other names: those of several tables then fit into one keyspace."""
    text = json.dumps(schema.to_dict())
    for name in schema.udts:
        text = re.sub(rf"\b{name}\b", f"{name}{number}", text)
    return TableSchema.from_dict(json.loads(text))


def renamed(schema: TableSchema, name: TableName) -> TableSchema:
    """Return the same table under another name."""
    return replace(schema, name=name)


def _using(**given: int | None) -> str:
    parts = [f"{name.upper()} {value}" for name, value in given.items() if value is not None]
    return f" USING {' AND '.join(parts)}" if parts else ""


def _where(schema: TableSchema, names: Iterable[str]) -> str:
    return " AND ".join(f"{schema.column(name).cql} = ?" for name in names)


def nodes_that_tasks_know(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Record, for each dry run, the addresses that tasks would ask besides the configured ones."""
    known: list[tuple[str, ...]] = []
    estimate = WriteJob.estimate

    def recording(job: WriteJob) -> WriteReport:
        known.append(tuple(address for address, _ in job.plan.address.nodes))
        return estimate(job)

    monkeypatch.setattr(WriteJob, "estimate", recording)
    return known
