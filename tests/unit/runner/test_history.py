"""The history of runs: listed, in detail, and pruned."""

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from tests.unit.runner.reports import DONE, FAILED, IDLE, IGNORING, NOW, RUN, record

from lakeward.errors import ConfigurationError
from lakeward.model import TableId
from lakeward.runner import history
from lakeward.runner.history import HistoryPruner, list_runs, run_detail
from lakeward.state.memory import MemoryStateStore


@pytest.fixture
def state() -> MemoryStateStore:
    store = MemoryStateStore()
    for number in range(5):
        for offset, report in enumerate((DONE, IDLE, FAILED)):
            # Runs overlap: the next one starts before this one's last table does.
            record(store, f"r{number}", report, at=NOW + timedelta(minutes=number + offset))
    return store


def test_runs_are_summed_over_their_tables(state):
    found = list_runs(state)
    assert [entry.run_id for entry in found] == ["r4", "r3", "r2", "r1", "r0"]
    newest = found[0]
    assert (newest.tables, newest.done, newest.idle, newest.waiting, newest.failed) == (3, 1, 1, 0, 1)
    assert (newest.ops, newest.files, newest.rows_in, newest.rows_applied, newest.rows_quarantined) == (
        1, 2, 1500, 1497, 3,
    )  # fmt: skip
    assert (newest.started, newest.seconds) == ("2024-04-05T01:06:03+00:00", 120.5)


def test_rows_that_tables_without_key_ignored_are_summed_and_missing_in_old_reports():
    store = MemoryStateStore()
    record(store, "new", IGNORING)
    record(store, "new", DONE)
    assert list_runs(store)[0].rows_ignored == 7
    old = {name: value for name, value in IGNORING.to_dict().items() if name != "rows_ignored"}
    store.record_run(replace(store.runs(run_id="new")[0], run_id="old", report=old))
    assert run_detail(store, "old").summary.rows_ignored == 0


def test_a_page_that_splits_a_run_is_completed(state, monkeypatch):
    monkeypatch.setattr(history, "_FIRST_PAGE", 2)
    found = list_runs(state, limit=2)
    assert [(entry.run_id, entry.tables) for entry in found] == [("r4", 3), ("r3", 3)]


def test_one_tables_part_in_runs(state):
    found = list_runs(state, TableId("sales", "customer"), limit=2)
    assert [(entry.run_id, entry.tables, entry.failed) for entry in found] == [("r4", 1, 1), ("r3", 1, 1)]


def test_one_run_in_detail(state):
    detail = run_detail(state, "r2")
    assert [table["table"] for table in detail.tables] == ["sales.customer", "sales.product", "sales.till"]
    assert detail.tables[0]["hint"] == "repair the files"
    assert detail.to_dict()["reports"][1]["ops"][0]["mirror_snapshot"] == 8
    assert len(run_detail(state, "r2", TableId("sales", "till")).tables) == 1


def test_an_unknown_run_names_the_command_that_lists_them(state):
    with pytest.raises(ConfigurationError, match="no run r9") as raised:
        run_detail(state, "r9")
    assert raised.value.hint == "lakeward runs"


def test_old_history_is_pruned_after_a_run_once_a_day(state, monkeypatch):
    now = datetime.now(UTC)
    record(state, "new", DONE, at=now - timedelta(days=89))
    upkeep = HistoryPruner(state, days=90)
    upkeep.run_finished(RUN)
    assert [run.run_id for run in list_runs(state)] == ["new"]
    record(state, "old", DONE, at=NOW)
    upkeep.run_finished(RUN)
    assert [run.run_id for run in list_runs(state)] == ["new", "old"]
    tomorrow = time.monotonic() + 90_000
    monkeypatch.setattr(time, "monotonic", lambda: tomorrow)
    upkeep.run_finished(RUN)
    assert [run.run_id for run in list_runs(state)] == ["new"]
