"""Moments as people write them."""

from __future__ import annotations

import pytest

from lakeward.errors import ConfigurationError
from lakeward.formats.dms.changes import SEQUENCE_DIGITS
from lakeward.mirror.op.checkpoints import MomentKind, file_moment, op_moment, parse_moment

SECOND = 1_000_000
NOON = 1_605_355_200 * SECOND  # 2020-11-14T12:00:00Z
DAY_END = 1_605_398_400 * SECOND - 1


def test_a_day_counts_to_its_last_microsecond() -> None:
    assert parse_moment("2020-11-14").micros == DAY_END


@pytest.mark.parametrize(
    ("first", "later"), [("op:9", "op:10"), ("sequence:9", "sequence:10"), ("2020-11-14T23:59", "2020-11-14")]
)
def test_of_two_moments_one_comes_after_the_other(first: str, later: str) -> None:
    assert parse_moment(later).is_after(parse_moment(first))
    assert not parse_moment(first).is_after(parse_moment(later))
    assert not parse_moment(first).is_after(parse_moment(first))


def test_a_day_ends_when_it_ends_in_its_time_zone() -> None:
    assert parse_moment("2020-11-14", "Europe/Berlin").micros == DAY_END - 3600 * SECOND
    assert parse_moment("2020-07-01", "Europe/Berlin").micros == 1_593_640_800 * SECOND - 1


@pytest.mark.parametrize(
    ("text", "zone"),
    [
        ("2020-11-14T12:00:00", "UTC"),
        ("2020-11-14 12:00", "UTC"),
        ("2020-11-14T12:00:00Z", "Europe/Berlin"),
        ("2020-11-14T13:00:00", "Europe/Berlin"),
        ("2020-11-14T07:00:00-05:00", "UTC"),
    ],
)
def test_a_time_is_read_in_its_own_offset_or_the_configured_zone(text: str, zone: str) -> None:
    moment = parse_moment(text, zone)
    assert (moment.kind, moment.micros) == (MomentKind.TIME, NOON)
    assert moment.label == "2020-11-14T120000Z"


def test_digits_compare_with_the_times_of_file_names() -> None:
    assert parse_moment("2020-11-14").digits == "20201114235959999999"
    assert parse_moment("2020-11-14T12:00:00.5").digits == "20201114120000500000"
    assert parse_moment("sequence:20201114120000000000000000000000042").digits == "20201114120000009999"
    assert parse_moment("sequence:42").digits == "9" * 20


def test_the_end_of_a_file_is_placed_by_its_name_alone() -> None:
    first, later = file_moment("20201114120000000000"), file_moment("20201114120000000001")
    assert later.is_after(first) and not first.is_after(later)
    assert (first.kind, first.op, first.micros, first.digits) == (MomentKind.FILE, None, None, "20201114120000000000")


def test_an_op_has_a_number_and_no_time() -> None:
    moment = parse_moment("op:41")
    assert moment == op_moment(41)
    assert (moment.op, moment.micros, moment.digits, moment.label) == (41, None, "", "op-41")


def test_a_sequence_is_padded_as_the_changelog_keeps_it() -> None:
    moment = parse_moment("sequence:42")
    assert moment.kind is MomentKind.SEQUENCE
    assert int(moment.limit) == 42
    assert len(str(moment.limit)) == SEQUENCE_DIGITS
    assert moment.label == "sequence-42"


def test_years_have_four_digits_wherever_times_are_compared_as_text() -> None:
    assert parse_moment("0999-01-01").digits == "09990101235959999999"
    assert parse_moment("0999-01-01T00:00:00").label == "0999-01-01T000000Z"


@pytest.mark.parametrize("text", ["", "yesterday", "2020-13-01", "2020-11-31", "op:", "op:-1", "op:x", "sequence:1x"])
def test_a_text_that_is_not_a_moment_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ConfigurationError, match="expected 2020-11-14"):
        parse_moment(text)


# Python reads all of these: days and weeks as midnight, and the last of days has no day after it.
@pytest.mark.parametrize(
    "text", ["20201114", "2020-W46", "2020-W46-6", "2020W466", "20201114T120000", "2020-11-14T12", "9999-12-31",
             "9999-12-31T23:00:00-02:00"],
)  # fmt: skip
def test_other_forms_of_days_and_times_and_those_beyond_the_calendar_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="expected 2020-11-14"):
        parse_moment(text)


def test_an_unknown_zone_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="Mars/Base"):
        parse_moment("2020-11-14", "Mars/Base")
