"""A table as of any commit, asked in any order, equals the oracle's, however late the changes arrived."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from lakeward.config import parse_config
from lakeward.lake import Lakeward
from lakeward.mirror.op.checkpoints import op_moment
from lakeward.mirror.op.report import Outcome
from lakeward.session.sessions import session_for
from lakeward.testing.compare import assert_same_rows
from lakeward.testing.simulator import Simulation, SimulatorOptions
from tests.views.moments import asked, moment_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


pytestmark = pytest.mark.spark

CASES = [
    SimulatorOptions(
        seed=3, tables=1, rows=12, changes=40, batches=6, stages=3, format="csv", timestamp_column="cdc_timestamp",
        delay=0.5, reorder=1.0, duplicate=0.2, odd_operations=True, null_updates=True,
    ),
    SimulatorOptions(
        seed=8, tables=1, rows=10, changes=40, batches=6, stages=3, format="parquet",
        timestamp_column="cdc_timestamp", before_image="pk-only", change_keys=True, composite_keys=True, delay=0.4,
        reorder=1.0, reloads=1, load_parts=2,
    ),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("asked_at_last", [2, pytest.param(12, marks=pytest.mark.soak)])
@pytest.mark.parametrize("options", CASES, ids=lambda options: f"seed{options.seed}")
def test_as_of_any_commit_equals_the_oracle_whatever_arrived_late(
    tmp_path: Path, spark: SparkSession, options: SimulatorOptions, asked_at_last: int
) -> None:
    simulation, random = Simulation(options), Random(options.seed)
    config = parse_config({**simulation.configuration(), "state": "sqlite:///state.db"}, base=tmp_path)
    stages, table = simulation.stages(), simulation.tables[0]
    after_op: dict[int, list[dict[str, object]]] = {}
    with Lakeward(config, spark=session_for(spark, config)) as lakeward:
        for stage in stages:
            stage.land(tmp_path / "landing")
            report = lakeward.run().tables[0]
            assert report.outcome in (Outcome.DONE, Outcome.IDLE), report.message
            if report.ops:
                after_op[report.ops[-1].op] = simulation.truth_after(stage)[table.id]
            commits = simulation.commits(stage)
            is_last = stage is stages[-1]
            chosen = random.sample(commits, min(asked_at_last if is_last else 1, len(commits)))
            for commit in chosen:
                found = asked(lakeward, str(table.id), moment_of(commit))
                expected = simulation.truth_as_of(stage, commit)[table.id]
                assert_same_rows(found, expected, table.key, f"as of {commit} after stage {stage.number} of {options}")
        for op, expected in random.sample(sorted(after_op.items()), len(after_op)):
            assert_same_rows(asked(lakeward, str(table.id), op_moment(op)), expected, table.key, f"op {op}, {options}")
