"""The state store in one DynamoDB table: run history, leases, registry, ledger cache, and the store that joins them.

The ledger cache holds versions of any size, and one small head per table that names the current one. A version is
filled before any reader sees it, and becomes current by one transaction on the head. An extension marks the head, adds
its files, and sets head and position in one write; while the mark is set, there is no cache. A crash at any moment thus
leaves the cache as it was, complete, or absent. Every version that is not current has a note beside the head, and what
a crash left of it is deleted a day later.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from lakeward.errors import RetriableError
from lakeward.model import Disposition, FileClass
from lakeward.state import codec
from lakeward.state.base import Lease, LeaseOwner
from lakeward.state.dynamodb_connection import ConditionFailedError, DynamoAddress, DynamoConnection
from lakeward.state.dynamodb_rows import WRITE_BATCH, Item, Rows, pack, pages, path_digest, table_text, unpack
from lakeward.state.leases import is_live, lease_held_error, lease_lost_error

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from datetime import datetime

    from lakeward.model import LedgerEntry, Progress, TableId
    from lakeward.state.base import RegisteredTable, TableRun
    from lakeward.state.dynamodb_rows import Key


# Run history: the item of a run is in its table's partition. Pointers to it are in the partition of all runs and in
# that of its run id. A report too large for one item is split into parts.
_ALL_RUNS = "runs"
# An item holds at most 400 kB, its attribute names included.
_MAX_PART_BYTES = 300_000


class DynamoHistory:
    """The part of the store that records runs."""

    _rows: Rows

    def record_run(self, run: TableRun) -> None:
        """Add to the run history."""
        row = codec.run_row(run)
        row |= {name: codec.time_text(row[name]) for name in ("started_at", "finished_at")}
        sk = f"{row['started_at']}#{codec.new_row_id()}"
        report = pack(row.pop("report"))
        parts = [report[start : start + _MAX_PART_BYTES] for start in range(0, len(report), _MAX_PART_BYTES)]
        self._rows.put_many(_part(sk, number, part) for number, part in enumerate(parts[1:], 1))
        where = {**codec.table_key(run.table), "run_id": run.run_id, "parts": len(parts)}
        whole = {"pk": _table_runs(run.table), "sk": sk, **row, "parts": len(parts), "report": parts[0]}
        pointers = ({"pk": pk, "sk": sk, **where} for pk in (_ALL_RUNS, _run(run.run_id)))
        self._rows.transact(*({"Put": self._rows.putting(item)} for item in (whole, *pointers)))

    def runs(self, table: TableId | None = None, *, run_id: str | None = None, limit: int = 50) -> list[TableRun]:
        """Return the run history by start, newest first."""
        if run_id is not None:
            pointers = (item for item in self._newest(_run(run_id), limit) if table in (None, codec.table_of(item)))
            return self._find_runs(islice(pointers, limit))
        if table is None:
            return self._find_runs(islice(self._newest(_ALL_RUNS, limit), limit))
        return [self._run_of(item) for item in islice(self._newest(_table_runs(table), limit), limit)]

    def prune_runs(self, *, before: datetime) -> int:
        """Delete the history of runs that started before a moment."""
        pruned = 0
        old = self._rows.query(_ALL_RUNS, "#sk < :before", before=codec.time_text(before))
        for page in pages(old, WRITE_BATCH):
            self._rows.delete_many(key for pointer in page for key in _keys_of(pointer))
            # Last, so that what an interruption leaves behind can still be found.
            self._rows.delete_many((_ALL_RUNS, pointer["sk"]) for pointer in page)
            pruned += len(page)
        return pruned

    def _rename_runs(self, table: TableId, name: TableId) -> None:
        """Move a table's runs to another name, each with its pointers in one step."""
        rows, key = self._rows, codec.table_key(name)
        for item in rows.query(_table_runs(table)):
            where = {**key, "run_id": item["run_id"], "parts": item["parts"]}
            whole = {**item, **key, "pk": _table_runs(name)}
            pointers = ({"pk": pk, "sk": item["sk"], **where} for pk in (_ALL_RUNS, _run(item["run_id"])))
            puts = ({"Put": rows.putting(moved)} for moved in (whole, *pointers))
            rows.transact(*puts, {"Delete": rows.deleting((item["pk"], item["sk"]))})

    def _newest(self, pk: str, limit: int) -> Iterator[Item]:
        return self._rows.query(pk, newest_first=True, limit=max(limit, 1))

    def _find_runs(self, pointers: Iterator[Item]) -> list[TableRun]:
        """Return the runs that pointers refer to, in their order, without those deleted meanwhile."""
        keys = [(_table_runs(codec.table_of(pointer)), pointer["sk"]) for pointer in pointers]
        found = {(item["pk"], item["sk"]): item for item in self._rows.get_many(keys)}
        return [self._run_of(found[key]) for key in keys if key in found]

    def _run_of(self, item: Item) -> TableRun:
        other_parts = self._rows.query(_report(item["sk"])) if item["parts"] > 1 else iter(())
        times: dict[str, Any] = {name: codec.time_of(item[name]) for name in ("started_at", "finished_at")}
        with codec.reading_row(codec.table_of(item), f"run {item['run_id']}"):
            report = unpack(b"".join([item["report"], *(part["report"] for part in other_parts)]))
        return codec.table_run({**item, **times, "report": report})


