"""Versions of rows equal those that the oracle's states one after another give, computed at once or kept up to date."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from lakeward.columns import quote_name
from lakeward.config import parse_config
from lakeward.errors import ConfigurationError
from lakeward.iceberg.attempt import BRANCH_PREFIX
from lakeward.iceberg.table import IcebergTable
from lakeward.lake import Lakeward
from lakeward.mirror.op.as_of import rows_as_of
from lakeward.mirror.op.checkpoints import parse_moment
from lakeward.mirror.op.report import Outcome
from lakeward.model import HISTORY_SUFFIX
from lakeward.session.sessions import session_for
from lakeward.spark.workspace import Workspace
from lakeward.testing.compare import State, assert_same_rows, valid_at, versions
from lakeward.testing.simulator import Simulation, SimulatorOptions
from tests.spark.crash import crash_at, leave_branches, steps_of
from tests.spark.scene import SCHEMA, TABLE

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.spark.scene import Scene

pytestmark = pytest.mark.spark

START = datetime(2024, 3, 26, tzinfo=UTC)
TIMES = ("valid_from", "valid_to")
CASES = [
    SimulatorOptions(
        seed=3, tables=1, rows=6, changes=24, batches=3, stages=2, format="csv", timestamp_column="cdc_timestamp",
        unchanged="_", change_sequence=True, before_image="pk-only", change_keys=True, delay=0.5, reorder=1.0,
        duplicate=0.2, odd_operations=True, null_updates=True,
    ),
    SimulatorOptions(
        seed=8, tables=1, rows=6, changes=24, batches=4, stages=2, format="parquet",
        timestamp_column="cdc_timestamp", before_image="pk-only", change_keys=True, composite_keys=True, delay=0.4,
        reorder=1.0, reloads=2,
    ),
]  # fmt: skip
CRASHED = steps_of("scd2")
FEBRUARY = 1706745600.0
DAY = 86400.0


def collected(frame: DataFrame) -> list[dict[str, Any]]:
    """Rows with their times as UTC, whatever zone the process is in."""
    for name in TIMES:
        frame = frame.withColumn(name, F.unix_micros(name))
    rows = [row.asDict() for row in frame.collect()]
    return [{**row, **{name: _moment(row[name]) for name in TIMES}} for row in rows]


def _moment(micros: int | None) -> datetime | None:
    return None if micros is None else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)


def without_operation(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "operation"} for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize("options", CASES, ids=lambda options: f"seed{options.seed}")
def test_versions_equal_the_oracles_whatever_arrived_late(
    tmp_path: Path, spark: SparkSession, options: SimulatorOptions
) -> None:
    simulation = Simulation(options)
    config = parse_config({**simulation.configuration(), "state": "sqlite:///state.db"}, base=tmp_path)
    table = simulation.tables[0]
    name, states = str(table.id), []
    kept = f"lake.{quote_name(table.id.schema + HISTORY_SUFFIX)}.{quote_name(table.id.name)}"
    with Lakeward(config, spark=session_for(spark, config)) as lake:
        for stage in simulation.stages():
            stage.land(tmp_path / "landing")
            assert lake.run().tables[0].outcome in (Outcome.DONE, Outcome.IDLE)
            moments = sorted({START, *simulation.commits(stage), *simulation.beginnings(stage)})
            states = [State(moment, simulation.truth_as_of(stage, moment)[table.id]) for moment in moments]
            lake.history.keep_scd2(name)
            found = without_operation(collected(lake.spark.table(kept)))
            assert_same_rows(found, versions(states, table.key), table.key, f"kept after {stage.number} of {options}")
        # What was valid at a time is the table as of that time.
        commit = Random(options.seed).choice(simulation.commits(stage))
        context = lake._opened.workbench().context(lake.table(name))
        with Workspace() as workspace:
            rows = rows_as_of(context, workspace, parse_moment(commit.isoformat())).rows.collect()
        assert_same_rows(valid_at(found, commit), [row.asDict() for row in rows], table.key, f"{commit}, {options}")
        if not options.reloads:
            # A history that a reload had built anew is the computed one already.
            computed = without_operation(collected(lake.history.scd2(name)))
            assert_same_rows(computed, versions(states, table.key), table.key, f"computed, {options}")
            check_history_of_the_busiest_row(lake, simulation)


def check_history_of_the_busiest_row(lake: Lakeward, simulation: Simulation) -> None:
    """Its history has every change that landed once, and what they changed, one after the other, leads to the row."""
    table, landed = (
        simulation.tables[0],
        {landing.path: landing.file for stage in simulation.stages() for landing in stage.landings},
    )
    keys = Counter(change.key for file in landed.values() for change in file.model_changes(table))
    loaded = {tuple(row[name] for name in table.key) for file in landed.values() for row in file.load}
    [(key, times)] = keys.most_common(1)
    history = lake.history.row(str(table.id), dict(zip(table.key, key, strict=True)))
    assert len(history.changes) == times + (key in loaded)
    replayed: dict[str, Any] | None = None
    for change in history.changes:
        if replayed is not None and change.before is not None and change.after is not None:
            assert change.before.items() <= replayed.items()
            replayed = {**replayed, **change.after}
        else:
            assert change.before == replayed
            replayed = change.after
    assert replayed == history.now


def land(scene: Scene, day: int, *changes: str) -> None:
    """Land a file of a January day; each change is at noon of that day, or gives its own hour: ``13 U,1,…``."""
    lines = []
    for change in changes:
        hour, _, rest = change.rpartition(" ")
        operation, values = rest.split(",", 1)
        lines.append(f"{operation},2024-01-{day:02} {hour or 12}:00:00,{values}")
    scene.land(f"202401{day:02}-000000000.csv", *lines)


def short(frame: DataFrame, *names: str) -> list[tuple[Any, ...]]:
    """Versions as (id, from day, to day, operation, values …); times other than noon with their hour."""
    rows = collected(frame)
    rows.sort(key=lambda row: (row["id"], row["valid_from"] or START.min.replace(tzinfo=UTC)))
    return [
        (row["id"], *(_day(row[time]) for time in TIMES), row["operation"], *(row[name] for name in names))
        for row in rows
    ]


def _day(moment: datetime | None) -> str | None:
    if moment is None:
        return None
    return f"{moment:%d}" if moment.hour == 12 else f"{moment:%m-%d %H}"


def test_versions_of_deleted_late_equal_and_reloaded_rows(scene: Scene) -> None:
    scene.table(timestamp_column="ts", rewrite_share=10)
    load = [f"2023-12-31 00:00:00,{key},load,x,1.00" for key in (1, 2, 3)]
    scene.land("LOAD00000001.csv", *load, mtime=FEBRUARY - 40 * DAY)
    land(scene, 2, "U,1,a,x,1.00", "U,1,b,x,1.00", "D,2,load,x,1.00", "U,3,load,x,1.00", "I,4,,x,1.00")
    land(scene, 8, "I,2,back,x,1.00", "U,4,,y,1.00", "D,3,load,x,1.00")
    scene.run()
    history = scene.lakeward.history
    expected = [
        (1, None, "02", "L", "load", "x"),
        (1, "02", None, "U", "b", "x"),
        (2, None, "02", "L", "load", "x"),
        (2, "08", None, "I", "back", "x"),
        (3, None, "08", "L", "load", "x"),
        (4, "02", "08", "I", "", "x"),
        (4, "08", None, "U", "", "y"),
    ]
    assert short(history.scd2(TABLE), "name", "dept") == expected
    assert short(history.scd2(TABLE, key={"id": 2}), "name", "dept") == expected[2:4]
    tracked = [row for row in short(history.scd2(TABLE, track=["name"]), "name", "dept") if row[0] == 4]
    assert tracked == [(4, "02", None, "I", "", "x")], "other columns are shown as at the start of the version"
    built = history.keep_scd2(TABLE)
    assert (built.action, built.versions, built.rows) == ("built", 7, 7)
    # A late change cuts a version in two; keys that nothing happened to are left alone.
    land(scene, 5, "U,1,late,x,1.00", "U,3,late,x,1.00")
    scene.run()
    report = history.keep_scd2(TABLE)
    assert (report.action, report.keys, report.versions, report.rows) == ("refreshed", 2, 5, 9)
    kept = short(scene.lakeward.spark.table("lake.sales_history.product"), "name")
    assert [row for row in kept if row[0] in (1, 3)] == [
        (1, None, "02", "L", "load"), (1, "02", "05", "U", "b"), (1, "05", None, "U", "late"),
        (3, None, "05", "L", "load"), (3, "05", "08", "U", "late"),
    ]  # fmt: skip
    assert history.keep_scd2(TABLE).action == "current"
    # An undo takes its versions back.
    scene.lakeward.undo(TABLE, to_op=2)
    [report] = history.refresh_scd2()
    assert (report.action, report.keys) == ("refreshed", 2)
    assert short(scene.lakeward.spark.table("lake.sales_history.product"), "name", "dept") == expected
    # A reload ends rows that it does not have and goes on with those that it has as they were. The file that was undone
    # is new again.
    scene.land(
        "LOAD00000001.csv", "2024-02-01 00:00:00,1,late,x,1.00", "2024-02-01 00:00:00,2,new,x,1.00", mtime=FEBRUARY
    )
    scene.run()
    assert history.keep_scd2(TABLE).reason == "there was a load"
    kept = short(scene.lakeward.spark.table("lake.sales_history.product"), "name")
    assert [row for row in kept if row[2] in (None, "02-01 00")] == [
        (1, "05", None, "U", "late"), (2, "08", "02-01 00", "I", "back"), (2, "02-01 00", None, "L", "new"),
        (4, "08", "02-01 00", "U", ""),
    ]  # fmt: skip
    assert history.keep_scd2(TABLE, track=["dept"]).reason == "other columns are tracked"
    assert history.keep_scd2(TABLE).track == ("dept",)
    with pytest.raises(ConfigurationError, match="has no column colour"):
        history.scd2(TABLE, track=["colour"])
    assert scene.lakeward.rebuild_state() == [TABLE], "a history is no mirror"


def test_tables_without_times_or_keys_have_no_versions(scene: Scene) -> None:
    scene.configure({TABLE: {"schema": SCHEMA}, "sales.b": {"schema": SCHEMA, "primary_key": "id"}})
    scene.land("LOAD00000001.csv", "1,load,x,1.00")
    scene.land("LOAD00000001.csv", "1,load,x,1.00", folder="sales/b")
    scene.run()
    with pytest.raises(ConfigurationError, match="has no primary key"):
        scene.lakeward.history.scd2(TABLE)
    with pytest.raises(ConfigurationError, match="has no timestamp_column"):
        scene.lakeward.history.keep_scd2("sales.b")


def test_crash_at_every_step_of_building_and_refreshing(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_branches(monkeypatch)
    scene.table(timestamp_column="ts", rewrite_share=10)
    scene.land("LOAD00000001.csv", "2023-12-31 00:00:00,1,load,x,1.00", "2023-12-31 00:00:00,2,load,x,1.00")
    scene.run()
    states: list[list[Any]] = [[], [(1, None, None, "L", "load"), (2, None, None, "L", "load")]]
    states.append([(1, None, "02", "L", "load"), (1, "02", None, "U", "new"), (2, None, None, "L", "load")])

    def kept() -> list[Any]:
        return short(scene.lakeward.spark.table("lake.sales_history.product"), "name")

    for before, after in pairwise(states):
        for step in (crashed for crashed in CRASHED if crashed != "scd2.delete" or before):
            crash_at(scene, step, lambda: scene.lakeward.history.keep_scd2(TABLE))
            assert kept() == (after if step == "scd2.publish" else before), f"after a crash at {step}"
        assert scene.lakeward.history.keep_scd2(TABLE).action == "current"
        assert kept() == after
        history = IcebergTable(scene.lakeward.spark, "sales_history", "product")
        assert [branch for branch in history.branches() if branch.startswith(BRANCH_PREFIX)] == []
        land(scene, 2, "U,1,new,x,1.00")
        scene.run()
