"""Verdicts on freshness: late, on time or unknown, from what is applied, what waits, and the time."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeward.model import digits_micros, time_digits
from lakeward.runner.freshness import Applied, Freshness, FreshnessVerdict, judge_freshness, unknown_freshness

NOW = digits_micros("20240405120000")
OBJECTIVE = 300.0
HOUR = 3600.0


def ago(seconds: float) -> int:
    return NOW - round(seconds * 1e6)


def named(seconds: float) -> str:
    return time_digits(ago(seconds))


def judged(applied: Applied, *, later: float = 0) -> Freshness:
    return judge_freshness(OBJECTIVE, applied, now=ago(-later))


def verdict(applied: Applied) -> str:
    return judged(applied).verdict.value


def test_a_file_that_waits_longer_than_the_objective_makes_a_table_late():
    assert verdict(Applied(ago(400), named(399), waiting_since=ago(300))) == "on time"
    found = judged(Applied(ago(400), named(399), waiting_since=ago(301)))
    assert (found.verdict, found.waiting_seconds, found.age_seconds) == (FreshnessVerdict.LATE, 301, 400)
    assert found.reason == "a file has waited for 301 s, longer than the objective of 300 s"


@pytest.mark.parametrize("commit", [5.0, 0.0, -HOUR, None])
def test_new_changes_do_not_make_up_for_a_file_that_waits(commit):
    newest = ago(commit) if commit is not None else None
    assert verdict(Applied(newest, named(1), waiting_since=ago(301))) == "late"


def test_a_source_at_rest_is_on_time_however_old_its_newest_change():
    found = judged(Applied(ago(100 * HOUR), named(100 * HOUR)))
    assert (found.verdict, found.age_seconds, found.waiting_seconds) == (FreshnessVerdict.ON_TIME, 100 * HOUR, None)


def test_the_first_file_after_a_rest_does_not_make_a_table_late_at_once():
    assert verdict(Applied(ago(9 * HOUR), named(9 * HOUR), waiting_since=ago(1))) == "on time"


def test_a_table_without_changes_since_its_load_is_on_time_and_has_no_newest_change():
    found = judged(Applied())
    assert (found.verdict, found.newest_change, found.basis) == (FreshnessVerdict.ON_TIME, None, None)
    assert found.age_seconds is None


def test_files_that_arrive_with_old_changes_make_a_table_late():
    behind = Applied(ago(HOUR), named(100))
    assert verdict(behind) == "late"
    assert (
        judged(behind).reason == "files arrive, but the newest change is 3,600 s old, more than the objective of 300 s"
    )
    assert verdict(replace(behind, newest_commit=ago(300))) == "on time"
    assert judged(behind, later=201).is_on_time, "nothing arrived for longer than the objective: at rest"


def test_a_file_from_the_future_does_not_show_a_capture_that_is_behind():
    assert verdict(Applied(ago(HOUR), named(-HOUR))) == "on time"


def test_the_newest_change_is_the_commit_time_else_the_time_in_the_name():
    commit = judged(Applied(ago(60), named(50)))
    assert (commit.newest_change, commit.basis) == ("2024-04-05T11:59:00+00:00", "commit")
    name = judged(Applied(None, named(50)))
    assert (name.newest_change, name.basis, name.age_seconds) == ("2024-04-05T11:59:10+00:00", "name", 50)


def test_times_later_than_now_are_not_used():
    found = judged(Applied(ago(-1), named(50)))
    assert (found.basis, found.age_seconds) == ("name", 50)
    found = judged(Applied(ago(-HOUR), named(-1)))
    assert (found.verdict, found.basis, found.newest_change) == (FreshnessVerdict.ON_TIME, None, None)
    assert judged(Applied(waiting_since=ago(-5))).waiting_seconds == 0


def test_a_table_with_an_obstacle_is_late_or_unknown_and_never_on_time():
    stopped = Applied(ago(1), named(1), obstacle="its last run failed")
    assert (verdict(stopped), judged(stopped).reason) == ("unknown", "its last run failed")
    assert verdict(replace(stopped, waiting_since=ago(10))) == "unknown"
    assert verdict(replace(stopped, waiting_since=ago(301))) == "late"


def test_a_status_that_cannot_be_read_is_unknown():
    found = unknown_freshness(OBJECTIVE, "its status cannot be read")
    assert not found.is_on_time and not found.is_late_after(10 * HOUR)


offsets = st.floats(-1e6, 1e6, allow_nan=False)


@given(
    commit=st.none() | offsets,
    name=st.none() | offsets,
    waiting=st.none() | offsets,
    obstacle=st.none() | st.just("why"),
    later=st.floats(0, 1e6, allow_nan=False),
)
def test_no_table_is_on_time_whose_files_wait_longer_than_the_objective(commit, name, waiting, obstacle, later):
    applied = Applied(
        ago(commit) if commit is not None else None,
        named(name) if name is not None else "",
        ago(waiting) if waiting is not None else None,
        obstacle,
    )
    found = judged(applied)
    waits_too_long = waiting is not None and ago(waiting) < NOW - OBJECTIVE * 1e6
    assert (found.verdict is FreshnessVerdict.LATE) or not waits_too_long
    assert not (found.is_on_time and obstacle)
    assert found.age_seconds is None or found.age_seconds >= 0
    assert found.is_late_after(0) == (found.verdict is FreshnessVerdict.LATE)
    if waiting is not None and waiting >= 0 and judged(applied, later=later).waiting_seconds > OBJECTIVE + 1e-3:
        assert found.is_late_after(later)
