"""When each generation was the table."""

from __future__ import annotations

from datetime import UTC, datetime

from lakeward.model import Generation
from lakeward.views.history.timeline import spans_of


def micros(day: int) -> int:
    return int(datetime(2024, 1, day, tzinfo=UTC).timestamp()) * 1_000_000


def cut(day: int) -> str:
    return f"202401{day:02}000000000000"


def test_a_generation_lasts_until_the_next_begins() -> None:
    generations = [Generation(1), Generation(2, cut(5)), Generation(3, since=cut(9))]
    found = [(span.generation.number, span.start, span.end) for span in spans_of(generations, None, "UTC")]
    assert found == [(1, None, micros(5)), (2, micros(5), micros(9)), (3, micros(9), None)]


def test_nothing_is_before_the_capture_began() -> None:
    generations = [Generation(1), Generation(2, cut(5))]
    assert [(span.start, span.end) for span in spans_of(generations, "2024-01-02", "UTC")] == [
        (micros(2), micros(5)),
        (micros(5), None),
    ]
    assert [span.generation.number for span in spans_of(generations, "2024-01-06", "UTC")] == [2]


def test_a_generation_that_began_no_earlier_than_the_next_was_never_visible() -> None:
    generations = [Generation(1, cut(7)), Generation(2, cut(5))]
    assert [(span.generation.number, span.start) for span in spans_of(generations, None, "UTC")] == [(2, micros(5))]


def test_the_day_that_the_capture_began_begins_in_its_time_zone() -> None:
    [span] = spans_of([Generation(1)], "2024-01-02", "America/New_York")
    assert span.start == micros(2) + 5 * 3600 * 1_000_000
    [span] = spans_of([Generation(1)], "2024-01-02T10:00:00+01:00", "America/New_York")
    assert span.start == micros(2) + 9 * 3600 * 1_000_000


def test_nothing_is_reported_about_a_generation_whose_load_was_never_seen() -> None:
    generations = [Generation(1, unseen=True), Generation(2, cut(5))]
    assert [(span.generation.number, span.start) for span in spans_of(generations, None, "UTC")] == [(2, micros(5))]
