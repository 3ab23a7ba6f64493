"""The ledger cache in DynamoDB: versions of any size, and one small head per table that names the current one.

A version is filled before any reader sees it, and becomes current by one transaction on the head. An extension marks
the head, adds its files, and sets head and position in one write; while the mark is set, there is no cache. A crash at
any moment thus leaves the cache as it was, complete, or absent. Every version that is not current has a note beside the
head, and what a crash left of it is deleted a day later.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from lakeward.errors import RetriableError
from lakeward.model import FileClass
from lakeward.state import codec
from lakeward.state.dynamodb_connection import ConditionFailedError
from lakeward.state.dynamodb_rows import Item, pack, path_digest, table_text, unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from lakeward.model import LedgerEntry, Progress, TableId
    from lakeward.state.dynamodb_rows import Key, Rows


_FILE, _PART = "file#", "part#"
_WITH_PREFIX = "begins_with(#sk, :prefix)"


class VersionFiles:
    """The files of one version of a table's ledger, one item each."""

    def __init__(self, rows: Rows, table: TableId, version: str) -> None:
        self._rows = rows
        self._table = table
        self._pk = f"files#{table_text(table)}#{version}"

    def write(self, entries: Iterable[LedgerEntry]) -> None:
        """Add entries; of two with the same path the later counts."""
        self._rows.put_many(item for entry in entries for item in self._items(entry))

    def lookup(self, paths: Collection[str]) -> dict[str, LedgerEntry]:
        """Return the entries of those paths that exist."""
        keys = ((self._pk, _FILE + path_digest(path)) for path in paths)
        return {item["path"]: codec.file_entry(item) for item in self._rows.get_many(keys)}

    def load_parts(self, generation: int) -> list[LedgerEntry]:
        """Return the load parts of a generation, ordered by path."""
        named = [item["path"] for item in self._rows.query(self._pk, _WITH_PREFIX, prefix=_PART)]
        parts = [
            entry
            for entry in self.lookup(named).values()
            if entry.file_class is FileClass.LOAD and entry.generation == generation
        ]
        return sorted(parts, key=lambda entry: entry.path)

    def count(self) -> int:
        """Return the number of files."""
        return self._rows.count(self._pk, _WITH_PREFIX, prefix=_FILE)

    def has_any(self, generation: int | None) -> bool:
        """Whether there is a file, in one generation if it is given."""
        if generation is None:
            found = self._rows.query(self._pk, _WITH_PREFIX, limit=1, prefix=_FILE)
        else:
            wanted = "#generation = :generation"
            found = self._rows.query(self._pk, _WITH_PREFIX, only=wanted, prefix=_FILE, generation=generation)
        return next(found, None) is not None

    def delete(self) -> None:
        """Delete all files of the version."""
        self._rows.delete_many((item["pk"], item["sk"]) for item in self._rows.query(self._pk))

    def _items(self, entry: LedgerEntry) -> Iterator[Item]:
        """Yield the entry's item; a load part has a second one, by which it is found among many change files."""
        digest = path_digest(entry.path)
        yield {"pk": self._pk, "sk": _FILE + digest, **codec.file_row(self._table, entry)}
        if entry.file_class is FileClass.LOAD:
            yield {"pk": self._pk, "sk": _PART + digest, "path": entry.path}


T = TypeVar("T")

LEFTOVER_AGE = timedelta(days=1)
_SAME_VERSION = "#version = :version"
_NO_HEAD = "attribute_not_exists(#pk)"
_MARK = "SET #pending = :own"
_MAY_MARK = f"{_SAME_VERSION} AND #snapshot_id = :after AND (attribute_not_exists(#pending) OR #pending = :own)"
_MOVE = "SET #snapshot_id = :snapshot_id, #progress = :progress REMOVE #pending"
# The second alternative: the write succeeded, its response was lost, and the client retries it.
_MAY_MOVE = f"{_SAME_VERSION} AND (#pending = :own OR #snapshot_id = :snapshot_id)"


