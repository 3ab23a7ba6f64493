"""What every state store must do. Subclass, give a ``store`` fixture, and pytest runs the suite on it."""

from __future__ import annotations

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

    from lakeward.state.base import StateStore

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
    """A ledger entry that differs from others in every field that is given."""
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
    """A run of a minute."""
    report = {"files": 3, "note": "größer", "nested": {"list": [1, None, 2.5]}}
    return TableRun(run_id, table, started_at, started_at + timedelta(minutes=1), "done", report)


def dead_owner() -> LeaseOwner:
    """An owner on this host whose process has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert not psutil.pid_exists(process.pid)
    return replace(current_owner("run-dead"), pid=process.pid)


class StateStoreContract:
    """The suite; a subclass overrides :meth:`store`."""

    @pytest.fixture
    def store(self) -> Iterator[StateStore]:
        """An empty store, closed after the test."""
        raise NotImplementedError

    # Leases

    def test_a_lease_excludes_everyone_even_its_owner(self, store: StateStore) -> None:
        owner = current_owner("run-1")
        lease = store.acquire_lease(PRODUCT, owner, seconds=30)
        assert lease.owner == owner
        assert lease.expires_at - datetime.now(UTC) > timedelta(seconds=25)
        for other in (ELSEWHERE, owner):
            with pytest.raises(LeaseHeldError):
                store.acquire_lease(PRODUCT, other, seconds=30)
        assert store.lease_of(PRODUCT) == lease

    def test_the_refusal_names_table_owner_end_and_remedy(self, store: StateStore) -> None:
        lease = store.acquire_lease(PRODUCT, ELSEWHERE, seconds=30)
        with pytest.raises(LeaseHeldError) as refused:
            store.acquire_lease(PRODUCT, current_owner("run-2"), seconds=30)
        end = lease.expires_at.isoformat(sep=" ", timespec="seconds")
        for part in ("sales.product", "run-elsewhere", "4711", "elsewhere.example", end, "--wait"):
            assert part in str(refused.value)

    def test_tables_have_leases_of_their_own(self, store: StateStore) -> None:
        store.acquire_lease(PRODUCT, ELSEWHERE, seconds=30)
        assert store.lease_of(CUSTOMER) is None
        assert store.acquire_lease(CUSTOMER, ELSEWHERE, seconds=30).table == CUSTOMER

    def test_a_released_lease_is_free(self, store: StateStore) -> None:
        first = store.acquire_lease(PRODUCT, ELSEWHERE, seconds=30)
        store.release_lease(first)
        assert store.lease_of(PRODUCT) is None
        assert store.acquire_lease(PRODUCT, ELSEWHERE, seconds=30).token != first.token

    def test_an_expired_lease_is_taken_over_and_its_holder_refused(self, store: StateStore) -> None:
        first = store.acquire_lease(PRODUCT, ELSEWHERE, seconds=0.01)
        time.sleep(0.02)
        assert store.lease_of(PRODUCT) is None
        second = store.acquire_lease(PRODUCT, current_owner("run-2"), seconds=30)
        with pytest.raises(ConflictError, match="run-2"):
            store.renew_lease(first, seconds=30)
        store.release_lease(first)
        assert store.lease_of(PRODUCT) == second

    def test_a_dead_process_loses_its_lease_at_once(self, store: StateStore) -> None:
        store.acquire_lease(PRODUCT, dead_owner(), seconds=3600)
        assert store.lease_of(PRODUCT) is None
        assert store.acquire_lease(PRODUCT, ELSEWHERE, seconds=30).owner == ELSEWHERE

    def test_renewing_extends_and_keeps_the_token(self, store: StateStore) -> None:
        lease = store.acquire_lease(PRODUCT, ELSEWHERE, seconds=5)
        renewed = store.renew_lease(lease, seconds=60)
        assert renewed.token == lease.token
        assert renewed.expires_at - lease.expires_at > timedelta(seconds=50)
        assert store.lease_of(PRODUCT) == renewed

    def test_a_lease_that_is_gone_cannot_be_renewed(self, store: StateStore) -> None:
        lease = store.acquire_lease(PRODUCT, ELSEWHERE, seconds=30)
        store.release_lease(lease)
        with pytest.raises(ConflictError, match="gone"):
            store.renew_lease(lease, seconds=30)
        store.release_lease(lease)

    def test_of_many_threads_one_gets_the_lease(self, store: StateStore) -> None:
        barrier, outcomes = threading.Barrier(8), list[str]()

        def race(number: int) -> None:
            barrier.wait()
            try:
                store.acquire_lease(PRODUCT, current_owner(f"run-{number}"), seconds=30)
                outcomes.append("won")
            except LakewardError as error:
                outcomes.append(type(error).__name__)

        threads = [threading.Thread(target=race, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(outcomes) == ["LeaseHeldError"] * 7 + ["won"]

    # Ledger cache

    def test_an_unknown_table_has_no_ledger(self, store: StateStore) -> None:
        assert store.ledger_position(PRODUCT) is None
        assert store.progress(PRODUCT) is None
        assert store.lookup(PRODUCT, ["a"]) == {}
        assert store.load_parts(PRODUCT, 1) == []
        assert store.count_files(PRODUCT) == 0
        assert not store.has_files(PRODUCT)

    def test_a_ledger_comes_back_as_it_went_in(self, store: StateStore) -> None:
        entries = [make_entry(path, op=number) for number, path in enumerate(["a", "ä/%_'\".csv", "A", "日本"], 1)]
        store.replace_ledger(PRODUCT, 2**63 - 1, PROGRESS, iter(entries))
        assert store.ledger_position(PRODUCT) == 2**63 - 1
        assert store.progress(PRODUCT) == PROGRESS
        assert store.lookup(PRODUCT, {entry.path for entry in entries} | {"b"}) == {e.path: e for e in entries}
        assert store.lookup(PRODUCT, []) == {}

    def test_progress_before_the_first_op_comes_back(self, store: StateStore) -> None:
        store.replace_ledger(PRODUCT, 1, Progress(), [])
        assert store.progress(PRODUCT) == Progress()
        assert not store.has_files(PRODUCT)

    def test_of_two_entries_with_one_path_the_later_stands(self, store: StateStore) -> None:
        far_apart = [make_entry(f"filler-{number}") for number in range(1200)]
        store.replace_ledger(
            PRODUCT, 1, PROGRESS, [make_entry("a", op=1), make_entry("a", op=2), *far_apart, make_entry("a", op=3)]
        )
        assert store.lookup(PRODUCT, ["a"])["a"].op == 3
        assert store.count_files(PRODUCT) == 1201

    def test_replacing_throws_away_this_table_alone(self, store: StateStore) -> None:
        store.replace_ledger(PRODUCT, 1, PROGRESS, [make_entry("a"), make_entry("b")])
        store.replace_ledger(CUSTOMER, 5, PROGRESS, [make_entry("a", op=9)])
        store.replace_ledger(PRODUCT, 2, Progress(op=8), [make_entry("c")])
        assert set(store.lookup(PRODUCT, ["a", "b", "c"])) == {"c"}
        assert store.ledger_position(PRODUCT) == 2
        assert store.progress(PRODUCT) == Progress(op=8)
        assert store.ledger_position(CUSTOMER) == 5
        assert store.lookup(CUSTOMER, ["a"])["a"].op == 9

    def test_entries_that_fail_midway_leave_the_old_ledger(self, store: StateStore) -> None:
        def failing() -> Iterator[LedgerEntry]:
            yield from (make_entry(f"new-{number}") for number in range(1500))
            msg = "the lake is unreachable"
            raise OSError(msg)

        store.replace_ledger(PRODUCT, 1, PROGRESS, [make_entry("old")])
        with pytest.raises(OSError, match="unreachable"):
            store.replace_ledger(PRODUCT, 2, Progress(op=8), failing())
        with pytest.raises(OSError, match="unreachable"):
            store.extend_ledger(PRODUCT, after=1, snapshot_id=2, progress=Progress(op=8), entries=failing())
        assert (store.ledger_position(PRODUCT), store.count_files(PRODUCT)) == (1, 1)
        store.replace_ledger(PRODUCT, 3, PROGRESS, [make_entry("newest")])
        assert store.count_files(PRODUCT) == 1

    def test_other_writers_do_not_wait_for_slow_entries(self, store: StateStore) -> None:
        def slow() -> Iterator[LedgerEntry]:
            yield from (make_entry(f"first-{number}") for number in range(600))
            lease = store.acquire_lease(CUSTOMER, ELSEWHERE, seconds=30)
            store.renew_lease(lease, seconds=30)
            yield make_entry("last")

        store.replace_ledger(PRODUCT, 1, PROGRESS, slow())
        assert store.count_files(PRODUCT) == 601

    def test_extending_needs_the_position_it_was_computed_from(self, store: StateStore) -> None:
        def extend(after: int | None, snapshot_id: int, *paths: str) -> bool:
            entries = [make_entry(path, op=snapshot_id) for path in paths]
            progress = Progress(op=snapshot_id)
            return store.extend_ledger(
                PRODUCT, after=after, snapshot_id=snapshot_id, progress=progress, entries=entries
            )

        assert not extend(1, 2, "a")
        assert not store.has_files(PRODUCT)
        assert extend(None, 1, "a", "b")
        assert not extend(None, 9, "z")
        assert extend(1, 2, "b", "c")
        assert not extend(1, 9, "z")
        assert {path: entry.op for path, entry in store.lookup(PRODUCT, "abcz").items()} == {"a": 1, "b": 2, "c": 2}
        assert store.progress(PRODUCT) == Progress(op=2)

    def test_extending_leaves_other_tables_alone(self, store: StateStore) -> None:
        store.replace_ledger(CUSTOMER, 1, PROGRESS, [make_entry("a", op=1)])
        store.extend_ledger(PRODUCT, after=None, snapshot_id=2, progress=PROGRESS, entries=[make_entry("a", op=2)])
        assert store.lookup(CUSTOMER, ["a"])["a"].op == 1

    def test_load_parts_of_a_generation_come_by_path(self, store: StateStore) -> None:
        parts = [make_entry(f"LOAD{n:08d}.csv", generation=2, file_class=FileClass.LOAD) for n in (3, 1, 2)]
        older = make_entry("LOAD00000009.csv", generation=1, file_class=FileClass.LOAD)
        store.replace_ledger(PRODUCT, 1, PROGRESS, [*parts, older, make_entry("20240405.csv", generation=2)])
        assert [entry.path[-5] for entry in store.load_parts(PRODUCT, 2)] == ["1", "2", "3"]
        assert store.load_parts(PRODUCT, 1) == [older]

    def test_any_number_of_paths_is_looked_up(self, store: StateStore) -> None:
        entries = {f"2024/{number:06d}.csv": make_entry(f"2024/{number:06d}.csv") for number in range(20_000)}
        store.replace_ledger(PRODUCT, 1, PROGRESS, iter(entries.values()))
        assert store.count_files(PRODUCT) == 20_000
        assert store.lookup(PRODUCT, [*entries, *(f"unknown-{number}" for number in range(5000))]) == entries

    def test_a_forgotten_ledger_is_gone(self, store: StateStore) -> None:
        for table in (PRODUCT, CUSTOMER):
            store.replace_ledger(table, 1, PROGRESS, [make_entry("a")])
        store.forget_ledger(PRODUCT)
        store.forget_ledger(PRODUCT)
        assert store.ledger_position(PRODUCT) is None
        assert store.progress(PRODUCT) is None
        assert not store.has_files(PRODUCT)
        assert store.has_files(CUSTOMER)

    # Registry

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

    def test_a_table_set_for_the_first_time_is_inactive_unless_told(self, store: StateStore) -> None:
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

    def test_registered_tables_come_by_name(self, store: StateStore) -> None:
        names = ["b.a", "a.ä", "B.z", "a.z", "a.Z"]
        for name in names:
            store.register(TableId.parse(name), active=True)
        assert [found.table for found in store.registered()] == sorted(TableId.parse(name) for name in names)

    # Run history

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
