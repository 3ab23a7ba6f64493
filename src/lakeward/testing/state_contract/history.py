"""The run history."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest

from lakeward.errors import BugError
from lakeward.testing.state_contract.samples import CUSTOMER, NOON, PRODUCT, make_run
from lakeward.testing.state_contract.stores import WithStore

if TYPE_CHECKING:
    from lakeward.state.base import StateStore


class HistoryContract(WithStore):
    """What is told of past runs."""

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
