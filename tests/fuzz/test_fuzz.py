"""A short session of every fuzz target: the kept corpus, then mutations of it; `make fuzz` runs longer."""

from __future__ import annotations

import pytest

from tests.fuzz.engine import Target, fuzz
from tests.fuzz.targets import TARGETS

EXECUTIONS = {"csv": 100, "gzip": 80, "parquet": 100, "transactions": 100, "raw": 100, "configuration": 150,
              "events": 1500, "manifests": 500, "state_rows": 20, "arguments": 60}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS, ids=[target.name for target in TARGETS])
def test_no_input_breaks_a_target(target: Target, record_property) -> None:
    outcome = fuzz(target, executions=EXECUTIONS[target.name])
    record_property("fuzz_executions", outcome.executions)
    assert outcome.executions >= EXECUTIONS[target.name]
    assert not outcome.failures, "\n".join(f"{reason}\n  {data[:500]!r}" for data, reason in outcome.failures[:5])
