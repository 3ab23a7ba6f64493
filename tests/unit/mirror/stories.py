"""Stories of a replication beside the table that follows it, and what a run of that table may come to."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import Phase, currently_in_test_context, event
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
    RunLakeward,
    Step,
    Touch,
    Write,
)

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


def ordinary_steps() -> st.SearchStrategy[tuple[Step, ...]]:
    """Loads and reloads in one part, changes, touches: what a well-kept task does."""
    writes = st.lists(st.tuples(st.integers(1, 6), st.sampled_from(("a", "b", "c", None))), min_size=1, max_size=4)
    change = writes.map(lambda changes: (Write(tuple(changes)), Flush()))
    reload = st.sampled_from(("flushed", "carried")).map(lambda pending: (Reload(pending=pending),))
    middle = st.lists(st.one_of(change, change, reload, st.just((Touch(),)), st.just((RunLakeward(),))), max_size=8)
    first = (Write(((1, "a"), (2, "b"), (7, "stays"))), FullLoad(), RunLakeward())
    return middle.map(lambda bursts: (*first, *(step for burst in bursts for step in burst), RunLakeward()))