class DynamoLedger:
    """The part of the store that records consumed files."""

    _rows: Rows

    def ledger_position(self, table: TableId) -> int | None:
        """Return the changelog snapshot that the cached ledger reflects."""
        return _position(self._head(table))

    def progress(self, table: TableId) -> Progress | None:
        """Return the cached progress."""
        head = self._head(table)
        if head is None or _position(head) is None:
            return None
        with codec.reading_row(table, "the progress"):
            return codec.load_progress(table, unpack(head["progress"]))

    def replace_ledger(
        self, table: TableId, snapshot_id: int, progress: Progress, entries: Iterable[LedgerEntry]
    ) -> None:
        """Replace the cache of this table."""
        version = self._fill(table, entries)
        while True:
            old = self._head(table)
            if self._make_current(table, _new_head(table, version, snapshot_id, progress), old):
                break
        if old is not None:
            self._files(table, old["version"]).delete()
        self._sweep(table)

    def extend_ledger(
        self, table: TableId, *, after: int | None, snapshot_id: int, progress: Progress, entries: Iterable[LedgerEntry]
    ) -> bool:
        """Add one op's entries if the cache is at position ``after``."""
        # Collected before the first write, so that entries which fail midway change nothing.
        complete = list(entries)
        head = self._head(table)
        if _position(head) != after:
            return False
        if head is None:
            version = self._fill(table, complete)
            return self._make_current(table, _new_head(table, version, snapshot_id, progress), None)
        try:
            self._extend(table, head, snapshot_id, progress, complete)
        except ConditionFailedError:
            return False
        return True

    def lookup(self, table: TableId, paths: Collection[str]) -> dict[str, LedgerEntry]:
        """Return the entries of those paths that are in the ledger."""
        return self._read(table, lambda files: files.lookup(paths), {})

    def load_parts(self, table: TableId, generation: int) -> list[LedgerEntry]:
        """Return the load parts of a generation, ordered by path."""
        return self._read(table, lambda files: files.load_parts(generation), [])

    def count_files(self, table: TableId) -> int:
        """Return the number of files in the ledger cache."""
        return self._read(table, VersionFiles.count, 0)

    def has_files(self, table: TableId, *, generation: int | None = None) -> bool:
        """Whether the ledger cache holds any file of the table, in one generation if it is given."""
        return self._read(table, lambda files: files.has_any(generation), False)

    def forget_ledger(self, table: TableId) -> None:
        """Drop this table's cached ledger and progress."""
        while (head := self._head(table)) is not None:
            version = head["version"]
            try:
                self._rows.transact(
                    {"Delete": self._rows.deleting(_head_key(table), _SAME_VERSION, version=version)},
                    {"Put": self._rows.putting(self._note(table, version))},
                )
            except ConditionFailedError:
                continue
            self._files(table, version).delete()
            return

    def _read(self, table: TableId, read: Callable[[VersionFiles], T], default: T) -> T:
        """Read the current version, and again if another became current meanwhile."""
        head = self._head(table)
        while head is not None:
            found = read(self._files(table, head["version"]))
            again = self._head(table)
            if again is not None and again["version"] == head["version"]:
                return found
            head = again
        return default

    def _fill(self, table: TableId, entries: Iterable[LedgerEntry]) -> str:
        """Write a version that is not current yet."""
        version = uuid4().hex
        self._rows.put(self._note(table, version), _NO_HEAD)
        self._files(table, version).write(entries)
        return version

    def _make_current(self, table: TableId, head: Item, old: Item | None) -> bool:
        """Replace the head ``old``; return False when that is no longer the head."""
        rows = self._rows
        noted = rows.deleting(_note_key(table, head["version"]), "attribute_exists(#pk)")
        if old is None:
            actions = [{"Put": rows.putting(head, _NO_HEAD)}, {"Delete": noted}]
        else:
            replaced = rows.putting(head, _SAME_VERSION, version=old["version"])
            left = rows.putting(self._note(table, old["version"]))
            actions = [{"Put": replaced}, {"Delete": noted}, {"Put": left}]
        try:
            rows.transact(*actions)
        except ConditionFailedError as error:
            if rows.get(*_note_key(table, head["version"])) is None:
                msg = f"the new ledger of {table} took more than {LEFTOVER_AGE} to write and was cleaned up meanwhile"
                raise RetriableError(msg, hint=f"lakeward run {table}") from error
            return False
        return True

    def _extend(
        self, table: TableId, head: Item, snapshot_id: int, progress: Progress, entries: list[LedgerEntry]
    ) -> None:
        attributes: dict[str, Any] = {"version": head["version"], "own": uuid4().hex}
        self._rows.update(_head_key(table), _MARK, _MAY_MARK, after=head["snapshot_id"], **attributes)
        self._files(table, head["version"]).write(entries)
        packed = pack(codec.dump_progress(progress))
        self._rows.update(_head_key(table), _MOVE, _MAY_MOVE, snapshot_id=snapshot_id, progress=packed, **attributes)

    def _sweep(self, table: TableId) -> None:
        """Delete what crashes or late writers left of versions that are not current."""
        limit = codec.time_text(self._rows.connection.clock.now() - LEFTOVER_AGE)
        for note in self._rows.query(_notes(table)):
            if note["noted_at"] <= limit:
                self._files(table, note["sk"]).delete()
                self._rows.delete_many([(note["pk"], note["sk"])])

    def _head(self, table: TableId) -> Item | None:
        return self._rows.get(*_head_key(table))

    def _files(self, table: TableId, version: str) -> VersionFiles:
        return VersionFiles(self._rows, table, version)

    def _note(self, table: TableId, version: str) -> Item:
        pk, sk = _note_key(table, version)
        return {"pk": pk, "sk": sk, "noted_at": codec.time_text(self._rows.connection.clock.now())}


def _position(head: Item | None) -> int | None:
    """Return the cache's position; None while an extension is under way or was interrupted."""
    return None if head is None or "pending" in head else int(head["snapshot_id"])


def _new_head(table: TableId, version: str, snapshot_id: int, progress: Progress) -> Item:
    pk, sk = _head_key(table)
    packed = pack(codec.dump_progress(progress))
    return {"pk": pk, "sk": sk, "version": version, "snapshot_id": snapshot_id, "progress": packed}


def _head_key(table: TableId) -> Key:
    return "ledgers", table_text(table)


def _notes(table: TableId) -> str:
    return f"versions#{table_text(table)}"


def _note_key(table: TableId, version: str) -> Key:
    return _notes(table), version
