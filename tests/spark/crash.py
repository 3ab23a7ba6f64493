"""Crashing on purpose: at a named step, or at every step one after another."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from lakeward.iceberg.attempt import Attempt
from lakeward.mirror.op.steps import Step
from lakeward.storage.publish import _FolderPublication
from tests.spark.scene import TABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from tests.spark.scene import Scene
    from tests.spark.source import Rows


# Families of steps with a crash test in tests/views; test_steps.py there requires it.
ELSEWHERE = (
    "publish", "point", "undo", "reset", "remove", "rename", "erase", "maintain", "repair", "scd2",
)  # fmt: skip


def steps_of(*families: str) -> tuple[Step, ...]:
    """Return all steps of some families, such as ``log`` or ``erase``."""
    return tuple(step for step in Step if step.family in families)


# Whatever the kind of op, the same code prepares and ends the writing of the log and of the mirror.
_AROUND_THE_WRITES = (
    *(step for step in steps_of("log") if step is not Step.LOG_PUBLISH),
    Step.APPLY_BRANCH, Step.APPLY_DELETE, Step.APPLY_DROP, Step.APPLY_DONE,
)  # fmt: skip


class Crash(BaseException):
    """The process is gone. ``tidy``: whether ``finally`` blocks still ran."""

    def __init__(self, step: str, *, tidy: bool = False) -> None:
        super().__init__(step)
        self.step = step
        self.tidy = tidy


def leave_branches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a crash leave its branch in the lake and its unfinished folder on disk, as a killed process does."""
    tidy_up, take_back = Attempt.__exit__, _FolderPublication.take_back

    def leave(attempt: Attempt, error_type: Any, error: BaseException | None, trace: Any) -> None:
        if not isinstance(error, Crash) or error.tidy:
            tidy_up(attempt, error_type, error, trace)

    def leave_folder(work: _FolderPublication[Any], *args: Any) -> None:
        error = sys.exc_info()[1]
        if not isinstance(error, Crash) or error.tidy:
            take_back(work, *args)

    monkeypatch.setattr(Attempt, "__exit__", leave)
    monkeypatch.setattr(_FolderPublication, "take_back", leave_folder)


def crash_at(scene: Scene, step: str, act: Callable[[], object] | None = None) -> None:
    """Run until a step is passed and crash there; the next use of the scene is a new process."""

    def crash(_table: str, passed: str) -> None:
        if passed == step:
            raise Crash(step)

    scene.on_step = crash
    with pytest.raises(Crash):
        (act or scene.run)()
    scene.on_step = None
    scene.close()


class Crashes:
    """Crashes at every step at which it has not crashed yet, except those in ``passed_over``."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.passed_over: Collection[str] = ()
        # An op that is logged never passes the steps before again: this many are needed to crash at each step once.
        self.inputs = 3
        self.crossed: list[str] = []

    def pass_over_what_no_kind_decides(self) -> None:
        """Crash only where what an op's kind does is half done: once logged, and before and after each publication.

        Two kinds of ops, a batch and a load, are crashed at every step in every run of the tests; ``make soak``
        does so with all kinds.
        """
        self.passed_over = (*self.passed_over, *_AROUND_THE_WRITES)
        self.inputs = 1

    def through(self, allowed: Collection[Rows], act: Callable[[], object] | None = None, table: str = TABLE) -> None:
        """Act until it comes through without a crash; readers must see one of the allowed states all the time.

        Every other crash loses the state store too, every third one still tidies up.
        """
        while True:
            self.scene.on_step = self._on_step
            try:
                (act or self.scene.run)()
            except Crash as crash:
                self._begin_anew(crash, allowed, table)
            else:
                self.scene.on_step = None
                return

    def _on_step(self, _table: str, step: str) -> None:
        if step not in self.crossed and step not in self.passed_over:
            self.crossed.append(step)
            raise Crash(step, tidy=len(self.crossed) % 3 == 0)

    def _begin_anew(self, crash: Crash, allowed: Collection[Rows], table: str) -> None:
        self.scene.on_step = None
        if len(self.crossed) % 2:
            self.scene.forget_state()
        else:
            self.scene.close()
        if crash.step.startswith(("load.", "apply.")):
            assert self.scene.rows(table) in allowed, f"readers see half an op after a crash at {crash.step}"
