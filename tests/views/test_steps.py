"""Every step of publishing, undoing, erasing, repairing and maintaining has a crash test in this folder."""

from __future__ import annotations

import re
from pathlib import Path

from lakeward.mirror.op.steps import Step
from tests.spark.crash import ELSEWHERE, steps_of

# What a module here crashes at: every step of a family, or steps one by one.
_CRASHED = re.compile(r"^CRASHED = (steps_of\(.*?\)|\(.*?\))$", re.MULTILINE | re.DOTALL)


def test_every_step_is_crashed_at() -> None:
    texts = [file.read_text("utf-8") for file in Path(__file__).parent.glob("test_*.py")]
    lists = "".join(given for text in texts for given in _CRASHED.findall(text))
    crashed = {*steps_of(*re.findall(r'"(\w+)"', lists)), *(Step[name] for name in re.findall(r"Step\.(\w+)", lists))}
    assert crashed == {*steps_of(*ELSEWHERE)}