def _keys_of(pointer: Item) -> Iterator[Key]:
    """Yield the keys of everything that belongs to a run, except the pointer among all runs."""
    sk = pointer["sk"]
    yield _table_runs(codec.table_of(pointer)), sk
    yield _run(pointer["run_id"]), sk
    yield from ((_report(sk), _part_number(number)) for number in range(1, pointer["parts"]))


def _part(sk: str, number: int, content: bytes) -> Item:
    return {"pk": _report(sk), "sk": _part_number(number), "report": content}


def _table_runs(table: TableId) -> str:
    return f"runs#{table_text(table)}"


def _run(run_id: str) -> str:
    return f"run#{run_id}"


def _report(sk: str) -> str:
    return f"report#{sk}"


def _part_number(number: int) -> str:
    return f"{number:06d}"


_LEASES = "leases"
_UNCHANGED = "#token = :token AND #expires_at = :expires_at"


class DynamoLeases:
    """The part of the store that admits one writer at a time, by conditional writes."""

    _rows: Rows

    def acquire_lease(self, table: TableId, owner: LeaseOwner, *, seconds: float) -> Lease:
        """Take the table's lease, or raise LeaseHeldError."""
        token = uuid4().hex
        while True:
            held, now = self._find_lease(table), self._rows.connection.clock.now()
            if held is not None and held.token == token:
                # Our own write succeeded but its response was lost, and the client's retry was refused.
                return held
            if held is not None and is_live(held, now):
                raise lease_held_error(held)
            lease = Lease(table, owner, token, now + timedelta(seconds=seconds))
            try:
                self._take(lease, held)
            except ConditionFailedError:
                continue
            return lease

    def renew_lease(self, lease: Lease, *, seconds: float) -> Lease:
        """Extend the lease, or raise ConflictError when it is no longer ours."""
        renewed = replace(lease, expires_at=self._rows.connection.clock.now() + timedelta(seconds=seconds))
        end = codec.time_text(renewed.expires_at)
        try:
            self._rows.update(
                _lease_key(lease.table), "SET #expires_at = :end", "#token = :token", end=end, token=lease.token
            )
        except ConditionFailedError as error:
            held = self._find_lease(lease.table)
            reason = f"{held.owner} took it over" if held is not None else "it is gone from the state store"
            raise lease_lost_error(lease.table, reason) from error
        return renewed

    def release_lease(self, lease: Lease) -> None:
        """Release the lease if it is still ours."""
        try:
            self._rows.delete(_lease_key(lease.table), "#token = :token", token=lease.token)
        except ConditionFailedError:
            return

    def lease_of(self, table: TableId) -> Lease | None:
        """Return the table's live lease."""
        lease = self._find_lease(table)
        return lease if lease is not None and is_live(lease, self._rows.connection.clock.now()) else None

    def leases(self) -> Iterator[Lease]:
        """Return all live leases, ordered by table."""
        held = sorted((_lease(item) for item in self._rows.query(_LEASES)), key=lambda lease: lease.table)
        now = self._rows.connection.clock.now()
        return iter([lease for lease in held if is_live(lease, now)])

    def _find_lease(self, table: TableId) -> Lease | None:
        item = self._rows.get(*_lease_key(table))
        return _lease(item) if item is not None else None

    def _take(self, lease: Lease, held: Lease | None) -> None:
        """Write the lease if what was found has not changed: its holder may have renewed it meanwhile."""
        pk, sk = _lease_key(lease.table)
        item = {"pk": pk, "sk": sk, **codec.lease_row(lease), "expires_at": codec.time_text(lease.expires_at)}
        if held is None:
            self._rows.put(item, "attribute_not_exists(#pk)")
        else:
            self._rows.put(item, _UNCHANGED, token=held.token, expires_at=codec.time_text(held.expires_at))


