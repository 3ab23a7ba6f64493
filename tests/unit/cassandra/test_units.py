"""What rows cost, and how progress is reported."""

from __future__ import annotations

import pytest

from lakeward.cassandra.budget import duration, progress_line
from lakeward.cassandra.keyspaces import read_units, write_units


@pytest.mark.parametrize(("size", "units"), [(0, 1), (1, 1), (1024, 1), (1025, 2), (10_000, 10)])
def test_every_started_kilobyte_is_a_write_unit(size, units):
    assert write_units(size) == units


@pytest.mark.parametrize(
    ("size", "consistency", "units"),
    [(1, "LOCAL_QUORUM", 1), (4097, "LOCAL_QUORUM", 2), (4097, "LOCAL_ONE", 1), (1, "ONE", 0.5)],
)
def test_every_started_four_kilobytes_are_a_read_unit(size, consistency, units):
    assert read_units(size, consistency=consistency) == units


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((412_000, 3_000_000, 9_980), "412,000 of about 3,000,000 rows, 9,980 rows/s, 4 min left"),
        ((412, None, 0), "412 rows, 0 rows/s"),
        ((412, 400, 10), "412 rows, 10 rows/s"),
    ],
)
def test_lines_of_progress(arguments, line):
    assert progress_line(*arguments) == line


def test_lines_of_progress_contain_units():
    line = progress_line(10, 20, 5, written=(1_234.4, 99_999.6), read=(0.0, 12.0))
    assert line == "10 of about 20 rows, 5 rows/s, 2 s left, 1,234 WCU/s, 100,000 WCU so far, 0 RCU/s, 12 RCU so far"


@pytest.mark.parametrize(("seconds", "text"), [(119, "119 s"), (120, "2 min"), (7200, "2 h"), (200_000, "2 d")])
def test_spans_have_the_unit_that_fits(seconds, text):
    assert duration(seconds) == text
