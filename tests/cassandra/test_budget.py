"""The budget with tasks as they are: processes that come, go and die.

The window is ten seconds, after the rate has risen to its whole; on a busy machine that is long enough to tell 5 %.
Processes that the machine starves do less, but never more: more is wrong at once, and less if it stays so.
"""

from __future__ import annotations

import multiprocessing
import time

import pytest

from lakeward.cassandra.budget import RateLimits
from lakeward.cassandra.budget_server import BudgetServer, budget_client

RATE = 2000
WINDOW_SECONDS = 10.0
PATIENT_WINDOWS = 12
PATIENCE = 300.0
SPAWN = multiprocessing.get_context("spawn")


def _work(address, batch, seconds, done):
    """Take rows as a task does, and count them in memory that the test reads."""
    client = budget_client(address)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        client.take(rows=batch, write_units=batch)
        with done.get_lock():
            done.value += batch


def start(address, done, *, batch=7, seconds=2 * PATIENCE):
    process = SPAWN.Process(target=_work, args=(address, batch, seconds, done), daemon=True)
    process.start()
    return process


def end(processes):
    for process in processes:
        process.kill()
        process.join()


def counted(done, meanwhile=lambda: None):
    """Give the rate that the window saw."""
    before, begun = done.value, time.monotonic()
    time.sleep(WINDOW_SECONDS / 2)
    meanwhile()
    time.sleep(begun + WINDOW_SECONDS - time.monotonic())
    return (done.value - before) / (time.monotonic() - begun)


def require_rate(done, meanwhile=lambda: None):
    """Look at windows until one has the wanted rate, which none may exceed."""
    rates = [counted(done, meanwhile)]
    while rates[-1] <= 0.9 * RATE and len(rates) < PATIENT_WINDOWS:
        rates.append(counted(done))
    assert max(rates) < 1.05 * RATE, rates
    assert rates[-1] > 0.9 * RATE, rates


def await_work(done):
    limit = time.monotonic() + PATIENCE
    while done.value == 0 and time.monotonic() < limit:
        time.sleep(0.05)


@pytest.mark.slow
def test_the_rate_is_kept_while_tasks_come_go_and_die():
    done, started = SPAWN.Value("q", 0), []
    with BudgetServer(
        RateLimits(rows_per_second=RATE, write_units=5 * RATE), host="127.0.0.1", ramp_seconds=1
    ) as server:
        try:
            started.append(start(server.address, done))
            await_work(done)
            time.sleep(1.5)
            require_rate(done)
            # Seven in all: three that stay, two that end by themselves, and two that are killed within the window.
            staying = [start(server.address, done, batch=batch) for batch in (1, 50)]
            ending = [start(server.address, done, seconds=5) for _ in range(2)]
            dying = [start(server.address, done, batch=300) for _ in range(2)]
            started += [*staying, *ending, *dying]
            time.sleep(3)
            require_rate(done, meanwhile=lambda: end(dying))
            for process in ending:
                process.join(PATIENCE)
            assert [process.exitcode for process in ending] == [0, 0]
        finally:
            end(started)
        totals = server.totals()
    # Killed tasks had not reported at most one turn each.
    assert totals.rows == pytest.approx(done.value, rel=0.02)
