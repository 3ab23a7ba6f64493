"""The planner's choices: each leaves the same rows and reports why it was chosen."""

from __future__ import annotations

import os
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from lakeward.mirror.op.effect import Strategy
from tests.spark.scene import TABLE, Scene


def delete_plans(spark: SparkSession, after: int = -1) -> dict[int, str]:
    """Physical plans of the newest DELETE statements by execution number, as Spark's own listener kept them."""
    assert spark._jvm is not None
    spark._jsc.sc().listenerBus().waitUntilEmpty()
    executions = spark._jsparkSession.sharedState().statusStore().executionsList()
    found = [executions.apply(at) for at in range(executions.size())]
    plans = {
        execution.executionId(): execution.physicalPlanDescription()
        for execution in found
        if execution.executionId() > after
    }
    # An execution that is just starting has no description yet.
    return {number: plan for number, plan in plans.items() if plan and "WriteDelta" in plan}


def test_every_strategy_leaves_the_same_rows_and_reports_its_reason(scene: Scene) -> None:
    truth = {key: f"load {key}" for key in range(100)}

    def land(name: str, changes: dict[int, str | None]) -> Path:
        """Update, insert or (None) delete keys, in the file and in the truth."""
        for key, text in changes.items():
            truth.update({key: text}) if text is not None else truth.pop(key, None)
        lines = (f"{'D' if text is None else 'U'},{key},{text},x,1.00" for key, text in changes.items())
        return scene.land(name, *lines)

    def apply(**settings: Any) -> tuple[str, str]:
        scene.table(**settings)
        [op] = scene.run().ops
        assert scene.names() == truth
        return op.strategy, op.reason

    scene.land("LOAD00000001.csv", *(f"{key},{text},x,1.00" for key, text in truth.items()))
    assert apply() == (Strategy.LOAD, "the mirror is empty: it becomes the load")
    land("20240101-000000000.csv", {200: "new", 201: "new", 202: None})
    assert apply() == (Strategy.APPEND, "no file of the mirror contains the 3 touched keys")
    changes: dict[int, str | None] = {1: "changed", 2: None, 150: "between the files", 200: "changed", 999: None}
    land("20240102-000000000.csv", changes)
    last_seen = max(delete_plans(scene.lakeward.spark), default=-1)
    assert apply() == (Strategy.BROADCAST_DELETE, "5 keys touched of 102 rows")
    [(last_seen, broadcast)] = delete_plans(scene.lakeward.spark, last_seen).items()
    assert "BroadcastHashJoin" in broadcast and "LeftSemi" in broadcast
    land("20240103-000000000.csv", {1: None, 2: "back", 150: "moved on", 300: "new"})
    strategy, reason = apply(broadcast_keys=0)
    assert (strategy, reason) == (Strategy.SHUFFLED_DELETE, "4 keys touched, more than the 0 sent to every task")
    [shuffled] = delete_plans(scene.lakeward.spark, last_seen).values()
    assert "BroadcastHashJoin" not in shuffled and "LeftSemi" in shuffled
    # The rewrite reads the very table that it replaces.
    last = land("20240104-000000000.csv", {key: None if key % 3 else f"rewritten {key}" for key in range(3, 80)})
    assert apply() == (Strategy.REWRITE, "77 keys touched, 75% of 103 rows")
    land("20240105-000000000.csv", {})
    assert apply() == (Strategy.APPEND, "no key is touched")
    os.utime(last, (0, 0))
    assert apply() == (Strategy.LOG_ONLY, "no file contains rows")


def test_text_keys_that_look_like_one_number_are_different_keys(scene: Scene) -> None:
    scene.configure({TABLE: {"schema": "id string, name string", "primary_key": "id", "rewrite_share": 9}})
    scene.land("LOAD00000001.csv", "007,a", "7,b", "7.0,c", " 7,d", "+7,e")
    scene.run()
    scene.land("20240101-000000000.csv", "D,7,b", "U,007,changed")
    assert scene.run().ops[0].strategy == Strategy.BROADCAST_DELETE
    assert scene.names() == {"007": "changed", "7.0": "c", " 7": "d", "+7": "e"}


def test_keys_of_every_type_are_found_and_proven_absent(scene: Scene) -> None:
    def rows(numbers: list[int], name: str) -> dict[str, Any]:
        """Keys that agree with their number in every part."""
        return {
            "moment": pa.array([datetime(2024, 1, 1, 0, 0, 0, n) for n in numbers], pa.timestamp("us", "UTC")),
            "local": pa.array([datetime(1900, 1, 1 + n % 28) for n in numbers], pa.timestamp("us")),
            "day": pa.array([date(1850, 1, 1 + n % 28) for n in numbers]),
            "long": pa.array([2**40 + n for n in numbers], pa.int64()),
            "number": pa.array([Decimal(n) / 100 for n in numbers], pa.decimal128(12, 2)),
            "huge": pa.array([2**64 - 1 - n for n in numbers], pa.uint64()),
            "text": [f"ключ {n:03} 🗝" for n in numbers],
            "flag": [n % 2 == 0 for n in numbers],
            "bytes": [bytes([n % 256]) for n in numbers],
            "real": [n / 3 for n in numbers],
            "name": [name] * len(numbers),
        }

    keys = [name for name in rows([], "") if name != "name"]
    scene.configure({TABLE: {"primary_key": keys, "rewrite_share": 9}})
    scene.land_parquet("LOAD00000001.parquet", rows([1, 2, 3, 4], "load"))
    scene.run()
    scene.land_parquet("20240101-000000000.parquet", {"Op": ["U", "D"], **rows([2, 3], "changed")})
    assert scene.run().ops[0].strategy == Strategy.BROADCAST_DELETE
    scene.land_parquet("20240102-000000000.parquet", {"Op": ["I", "I"], **rows([8, 9], "new")})
    assert scene.run().ops[0].strategy == Strategy.APPEND
    found = scene.lakeward.sql(f"SELECT text, name FROM {TABLE} ORDER BY text").collect()
    expected = [(1, "load"), (2, "changed"), (4, "load"), (8, "new"), (9, "new")]
    assert [tuple(row) for row in found] == [(f"ключ {n:03} 🗝", name) for n, name in expected]
