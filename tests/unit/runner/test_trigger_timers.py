"""Schedules by a clock of the test's own."""

from datetime import UTC, datetime

import pytest
from tests.unit.runner.trigger_helpers import FakeClock

from lakeward.config.base import parse_span
from lakeward.errors import ConfigurationError
from lakeward.runner.watch.triggers import Cron, Every


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def test_an_interval_ticks_on_its_grid():
    clock = FakeClock(100)
    timer = Every(600, clock, reason="every")
    assert not timer.tick() and timer.wait() == 600
    clock.now = 700
    assert timer.tick() and not timer.tick()
    assert timer.wait() == 600


def test_missed_ticks_of_an_interval_start_one_run():
    clock = FakeClock(0)
    timer = Every(600, clock, reason="every")
    clock.now = 600 * 5 + 30
    assert [timer.tick() for _ in range(3)] == [True, False, False]
    assert timer.wait() == 570


def test_cron_ticks_at_its_times_and_missed_ones_once():
    clock = FakeClock(at("2024-04-05T10:20:00"))
    timer = Cron("0 * * * *", clock)
    assert timer.wait() == 40 * 60 and not timer.tick()
    clock.now = at("2024-04-05T14:10:00")
    assert [timer.tick() for _ in range(3)] == [True, False, False]
    assert timer.wait() == 50 * 60


def test_cron_follows_the_time_zone_across_a_change_of_clocks():
    # In Berlin the night of 31 March 2024 has no 2:30; 3:30 is 1:30 UTC then.
    clock = FakeClock(at("2024-03-30T12:00:00"))
    timer = Cron("30 3 * * *", clock, timezone="Europe/Berlin")
    clock.now += timer.wait()
    assert clock.now == at("2024-03-31T01:30:00") and timer.tick()


def test_a_wall_clock_set_back_does_not_stop_a_schedule():
    clock = FakeClock(at("2024-04-05T10:20:00"))
    timer = Cron("0 * * * *", clock)
    clock.now = at("2024-04-01T10:20:00")
    assert not timer.tick()
    assert timer.wait() == 40 * 60


@pytest.mark.parametrize("expression", ["", "0 * * *", "99 * * * *", "every hour", "0 0 30 2 *"])
def test_a_bad_expression_is_refused(expression):
    with pytest.raises(ConfigurationError, match="cron expression"):
        Cron(expression, FakeClock())


def test_an_unknown_zone_and_an_empty_interval_are_refused():
    with pytest.raises(ConfigurationError, match="'Mars/Base' is not a known time zone"):
        Cron("0 * * * *", FakeClock(), timezone="Mars/Base")
    with pytest.raises(ConfigurationError, match="never ends"):
        Every(0, FakeClock(), reason="every")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0.3", 0.3), (5, 5), ("90s", 90), ("10m", 600), ("10 min", 600), ("2h", 7200), ("1d", 86400), ("250ms", 0.25)],
)
def test_spans_are_read(text, seconds):
    assert parse_span(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "-1", "10x", "1h30m", -5, float("nan"), float("inf"), True, None])
def test_other_texts_are_not_spans(text):
    with pytest.raises(ConfigurationError, match="not a span of time"):
        parse_span(text)
