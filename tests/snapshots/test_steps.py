"""Every step of publishing, undoing, erasing, repairing and maintaining has a crash test in this folder."""

from __future__ import annotations

import re
from pathlib import Path

import lakeward
from tests.spark.test_crashes import ELSEWHERE

_NAMED = re.compile(r'reached\(\s*"([^"]+)"')
_CRASHED = re.compile(r"^CRASHED = \((.*?)\)", re.MULTILINE | re.DOTALL)


def test_every_step_is_crashed_at() -> None:
    package = Path(lakeward.__file__).parent
    named = {step for file in package.rglob("*.py") for step in _NAMED.findall(file.read_text("utf-8"))}
    crashed = {
        step
        for file in Path(__file__).parent.glob("test_*.py")
        for steps in _CRASHED.findall(file.read_text("utf-8"))
        for step in re.findall(r'"([^"]+)"', steps)
    }
    assert crashed == {step for step in named if step.startswith(ELSEWHERE)}
