"""Items of one table: single, by page and by batch, with what is left over tried again."""

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


# Python values as DynamoDB writes them, and back; keys; texts packed small.


Item = dict[str, Any]
Wire = dict[str, dict[str, Any]]


def to_wire(item: Mapping[str, Any]) -> Wire:
    """An item as the client takes it."""
    return {name: _to_wire(value) for name, value in item.items()}


def from_wire(wire: Wire) -> Item:
    """An item as the client gave it."""
    return {name: _from_wire(value) for name, value in wire.items()}


def table_text(table: TableId) -> str:
    """A table in a key; a slash can be in neither of its names."""
    return f"{table.schema}/{table.name}"


def path_digest(path: str) -> str:
    """A path in a key, which may be shorter than a path."""
    return hashlib.blake2b(path.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def pack(text: str) -> bytes:
    """A text of which much may repeat, made small."""
    return zlib.compress(text.encode("utf-8"))


def unpack(packed: bytes) -> str:
    """Read what :func:`pack` wrote.

    Raises:
        ValueError: it is damaged.
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
# Batches under way at a time.
LANES = 8
_TRIES = 10
_NAME = re.compile(r"#(\w+)")


class Rows:
    """What the parts of the store do with items; expressions write ``#name`` for attributes, ``:name`` for values."""

    def __init__(self, connection: DynamoConnection) -> None:
        self.connection = connection
        self._table = connection.address.table

    def get(self, pk: str, sk: str) -> Item | None:
        """One item, as it is now."""
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
        """The parameters of a put, for :meth:`transact` too."""
        return {
            "TableName": self._table, "Item": to_wire(item),
            **_condition(condition), **_expressions(condition, values),
        }  # fmt: skip

    def deleting(self, key: Key, condition: str = "", **values: Any) -> dict[str, Any]:
        """The parameters of a delete, for :meth:`transact` too."""
        return {
            "TableName": self._table, "Key": _key(key),
            **_condition(condition), **_expressions(condition, values),
        }  # fmt: skip

    def transact(self, *actions: dict[str, dict[str, Any]]) -> None:
        """Do all of at most a hundred actions, ``{"Put": …}`` or ``{"Delete": …}``, or none."""
        self.connection.call("transact_write_items", TransactItems=list(actions))

    def query(
        self, pk: str, condition: str = "", *, only: str = "", newest_first: bool = False, limit: int = 0, **values: Any
    ) -> Iterator[Item]:
        """Items of a partition in the order of their keys, page by page.

        ``condition`` narrows by ``#sk``, ``only`` by other attributes, ``limit`` is the size of a page.
        """
        parameters = self._querying(pk, condition, only, values)
        parameters |= {"ScanIndexForward": not newest_first} | ({"Limit": limit} if limit else {})
        for answer in self._pages(parameters):
            yield from (from_wire(wire) for wire in answer["Items"])

    def count(self, pk: str, condition: str, **values: Any) -> int:
        """Number of items of a partition."""
        parameters = self._querying(pk, condition, "", values)
        return sum(answer["Count"] for answer in self._pages({**parameters, "Select": "COUNT"}))

    def get_many(self, keys: Iterable[Key]) -> Iterator[Item]:
        """Those items of the keys that exist, in any order."""
        with ThreadPoolExecutor(LANES) as lanes:
            for wave in pages(dict.fromkeys(keys), LANES * READ_BATCH):
                for found in lanes.map(self._get_batch, pages(wave, READ_BATCH)):
                    yield from found

    def put_many(self, items: Iterable[Item]) -> None:
        """Write items; of two with one key the later stands."""
        self._write_many({(item["pk"], item["sk"]): {"PutRequest": {"Item": to_wire(item)}}} for item in items)

    def delete_many(self, keys: Iterable[Key]) -> None:
        """Delete items."""
        self._write_many({key: {"DeleteRequest": {"Key": _key(key)}}} for key in keys)

    def _write_many(self, requests: Iterable[dict[Key, Any]]) -> None:
        """Write in waves, each wave in batches side by side: what comes later must not be overtaken."""
        with ThreadPoolExecutor(LANES) as lanes:
            for wave in pages(requests, LANES * WRITE_BATCH):
                by_key = {key: request for one in wave for key, request in one.items()}
                for _ in lanes.map(self._write_batch, pages(by_key.values(), WRITE_BATCH)):
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
        left: Any = {self._table: {"Keys": [_key(key) for key in keys], "ConsistentRead": True}}
        found: list[Item] = []
        for attempt in range(_TRIES):
            answer = self.connection.call("batch_get_item", RequestItems=left)
            found.extend(from_wire(wire) for wire in answer["Responses"].get(self._table, []))
            left = answer.get("UnprocessedKeys")
            if not left:
                return found
            pause(attempt)
        raise self._throttled(left)

    def _write_batch(self, requests: list[Any]) -> None:
        left: Any = {self._table: requests}
        for attempt in range(_TRIES):
            left = self.connection.call("batch_write_item", RequestItems=left).get("UnprocessedItems")
            if not left:
                return
            pause(attempt)
        raise self._throttled(left)

    def _throttled(self, left: Any) -> RetriableError:
        undone = f"{len(left[self._table])} items of a batch undone {_TRIES} times in a row"
        msg = f"the state store {self.connection.address} left {undone}"
        return RetriableError(msg, hint="try again; if it is throttled often, raise the limits of the table")


def pages(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lists of at most ``size`` items."""
    iterator = iter(items)
    while page := list(islice(iterator, size)):
        yield page


def _key(key: Key) -> dict[str, Any]:
    return to_wire({"pk": key[0], "sk": key[1]})


def _condition(condition: str) -> dict[str, str]:
    return {"ConditionExpression": condition} if condition else {}


def _expressions(expression: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Names and values of an expression: many plain words are reserved in one."""
    names = {f"#{name}": name for name in _NAME.findall(expression)}
    given = to_wire({f":{name}": value for name, value in values.items()})
    return ({"ExpressionAttributeNames": names} if names else {}) | (
        {"ExpressionAttributeValues": given} if given else {}
    )
