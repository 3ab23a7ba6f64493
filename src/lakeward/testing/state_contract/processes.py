"""The contract between several processes on one store, and for a store that is wiped while it is open."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lakeward.errors import ConflictError, LakewardError, RetriableError
from lakeward.model import Progress, TableId
from lakeward.state.base import open_state
from lakeward.state.leases import HeldLease, current_owner
from lakeward.testing.state_contract.shared import PRODUCT, PROGRESS, WithStore, make_entry, make_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.context import ForkServerProcess

    from lakeward.state.base import LeaseOwner, StateStore

# Children of one small process that has imported this module: quick to start, and without the threads of the tests.
CHILD = multiprocessing.get_context("forkserver")
CHILD.set_forkserver_preload([__name__])
FORK = multiprocessing.get_context("fork")
PATIENCE = 300
# Long enough for a starved machine to renew a lease in time, and short enough to wait for its end.
TERM = 3.0
ROUNDS = 20
WRITES = 8


class ProcessContract(WithStore):
    """The contract between processes; ``address`` is a value of ``state:`` with an absolute path."""

    @pytest.fixture
    def address(self) -> str:
        """Return the address of the empty store for other processes, which get the environment of the test."""
        raise NotImplementedError

    @pytest.fixture
    def wipe(self) -> Callable[[], None]:
        """Return a function that deletes the store from outside."""
        raise NotImplementedError

    @pytest.fixture
    def store(self, address: str) -> Iterator[StateStore]:
        """Yield the store at the address, closed after the test."""
        with closing(open_state(address, Path())) as store:
            yield store

    def test_of_three_processes_exactly_one_wins_each_lease(self, address: str) -> None:
        collected = run_together(race_for_leases, address, "abc", 3 * ROUNDS)
        for number in range(ROUNDS):
            outcomes = sorted(outcome for found, outcome in collected if found == number)
            assert outcomes == ["LeaseHeldError", "LeaseHeldError", "won and renewed"], (number, outcomes)

    def test_processes_open_an_absent_store_together_and_write(self, address: str) -> None:
        assert run_together(open_and_write, address, "abc", 3) == [[], [], []]
        with closing(open_state(address, Path())) as store:
            assert len(store.runs(limit=1000)) == 3 * 2 * WRITES
            for table in (TableId(name, thread) for name in "abc" for thread in "ab"):
                assert (store.ledger_position(table), store.count_files(table)) == (WRITES, WRITES)

    def test_a_killed_process_loses_its_lease_at_once(self, store: StateStore, address: str) -> None:
        with holder(address) as (process, _connection):
            process.kill()
            process.join()
            assert store.acquire_lease(PRODUCT, current_owner("next"), seconds=30).owner.run_id == "next"

    def test_a_process_stopped_past_its_term_does_not_publish(self, store: StateStore, address: str) -> None:
        with holder(address) as (process, connection):
            assert process.pid is not None
            os.kill(process.pid, signal.SIGSTOP)
            wait_until_free(store)
            taken = store.acquire_lease(PRODUCT, current_owner("next"), seconds=30)
            connection.send("publish")
            os.kill(process.pid, signal.SIGCONT)
            assert "the lease on sales.product was lost" in receive(connection)
            process.join(PATIENCE)
            assert store.lease_of(PRODUCT) == taken

    def test_a_forked_process_does_not_share_connections(self, store: StateStore) -> None:
        store.register(PRODUCT, active=True)
        child = FORK.Process(target=store.set_error, args=(PRODUCT, "from the child"))
        child.start()
        child.join(PATIENCE)
        assert child.exitcode == 0
        child.close()
        found = store.find_table(PRODUCT)
        assert found is not None
        assert found.error == "from the child"

    def test_a_wiped_store_is_a_fresh_one(self, store: StateStore, address: str, wipe: Callable[[], None]) -> None:
        store.replace_ledger(PRODUCT, 1, PROGRESS, [make_entry("a")])
        store.register(PRODUCT, active=True)
        store.record_run(make_run("run-1"))
        lease = store.acquire_lease(PRODUCT, current_owner("run-1"), seconds=30)
        wipe()
        assert after_wipe(lambda: store.ledger_position(PRODUCT)) is None
        assert (store.progress(PRODUCT), store.count_files(PRODUCT), store.runs()) == (None, 0, [])
        assert (list(store.registered()), store.lease_of(PRODUCT)) == ([], None)
        with pytest.raises(ConflictError, match="gone"):
            store.renew_lease(lease, seconds=30)
        assert store.register(PRODUCT, active=False)
        with closing(open_state(address, Path())) as other:
            assert other.find_table(PRODUCT) == store.find_table(PRODUCT)


def after_wipe(call: Callable[[], Any]) -> Any:
    """Return the result of a call, repeated if the first one only noticed that the store is gone."""
    try:
        return call()
    except RetriableError:
        return call()


def child(environment: dict[str, str], target: Callable[..., None], *arguments: Any) -> None:
    """Call the target with the environment of the test; that of the fork server is older."""
    os.environ.clear()
    os.environ.update(environment)
    target(*arguments)


def race_for_leases(address: str, name: str, barrier: Any, outcomes: Any) -> None:
    """Request each round's lease at the same moment as the others."""
    with closing(open_state(address, Path())) as store:
        owner = current_owner(name)
        for number in range(ROUNDS):
            barrier.wait(PATIENCE)
            outcomes.put((number, acquire(store, TableId("race", f"t{number}"), owner)))
        # A process that ends loses its leases: none may end while another still requests the last one.
        barrier.wait(PATIENCE)


