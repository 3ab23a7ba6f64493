"""The contracts of run history, leases and registry, and the values that the contract's tests store."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import psutil
import pytest

from lakeward.errors import BugError, ConflictError, LakewardError, LeaseHeldError
from lakeward.model import (
    Disposition,
    FileClass,
    FileIdentity,
    Generation,
    LedgerEntry,
    OrderBy,
    Place,
    Progress,
    TableId,
)
from lakeward.state.base import LeaseOwner, TableRun
from lakeward.state.leases import current_owner

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward.state.base import Lease, StateStore


class WithStore:
    """Tests that need a store; a subclass overrides :meth:`store`."""

    @pytest.fixture
    def store(self) -> Iterator[StateStore]:
        """Yield an empty store, closed after the test."""
        raise NotImplementedError


PRODUCT = TableId("sales", "product")
CUSTOMER = TableId("sales", "customer")
ELSEWHERE = LeaseOwner("elsewhere.example", 4711, 1.5, "run-elsewhere")
PROGRESS = Progress(
    op=7,
    generations=(Generation(1), Generation(2, "20240405003052555000", OrderBy.TIMESTAMP)),
    last_place=Place("2024-04-05 00:30:52.555", "20240405003052555000", "sales/product/ä.csv", 3, 1),
)
NOON = datetime(2024, 4, 5, 12, 0, tzinfo=UTC)


def make_entry(
    path: str, *, op: int = 1, generation: int = 1, file_class: FileClass = FileClass.CHANGES
) -> LedgerEntry:
    """Return a ledger entry that differs from others in the given fields."""
    return LedgerEntry(
        path=path,
        identity=FileIdentity(size=2**40, mtime_us=1_712_277_052_555_001, etag=None if op % 2 else f"etag-{op}"),
        content_hash=f"hash of {path} in {op}",
        rows=op,
        disposition=Disposition.CONSUMED,
        generation=generation,
        op=op,
        file_class=file_class,
        time="" if file_class is FileClass.LOAD else "20240405003052555000",
    )


def make_run(run_id: str, *, table: TableId = PRODUCT, started_at: datetime = NOON) -> TableRun:
    """Return a run of a minute."""
    report = {"files": 3, "note": "größer", "nested": {"list": [1, None, 2.5]}}
    return TableRun(run_id, table, started_at, started_at + timedelta(minutes=1), "done", report)


def dead_owner() -> LeaseOwner:
    """Return an owner on this host whose process has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert not psutil.pid_exists(process.pid)
    return replace(current_owner("run-dead"), pid=process.pid)


