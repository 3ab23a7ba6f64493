"""Leases: one holder at a time."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from lakeward.errors import ConflictError, LakewardError, LeaseHeldError
from lakeward.model import TableId
from lakeward.state.leases import current_owner
from lakeward.testing.state_contract.samples import CUSTOMER, ELSEWHERE, PRODUCT, dead_owner
from lakeward.testing.state_contract.stores import WithStore

if TYPE_CHECKING:
    from lakeward.state.base import Lease, StateStore

THREADS = 8


class LeaseContract(WithStore):
    """What holding a table means."""

    def test_a_lease_excludes_everyone_even_its_owner(self, store: StateStore) -> None:
        owner = current_owner("run-1")
        lease = store.acquire_lease(PRODUCT, owner, seconds=3600)
        assert lease.owner == owner
        assert timedelta(minutes=50) < lease.expires_at - datetime.now(UTC) <= timedelta(hours=1)
        for other in (ELSEWHERE, owner):
            with pytest.raises(LeaseHeldError):
                store.acquire_lease(PRODUCT, other, seconds=300)
        assert store.lease_of(PRODUCT) == lease

    def test_the_refusal_names_table_owner_end_and_remedy(self, store: StateStore) -> None:
        lease = store.acquire_lease(PRODUCT, ELSEWHERE, seconds=300)
        with pytest.raises(LeaseHeldError) as refused:
            store.acquire_lease(PRODUCT, current_owner("run-2"), seconds=300)
        end = lease.expires_at.isoformat(sep=" ", timespec="seconds")
        for part in ("sales.product", "run-elsewhere", "4711", "elsewhere.example", end, "--wait"):
            assert part in str(refused.value)

    def test_tables_have_leases_of_their_own(self, store: StateStore) -> None:
        store.acquire_lease(PRODUCT, ELSEWHERE, seconds=300)
        assert store.lease_of(CUSTOMER) is None
        assert store.acquire_lease(CUSTOMER, ELSEWHERE, seconds=300).table == CUSTOMER

    def test_a_released_lease_is_free(self, store: StateStore) -> None:
        first = store.acquire_lease(PRODUCT, ELSEWHERE, seconds=300)
        store.release_lease(first)
        assert store.lease_of(PRODUCT) is None
        assert store.acquire_lease(PRODUCT, ELSEWHERE, seconds=300).token != first.token

    def test_an_expired_lease_is_taken_over_and_its_holder_refused(self, store: StateStore) -> None:
        first = store.acquire_lease(PRODUCT, ELSEWHERE, seconds=0.01)
        time.sleep(0.02)
        assert store.lease_of(PRODUCT) is None
        second = store.acquire_lease(PRODUCT, current_owner("run-2"), seconds=300)
        with pytest.raises(ConflictError, match="run-2"):
            store.renew_lease(first, seconds=300)
        store.release_lease(first)
        assert store.lease_of(PRODUCT) == second

    def test_a_dead_process_loses_its_lease_at_once(self, store: StateStore) -> None:
        store.acquire_lease(PRODUCT, dead_owner(), seconds=3600)
        assert store.lease_of(PRODUCT) is None
        assert store.acquire_lease(PRODUCT, ELSEWHERE, seconds=300).owner == ELSEWHERE

    def test_renewing_extends_and_keeps_the_token(self, store: StateStore) -> None:
        lease = store.acquire_lease(PRODUCT, ELSEWHERE, seconds=60)
        renewed = store.renew_lease(lease, seconds=600)
        assert renewed.token == lease.token
        assert renewed.expires_at - lease.expires_at > timedelta(seconds=500)
        assert store.lease_of(PRODUCT) == renewed

    def test_a_lease_that_is_gone_cannot_be_renewed(self, store: StateStore) -> None:
        lease = store.acquire_lease(PRODUCT, ELSEWHERE, seconds=300)
        store.release_lease(lease)
        with pytest.raises(ConflictError, match="gone"):
            store.renew_lease(lease, seconds=300)
        store.release_lease(lease)

    def test_of_many_threads_one_gets_the_lease_and_only_that_one_keeps_it(self, store: StateStore) -> None:
        for table in (TableId("race", f"t{number}") for number in range(5)):
            won, refused = race(store, table)
            assert [type(error) for error in refused] == [LeaseHeldError] * (THREADS - 1)
            [lease] = won
            assert store.renew_lease(lease, seconds=300).token == lease.token

    def test_of_many_threads_one_takes_over_an_expired_lease(self, store: StateStore) -> None:
        table = TableId("race", "expired")
        late = store.acquire_lease(table, ELSEWHERE, seconds=0.01)
        time.sleep(0.02)
        won, refused = race(store, table)
        assert [type(error) for error in refused] == [LeaseHeldError] * (THREADS - 1)
        assert store.lease_of(table) == won[0]
        with pytest.raises(ConflictError):
            store.renew_lease(late, seconds=300)

    def test_an_expired_lease_that_nobody_took_can_be_renewed(self, store: StateStore) -> None:
        lease = store.acquire_lease(PRODUCT, ELSEWHERE, seconds=0.01)
        time.sleep(0.02)
        renewed = store.renew_lease(lease, seconds=300)
        assert store.lease_of(PRODUCT) == renewed

    def test_all_live_leases_come_by_table(self, store: StateStore) -> None:
        assert list(store.leases()) == []
        tables = [TableId(schema, "t") for schema in ("b", "a", "A", "ä")]
        held = {table: store.acquire_lease(table, ELSEWHERE, seconds=300) for table in tables}
        store.acquire_lease(PRODUCT, ELSEWHERE, seconds=0.01)
        store.acquire_lease(CUSTOMER, dead_owner(), seconds=3600)
        store.release_lease(held.pop(TableId("b", "t")))
        time.sleep(0.02)
        assert list(store.leases()) == [held[table] for table in sorted(held)]


def race(store: StateStore, table: TableId) -> tuple[list[Lease], list[LakewardError]]:
    """Let many threads ask for one lease at once; give what they got."""
    barrier = threading.Barrier(THREADS)
    won: list[Lease] = []
    refused: list[LakewardError] = []

    def ask(number: int) -> None:
        barrier.wait()
        try:
            won.append(store.acquire_lease(table, current_owner(f"run-{number}"), seconds=300))
        except LakewardError as error:
            refused.append(error)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return won, refused
