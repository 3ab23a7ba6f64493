"""The demo's table: orders of a shop with every kind of type, always the same, and the changes to it."""

from __future__ import annotations

import ipaddress
import uuid
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from lakeward.cassandra.cql import TableName

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

SOURCE, COPY = TableName("shop", "orders"), TableName("shop_copy", "orders")
CUSTOMERS, ORDERS_EACH = 500, 20
ROWS = CUSTOMERS * ORDERS_EACH
_FIRST_MILLISECONDS = 1_790_000_000_000
_MINUTE = 60_000
_REPLICATION = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
_BATCH_ROWS, _IN_FLIGHT = 10, 32
_COLUMNS = {
    "customer": "uuid",
    "placed": "timestamp",
    "number": "int",
    "name": "text STATIC",
    "home": "frozen<place> STATIC",
    "total": "decimal",
    "points": "varint",
    "weight": "double",
    "discount": "float",
    "paid": "boolean",
    "note": "text",
    "code": "ascii",
    "views": "bigint",
    "rating": "smallint",
    "grade": "tinyint",
    "photo": "blob",
    "client": "inet",
    "due": "date",
    "pickup": "time",
    "took": "duration",
    "trace": "timeuuid",
    "tags": "set<text>",
    "lines": "list<frozen<tuple<text, int>>>",
    "prices": "map<text, decimal>",
    "ship_to": "place",
    "taste": "vector<float, 3>",
}
_STATICS = ("name", "home")
_KEY = ("customer", "placed", "number")


@dataclass(frozen=True)
class Changes:
    """The demo's changes to the table after the first export, in rows; a partition's static values count as a row."""

    inserted: int
    changed: int
    deleted: int
    story: str


def create(session: Any) -> None:
    """Create both keyspaces, and the table in the first."""
    for table in (SOURCE, COPY):
        session.execute(f"CREATE KEYSPACE {table.keyspace} WITH replication = {_REPLICATION}", timeout=60)
    session.execute(f"CREATE TYPE {SOURCE.keyspace}.place (street text, city text, zip int)", timeout=60)
    columns = ", ".join(f"{name} {type_}" for name, type_ in _COLUMNS.items())
    session.execute(
        f"CREATE TABLE {SOURCE.cql} ({columns}, PRIMARY KEY ((customer), placed, number)) "
        "WITH CLUSTERING ORDER BY (placed DESC, number ASC)",
        timeout=60,
    )


def fill(session: Any) -> None:
    """Write all rows."""
    names = [name for name in _COLUMNS if name not in _STATICS]
    statics = [*_KEY[:1], *_STATICS]
    order = session.prepare(_insert(names))
    customer = session.prepare(_insert(statics))
    rows = (
        [customer.bind(_values(statics, _customer(number)))]
        + [
            order.bind(_values(names, _order(number * ORDERS_EACH + order_number)))
            for order_number in range(ORDERS_EACH)
        ]
        for number in range(CUSTOMERS)
    )
    _send(session, chain.from_iterable(_in_batches(row) for row in rows))


def change(session: Any) -> Changes:
    """Change and clear values, delete orders and a customer, rename customers, and insert new orders."""
    key = " AND ".join(f"{name} = ?" for name in _KEY)
    update = session.prepare(
        f"UPDATE {SOURCE.cql} SET total = ?, note = 'changed', tags = tags + {{'changed'}}, lines = ? WHERE {key}"
    )
    clear = session.prepare(f"UPDATE {SOURCE.cql} SET note = null, ship_to = null WHERE {key}")
    remove = session.prepare(f"DELETE FROM {SOURCE.cql} WHERE {key}")
    forget = session.prepare(f"DELETE FROM {SOURCE.cql} WHERE customer = ?")
    rename = session.prepare(f"UPDATE {SOURCE.cql} SET name = ? WHERE customer = ?")
    names = [name for name in _COLUMNS if name not in _STATICS]
    insert = session.prepare(_insert(names))
    changed, cleared, removed = range(0, ROWS, 100), range(1, ROWS, 100), range(2, ROWS, 250)
    renamed, new = range(5, CUSTOMERS, 100), range(30)
    _send(
        session,
        [
            *[update.bind((Decimal("0.01") * number, [("gift", number)], *_key(number))) for number in changed],
            *[clear.bind(_key(number)) for number in cleared],
            *[remove.bind(_key(number)) for number in removed],
            forget.bind((_id(CUSTOMERS - 1),)),
            *[rename.bind((f"Customer {number}, married", _id(number))) for number in renamed],
            *[insert.bind(_values(names, {**_order(n * ORDERS_EACH), "number": 1000 + n})) for n in new],
        ],
    )
    return Changes(
        inserted=len(new),
        changed=len(changed) + len(cleared) + len(renamed),
        # The customer who is forgotten takes the static values along.
        deleted=len(removed) + ORDERS_EACH + 1,
        story=f"{len(new)} orders new, {len(changed)} changed, {len(cleared)} with values cleared, {len(removed)} "
        f"deleted, {len(renamed)} customers renamed, 1 forgotten with {ORDERS_EACH} orders",
    )