class HistoryContract(WithStore):
    """The contract of the run history."""

    def test_a_run_comes_back_as_it_went_in(self, store: StateStore) -> None:
        store.record_run(make_run("run-1"))
        assert store.runs() == [make_run("run-1")]

    def test_runs_come_newest_first_and_limited(self, store: StateStore) -> None:
        for hour in (2, 1, 3):
            store.record_run(make_run(f"run-{hour}", started_at=NOON + timedelta(hours=hour)))
        for name in ("same-1", "same-2"):
            store.record_run(make_run(name))
        assert [run.run_id for run in store.runs()] == ["run-3", "run-2", "run-1", "same-2", "same-1"]
        assert [run.run_id for run in store.runs(limit=2)] == ["run-3", "run-2"]

    def test_runs_of_one_table(self, store: StateStore) -> None:
        store.record_run(make_run("run-1"))
        store.record_run(make_run("run-1", table=CUSTOMER))
        assert [run.table for run in store.runs(CUSTOMER)] == [CUSTOMER]
        assert len(store.runs()) == 2

    def test_the_zone_of_a_time_does_not_matter(self, store: StateStore) -> None:
        early = NOON.replace(tzinfo=ZoneInfo("Asia/Tokyo"))
        store.record_run(make_run("noon in London"))
        store.record_run(make_run("noon in Tokyo", started_at=early))
        assert [run.run_id for run in store.runs()] == ["noon in London", "noon in Tokyo"]
        assert store.runs()[1].started_at == early

    def test_a_time_without_zone_is_refused(self, store: StateStore) -> None:
        with pytest.raises(BugError, match="zone"):
            store.record_run(make_run("run-1", started_at=NOON.replace(tzinfo=None)))

    def test_runs_of_one_run_id(self, store: StateStore) -> None:
        for number, (run_id, table) in enumerate([("a", PRODUCT), ("b", PRODUCT), ("a", CUSTOMER)]):
            store.record_run(make_run(run_id, table=table, started_at=NOON + timedelta(minutes=number)))
        assert [run.table for run in store.runs(run_id="a")] == [CUSTOMER, PRODUCT]
        assert [run.run_id for run in store.runs(PRODUCT, run_id="b")] == ["b"]
        assert store.runs(CUSTOMER, run_id="b") == []
        assert store.runs(run_id="none") == []
        assert [run.table for run in store.runs(run_id="a", limit=1)] == [CUSTOMER]

    def test_history_older_than_a_moment_is_deleted(self, store: StateStore) -> None:
        for hour in range(4):
            store.record_run(make_run(f"run-{hour}", started_at=NOON + timedelta(hours=hour)))
        store.record_run(make_run("run-1", table=CUSTOMER, started_at=NOON + timedelta(hours=1)))
        assert store.prune_runs(before=NOON) == 0
        assert store.prune_runs(before=NOON + timedelta(hours=2)) == 3
        assert [run.run_id for run in store.runs()] == ["run-3", "run-2"]
        assert [run.run_id for run in store.runs(PRODUCT)] == ["run-3", "run-2"]
        assert store.runs(CUSTOMER) == store.runs(run_id="run-1") == []
        with pytest.raises(BugError, match="zone"):
            store.prune_runs(before=NOON.replace(tzinfo=None))

    def test_many_runs_are_listed_and_deleted(self, store: StateStore) -> None:
        for minute in range(130):
            store.record_run(make_run(f"run-{minute}", started_at=NOON + timedelta(minutes=minute)))
        assert [run.run_id for run in store.runs(limit=1000)] == [f"run-{minute}" for minute in reversed(range(130))]
        assert store.prune_runs(before=NOON + timedelta(days=1)) == 130
        assert store.runs() == []

    def test_a_report_of_any_size_comes_back(self, store: StateStore) -> None:
        noise = random.Random(1).randbytes(700_000).hex()
        big = replace(make_run("big"), report={"noise": noise, "text": "ä" * 100_000})
        store.record_run(big)
        store.record_run(make_run("small"))
        assert store.runs(run_id="big") == [big]
        assert [run.run_id for run in store.runs()] == ["small", "big"]
        assert store.prune_runs(before=NOON + timedelta(days=1)) == 2
        assert store.runs() == []


THREADS = 8


class LeaseContract(WithStore):
    """The contract of leases: one holder at a time."""

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
    """Request one lease from many threads at once; return the leases and errors."""
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


