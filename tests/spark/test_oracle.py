"""The mirror equals the plain-Python truth, whatever the files look like, however they arrive, whenever runs happen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from lakeward.columns import quote_name
from lakeward.config import parse_config
from lakeward.lake import Lakeward
from lakeward.mirror.op.report import Outcome
from lakeward.session.sessions import session_for
from lakeward.testing.compare import assert_same_rows
from lakeward.testing.replication.strategies import small_options
from lakeward.testing.simulator import Simulation, SimulatorOptions, random_options
from lakeward.views.verification.report import Verdict
from tests.spark.fixtures import COMPILED

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

# Shrinking would run Spark for an hour; the options in the message repeat the example.
_FOR_SPARK = settings(
    deadline=None,
    derandomize=True,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)


METADATA = {"op": "Op", "commit_time": "meta_time", "op_number": "meta_op", "file": "meta_file"}


def follow(
    folder: Path, spark: SparkSession, options: SimulatorOptions, *, run_every: int = 1, metadata: bool = False
) -> None:
    """Land stage by stage, run every so many stages, and compare each mirror with the oracle after every run.

    With ``metadata`` the mirrors have metadata columns, and are computed again from the files at the end.
    """
    simulation = Simulation(options)
    settings = {**simulation.configuration(), "spark": {"conf": COMPILED}, "state": "sqlite:///state.db"}
    if metadata:
        settings["defaults"] = {**settings.get("defaults", {}), "metadata_columns": METADATA}
    config = parse_config(settings, base=folder)
    stages = simulation.stages()
    with Lakeward(config, spark=session_for(spark, config)) as lakeward:
        for number, stage in enumerate(stages, start=1):
            stage.land(folder / "landing")
            if number % run_every and number != len(stages):
                continue
            for table in lakeward.run().tables:
                assert table.outcome in (Outcome.DONE, Outcome.IDLE), f"{options}\n{table.message}"
            expected = simulation.truth_after(stage)
            for table in simulation.tables:
                if table.id in expected:
                    name = f"{quote_name(table.id.schema)}.{quote_name(table.id.name)}"
                    mirror = lakeward.sql(f"SELECT * FROM {name}").drop(*METADATA.values())
                    found = [row.asDict() for row in mirror.collect()]
                    label = f"{table.id} after stage {number} of {options}"
                    assert_same_rows(found, expected[table.id], table.key, label)
        if metadata:
            verdicts = {table.table: table.verdict for table in lakeward.verify().tables}
            assert set(verdicts.values()) == {Verdict.CLEAN}, f"{verdicts} after {options}"


@pytest.mark.slow
@settings(_FOR_SPARK, max_examples=6)
@given(options=small_options(tables=1, stages=2), run_every=st.integers(1, 2))
def test_any_files_in_any_arrival_give_the_oracles_rows(
    tmp_path_factory: pytest.TempPathFactory, spark: SparkSession, options: SimulatorOptions, run_every: int
) -> None:
    # A reload that nobody looked at before leaves no recognisable trace: the user must declare it (--cut).
    follow(tmp_path_factory.mktemp("oracle"), spark, options, run_every=1 if options.reloads else run_every)


@pytest.mark.soak
@settings(_FOR_SPARK, max_examples=40)
@given(options=small_options(tables=1, stages=2), run_every=st.integers(1, 2))
def test_soak_any_files_in_any_arrival(
    tmp_path_factory: pytest.TempPathFactory, spark: SparkSession, options: SimulatorOptions, run_every: int
) -> None:
    follow(tmp_path_factory.mktemp("oracle"), spark, options, run_every=1 if options.reloads else run_every)


@pytest.mark.parametrize("shape", ["csv", "parquet"])
def test_many_changes_with_every_misbehaviour(tmp_path: Path, spark: SparkSession, shape: str) -> None:
    options = SimulatorOptions(
        seed=11,
        tables=2,
        rows=400,
        changes=3000,
        batches=12,
        stages=4,
        format=shape,
        timestamp_column="cdc_timestamp",
        before_image="pk-only",
        change_keys=True,
        composite_keys=True,
        null_updates=True,
        odd_operations=True,
        duplicate=0.3,
        delay=0.3,
        reorder=1.0,
        split=0.3,
        reloads=1,
        load_parts=3,
    )
    follow(tmp_path, spark, options)


@pytest.mark.parametrize(
    "shape",
    [
        {"format": "csv", "unchanged": "<same>", "before_image": "pk-only", "split": 0.5},
        {"before_image": "all", "timestamp_column": "cdc_timestamp", "overlap": 20, "reloads": 1, "duplicate": 0.3},
    ],
)
def test_rows_that_take_each_others_keys_within_commits(
    tmp_path: Path, spark: SparkSession, shape: dict[str, Any]
) -> None:
    options = SimulatorOptions(
        seed=4, tables=1, rows=20, changes=150, batches=6, stages=3, change_keys=True, shuffle_keys=True,
        composite_keys=True, nullable_keys=True, delay=0.3, reorder=1.0, **shape,
    )  # fmt: skip
    follow(tmp_path, spark, options, metadata=shape.get("format") == "csv")


@pytest.mark.parametrize("shape", [{"format": "csv", "header": True}, {"format": "parquet"}])
def test_bad_rows_and_dropped_columns_leave_the_rest_exact(
    tmp_path: Path, spark: SparkSession, shape: dict[str, object]
) -> None:
    options = SimulatorOptions(
        seed=5, tables=1, rows=20, changes=120, batches=6, stages=3, bad_rows=0.2, drop_columns=True,
        add_columns=True, delay=0.3, reorder=1.0, odd_operations=True, reloads=1, **shape,
    )  # fmt: skip
    follow(tmp_path, spark, options)


def test_a_table_whose_folder_vanishes_is_empty_and_fills_again_with_what_lands_later(
    tmp_path: Path, spark: SparkSession
) -> None:
    options = SimulatorOptions(
        seed=2, tables=1, rows=10, changes=60, batches=6, stages=4, truncates=2, delay=0.4, reorder=1.0,
    )  # fmt: skip
    follow(tmp_path, spark, options)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(200))
def test_soak_random_options(tmp_path: Path, spark: SparkSession, seed: int) -> None:
    options = random_options(seed, tables=1, rows=30, changes=150, batches=6, stages=3)
    follow(tmp_path, spark, options, metadata=seed % 2 == 1)
