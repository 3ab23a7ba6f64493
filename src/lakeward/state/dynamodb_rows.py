"""Items of one DynamoDB table: their encoding, and access to single items, pages and batches."""

from __future__ import annotations

import hashlib
import re
import zlib
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from lakeward.errors import BugError, RetriableError
from lakeward.state.dynamodb_connection import pause

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lakeward.model import TableId
    from lakeward.state.dynamodb_connection import DynamoConnection


Item = dict[str, Any]
Wire = dict[str, dict[str, Any]]


def to_wire(item: Mapping[str, Any]) -> Wire:
    """Return an item in the client's form."""
    return {name: _to_wire(value) for name, value in item.items()}


def from_wire(wire: Wire) -> Item:
    """Return an item from the client's form."""
    return {name: _from_wire(value) for name, value in wire.items()}


def table_text(table: TableId) -> str:
    """Return a table as part of a key; neither of its names can contain a slash."""
    return f"{table.schema}/{table.name}"


def path_digest(path: str) -> str:
    """Return a path as part of a key, whose length is limited."""
    return hashlib.blake2b(path.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def pack(text: str) -> bytes:
    """Return a text compressed."""
    return zlib.compress(text.encode("utf-8"))


def unpack(packed: bytes) -> str:
    """Read what :func:`pack` wrote.

    Raises:
        ValueError: the bytes are damaged.
    """
    try:
        return zlib.decompress(packed).decode("utf-8")
    except zlib.error as error:
        raise ValueError(str(error)) from error


def _to_wire(value: Any) -> dict[str, Any]:
    match value:
        case None:
            return {"NULL": True}
        case bool():
            return {"BOOL": value}
        case int() | float():
            return {"N": repr(value)}
        case str():
            return {"S": str(value)}
        case bytes():
            return {"B": value}
    msg = f"a {type(value).__name__} cannot be written to DynamoDB"
    raise BugError(msg)


def _from_wire(wire: dict[str, Any]) -> Any:
    [(kind, value)] = wire.items()
    match kind:
        case "NULL":
            return None
        case "N":
            return float(value) if set(value) & set(".eE") else int(value)
        case _:
            return value


T = TypeVar("T")
Key = tuple[str, str]

READ_BATCH = 100
WRITE_BATCH = 25
# Batches in flight at one time.
PARALLEL_BATCHES = 8
_TRIES = 10
_NAME = re.compile(r"#(\w+)")


class Rows:
    """Access to the items of the table; expressions write ``#name`` for attributes and ``:name`` for values."""

    def __init__(self, connection: DynamoConnection) -> None:
        self.connection = connection
        self._table = connection.address.table

    def get(self, pk: str, sk: str) -> Item | None:
        """Return an item as it is now, None if there is none."""
        answer = self.connection.call("get_item", TableName=self._table, Key=_key((pk, sk)), ConsistentRead=True)
        return from_wire(answer["Item"]) if "Item" in answer else None

    def put(self, item: Item, condition: str, **values: Any) -> None:
        """Write an item if the condition holds."""
        self.connection.call("put_item", **self.putting(item, condition, **values))

    def update(self, key: Key, expression: str, condition: str, **values: Any) -> None:
        """Change an item if the condition holds."""
        self.connection.call(
            "update_item", TableName=self._table, Key=_key(key), UpdateExpression=expression,
            **_expressions(expression + condition, values), **_condition(condition),
        )  # fmt: skip

    def delete(self, key: Key, condition: str, **values: Any) -> None:
        """Delete an item if the condition holds."""
        self.connection.call("delete_item", **self.deleting(key, condition, **values))

    def putting(self, item: Item, condition: str = "", **values: Any) -> dict[str, Any]:
        """Return the parameters of a put, also for :meth:`transact`."""
        return {
            "TableName": self._table, "Item": to_wire(item),
            **_condition(condition), **_expressions(condition, values),
        }  # fmt: skip

    def deleting(self, key: Key, condition: str = "", **values: Any) -> dict[str, Any]:
        """Return the parameters of a delete, also for :meth:`transact`."""
        return {
            "TableName": self._table, "Key": _key(key),
            **_condition(condition), **_expressions(condition, values),
        }  # fmt: skip

    def transact(self, *actions: dict[str, dict[str, Any]]) -> None:
        """Perform all of at most a hundred actions, ``{"Put": …}`` or ``{"Delete": …}``, or none."""
        self.connection.call("transact_write_items", TransactItems=list(actions))

    def query(
        self, pk: str, condition: str = "", *, only: str = "", newest_first: bool = False, limit: int = 0, **values: Any
    ) -> Iterator[Item]:
        """Yield the items of a partition in the order of their keys, page by page.

        ``condition`` narrows by ``#sk``, ``only`` by other attributes, ``limit`` is the size of a page.
        """
        parameters = self._querying(pk, condition, only, values)
        parameters |= {"ScanIndexForward": not newest_first} | ({"Limit": limit} if limit else {})
        for answer in self._pages(parameters):
            yield from (from_wire(wire) for wire in answer["Items"])

    def count(self, pk: str, condition: str, *, only: str = "", **values: Any) -> int:
        """Return the number of items of a partition; the conditions are those of :meth:`query`."""
        parameters = self._querying(pk, condition, only, values)
        return sum(answer["Count"] for answer in self._pages({**parameters, "Select": "COUNT"}))

    def get_many(self, keys: Iterable[Key]) -> Iterator[Item]:
        """Yield the items that exist among the keys, in any order."""
        with ThreadPoolExecutor(PARALLEL_BATCHES) as pool:
            for group in pages(dict.fromkeys(keys), PARALLEL_BATCHES * READ_BATCH):
                for found in pool.map(self._get_batch, pages(group, READ_BATCH)):
                    yield from found

    def put_many(self, items: Iterable[Item]) -> None:
        """Write items; of two with the same key the later counts."""
        self._write_many({(item["pk"], item["sk"]): {"PutRequest": {"Item": to_wire(item)}}} for item in items)

    def delete_many(self, keys: Iterable[Key]) -> None:
        """Delete items."""
        self._write_many({key: {"DeleteRequest": {"Key": _key(key)}}} for key in keys)

    def _write_many(self, requests: Iterable[dict[Key, Any]]) -> None:
        """Write group by group, the batches of a group in parallel: a later request must not be overtaken."""
        with ThreadPoolExecutor(PARALLEL_BATCHES) as pool:
            for group in pages(requests, PARALLEL_BATCHES * WRITE_BATCH):
                by_key = {key: request for single in group for key, request in single.items()}
                for _ in pool.map(self._write_batch, pages(by_key.values(), WRITE_BATCH)):
                    pass

    def _querying(self, pk: str, condition: str, only: str, values: Mapping[str, Any]) -> dict[str, Any]:
        narrowed = f"#pk = :pk AND {condition}" if condition else "#pk = :pk"
        filtered = {"FilterExpression": only} if only else {}
        return {
            "TableName": self._table, "ConsistentRead": True, "KeyConditionExpression": narrowed, **filtered,
            **_expressions(narrowed + only, {"pk": pk, **values}),
        }  # fmt: skip

    def _pages(self, parameters: dict[str, Any]) -> Iterator[dict[str, Any]]:
        start: dict[str, Any] = {}
        while True:
            answer = self.connection.call("query", **parameters, **start)
            yield answer
            if "LastEvaluatedKey" not in answer:
                return
            start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}

    def _get_batch(self, keys: list[Key]) -> list[Item]:
        remaining: Any = {self._table: {"Keys": [_key(key) for key in keys], "ConsistentRead": True}}
        found: list[Item] = []
        for attempt in range(_TRIES):
            answer = self.connection.call("batch_get_item", RequestItems=remaining)
            found.extend(from_wire(wire) for wire in answer["Responses"].get(self._table, []))
            remaining = answer.get("UnprocessedKeys")
            if not remaining:
                return found
            pause(attempt)
        raise self._throttled(remaining)

    def _write_batch(self, requests: list[Any]) -> None:
        remaining: Any = {self._table: requests}
        for attempt in range(_TRIES):
            remaining = self.connection.call("batch_write_item", RequestItems=remaining).get("UnprocessedItems")
            if not remaining:
                return
            pause(attempt)
        raise self._throttled(remaining)

    def _throttled(self, remaining: Any) -> RetriableError:
        items = f"{len(remaining[self._table])} items of a batch"
        msg = f"the state store {self.connection.address} did not process {items} in {_TRIES} tries"
        return RetriableError(msg, hint="try again; if it is throttled often, raise the limits of the table")


def pages(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield lists of at most ``size`` items."""
    iterator = iter(items)
    while page := list(islice(iterator, size)):
        yield page


def _key(key: Key) -> dict[str, Any]:
    return to_wire({"pk": key[0], "sk": key[1]})


def _condition(condition: str) -> dict[str, str]:
    return {"ConditionExpression": condition} if condition else {}


def _expressions(expression: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the names and values of an expression; many plain words are reserved in expressions."""
    names = {f"#{name}": name for name in _NAME.findall(expression)}
    given = to_wire({f":{name}": value for name, value in values.items()})
    return ({"ExpressionAttributeNames": names} if names else {}) | (
        {"ExpressionAttributeValues": given} if given else {}
    )
