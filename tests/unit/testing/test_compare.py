from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pytest

from lakeward.testing.compare import assert_same_rows, describe_difference

EQUAL = [
    (float("nan"), float("nan")),
    (bytearray(b"x"), b"x"),
    (Decimal("1.0"), Decimal("1.00")),
    (datetime(2024, 1, 1, 12, tzinfo=UTC), datetime(2024, 1, 1, 12)),
    (datetime(2024, 1, 1, 14, tzinfo=timezone(timedelta(hours=2))), datetime(2024, 1, 1, 12, tzinfo=UTC)),
    (None, None),
]
DIFFERENT = [
    (1, True),
    (1, Decimal(1)),
    (1, 1.0),
    ("", None),
    ("7", "007"),
    (b"x", "x"),
    (date(2024, 1, 1), datetime(2024, 1, 1)),
    (float("nan"), None),
]


@pytest.mark.parametrize(("found", "expected"), EQUAL)
def test_equal_values_are_equal(found, expected):
    assert_same_rows([{"a": found}], [{"a": expected}])


@pytest.mark.parametrize(("found", "expected"), DIFFERENT)
def test_values_of_other_kinds_differ(found, expected):
    with pytest.raises(AssertionError):
        assert_same_rows([{"a": found}], [{"a": expected}])


def test_rows_count_as_often_as_they_occur():
    assert_same_rows([{"a": 1}, {"a": 2}], [{"a": 2}, {"a": 1}])
    assert "unexpected: 1" in describe_difference([{"a": 1}, {"a": 1}], [{"a": 1}])


def test_a_missing_column_is_not_a_null():
    assert "no such column" in describe_difference([{"id": 1}], [{"id": 1, "a": None}], ["id"])


def test_the_difference_names_key_columns_and_both_values():
    found = [{"id": 1, "a": "x", "b": 0}, {"id": 3, "a": None, "b": 0}]
    expected = [{"id": 1, "a": "y", "b": 0}, {"id": 2, "a": "z", "b": 0}]
    text = describe_difference(found, expected, ["id"])
    assert "(id=1) a: found 'x', expected 'y'" in text
    assert "missing: 1" in text
    assert "unexpected: 1" in text
    assert "b: found" not in text


def test_many_differences_are_counted_and_a_few_shown():
    text = describe_difference([], [{"a": number} for number in range(30)])
    assert "missing: 30" in text
    assert "and 20 more" in text


def test_an_unknown_kind_of_value_is_refused():
    with pytest.raises(TypeError, match="cannot compare"):
        assert_same_rows([{"a": object()}], [])
