"""The planner: which plan is chosen and why, and that all of them find the same differences."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F

from lakeward.diffing.frames.alignment import align
from lakeward.diffing.frames.comparators import Bitwise
from lakeward.diffing.frames.options import DiffOptions, DuplicateKeys
from lakeward.diffing.frames.pairs import shaped
from lakeward.diffing.plans.planner import WIDE_ROW_BYTES, planned_pairs
from lakeward.diffing.stored.addresses import FoundSet, Side
from lakeward.errors import ConfigurationError, RefusedInputError
from lakeward.spark.errors import Failure
from lakeward.spark.refusals import duplicate_key_in
from lakeward.spark.workspace import Workspace
from lakeward.storage.filesystem import LocalFileSystem
from lakeward.storage.sets import write_set

_SCHEMA = "k1 int, k2 string, v double, m map<string, int>, a array<int>"
_PAST = [
    (1, "a", 1.0, {"x": 1, "y": 2}, [1, None]),
    (None, "a", float("nan"), None, None),
    (1, None, -0.0, {}, []),
    (2, "b", None, {"x": None}, [2]),
    (3, "gone", 3.0, None, None),
]
_CURRENT = [
    (1, "a", 1.0, {"y": 2, "x": 1}, [None, 1]),
    (None, "a", float("nan"), None, None),
    (1, None, 0.0, {}, []),
    (2, "b", None, {}, [2]),
    (4, "new", 3.0, None, None),
]
_KEYS = ("k1", "k2")


@pytest.fixture(scope="module")
def frames(spark):
    return spark.createDataFrame(_PAST, _SCHEMA), spark.createDataFrame(_CURRENT, _SCHEMA)


def _plain(frame, label="plain", **more):
    return Side(label, frame, _KEYS, **{"format": "parquet", "rows": 5, **more})


def _as_set(frame, folder):
    return _plain(frame, set=FoundSet(LocalFileSystem(), folder, write_set(frame, LocalFileSystem(), folder, _KEYS)))


def _planned(past, current, options=None, keys=_KEYS, **more):
    options = options or DiffOptions()
    alignment = align(past.frame.schema, current.frame.schema, keys, options, evolve=True)
    with Workspace() as workspace:
        found = planned_pairs(past, current, alignment, options, workspace=workspace, **more)
        rows = shaped(found.pairs, options)
        return found, sorted(row[0] for row in rows.select(F.to_json(F.struct("*"))).collect())


def test_the_hash_plan_finds_what_the_join_finds(frames):
    past, current = (_plain(frame, rows=None) for frame in frames)

    joined, expected = _planned(past, current, plan="join")
    hashed, found = _planned(past, current, plan="hash")

    assert found == expected and len(found) == 4
    assert (joined.name, hashed.name) == ("join", "hash")
    assert (hashed.past_rows, hashed.current_rows) == (5, 5) and "4 keys that differ" in hashed.reason
    # The number of rows of the sides is unknown: the join counts them on their way.
    assert joined.counts is not None and joined.counts.rows() == (5, 5)
    ignored = DiffOptions(ignore_columns=("m", "a"))
    assert _planned(past, current, ignored, plan="hash")[1] == _planned(past, current, ignored, plan="join")[1]


def test_sides_without_rows(frames):
    past, nothing = _plain(frames[0]), _plain(frames[0].filter("k1 > 100"))

    assert len(_planned(past, nothing, plan="hash")[1]) == 5
    empty, found = _planned(nothing, nothing, plan="hash")
    assert (found, empty.past_rows, empty.current_rows) == ([], 0, 0)


def test_columns_that_came_or_widened_are_hashed_in_the_type_they_are_compared_in(spark):
    past = _plain(spark.createDataFrame([(1, 2, 3), (2, 2, None)], "k1 int, v int, gone int"))
    current = _plain(spark.createDataFrame([(1, 2, "x"), (2, 2, None)], "k1 bigint, v bigint, new string"))

    plans = [_planned(past, current, keys=["k1"], plan=plan)[1] for plan in ("join", "hash")]
    assert plans[0] == plans[1] and len(plans[0]) == 1


@pytest.mark.parametrize("side", [0, 1])
def test_the_hash_plan_reports_a_key_that_occurs_twice(frames, side):
    sides = [_plain(frame) for frame in frames]
    sides[side] = _plain(frames[side].union(frames[side].limit(2)))

    with pytest.raises(Exception, match="duplicate key") as caught:
        _planned(*sides, plan="hash")
    assert (duplicate_key_in(Failure(caught.value)) or "").startswith(("past", "current")[side])
    report = DiffOptions(duplicate_keys=DuplicateKeys.REPORT)
    assert _planned(*sides, report, plan="hash")[1] == _planned(*sides, report, plan="join")[1]


def test_the_planner_chooses_by_what_it_is_given(spark, frames, tmp_path):
    past, current = (_plain(frame) for frame in frames)
    sets = [_as_set(frame, str(tmp_path / name)) for frame, name in zip(frames, "ab", strict=True)]
    wide_sides = [_plain(frame, identity={"bytes": 5 * WIDE_ROW_BYTES}) for frame in frames]
    narrow_sides = [_plain(frame, identity={"bytes": 500}) for frame in frames]

    narrow, expected = _planned(*narrow_sides)
    assert narrow.name == "join" and "rows are narrow (100 bytes each in their files)" in narrow.reason
    assert "the width of the rows is not known" in _planned(past, current)[0].reason
    assert not narrow.pairs.is_whole and narrow.counts is not None and narrow.counts.rows() == (5, 5)
    buckets, found = _planned(*sets)
    assert buckets.name == "buckets" and found == expected
    mixed, found = _planned(sets[0], current)
    assert mixed.name == "join" and "plain is not a snapshot set" in mixed.reason and found == expected
    assert _planned(*wide_sides)[0].name == "hash"
    exact = _planned(*wide_sides, exact=True)[0]
    assert exact.name == "join" and "an exact comparison was requested" in exact.reason
    text = _planned(_plain(frames[0], "rows.csv", format="csv"), wide_sides[1])[0]
    assert text.name == "join" and "rows.csv (csv) is better read once" in text.reason


def test_a_plan_that_cannot_be_used_is_refused_with_the_reason(frames):
    past, current = (_plain(frame) for frame in frames)

    with pytest.raises(RefusedInputError, match="'buckets' cannot be used: plain is not a snapshot set"):
        _planned(past, current, plan="buckets")
    with pytest.raises(RefusedInputError, match="an exact comparison was requested"):
        _planned(past, current, plan="hash", exact=True)
    with pytest.raises(RefusedInputError, match="bitwise"):
        _planned(past, current, DiffOptions(default_comparator=Bitwise()), plan="hash")
    with pytest.raises(RefusedInputError, match="unchanged rows"):
        _planned(past, current, DiffOptions(include_unchanged=True), plan="hash")
    with pytest.raises(RefusedInputError, match="nothing to compare but the key"):
        _planned(past, current, keys=["k1", "k2", "v", "m", "a"], plan="hash")
    with pytest.raises(ConfigurationError, match="no plan 'magic'; there are auto, join"):
        _planned(past, current, plan="magic")
