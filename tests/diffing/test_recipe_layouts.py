"""Exports and change sets in the layouts and formats in which the published recipe has written them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from lakeward import diff_snapshots, patch_snapshot
from lakeward.diffing.frames.joining import diff
from lakeward.diffing.frames.refusals import input_errors
from lakeward.diffing.stored.open import open_side
from lakeward.errors import RefusedInputError
from lakeward.session.sessions import table_session

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "id string, create_date timestamp, count bigint, data string"
KEYS = ("id", "create_date")
NAMES = "diff,id,create_date,left_count,right_count,left_data,right_data"
AT = datetime(2023, 8, 1, 18, 23, 59, 476_000, tzinfo=UTC)
ODD = 'x"y\\z, w\\'
PAST = [
    ("1", AT, 1, "a"),
    ("007", AT, 2, None),
    ("q", AT, 3, ODD),
    ("n", AT, 4, "a\nb"),
    ("e", AT, 5, ""),
    ("s", AT, 6, ""),
]
# A value becomes null, an empty text becomes null, a null stays, a row goes and one comes.
CURRENT = [
    ("1", AT, None, "a"),
    ("q", AT, 4, ODD),
    ("n", AT, 4, "a\nB"),
    ("e", AT, 5, None),
    ("s", AT, 6, ""),
    ("2", AT, 9, None),
]
# The past, the current side and the change set, below the folder of a format.
LAYOUTS = {
    "days": ("2023-08-01/full-snapshot", "2023-08-02/full-snapshot", "2023-08-02/incremental-snapshot"),
    "times": ("shop/orders/snapshot/2023-10-25T14:09:00Z", "shop/orders/snapshot/2023-10-25T19:57:00Z", "changes"),
    "minutes": (
        "export/shop/orders/snapshot/year=2023/month=11/day=22/hour=14/minute=09",
        "export/shop/orders/snapshot/year=2023/month=11/day=22/hour=19/minute=57",
        "export/shop/orders/incremental/year=2023/month=11/day=22/hour=20/minute=09",
    ),
}
# Each layout in one of the formats: layouts are names, formats are content.
MADE = {"days": "json", "times": "csv", "minutes": "parquet"}


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    return table_session(spark)


@pytest.fixture(scope="module")
def root(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files as the recipe's jobs write them: by Spark, without any option."""
    folder = tmp_path_factory.mktemp("recipe")
    past, current = (session.createDataFrame(rows, SCHEMA).coalesce(1) for rows in (PAST, CURRENT))
    for layout, places in LAYOUTS.items():
        for place, frame in zip(places, (past, current, diff(past, current, KEYS).coalesce(1)), strict=True):
            frame.write.format(MADE[layout]).save(f"{folder}/{layout}/{place}")
    return folder


def values(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.select("id", "count", "data").collect()), key=repr)


def without_time(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(((row[0], *row[2:]) for row in rows), key=repr)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_exports_are_compared_and_change_sets_applied(layout, session, root, tmp_path, lake_config):
    folder, kind, config = root / layout, MADE[layout], lake_config(tmp_path)
    own = {} if kind == "parquet" else {"schema": SCHEMA}
    sides = {} if kind != "csv" else {"past_format": "spark-csv", "current_format": "spark-csv"}
    found = diff_snapshots(
        "previous", "latest", folder=str(folder), keys=KEYS, config=config, spark=session, **own, **sides
    )
    summary = found.summary
    assert (summary.inserted, summary.changed, summary.deleted, summary.unchanged) == (1, 4, 1, 1)
    day = LAYOUTS[layout][1].split("/snapshot/")[0] if layout == "days" else None
    word = "2023-08-02" if day else "latest"
    side = open_side(session, config, f"{folder}/{word}", format=sides.get("past_format"), **own)
    assert values(side.frame) == without_time(CURRENT)

    past, _, changes = (f"{folder}/{place}" for place in LAYOUTS[layout])
    choices: dict[str, Any] = {**own, "keys": KEYS, "config": config, "spark": session}
    if kind == "csv":
        choices |= {"format": "spark-csv", "csv_columns": NAMES.split(",")}
    patched = patch_snapshot(past, [changes], to=f"{tmp_path}/result", **choices)
    assert patched.rows == len(CURRENT)
    assert values(open_side(session, config, f"{tmp_path}/result").frame) == without_time(CURRENT)


def test_csv_without_names_is_never_guessed(session, root, tmp_path, lake_config):
    config, folder = lake_config(tmp_path), root / "times"
    past, _, changes = (f"{folder}/{place}" for place in LAYOUTS["times"])
    choices: dict[str, Any] = {
        "schema": SCHEMA,
        "keys": KEYS,
        "config": config,
        "spark": session,
        "format": "spark-csv",
    }
    with pytest.raises(RefusedInputError, match="the first line has") as refused:
        patch_snapshot(past, [changes], **choices)
    assert f"--csv-columns {NAMES}" in str(refused.value.hint)
    for names, reason in {
        "diff,id,create_date,left_count,right_count,left_data": "but a change set of this table has",
        # In another order, values do not fit their types, or the past.
        "id,diff,create_date,left_count,right_count,left_data,right_data": "the action|which the past lacks",
        "diff,id,create_date,right_count,left_count,right_data,left_data": "has other past values",
        "diff,create_date,id,left_count,right_count,left_data,right_data": "which is no timestamp",
    }.items():
        with pytest.raises(RefusedInputError, match=reason):
            patch_snapshot(past, [changes], csv_columns=names.split(","), **choices)
    # A column less than the rows have.
    shorter = "id string, create_date timestamp, count bigint"
    with pytest.raises(RefusedInputError, match="a row that does not fit the schema"), input_errors(past):
        open_side(session, config, past, schema=shorter, format="spark-csv").frame.count()
    parquet = f"{root}/minutes/{LAYOUTS['minutes'][2]}"
    with pytest.raises(RefusedInputError, match="is parquet, whose columns have names"):
        patch_snapshot(past, [parquet], csv_columns=NAMES.split(","), **choices)


@pytest.mark.parametrize("above", ["days", "times/shop/orders/snapshot", "minutes/export/shop/orders"])
def test_a_path_given_in_part_is_refused(above, session, root, tmp_path, lake_config):
    """Of a day alone the snapshot is taken, see above, and never the change set beside it."""
    with pytest.raises(RefusedInputError, match="is not a snapshot but holds"):
        open_side(session, lake_config(tmp_path), f"{root}/{above}", schema=SCHEMA)
