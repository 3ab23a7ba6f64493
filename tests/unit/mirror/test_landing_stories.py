"""Random stories of replication, copying and loss: after every run rows are right, or the table stops with a reason."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import Phase, currently_in_test_context, event, given, settings
from hypothesis import strategies as st
from tests.unit.mirror.plain_table import TABLE, PlainTable

from lakeward.config import parse_config
from lakeward.errors import BugError, LakewardError
from lakeward.mirror.op import choose, cut, loads
from lakeward.testing.replication import (  # fmt: skip
    Deliver,
    Expire,
    Flush,
    FullLoad,
    HoldBack,
    Recopy,
    Reload,
    Replication,
    ReplicationOptions,
    Restart,
    ResumeTask,
    RunLakeward,
    Step,
    Touch,
    TruncateSource,
    Write,
)
from lakeward.testing.replication.strategies import replication_options, replication_steps

COPYING = (Touch, Recopy, HoldBack, Deliver, Expire)


class Story:
    """A replication beside the table that follows it, both on the replication's clock."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, options: ReplicationOptions, **own: Any) -> None:
        self.replication = Replication(folder / "landing", options)
        config = parse_config(self.replication.configuration(), base=folder)
        found = config.declared()[TABLE].model_dump(by_alias=True)
        ddl = ", ".join(f"{column.name} {column.type}" for column in self.replication.table.columns)
        self.table = PlainTable(
            folder / "landing", patch, ddl, **{**found, "landing_times": "untrusted", "load_settle": 0, **own}
        )
        clock = SimpleNamespace(time=self._now, time_ns=lambda: int(self._now() * 1e9))
        for module in (choose, cut, loads):
            patch.setattr(module, "time", clock)
        self.outcomes: list[str] = []
        self._seen = self._was_unseen = False

    def _now(self) -> float:
        return self.replication.now.timestamp()

    def play(self, *steps: Step, **options: Any) -> None:
        for step in steps:
            self.replication.play(step)
            if isinstance(step, RunLakeward):
                self.outcomes.append(self._run(**options))

    def _run(self, **options: Any) -> str:
        before = self.table.all_rows
        try:
            ended = self.table.run(**options)
        except BugError:
            raise
        except LakewardError as error:
            if not error.hint:
                pytest.fail(f"a stop without a way out: {error.message}")
            return f"stop: {type(error).__name__}"
        if self.replication.half:
            return "half written"  # a prefix of a CSV file may be a file
        if ended == "idle":
            self.replication.mark_read()
        if self.table.warning:
            return "warning"
        if self._is_unseen:
            return "unseen"
        self._require_right(before)
        return ended

    @property
    def _is_unseen(self) -> bool:
        """Whether a reload came before the first load was read: this leaves no trace, and the user must declare it."""
        self._was_unseen |= (
            self.replication.visible is not None and not self._seen and self.replication.visible.number > 1
        )
        self._seen |= bool(self.table.decisions)
        return self._was_unseen

    def _require_right(self, before: list[tuple[int, str | None]]) -> None:
        """Require the rows of what was delivered; of a load that is still arriving those before it, or of its parts."""
        replication, found = self.replication, self.table.all_rows
        expected = [self._rows(replication.truth())]
        if not replication.is_whole or self.table.run() == "waiting":
            number = replication.visible.number if replication.visible else 0
            expected += [before, *(self._rows(replication.state_of(older)) for older in range(1, number))]
        assert found in expected, f"{found} is none of {expected}; {self.table.decisions}"

    @staticmethod
    def _rows(rows: Any) -> list[tuple[int, str | None]]:
        return sorted((row["id"], row["name"]) for row in rows)


def play(
    options: ReplicationOptions, steps: tuple[Step, ...], *, table: dict[str, Any] | None = None, **choices: Any
) -> Story:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        story = Story(Path(folder), patch, options, **(table or {}))
        story.play(*steps, **choices)
        for outcome in set(story.outcomes) if currently_in_test_context() else ():
            event(outcome)
        return story


# LAKEWARD_STORIES multiplies the number of stories, for long runs. Explaining a failure takes longer than finding it.
MANY = int(os.environ.get("LAKEWARD_STORIES", "1"))
PHASES = (Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)
SETTLES = st.sampled_from((0, 600))
BATCHES = st.sampled_from((1, 1000))


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


def ordinary_steps() -> st.SearchStrategy[tuple[Step, ...]]:
    """Loads and reloads in one part, changes, touches: what a well-kept task does."""
    writes = st.lists(st.tuples(st.integers(1, 6), st.sampled_from(("a", "b", "c", None))), min_size=1, max_size=4)
    change = writes.map(lambda changes: (Write(tuple(changes)), Flush()))
    reload = st.sampled_from(("flushed", "carried")).map(lambda pending: (Reload(pending=pending),))
    middle = st.lists(st.one_of(change, change, reload, st.just((Touch(),)), st.just((RunLakeward(),))), max_size=8)
    first = (Write(((1, "a"), (2, "b"), (7, "stays"))), FullLoad(), RunLakeward())
    return middle.map(lambda bursts: (*first, *(step for burst in bursts for step in burst), RunLakeward()))


@settings(max_examples=40 * MANY, phases=PHASES)
@given(replication_options(timestamp_column="cdc_timestamp", keyless=False, load_stamp="row"), ordinary_steps())
def test_ordinary_reloads_with_a_timestamp_column_need_no_decision(options, steps):
    story = play(options, steps)
    assert set(story.outcomes) <= {"idle", "warning"}
