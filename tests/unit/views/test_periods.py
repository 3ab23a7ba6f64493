"""Which days and hours have a version, when each is due, and which versions stay."""

from __future__ import annotations

from datetime import datetime
from itertools import islice, pairwise
from typing import Any

import pytest

from lakeward.config.tables import SnapshotSettings
from lakeward.mirror.op.checkpoints import parse_moment
from lakeward.model import micros_of, time_digits, utc_time
from lakeward.views.versions.periods import Calendar

DAY = 86_400 * 1_000_000


def calendar(timezone: str = "Europe/Berlin", **settings: Any) -> Calendar:
    found = Calendar.of(SnapshotSettings(**{"every": "day", "to": "out", **settings}), timezone)
    assert found is not None
    return found


def at(text: str) -> int:
    return micros_of(datetime.fromisoformat(f"{text}+00:00"))


def labels(found: Calendar, now: str, through: str, **more: Any) -> list[str]:
    more = {"earliest": "", "known": (), **more}
    return [period.label for period in found.missing(at(now), through=at(through), **more)]


def test_no_schedule_is_no_calendar():
    assert Calendar.of(SnapshotSettings(), "UTC") is None


@pytest.mark.parametrize("timezone", ["UTC", "Europe/Berlin", "America/St_Johns", "Pacific/Apia"])
@pytest.mark.parametrize("day", ["2020-11-14", "2020-03-29", "2020-10-25", "2011-12-30"])
def test_the_moment_of_a_day_is_that_of_snapshots_made_by_hand(timezone, day):
    found = calendar(timezone).period_at(calendar(timezone).first_of(day))
    if (timezone, day) != ("Pacific/Apia", "2011-12-30"):  # Samoa had no such day
        assert found.moment == parse_moment(day, timezone)
    assert found.begin < found.end <= found.due


def test_days_follow_one_another_without_gap_or_overlap_when_clocks_change():
    found = list(islice(calendar().since(at("2020-03-27T12:00:00")), 220))
    assert [period.label for period in found[:4]] == ["2020-03-27", "2020-03-28", "2020-03-29", "2020-03-30"]
    assert all(earlier.end == later.begin for earlier, later in pairwise(found))
    lengths = {period.label: (period.end - period.begin) // 3_600_000_000 for period in found}
    assert (lengths["2020-03-29"], lengths["2020-10-25"], lengths["2020-07-01"]) == (23, 25, 24)


def test_a_day_is_due_at_its_time_on_the_following_day():
    found = calendar(at="02:30")
    due = {period.label: period.due for period in islice(found.since(at("2020-03-27T12:00:00")), 4)}
    assert utc_time(due["2020-03-27"]).isoformat() == "2020-03-28T01:30:00+00:00"
    # The 29th has no 02:30, the 25th of October has it twice: the first counts.
    assert utc_time(due["2020-03-28"]).isoformat() == "2020-03-29T01:30:00+00:00"
    assert utc_time(found.period_at(at("2020-10-24T12:00:00")).due).isoformat() == "2020-10-25T00:30:00+00:00"


def test_nothing_is_due_before_it_has_settled():
    assert labels(calendar("UTC", at="00:30", settle="2h"), "2020-11-15T01:59:59", "2020-11-14T10:00:00") == []
    assert labels(calendar("UTC", at="00:30", settle="2h"), "2020-11-15T02:00:00", "2020-11-14T10:00:00") == [
        "2020-11-14"
    ]


def test_hours_are_those_of_utc_also_when_clocks_are_set_back():
    found = calendar(every="hour", settle="10m")
    assert labels(found, "2020-10-25T02:15:00", "2020-10-24T23:20:00") == [
        "2020-10-24T23Z", "2020-10-25T00Z", "2020-10-25T01Z",
    ]  # fmt: skip
    assert found.period_at(at("2020-10-25T00:59:59")).end == at("2020-10-25T01:00:00")


def test_periods_that_were_dealt_with_or_are_known_or_unknowable_are_not_missing():
    found = calendar("UTC")
    assert labels(found, "2020-11-18T00:00:00", "2020-11-15T00:00:00") == ["2020-11-15", "2020-11-16", "2020-11-17"]
    assert labels(found, "2020-11-18T00:00:00", "2020-11-15T00:00:00", known={"2020-11-16"}) == [
        "2020-11-15", "2020-11-17",
    ]  # fmt: skip
    earliest = time_digits(at("2020-11-16T12:00:00"))
    assert labels(found, "2020-11-18T00:00:00", "2020-11-01T00:00:00", earliest=earliest) == [
        "2020-11-16", "2020-11-17",
    ]  # fmt: skip


def test_what_would_be_dropped_at_once_is_not_made():
    found = calendar("UTC", keep=2)
    assert labels(found, "2020-11-18T00:00:00", "2020-01-01T00:00:00") == ["2020-11-16", "2020-11-17"]
    kept = [at("2020-11-18T00:00:00"), at("2020-11-17T00:00:00")]
    assert labels(found, "2020-11-18T00:00:00", "2020-01-01T00:00:00", known={"2020-11-16", "2020-11-17"},
                  scheduled=kept) == []  # fmt: skip
    aged = calendar("UTC", older_than="48h")
    assert labels(aged, "2020-11-18T12:00:00", "2020-01-01T00:00:00") == ["2020-11-16", "2020-11-17"]


def test_the_newest_stay_and_age_counts_from_the_end_of_the_day():
    ends = [at(f"2020-11-{day}T00:00:00") for day in (14, 15, 16, 17)]
    assert calendar("UTC").surplus(ends, at("2030-01-01T00:00:00")) == set()
    assert calendar("UTC", keep=3).surplus(ends, ends[-1]) == {ends[0]}
    assert calendar("UTC", older_than="36h").surplus(ends, at("2020-11-17T00:00:00")) == set(ends[:2])
    assert calendar("UTC", older_than="36h", keep=1).surplus(ends, at("2020-11-17T00:00:00")) == set(ends[:3])


@pytest.mark.parametrize("settle", [0, "1h", "40h"])
@pytest.mark.parametrize("every", ["day", "hour"])
def test_the_next_one_due_is_the_first_after_now(every, settle):
    found = calendar(every=every, settle=settle)
    now = at("2020-10-24T22:00:00")
    for _ in range(30):
        following = found.next_due(now)
        before = [period.due for period in islice(found.since(now - 5 * DAY), 200) if period.due > now]
        assert following.due == min(before) > now
        assert found.next_due(following.due - 1) == following
        now = following.due
