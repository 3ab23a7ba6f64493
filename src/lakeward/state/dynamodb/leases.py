"""Leases in DynamoDB, by conditional writes."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import uuid4

from lakeward.state import codec
from lakeward.state.base import Lease, LeaseOwner
from lakeward.state.dynamodb.faults import ConditionFailedError
from lakeward.state.dynamodb.values import Item, table_text
from lakeward.state.leases import is_live, lease_held_error, lease_lost_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward.model import TableId
    from lakeward.state.dynamodb.rows import Rows

_PARTITION = "leases"
_UNCHANGED = "#token = :token AND #expires_at = :expires_at"


class DynamoLeases:
    """The part of the store that lets one writer at a time."""

    _rows: Rows

    def acquire_lease(self, table: TableId, owner: LeaseOwner, *, seconds: float) -> Lease:
        """Take the table's lease, or raise LeaseHeldError."""
        token = uuid4().hex
        while True:
            held, now = self._find_lease(table), self._rows.connection.clock.now()
            if held is not None and held.token == token:
                # Our own write was done, its answer got lost, and the client's repetition was refused.
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
                _key(lease.table), "SET #expires_at = :end", "#token = :token", end=end, token=lease.token
            )
        except ConditionFailedError as error:
            held = self._find_lease(lease.table)
            reason = f"{held.owner} took it over" if held is not None else "it is gone from the state store"
            raise lease_lost_error(lease.table, reason) from error
        return renewed

    def release_lease(self, lease: Lease) -> None:
        """Give the lease back if it is still ours."""
        try:
            self._rows.delete(_key(lease.table), "#token = :token", token=lease.token)
        except ConditionFailedError:
            return

    def lease_of(self, table: TableId) -> Lease | None:
        """The table's live lease."""
        lease = self._find_lease(table)
        return lease if lease is not None and is_live(lease, self._rows.connection.clock.now()) else None

    def leases(self) -> Iterator[Lease]:
        """All live leases by table."""
        held = sorted((_lease(item) for item in self._rows.query(_PARTITION)), key=lambda lease: lease.table)
        now = self._rows.connection.clock.now()
        return iter([lease for lease in held if is_live(lease, now)])

    def _find_lease(self, table: TableId) -> Lease | None:
        item = self._rows.get(*_key(table))
        return _lease(item) if item is not None else None

    def _take(self, lease: Lease, held: Lease | None) -> None:
        """Write the lease if what was found there is there still: its holder may have renewed it meanwhile."""
        pk, sk = _key(lease.table)
        item = {"pk": pk, "sk": sk, **codec.lease_row(lease), "expires_at": codec.time_text(lease.expires_at)}
        if held is None:
            self._rows.put(item, "attribute_not_exists(#pk)")
        else:
            self._rows.put(item, _UNCHANGED, token=held.token, expires_at=codec.time_text(held.expires_at))


def _key(table: TableId) -> tuple[str, str]:
    return _PARTITION, table_text(table)


def _lease(item: Item) -> Lease:
    return codec.lease_of_row({**item, "expires_at": codec.time_of(item["expires_at"])})
