"""Several processes on one SQLite file."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from lakeward.errors import ConflictError, LakewardError
from lakeward.model import Progress, TableId
from lakeward.state.leases import HeldLease, current_owner
from lakeward.state.sql import SqlStateStore
from lakeward.testing.state_contract import PRODUCT, make_entry, make_run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.context import SpawnProcess
    from pathlib import Path

SPAWN = multiprocessing.get_context("spawn")
ROUNDS = 60
WRITES = 12


@pytest.fixture(autouse=True)
def _workers_can_be_imported(monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config) -> None:
    """A spawned process imports this module by its name, on the path of the process that started it."""
    monkeypatch.syspath_prepend(pytestconfig.rootpath)


def race_for_leases(file: Path, name: str, barrier: Any, outcomes: Any) -> None:
    """Try for each round's lease at the same moment as the others."""
    with closing(SqlStateStore(file)) as store:
        owner = current_owner(name)
        for number in range(ROUNDS):
            barrier.wait(30)
            outcomes.put((number, acquire(store, TableId("race", f"t{number}"), owner)))


def acquire(store: SqlStateStore, table: TableId, owner: Any) -> str:
    try:
        store.acquire_lease(table, owner, seconds=60)
    except LakewardError as error:
        return type(error).__name__
    return "won"


def open_and_write(file: Path, name: str, barrier: Any, outcomes: Any) -> None:
    """Open an absent file together with the others and write as fast as possible from two threads."""
    barrier.wait(30)
    failures: list[str] = []

    def write(thread: str) -> None:
        table = TableId(name, thread)
        try:
            for number in range(WRITES):
                # Each opens and closes now and then: the last to close removes the log of all.
                with closing(SqlStateStore(file)) as store:
                    store.record_run(make_run(f"{thread}-{number}", table=table))
                    store.extend_ledger(
                        table, after=number or None, snapshot_id=number + 1, progress=Progress(op=number),
                        entries=[make_entry(f"{number}.csv")],
                    )  # fmt: skip
        except Exception as error:
            failures.append(repr(error))

    threads = [threading.Thread(target=write, args=(thread,)) for thread in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    outcomes.put(failures)


def hold_until_told(file: Path, connection: Any) -> None:
    """Hold the lease; when told, say whether it may publish."""
    with closing(SqlStateStore(file)) as store, HeldLease(store, PRODUCT, current_owner("held"), seconds=1) as held:
        held.require()
        connection.send("holding")
        connection.recv()
        try:
            held.require()
        except ConflictError as lost:
            connection.send(lost.message)
        else:
            connection.send("published")


def run_together(target: Any, file: Path, names: str, count: int) -> list[Any]:
    """Start a process per name and collect ``count`` outcomes."""
    barrier, outcomes = SPAWN.Barrier(len(names)), SPAWN.Queue()
    processes = [SPAWN.Process(target=target, args=(file, name, barrier, outcomes)) for name in names]
    for process in processes:
        process.start()
    collected = [outcomes.get(timeout=60) for _ in range(count)]
    for process in processes:
        process.join(30)
        assert process.exitcode == 0
        process.close()
    outcomes.close()
    outcomes.join_thread()
    return collected


def test_of_two_processes_exactly_one_wins_each_lease(tmp_path: Path) -> None:
    collected = run_together(race_for_leases, tmp_path / "lakeward.db", "ab", 2 * ROUNDS)
    for number in range(ROUNDS):
        assert sorted(outcome for found, outcome in collected if found == number) == ["LeaseHeldError", "won"]


def test_concurrent_writers_wait_for_each_other(tmp_path: Path) -> None:
    file = tmp_path / "new" / "lakeward.db"
    assert run_together(open_and_write, file, "abc", 3) == [[], [], []]
    with closing(SqlStateStore(file)) as store:
        assert len(store.runs(limit=1000)) == 3 * 2 * WRITES
        for table in (TableId(name, thread) for name in "abc" for thread in "ab"):
            assert (store.ledger_position(table), store.count_files(table)) == (WRITES, WRITES)


@contextmanager
def holder(file: Path) -> Iterator[tuple[SpawnProcess, Any]]:
    """A process that holds the lease, and the connection to it."""
    here, there = SPAWN.Pipe()
    process = SPAWN.Process(target=hold_until_told, args=(file, there))
    process.start()
    there.close()
    try:
        assert receive(here) == "holding"
        yield process, here
    finally:
        process.kill()
        process.join()
        process.close()
        here.close()


def receive(connection: Any) -> str:
    assert connection.poll(20), "the other process does not answer"
    return str(connection.recv())


def test_a_killed_process_loses_its_lease_at_once(tmp_path: Path) -> None:
    file = tmp_path / "lakeward.db"
    with closing(SqlStateStore(file)) as store, holder(file) as (process, _connection):
        process.kill()
        process.join()
        assert store.acquire_lease(PRODUCT, current_owner("next"), seconds=30).owner.run_id == "next"


def test_a_process_stopped_past_its_term_does_not_publish(tmp_path: Path) -> None:
    file = tmp_path / "lakeward.db"
    with closing(SqlStateStore(file)) as store, holder(file) as (process, connection):
        assert process.pid is not None
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(1.2)
        taken = store.acquire_lease(PRODUCT, current_owner("next"), seconds=30)
        connection.send("publish")
        os.kill(process.pid, signal.SIGCONT)
        assert "the lease on sales.product was lost" in receive(connection)
        process.join(10)
        assert store.lease_of(PRODUCT) == taken


def test_a_forked_process_does_not_share_connections(tmp_path: Path) -> None:
    with closing(SqlStateStore(tmp_path / "lakeward.db")) as store:
        store.register(PRODUCT, active=True)
        child = os.fork()
        if child == 0:
            store.set_error(PRODUCT, "from the child")
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        found = store.find_table(PRODUCT)
        assert found is not None
        assert found.error == "from the child"