def acquire(store: StateStore, table: TableId, owner: LeaseOwner) -> str:
    """Return the outcome of one attempt."""
    try:
        lease = store.acquire_lease(table, owner, seconds=600)
        store.renew_lease(lease, seconds=600)
    except LakewardError as error:
        return type(error).__name__
    return "won and renewed"


def open_and_write(address: str, name: str, barrier: Any, outcomes: Any) -> None:
    """Open an absent store together with the others and write as fast as possible from two threads."""
    barrier.wait(PATIENCE)
    failures: list[str] = []

    def write(thread: str) -> None:
        table = TableId(name, thread)
        try:
            for first in range(0, WRITES, WRITES // 2):
                # The store is reopened: the last process to close a SQLite file removes its log.
                with closing(open_state(address, Path())) as store:
                    for number in range(first, first + WRITES // 2):
                        write_once(store, table, number)
        except Exception as error:
            failures.append(repr(error))

    threads = [threading.Thread(target=write, args=(thread,)) for thread in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    outcomes.put(failures)


def write_once(store: StateStore, table: TableId, number: int) -> None:
    """Add a run and a file."""
    store.record_run(make_run(f"run-{number}", table=table))
    store.extend_ledger(
        table,
        after=number or None,
        snapshot_id=number + 1,
        progress=Progress(op=number),
        entries=[make_entry(f"{number}.csv")],
    )


def hold_until_asked(address: str, connection: Any) -> None:
    """Hold the lease; on a message, reply whether it may publish."""
    owner = current_owner("held")
    with closing(open_state(address, Path())) as store, HeldLease(store, PRODUCT, owner, seconds=TERM) as held:
        held.require()
        connection.send("holding")
        connection.recv()
        try:
            held.require()
        except ConflictError as lost:
            connection.send(lost.message)
        else:
            connection.send("published")


def wait_until_free(store: StateStore) -> None:
    """Wait for the end of a lease that is no longer renewed."""
    limit = time.monotonic() + PATIENCE
    while store.lease_of(PRODUCT) is not None:
        assert time.monotonic() < limit, "the lease does not end"
        time.sleep(0.05)


def run_together(target: Any, address: str, names: str, count: int) -> list[Any]:
    """Start a process per name and collect ``count`` outcomes."""
    barrier, outcomes = CHILD.Barrier(len(names)), CHILD.Queue()
    processes = [
        CHILD.Process(target=child, args=(dict(os.environ), target, address, name, barrier, outcomes)) for name in names
    ]
    for process in processes:
        process.start()
    collected = [outcomes.get(timeout=PATIENCE) for _ in range(count)]
    for process in processes:
        process.join(PATIENCE)
        assert process.exitcode == 0
        process.close()
    outcomes.close()
    outcomes.join_thread()
    return collected


@contextmanager
def holder(address: str) -> Iterator[tuple[ForkServerProcess, Any]]:
    """Yield a process that holds the lease, and the connection to it."""
    here, there = CHILD.Pipe()
    process = CHILD.Process(target=child, args=(dict(os.environ), hold_until_asked, address, there))
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
    """Return the next message of the other process."""
    assert connection.poll(PATIENCE), "the other process does not answer"
    return str(connection.recv())