def samples(session: Any, table: TableName) -> dict[str, str | None]:
    """Return rows that change, as text; None for a row that does not exist."""
    queries = {
        "order 0": (f"SELECT total, note, tags, lines FROM {table.cql} WHERE {_condition()}", _key(0)),
        "order 1": (f"SELECT note, ship_to FROM {table.cql} WHERE {_condition()}", _key(1)),
        "order 2": (f"SELECT total, note FROM {table.cql} WHERE {_condition()}", _key(2)),
        "order 1029": (f"SELECT total, note FROM {table.cql} WHERE {_condition()}", _new_key(29)),
        "customer 5": (f"SELECT name FROM {table.cql} WHERE customer = %s LIMIT 1", (_id(5),)),
    }
    return {name: _row_text(session.execute(query, values).one()) for name, (query, values) in queries.items()}


def read_all(session: Any, table: TableName) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Return the values of a table by key, read without any code of Lakeward but the connection."""
    others = [name for name in _COLUMNS if name not in _KEY]
    rows = session.execute(f"SELECT {', '.join((*_KEY, *others))} FROM {table.cql}")
    return {tuple(row[: len(_KEY)]): tuple(row[len(_KEY) :]) for row in rows}


def _customer(number: int) -> dict[str, Any]:
    return {"customer": _id(number), "name": f"Customer {number}", "home": _place(number)}


def _order(number: int) -> dict[str, Any]:
    from cassandra.util import Date, Duration

    customer, placed, own = _key(number)
    return {
        "customer": customer,
        "placed": placed,
        "number": own,
        "total": Decimal(number) / 8,
        "points": 7**number if number % 1000 == 0 else number,
        "weight": number / 3,
        "discount": (number % 4) / 4,
        "paid": number % 3 == 0,
        "note": "" if number % 7 == 0 else f"Bestellung №{number}",
        "code": f"A-{number}",
        "views": number * 10**12,
        "rating": number % 100 - 50,
        "grade": number % 10,
        "photo": number.to_bytes(4, "big") * 4,
        "client": str(ipaddress.ip_address(0x0A000000 + number)),
        "due": Date(20_000 + number % 365),
        "pickup": number * 1_000_000_007 % 86_400_000_000_000,
        "took": Duration(number % 12, number % 30, number),
        "trace": uuid.UUID(int=(number << 96) | 0x0000_1000_8000_0000_0000_0000),
        "tags": {"new", f"t{number % 5}"} if number % 4 else None,
        "lines": [(f"item {line}", line) for line in range(number % 3)] or None,
        "prices": {"net": Decimal(number) / 10, "gross": Decimal(number) / 8},
        "ship_to": _place(number) if number % 2 else None,
        "taste": [number / 2, -1.0, 0.0],
    }


def _place(number: int) -> tuple[str, str, int]:
    return (f"Street {number}", "Zürich" if number % 2 else "Oslo", 1000 + number % 9000)


def _id(customer: int) -> uuid.UUID:
    return uuid.UUID(int=0x6C61_6B65_7761_4000_8000_0000_0000_0000 + customer)


def _key(number: int) -> tuple[uuid.UUID, int, int]:
    return (_id(number // ORDERS_EACH), _FIRST_MILLISECONDS + number * _MINUTE, number)


def _new_key(number: int) -> tuple[uuid.UUID, int, int]:
    customer, placed, _ = _key(number * ORDERS_EACH)
    return (customer, placed, 1000 + number)


def _condition() -> str:
    return " AND ".join(f"{name} = %s" for name in _KEY)


def _insert(names: Sequence[str]) -> str:
    return f"INSERT INTO {SOURCE.cql} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"


def _values(names: Sequence[str], row: dict[str, Any]) -> list[Any]:
    from cassandra.query import UNSET_VALUE

    return [UNSET_VALUE if row[name] is None else row[name] for name in names]


def _in_batches(statements: Sequence[Any]) -> Iterator[Any]:
    from cassandra.query import BatchStatement, BatchType

    for some in _portions(statements, _BATCH_ROWS):
        batch = BatchStatement(batch_type=BatchType.UNLOGGED)
        for statement in some:
            batch.add(statement)
        yield batch


def _portions(statements: Iterable[Any], size: int) -> Iterator[list[Any]]:
    rest = iter(statements)
    while some := list(islice(rest, size)):
        yield some


def _send(session: Any, statements: Iterable[Any]) -> None:
    for some in _portions(statements, _IN_FLIGHT):
        for future in [session.execute_async(statement) for statement in some]:
            future.result()


def _row_text(row: Any) -> str | None:
    if row is None:
        return None
    return ", ".join("null" if value is None else _text(value) for value in row)


def _text(value: Any) -> str:
    """Return a value as CQL writes it, for the types that the demo shows."""
    if isinstance(value, tuple):
        return f"({', '.join(_text(element) for element in value)})"
    if isinstance(value, list):
        return f"[{', '.join(_text(element) for element in value)}]"
    if isinstance(value, str):
        return f"'{value}'"
    if hasattr(value, "__iter__"):
        return f"{{{', '.join(sorted(_text(element) for element in value))}}}"
    return str(value)