def _lease_key(table: TableId) -> Key:
    return _LEASES, table_text(table)


def _lease(item: Item) -> Lease:
    return codec.lease_of_row({**item, "expires_at": codec.time_of(item["expires_at"])})


_REGISTRY = "registry"
_NEW = "attribute_not_exists(#pk)"
_SET_TABLE = "SET #active = :active, #settings = :settings"
_SET_ERROR = (
    "SET #error = :error, #table_schema = :schema, #table_name = :name, "
    "#active = if_not_exists(#active, :inactive), #settings = if_not_exists(#settings, :empty)"
)


class DynamoRegistry(DynamoHistory):
    """The part of the store that holds the registered tables, whose runs follow a new name."""

    _rows: Rows

    def register(self, table: TableId, *, active: bool) -> bool:
        """Add a table to the registry if it is new."""
        pk, sk = _registry_key(table)
        values = {"active": active, "settings": codec.dump_json({}), "error": None}
        try:
            self._rows.put({"pk": pk, "sk": sk, **codec.table_key(table), **values}, _NEW)
        except ConditionFailedError:
            return False
        return True

    def set_table(
        self, table: TableId, *, active: bool | None = None, settings: dict[str, Any] | None = None
    ) -> RegisteredTable:
        """Register the table if it is new, merge ``settings``, set the flag if given."""
        while True:
            self.register(table, active=False)
            item = self._rows.get(*_registry_key(table))
            if item is None:
                continue
            changed = codec.changed_table(codec.registered_table(item), active, settings)
            values = {"active": changed.active, "settings": codec.dump_json(changed.settings)}
            seen = {"seen_active": item["active"], "seen_settings": item["settings"]}
            unchanged = "#active = :seen_active AND #settings = :seen_settings"
            try:
                self._rows.update(_registry_key(table), _SET_TABLE, unchanged, **values, **seen)
            except ConditionFailedError:
                continue
            return changed

    def set_error(self, table: TableId, error: str | None) -> None:
        """Store, or clear, the error that stopped the table last."""
        values = {"schema": table.schema, "name": table.name, "inactive": False, "empty": codec.dump_json({})}
        condition = "" if error is not None else "attribute_exists(#pk)"
        try:
            self._rows.update(_registry_key(table), _SET_ERROR, condition, error=codec.error_text(error), **values)
        except ConditionFailedError:
            # The table is not registered: there is nothing to clear.
            return

    def unregister(self, table: TableId) -> bool:
        """Remove a table from the registry."""
        try:
            self._rows.delete(_registry_key(table), "attribute_exists(#pk)")
        except ConditionFailedError:
            return False
        return True

    def rename_table(self, table: TableId, name: TableId) -> None:
        """Move a table's registration and runs to another name."""
        item, (pk, sk) = self._rows.get(*_registry_key(table)), _registry_key(name)
        if item is not None:
            if self.find_table(name) is None:
                self._rows.put({**item, "pk": pk, "sk": sk, **codec.table_key(name)}, "")
            self.unregister(table)
        self._rename_runs(table, name)

    def registered(self) -> Iterator[RegisteredTable]:
        """Return all registered tables, ordered by name."""
        found = (codec.registered_table(item) for item in self._rows.query(_REGISTRY))
        return iter(sorted(found, key=lambda registered: registered.table))

    def find_table(self, table: TableId) -> RegisteredTable | None:
        """Return a registered table, None when it is not registered."""
        item = self._rows.get(*_registry_key(table))
        return codec.registered_table(item) if item is not None else None


def _registry_key(table: TableId) -> Key:
    return _REGISTRY, table_text(table)


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
        """Return the number of files, without those that only received their number."""
        counted = "#disposition <> :arrived"
        return self._rows.count(self._pk, _WITH_PREFIX, only=counted, prefix=_FILE, arrived=Disposition.ARRIVED.value)

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
        """Return the number of files in the ledger cache, without those that only received their number."""
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


class DynamoStateStore(DynamoLeases, DynamoLedger, DynamoRegistry):
    """A :class:`~lakeward.state.base.StateStore` for any number of hosts; safe for threads."""

    def __init__(self, uri: str) -> None:
        self._connection = DynamoConnection(DynamoAddress.parse(uri))
        self._rows = Rows(self._connection)

    def close(self) -> None:
        """Close all connections."""
        self._connection.close()
