"""Commit times decide the order as text: every one that is taken must sort as it is, and others are bad rows."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from source_helpers import CHANGES, CHANGES_PARQUET, make_spec, read

from lakeward.formats.dms.blocks import parse_moments
from lakeward.formats.dms.changes import _sortable
from lakeward.formats.dms.parquet import _moments
from lakeward.model import OrderBy

REASON = "not a commit time: expected a timestamp of the years 1 to 9999 (UTC), to the nanosecond at most"
NANOSECONDS_OF_A_DAY = 86_400 * 10**9


def spec():
    return make_spec("id int, name string", OrderBy.TIMESTAMP, timestamp_column="ts")


def read_times(root: Path, times: list[str]):
    rows = "".join(f"U,{time},{number},a\n" for number, time in enumerate(times))
    return read(root, rows, spec(), CHANGES)


@pytest.mark.parametrize(
    "time",
    ["9999-12-31 23:59:59-14:00", "9999-12-31 23:00:00-0100", "0001-01-01 00:00:00+14:00"],
)
def test_a_commit_time_outside_the_years_is_a_bad_row_and_not_the_earliest_change(tmp_path: Path, time: str) -> None:
    found = read_times(tmp_path, ["2024-01-01 00:00:00", time])
    assert (found.numbers, found.reasons) == ([1], [REASON])
    assert found.faults == [(2, "ts", time)]


@pytest.mark.parametrize("year", [10_000, 200_000, 0])
def test_a_commit_time_of_parquet_outside_the_years_is_a_bad_row(tmp_path: Path, year: int) -> None:
    micros = (year - 1970) * 366 * 86_400 * 10**6
    times = pa.array([0, micros], pa.int64()).cast(pa.timestamp("us"))
    table = pa.table({"Op": ["U", "U"], "ts": times, "id": pa.array([1, 2], pa.int32()), "name": ["a", "b"]})
    found = read(tmp_path, table, spec(), CHANGES_PARQUET)
    assert (found.numbers, found.reasons) == ([1], [REASON])


def test_nanoseconds_decide_the_order_and_are_truncated_in_the_time(tmp_path: Path) -> None:
    times = ["2024-01-01 00:00:00.123456", "2024-01-01 00:00:00.1234567", "2024-01-01 00:00:00.123456789Z"]
    found = read_times(tmp_path, times)
    assert not found.bad
    assert [record["_lw_sequence"] for record in found.records] == [
        f"2024-01-01 00:00:00.123456{n}" for n in ("", "7", "789")
    ]
    assert {record["_lw_commit_time"] for record in found.records} == {datetime(2024, 1, 1, 0, 0, 0, 123456, UTC)}


def test_finer_than_nanoseconds_is_a_bad_row(tmp_path: Path) -> None:
    assert read_times(tmp_path, ["2024-01-01 00:00:00.1234567891"]).reasons == [REASON]


def test_microseconds_are_ordered_as_ever(tmp_path: Path) -> None:
    """Changelogs hold these texts: they stay unchanged."""
    found = read_times(
        tmp_path, ["2024-01-01 00:00:00", "2024-01-01T01:00:00.5+01:00", "2024-01-01 00:00:00.500000000"]
    )
    texts = [record["_lw_sequence"] for record in found.records]
    assert texts == ["2024-01-01 00:00:00.000000", *["2024-01-01 00:00:00.500000"] * 2]


@given(
    st.lists(
        st.integers(-(200 * 365) * NANOSECONDS_OF_A_DAY, 200 * 365 * NANOSECONDS_OF_A_DAY), min_size=2, max_size=20
    )
)
def test_texts_sort_as_nanoseconds_do(nanoseconds: list[int]) -> None:
    times = pa.array(nanoseconds, pa.int64()).cast(pa.timestamp("ns"))
    by_time = sorted(range(len(nanoseconds)), key=lambda index: nanoseconds[index])
    for cells in (_moments(times), parse_moments(times.cast(pa.string()))):
        texts = _sortable(cells).to_pylist()
        assert sorted(range(len(texts)), key=lambda index: texts[index]) == by_time
        assert cells.values.cast(pa.int64()).to_pylist() == [nanosecond // 1000 for nanosecond in nanoseconds]