class RegistryContract(WithStore):
    """The contract of the registry: tables, their settings and errors."""

    def test_a_table_is_registered_once(self, store: StateStore) -> None:
        assert store.register(PRODUCT, active=False)
        assert not store.register(PRODUCT, active=True)
        found = store.find_table(PRODUCT)
        assert found is not None
        assert (found.active, found.settings, found.error) == (False, {}, None)
        assert store.find_table(CUSTOMER) is None

    def test_settings_are_laid_over_and_none_unsets(self, store: StateStore) -> None:
        store.set_table(PRODUCT, settings={"primary_key": ["id"], "path": "a/ö", "csv": {"header": True}})
        changed = store.set_table(PRODUCT, active=True, settings={"path": None, "partition_by": ["dept"]})
        assert changed.active
        assert changed.settings == {"primary_key": ["id"], "partition_by": ["dept"], "csv": {"header": True}}
        assert store.find_table(PRODUCT) == changed
        assert store.set_table(PRODUCT) == changed

    def test_a_table_set_for_the_first_time_is_inactive_by_default(self, store: StateStore) -> None:
        assert not store.set_table(PRODUCT, settings={"primary_key": ["id"]}).active
        assert store.set_table(CUSTOMER, active=True).active

    def test_changing_what_was_returned_changes_nothing_stored(self, store: StateStore) -> None:
        store.set_table(PRODUCT, settings={"primary_key": ["id"]}).settings["primary_key"].append("x")
        next(store.registered()).settings.clear()
        found = store.find_table(PRODUCT)
        assert found is not None
        assert found.settings == {"primary_key": ["id"]}

    def test_an_error_is_kept_until_cleared(self, store: StateStore) -> None:
        store.set_error(CUSTOMER, None)
        assert store.find_table(CUSTOMER) is None
        store.set_error(PRODUCT, "bad row")
        found = store.find_table(PRODUCT)
        assert found is not None
        assert (found.active, found.error) == (False, "bad row")
        assert store.set_table(PRODUCT, active=True).error == "bad row"
        store.set_error(PRODUCT, None)
        cleared = store.find_table(PRODUCT)
        assert cleared is not None
        assert (cleared.active, cleared.error) == (True, None)

    def test_a_table_that_is_removed_is_not_registered_and_keeps_its_runs(self, store: StateStore) -> None:
        store.set_table(PRODUCT, active=True, settings={"primary_key": ["id"]})
        store.register(CUSTOMER, active=False)
        store.record_run(make_run("run-1"))
        assert store.unregister(PRODUCT)
        assert not store.unregister(PRODUCT)
        assert [known.table for known in store.registered()] == [CUSTOMER]
        assert [run.run_id for run in store.runs(PRODUCT)] == ["run-1"]
        assert store.register(PRODUCT, active=False)
        found = store.find_table(PRODUCT)
        assert found is not None
        assert found.settings == {}

    def test_settings_and_runs_follow_a_new_name(self, store: StateStore) -> None:
        store.set_table(PRODUCT, active=True, settings={"primary_key": ["id"]})
        store.set_error(PRODUCT, "an error")
        other = make_run("run-1", table=CUSTOMER)
        for run in (make_run("run-1"), make_run("run-2"), other):
            store.record_run(run)
        item = TableId("sales", "item 数量")
        for _ in range(2):
            store.rename_table(PRODUCT, item)
        found = store.find_table(item)
        assert found is not None
        assert (found.table, found.active, found.settings, found.error) == (
            item,
            True,
            {"primary_key": ["id"]},
            "an error",
        )
        assert store.find_table(PRODUCT) is None
        assert store.runs(PRODUCT) == []
        assert {run.run_id for run in store.runs(item)} == {"run-1", "run-2"}
        assert {run.table for run in store.runs(run_id="run-1")} == {item, CUSTOMER}
        assert {run.table for run in store.runs()} == {item, CUSTOMER}
        assert store.runs(CUSTOMER) == [other]

    def test_a_name_that_is_registered_keeps_its_own_settings(self, store: StateStore) -> None:
        store.set_table(PRODUCT, active=True, settings={"primary_key": ["id"]})
        store.set_table(CUSTOMER, settings={"primary_key": ["number"]})
        store.rename_table(PRODUCT, CUSTOMER)
        assert [(known.table, known.settings) for known in store.registered()] == [
            (CUSTOMER, {"primary_key": ["number"]})
        ]

    def test_registered_tables_come_by_name(self, store: StateStore) -> None:
        names = ["b.a", "a.ä", "B.z", "a.z", "a.Z"]
        for name in names:
            store.register(TableId.parse(name), active=True)
        assert [found.table for found in store.registered()] == sorted(TableId.parse(name) for name in names)

    def test_an_error_is_kept_readable_whatever_it_holds(self, store: StateStore) -> None:
        store.set_error(PRODUCT, "value 'a\0b\ud800' of größe ".ljust(1_000_000, "x"))
        found = store.find_table(PRODUCT)
        assert found is not None
        assert found.error is not None
        assert found.error.startswith("value 'a\N{REPLACEMENT CHARACTER}b?' of größe xxx")
        assert found.error.endswith("… (shortened from 1,000,000 characters)")
        assert len(found.error) < 25_000

    def test_the_same_name_in_two_schemas_is_two_tables(self, store: StateStore) -> None:
        twins = [TableId("a", "b.c"), TableId("a.b", "c"), TableId("a", "b"), TableId("b", "a")]
        for number, table in enumerate(twins):
            store.set_table(table, settings={"path": str(number)})
        assert {found.table: found.settings["path"] for found in store.registered()} == {
            table: str(number) for number, table in enumerate(twins)
        }

    def test_settings_set_at_the_same_time_are_all_kept(self, store: StateStore) -> None:
        barrier = threading.Barrier(6)

        def set_setting(number: int) -> None:
            barrier.wait()
            store.set_table(PRODUCT, settings={f"setting-{number}": number})

        threads = [threading.Thread(target=set_setting, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = store.find_table(PRODUCT)
        assert found is not None
        assert found.settings == {f"setting-{number}": number for number in range(6)}
