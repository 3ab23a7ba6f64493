"""Random stories of replication, copying and loss: after every run rows are right, or the table stops with a reason."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.mirror.stories import BATCHES, COPYING, MANY, PHASES, SETTLES, ordinary_steps, play

from lakeward.testing.replication import (  # fmt: skip
    Deliver,
    Expire,
    Flush,
    FullLoad,
    HoldBack,
    Reload,
    ReplicationOptions,
    Restart,
    ResumeTask,
    RunLakeward,
    TruncateSource,
    Write,
)
from lakeward.testing.replication.strategies import replication_options, replication_steps


@settings(max_examples=60 * MANY, phases=PHASES)
@given(replication_options(), replication_steps(), SETTLES, BATCHES)
def test_rows_are_right_or_the_table_stops_with_a_reason(options, steps, settle, files):
    play(options, steps, table={"reload_settle": settle, "max_files": files})


@settings(max_examples=30 * MANY, phases=PHASES)
@given(replication_options(), replication_steps(without=(Expire,)), SETTLES)
def test_rows_are_right_where_a_missing_folder_is_declared_to_mean_an_empty_table(options, steps, settle):
    play(options, steps, table={"reload_settle": settle, "on_missing_folder": "truncate"})


@settings(max_examples=40 * MANY, phases=PHASES)
@given(replication_options(), replication_steps(without=COPYING), st.sampled_from(("stop", "truncate")))
def test_rows_are_right_where_only_the_replication_tool_writes(options, steps, missing):
    play(options, steps, table={"landing_times": "trusted", "on_missing_folder": missing})


RUN = RunLakeward()
EMPTY_RESTART = (TruncateSource(removes_folder=False), Restart())
INSERTED = (Write(((2, "b"),)), Flush())
# A task that was restarted and loaded the table again: the first of its loads is not to be seen, its changes are.
SECOND_LOADS = {
    "an empty table was loaded, all at once": (*EMPTY_RESTART, HoldBack(), *INSERTED, Reload(), RUN, Deliver()),
    "an empty table was loaded, run by run": (*EMPTY_RESTART, RUN, *INSERTED, RUN, Reload()),
    "a newer value was only loaded": (
        *EMPTY_RESTART,
        RUN,
        *INSERTED,
        RUN,
        Write(((2, "c"),)),
        Reload(pending="dropped"),
    ),
    "the first load was replaced": (Restart(), *INSERTED, Reload()),
    "the first load was replaced by newer values": (
        Restart(),
        *INSERTED,
        Write(((2, "c"),)),
        Reload(pending="dropped"),
    ),
    "the task was resumed and loaded it twice": (ResumeTask(), Reload(), *INSERTED, Reload()),
    "its changes come late": (Restart(), HoldBack(), *INSERTED, Reload(), Deliver(1, shuffle=2), RUN, Deliver()),
}


@pytest.mark.parametrize("keyless", [False, True])
@pytest.mark.parametrize("stamp", ["row", "task", None])
@pytest.mark.parametrize("times", ["untrusted", "trusted"])
@pytest.mark.parametrize("story", SECOND_LOADS)
def test_changes_that_the_second_load_of_a_task_holds_are_not_applied_to_it(story, times, stamp, keyless):
    options = ReplicationOptions(
        keyless=keyless, load_stamp=stamp or "row", timestamp_column="cdc_timestamp" if stamp else None
    )
    before = (Write(((1, "a"), (3, "c")), captured=False), FullLoad(), RUN)
    table = {"on_missing_folder": "truncate", "landing_times": times, "reload_settle": 0}
    outcomes = play(options, (*before, *SECOND_LOADS[story], RUN), table=table).outcomes
    assert outcomes[-1] == ("idle" if times == "trusted" or stamp == "row" else "stop: CutError")


@settings(max_examples=40 * MANY, phases=PHASES)
@given(replication_options(timestamp_column="cdc_timestamp", keyless=False, load_stamp="row"), ordinary_steps())
def test_ordinary_reloads_with_a_timestamp_column_need_no_decision(options, steps):
    story = play(options, steps)
    assert set(story.outcomes) <= {"idle", "warning"}
