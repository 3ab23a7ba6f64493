"""Whatever files hold and however they came, both ways of computing a mirror again give what the mirror has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakeward.config import parse_config
from lakeward.lake import Lakeward
from lakeward.mirror.op.report import Outcome
from lakeward.session.sessions import session_for
from lakeward.testing.simulator import Simulation, SimulatorOptions
from tests.spark.scene import TABLE

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.spark.scene import Scene

pytestmark = pytest.mark.spark

CASES = [
    SimulatorOptions(
        seed=5, tables=1, rows=20, changes=80, batches=5, stages=3, bad_rows=0.2, drop_columns=True, add_columns=True,
        delay=0.3, reorder=1.0, odd_operations=True, reloads=1, load_parts=2, format="csv", header=True,
    ),
    SimulatorOptions(
        seed=8, tables=1, rows=15, changes=60, batches=5, stages=2, format="parquet",
        timestamp_column="cdc_timestamp", before_image="pk-only", change_keys=True, composite_keys=True,
        null_updates=True, delay=0.4, reorder=1.0, duplicate=0.3, add_columns=True,
    ),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("options", CASES, ids=lambda options: f"seed{options.seed}")
def test_files_and_changelog_give_what_the_mirror_has(
    tmp_path: Path, spark: SparkSession, options: SimulatorOptions
) -> None:
    simulation = Simulation(options)
    config = parse_config({**simulation.configuration(), "state": "sqlite:///state.db"}, base=tmp_path)
    with Lakeward(config, spark=session_for(spark, config)) as lakeward:
        for stage in simulation.stages():
            stage.land(tmp_path / "landing")
            report = lakeward.run().tables[0]
            assert report.outcome in (Outcome.DONE, Outcome.IDLE), report.message
        for basis in ("files", "changelog"):
            [found] = lakeward.verify(basis=basis).tables
            assert (found.verdict, found.basis) == ("clean", basis), f"{options}\n{found}"


def test_columns_added_and_renamed_rows_put_back_and_ops_undone(scene: Scene) -> None:
    schema = "id int, name string, price decimal(10,2)"
    settings = {"primary_key": "id", "on_bad_row": "quarantine", "rewrite_share": 10}
    scene.configure({TABLE: {"schema": schema, **settings}})
    scene.land("LOAD00000001.csv", "1,one,1.00", "2,two,2.00", "3,bad,not a price")
    scene.land("20240101-000000000.csv", "U,1,first,1.50", "U,2,second,also bad", "U,4,four,worse")
    scene.run()
    # The third part is later than the changes, and brings a key that the first one has.
    scene.configure({TABLE: {"schema": f"{schema}, size int", **settings}})
    scene.land("LOAD00000002.csv", "2,from the second part,2.20,7", "5,five,5.00,8")
    scene.land("20240102-000000000.csv", "U,5,fifth,5.50,NULL", "D,1,,,")
    scene.run(keep_parts=frozenset({"sales/product/LOAD00000002.csv"}))
    scene.configure({TABLE: {"schema": "id int, title string, price decimal(10,2), size int",
                             "renames": {"name": "title"}, **settings}})  # fmt: skip
    scene.land("20240103-000000000.csv", "U,5,renamed,5.75,9", "I,6,six,6.00,1")
    scene.run()
    product = "sales/product"
    scene.lakeward.retry_bad_rows(
        TABLE, replacements={f"{product}/LOAD00000001.csv:3": "3,put back,3.00,NULL",
                             f"{product}/20240101-000000000.csv:2": "U,2,put back too,2.50,NULL"},
    )  # fmt: skip
    scene.lakeward.drop_bad_rows(TABLE, [f"{product}/20240101-000000000.csv:3"])
    before = {key: row["title"] for key, row in scene.by_key().items()}
    assert before == {2: "put back too", 3: "put back", 5: "renamed", 6: "six"}
    for basis in ("files", "changelog"):
        found = scene.lakeward.verify([TABLE], basis=basis).tables[0]
        assert (found.verdict, found.rows_found) == ("clean", 4), found
    fenced = scene.land("20240104-000000000.csv", "D,5,,,", "U,2,wrong,0,0")
    scene.land("20240105-000000000.csv", "U,6,sixth,6.66,1")
    last = scene.run().ops[-1].op
    scene.lakeward.undo(TABLE, to_op=last - 1, skip_files=[f"{product}/{fenced.name}"])
    scene.run()
    for basis in ("files", "changelog"):
        found = scene.lakeward.verify([TABLE], basis=basis).tables[0]
        assert (found.verdict, found.rows_found, found.basis) == ("clean", 4, basis), found
    assert scene.by_key()[6]["title"] == "sixth" and scene.by_key()[5]["title"] == "renamed"


def test_erased_keys_are_not_missed(scene: Scene) -> None:
    scene.land("LOAD00000001.csv", "1,one,x,1.00", "2,two,x,2.00")
    scene.land("20240101-000000000.csv", "U,2,second,x,2.00", "I,3,three,x,3.00")
    scene.run()
    scene.lakeward.erase(TABLE, [{"id": 2}], reason="asked for")
    scene.land("20240102-000000000.csv", "U,2,back again,x,2.00", "U,3,third,x,3.00")
    scene.run()
    copy = str(scene.folder / "copy")
    scene.lakeward.spark.sql("SELECT 1 AS id, 'one' AS name, 'x' AS dept, 1.00BD AS price").write.parquet(copy)
    for question in ({"basis": "files"}, {"basis": "changelog"}, {"against": copy, "key_ranges": ["id=1..2"]}):
        found = scene.lakeward.verify([TABLE], **question).tables[0]
        assert found.verdict == "clean", found
