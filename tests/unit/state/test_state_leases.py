"""Owners, heartbeats, and noticing a lost lease in time."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import psutil
import pytest

from lakeward.errors import BugError, ConflictError, LeaseHeldError, RetriableError
from lakeward.state import leases
from lakeward.state.leases import HeldLease, current_owner, is_dead
from lakeward.state.memory import MemoryStateStore
from lakeward.testing.state_contract import ELSEWHERE, PRODUCT, dead_owner

if TYPE_CHECKING:
    from lakeward.state.base import Lease


class FlakyStore(MemoryStateStore):
    """A store whose renewals, and releases, fail on request."""

    def __init__(self) -> None:
        super().__init__()
        self.fails = False
        self.renewals = 0

    def renew_lease(self, lease: Lease, *, seconds: float) -> Lease:
        self.renewals += 1
        self._fail()
        return super().renew_lease(lease, seconds=seconds)

    def release_lease(self, lease: Lease) -> None:
        self._fail()
        super().release_lease(lease)

    def _fail(self) -> None:
        if self.fails:
            msg = "the disk is full"
            raise RetriableError(msg)


@pytest.fixture
def store() -> FlakyStore:
    return FlakyStore()


class TestOwner:
    def test_this_process_is_alive_and_the_same_from_everywhere(self) -> None:
        owner = current_owner("run-1")
        assert owner.pid == os.getpid()
        assert not is_dead(owner)
        code = f"from lakeward.state.leases import *; from lakeward.state.base import *; print(is_dead({owner!r}))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "False"

    def test_a_process_that_is_gone_is_dead(self) -> None:
        assert is_dead(dead_owner())

    def test_a_reused_process_id_does_not_revive_its_owner(self) -> None:
        owner = current_owner("run-1")
        assert is_dead(replace(owner, process_started=owner.process_started - 60))

    def test_setting_the_clock_does_not_kill(self, monkeypatch: pytest.MonkeyPatch) -> None:
        owner = current_owner("run-1")
        # psutil adds the boot time, which moves with the clock, to the start that the kernel reports.
        moved = psutil.boot_time() + 3600
        monkeypatch.setattr("psutil._psplatform.boot_time", lambda: moved)
        assert not is_dead(owner)

    def test_a_zombie_process_is_dead(self) -> None:
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
            owner = replace(current_owner("x"), pid=child.pid)
            owner = replace(owner, process_started=psutil.Process(child.pid).create_time() - psutil.boot_time())
            assert not is_dead(owner)
            child.kill()
            while psutil.Process(child.pid).status() != psutil.STATUS_ZOMBIE:
                time.sleep(0.005)
            assert is_dead(owner)

    def test_a_process_that_cannot_be_seen_is_not_called_dead(self) -> None:
        assert not is_dead(replace(dead_owner(), host="elsewhere"))
        assert not is_dead(replace(dead_owner(), pid_space="another boot or container"))


class TestHeldLease:
    def test_it_is_held_inside_the_block_and_free_after(self, store: FlakyStore) -> None:
        with HeldLease(store, PRODUCT, current_owner("run-1")) as held:
            held.require()
            assert store.lease_of(PRODUCT) == held.lease
        assert store.lease_of(PRODUCT) is None
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("lease ")]

    def test_it_is_free_after_an_error(self, store: FlakyStore) -> None:
        with pytest.raises(ZeroDivisionError), HeldLease(store, PRODUCT, current_owner("run-1")):
            _ = 1 / 0
        assert store.lease_of(PRODUCT) is None

    def test_a_held_table_is_refused(self, store: FlakyStore) -> None:
        store.acquire_lease(PRODUCT, ELSEWHERE, seconds=30)
        with pytest.raises(LeaseHeldError), HeldLease(store, PRODUCT, current_owner("run-1")):
            pytest.fail("the block must not run")

    def test_heartbeats_keep_it_past_its_term(self, store: FlakyStore) -> None:
        with HeldLease(store, PRODUCT, current_owner("run-1"), seconds=3) as held:
            time.sleep(3.1)
            assert store.renewals >= 2
            assert store.lease_of(PRODUCT) is not None
            held.require()

    def test_a_takeover_is_noticed_immediately(self, store: FlakyStore) -> None:
        with HeldLease(store, PRODUCT, current_owner("run-1")) as held:
            store.release_lease(held.lease)
            theirs = store.acquire_lease(PRODUCT, ELSEWHERE, seconds=30)
            for _ in range(2):
                with pytest.raises(ConflictError, match=r"sales\.product was lost: run run-elsewhere"):
                    held.require()
        assert store.lease_of(PRODUCT) == theirs

    def test_a_lost_lease_stays_lost(self, store: FlakyStore) -> None:
        with HeldLease(store, PRODUCT, current_owner("run-1"), seconds=0.3) as held:
            lease = held.lease
            store.release_lease(lease)
            while held._lost is None:
                time.sleep(0.01)
            store._leases[PRODUCT] = lease
            with pytest.raises(ConflictError):
                held.require()

    def test_a_store_that_does_not_answer_is_an_error(self, store: FlakyStore) -> None:
        with HeldLease(store, PRODUCT, current_owner("run-1")) as held:
            store.fails = True
            with pytest.raises(ConflictError, match="disk is full") as refused:
                held.require()
            assert isinstance(refused.value.__cause__, RetriableError)
            store.fails = False
            held.require()

    def test_heartbeats_that_fail_until_the_end_lose_it(
        self, store: FlakyStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        store.fails = True
        with HeldLease(store, PRODUCT, current_owner("run-1"), seconds=1.5) as held:
            while held._lost is None:
                time.sleep(0.01)
            store.fails = False
            with pytest.raises(ConflictError, match=r"not renewed before it ended.*disk is full"):
                held.require()
        assert "could not renew the lease on sales.product: the disk is full" in caplog.text

    @pytest.mark.parametrize("clock", ["monotonic", "time of day"])
    def test_after_its_end_by_either_clock_it_is_not_renewed(self, store: FlakyStore, clock: str) -> None:
        with HeldLease(store, PRODUCT, current_owner("run-1")) as held:
            if clock == "monotonic":
                held._term = replace(held._term, monotonic=time.monotonic() - 1)
            else:
                held._term = replace(held._term, time_of_day=datetime.now(UTC) - timedelta(seconds=1))
            with pytest.raises(ConflictError, match="not renewed before it ended"):
                held.require()
        assert store.renewals == 0

    def test_a_store_whose_clock_is_far_behind_is_no_reason_to_give_up(self, store: FlakyStore) -> None:
        with HeldLease(store, PRODUCT, current_owner("run-1")) as held:
            held._lease = replace(held.lease, expires_at=held.lease.expires_at - timedelta(hours=1))
            held.require()

    def test_a_release_that_fails_is_logged_and_raises_nothing(
        self, store: FlakyStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        with HeldLease(store, PRODUCT, current_owner("run-1")):
            store.fails = True
        assert "could not release the lease on sales.product" in caplog.text

    def test_it_is_used_inside_its_block_only(self, store: FlakyStore) -> None:
        with pytest.raises(BugError):
            HeldLease(store, PRODUCT, current_owner("run-1")).require()


class TestWaiting:
    def test_the_lease_is_taken_when_it_becomes_free(self, store: FlakyStore, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(leases, "POLL_SECONDS", 0.02)
        store.acquire_lease(PRODUCT, ELSEWHERE, seconds=0.15)
        with HeldLease(store, PRODUCT, current_owner("run-1"), wait=300) as held:
            assert held.lease.owner.run_id == "run-1"

    def test_waiting_ends(self, store: FlakyStore) -> None:
        store.acquire_lease(PRODUCT, ELSEWHERE, seconds=30)
        began = time.monotonic()
        with pytest.raises(LeaseHeldError), HeldLease(store, PRODUCT, current_owner("run-1"), wait=0.1):
            pass
        assert time.monotonic() - began >= 0.1
