"""The budget of a job: its arithmetic with a clock of the test's own, and its server with real tasks."""

from __future__ import annotations

import pickle
import socket
import threading
import time

import pytest

from lakeward.cassandra.budget import (
    NOTHING,
    RECOVERY_SECONDS,
    SAVED_SECONDS,
    TURN_SECONDS,
    Amounts,
    BudgetAddress,
    BudgetLedger,
    RateLimits,
)
from lakeward.cassandra.budget_server import BudgetClient, BudgetServer, budget_client
from lakeward.errors import RetriableError


class Clock:
    """Time that passes only when a test advances it."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def ledger_of(ramp_seconds=0.0, **limits):
    clock = Clock()
    return BudgetLedger(RateLimits(**limits), ramp_seconds=ramp_seconds, clock=clock), clock


def rows_within(ledger, clock, seconds, step=0.01, tasks=1):
    """Run tasks that take all they can get."""
    got = 0.0
    for _ in range(round(seconds / step)):
        for _ in range(tasks):
            granted = ledger.offer(Amounts(rows=1000), Amounts(rows=1))
            got += granted.rows if granted else 0.0
        clock.now += step
    return got


def test_no_budget_accumulates_before_the_first_request():
    ledger, clock = ledger_of(rows_per_second=100)
    clock.now += 60
    assert ledger.offer(Amounts(rows=1), Amounts(rows=1)) is None
    assert ledger.patience(Amounts(rows=1), Amounts(rows=1)) == pytest.approx(0.01)


@pytest.mark.parametrize("tasks", [1, 3, 7])
def test_the_rate_is_that_of_the_job_whatever_the_number_of_tasks(tasks):
    ledger, clock = ledger_of(rows_per_second=1000)
    assert rows_within(ledger, clock, 30, tasks=tasks) == pytest.approx(30_000, rel=0.01)


def test_a_pause_accumulates_only_a_small_budget():
    ledger, clock = ledger_of(rows_per_second=1000)
    rows_within(ledger, clock, 1)
    clock.now += 60
    assert rows_within(ledger, clock, 1) <= 1000 * (1 + SAVED_SECONDS) + 1


def test_a_turn_grants_only_a_part_so_that_others_get_theirs():
    ledger, clock = ledger_of(rows_per_second=1000)
    ledger.offer(Amounts(rows=1), Amounts(rows=1))
    clock.now += 1
    granted = ledger.offer(Amounts(rows=100_000), Amounts(rows=100_000))
    assert granted.rows == pytest.approx(1000 * TURN_SECONDS)


def test_the_scarcest_of_several_limits_decides_and_unlimited_units_are_granted_whole():
    ledger, clock = ledger_of(rows_per_second=1000, write_units=100)
    got = NOTHING
    for _ in range(1000):
        granted = ledger.offer(Amounts(rows=10, write_units=20, requests=1), Amounts(rows=1, write_units=2, requests=1))
        if granted:
            assert granted.requests == 1
            got = got.plus(granted)
        clock.now += 0.01
    assert got.write_units == pytest.approx(1000, rel=0.02)
    assert got.rows == pytest.approx(500, rel=0.02)


def test_returned_budget_is_granted_again_and_debt_is_waited_for():
    ledger, clock = ledger_of(rows_per_second=1000)
    ledger.offer(Amounts(rows=1), Amounts(rows=1))
    clock.now += 0.05
    ledger.offer(Amounts(rows=50), Amounts(rows=50))
    assert ledger.offer(Amounts(rows=50), Amounts(rows=50)) is None
    ledger.hand_back(Amounts(rows=50))
    assert ledger.offer(Amounts(rows=50), Amounts(rows=50)).rows == pytest.approx(50)
    ledger.hand_back(Amounts(rows=-2000))
    assert rows_within(ledger, clock, 1.9) == 0
    assert rows_within(ledger, clock, 1.1) == pytest.approx(1000, rel=0.05)


def test_debt_of_one_task_delays_all_whatever_they_request():
    ledger, clock = ledger_of(rows_per_second=1000)
    ledger.hand_back(Amounts(rows=-2000))
    assert ledger.offer(Amounts(requests=1), Amounts(requests=1)) is None
    assert ledger.patience(Amounts(requests=1), Amounts(requests=1)) == SAVED_SECONDS
    clock.now += 1.9
    assert ledger.offer(Amounts(requests=1), Amounts(requests=1)) is None
    clock.now += 0.2
    assert ledger.offer(Amounts(requests=1), Amounts(requests=1)) == Amounts(requests=1)


def test_the_rate_rises_from_a_quarter_to_the_whole():
    ledger, clock = ledger_of(ramp_seconds=4.0, rows_per_second=1000)
    first = rows_within(ledger, clock, 1)
    rows_within(ledger, clock, 3)
    assert first == pytest.approx(1000 * (0.25 + 0.75 / 8), rel=0.1)
    assert rows_within(ledger, clock, 1) == pytest.approx(1000, rel=0.02)


def test_overload_halves_the_rate_once_for_many_reports_and_it_recovers():
    ledger, clock = ledger_of(rows_per_second=1000)
    rows_within(ledger, clock, 5)
    assert [ledger.slow_down() for _ in range(20)] == [True] + [False] * 19
    assert rows_within(ledger, clock, 0.4) == 0
    clock.now += 0.1
    assert rows_within(ledger, clock, 1) == pytest.approx(530, rel=0.2)
    rows_within(ledger, clock, 2 * RECOVERY_SECONDS)
    assert rows_within(ledger, clock, 5) == pytest.approx(5000, rel=0.01)


def test_overload_slows_a_job_without_limits_too_until_it_recovers():
    ledger, clock = ledger_of()
    for _ in range(100):
        ledger.count(Amounts(requests=10))
        clock.now += 0.01
    assert not ledger.is_limited
    ledger.slow_down()
    assert ledger.is_limited
    got = 0.0
    for _ in range(200):
        granted = ledger.offer(Amounts(requests=100), Amounts(requests=1))
        got += granted.requests if granted else 0.0
        clock.now += 0.01
    assert 500 < got < 1100
    clock.now += 3 * RECOVERY_SECONDS
    ledger.offer(Amounts(requests=1), Amounts(requests=1))
    assert not ledger.is_limited


def test_totals_count_what_was_done():
    ledger, clock = ledger_of()
    ledger.count(Amounts(10, 2.5, 1, 3))
    clock.now += 2
    ledger.count(Amounts(rows=10))
    totals = ledger.totals()
    assert (totals.rows, totals.write_units, totals.requests, totals.seconds, totals.rate) == (20, 2.5, 3, 2.0, 10.0)


@pytest.mark.parametrize("name", ["rows_per_second", "write_units", "read_units", "requests_per_second"])
def test_a_limit_of_zero_is_refused(name):
    with pytest.raises(ValueError, match=name):
        RateLimits(**{name: 0})


def test_the_address_travels_to_tasks_and_does_not_show_its_token():
    with BudgetServer(RateLimits(), host="127.0.0.1") as server:
        address = pickle.loads(pickle.dumps(server.address))
        assert address == server.address
        assert "token" not in repr(address)
        assert str(address.token) not in repr(address)


def test_a_job_without_limits_is_counted_completely():
    with BudgetServer(RateLimits(), host="127.0.0.1") as server:
        client = BudgetClient(server.address)
        for _ in range(2000):
            client.take(rows=3, write_units=1.5)
        client.spent(read_units=7)
        totals = server.totals()
        client.close()
    assert (totals.rows, totals.write_units, totals.read_units, totals.requests) == (6000, 3000.0, 7.0, 2000)


def test_rejected_rows_are_counted_for_the_whole_job():
    with BudgetServer(RateLimits(), host="127.0.0.1", rejected=5) as server:
        tasks = [BudgetClient(server.address) for _ in range(2)]
        assert [task.reject() for _ in range(2) for task in tasks] == [6, 7, 8, 9]
        for task in tasks:
            task.close()
    with pytest.raises(RetriableError, match="has ended"):
        tasks[0].reject()


def test_a_task_that_requests_much_waits_for_all_of_it():
    with BudgetServer(RateLimits(rows_per_second=1000), host="127.0.0.1", ramp_seconds=0) as server:
        client, begun = BudgetClient(server.address), time.monotonic()
        client.take(rows=400)
        taken = time.monotonic() - begun
        client.spent(rows=300)
        client.take(rows=1)
        paid = time.monotonic() - begun
        client.close()
    assert taken > 0.3
    assert paid > 0.6


def test_pages_that_are_paid_for_afterwards_keep_the_rate_too():
    with BudgetServer(RateLimits(rows_per_second=1000), host="127.0.0.1", ramp_seconds=0) as server:
        tasks, begun = [BudgetClient(server.address) for _ in range(2)], time.monotonic()
        for _ in range(3):
            for task in tasks:
                task.take(requests=1)
                task.spent(rows=300)
                # Longer than a task keeps its unused budget, or its debt: 1.2 seconds in all.
                time.sleep(0.2)
        tasks[0].take(requests=1)
        taken = time.monotonic() - begun
        tasks[0].spent(rows=-100)
        for task in tasks:
            task.close()
        while server.totals().rows > 1700 and time.monotonic() < begun + 30:
            time.sleep(0.01)
        assert server.totals().rows == 1700
    assert taken > 1.45


def test_a_task_that_waits_for_much_does_not_delay_others():
    with BudgetServer(RateLimits(rows_per_second=1000), host="127.0.0.1", ramp_seconds=0) as server:
        greedy, modest = BudgetClient(server.address), BudgetClient(server.address)

        def take_much():
            # Ten minutes of the rate: it still waits when the server ends.
            with pytest.raises(RetriableError):
                greedy.take(rows=600_000)

        waiting = threading.Thread(target=take_much, daemon=True)
        waiting.start()
        time.sleep(0.1)
        modest.take(rows=10)
        assert waiting.is_alive()
        modest.close()
    waiting.join(300)
    assert not waiting.is_alive()
    greedy.close()


def test_clients_without_the_token_are_refused_and_a_lost_driver_is_reported():
    with BudgetServer(RateLimits(rows_per_second=10), host="127.0.0.1") as server:
        stranger = BudgetAddress(server.address.host, server.address.port, b"guess")
        with pytest.raises(RetriableError, match="keeps its budget"):
            BudgetClient(stranger)
        with socket.create_connection((server.address.host, server.address.port)) as raw:
            raw.sendall(b"x" * 48)
            assert len(raw.recv(64)) == 16
            assert raw.recv(64) == b""
        client = budget_client(server.address)
        assert budget_client(server.address) is client
    with pytest.raises(RetriableError, match="has ended"):
        client.take(rows=100)
    with pytest.raises(RetriableError, match="does not answer"):
        budget_client(server.address)


def test_progress_and_overload_are_reported(monkeypatch):
    monkeypatch.setattr("lakeward.cassandra.budget_server.PROGRESS_SECONDS", 0.3)
    lines = []
    with BudgetServer(RateLimits(), host="127.0.0.1", on_progress=lines.append, expected_rows=10_000) as server:
        client = BudgetClient(server.address)
        client.take(rows=1000, write_units=1000)
        client.slow_down("write time-out")
        time.sleep(0.8)
        client.close()
    assert lines[0] == "the cluster is overloaded, slowing down: write time-out"
    assert lines[1].startswith("1,000 of about 10,000 rows, ")
    assert lines[1].endswith("WCU/s, 1,000 WCU so far")
    assert len(lines) == 2
