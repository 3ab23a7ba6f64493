"""Named steps: each is passed somewhere, and belongs to the work that its name begins with."""

from __future__ import annotations

import re
from pathlib import Path

import lakeward
from lakeward.mirror.op.steps import Step


def test_every_step_is_passed_by_the_package_and_no_step_has_another_name() -> None:
    texts = [file.read_text("utf-8") for file in Path(lakeward.__file__).parent.rglob("*.py")]
    passed = {given for text in texts for given in re.findall(r"\breached\(([^()]+)\)", text)}
    steps = {given.removeprefix("Step.") for given in passed if given.startswith("Step.")}
    assert steps == {step.name for step in Step}
    assert not [given for given in passed if given.startswith(('"', "'", 'f"'))]


def test_names_and_values_of_steps_agree() -> None:
    assert all(step.name == step.value.replace(".", "_").upper() for step in Step)
    assert all(step.value.startswith(f"{step.family}.") for step in Step)


def test_a_step_in_the_log_describes_what_the_table_does_next() -> None:
    assert [step for step in Step if step.is_logged and step.work_after is None] == []
    assert Step.CHECK_READ.is_logged and Step.CHECK_READ.work_after == "folding changes"
    assert not Step.APPLY_DROP.is_logged and Step.APPLY_DROP.work_after is None
