"""The state store in one DynamoDB table: run history, leases, registry, and the store that joins them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from lakeward.state import codec
from lakeward.state.base import Lease, LeaseOwner
from lakeward.state.dynamodb_connection import ConditionFailedError, DynamoAddress, DynamoConnection
from lakeward.state.dynamodb_ledger import DynamoLedger
from lakeward.state.dynamodb_rows import WRITE_BATCH, Item, Rows, pack, pages, table_text, unpack
from lakeward.state.leases import is_live, lease_held_error, lease_lost_error

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from lakeward.model import TableId
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


class DynamoRegistry:
    """The part of the store that holds the registered tables."""

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


class DynamoStateStore(DynamoLeases, DynamoLedger, DynamoRegistry, DynamoHistory):
    """A :class:`~lakeward.state.base.StateStore` for any number of hosts; safe for threads."""

    def __init__(self, uri: str) -> None:
        self._connection = DynamoConnection(DynamoAddress.parse(uri))
        self._rows = Rows(self._connection)

    def close(self) -> None:
        """Close all connections."""
        self._connection.close()
