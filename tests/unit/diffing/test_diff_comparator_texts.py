"""Comparators as text: every form is read, written back and read again; wrong ones are named."""

from __future__ import annotations

from datetime import timedelta

import pytest

from lakeward.diffing.frames.comparators import (
    Bitwise,
    Comparator,
    Duration,
    Epsilon,
    Equality,
    MapEntries,
    Whitespace,
    parse_comparator,
)
from lakeward.errors import ConfigurationError

FORMS: dict[str, Comparator] = {
    "equal": Equality(),
    " Bitwise ": Bitwise(),
    "whitespace": Whitespace(),
    "map": MapEntries(),
    "map:ordered": MapEntries(ordered=True),
    "epsilon:0.01": Epsilon(0.01, relative=False),
    "epsilon:1%": Epsilon(0.01, relative=True),
    "epsilon:1e-3:relative:exclusive": Epsilon(0.001, relative=True, inclusive=False),
    "epsilon:2:absolute:inclusive": Epsilon(2.0, relative=False),
    "duration:5m": Duration(timedelta(minutes=5)),
    "duration:1d12h30m5s:exclusive": Duration(timedelta(days=1, hours=12, minutes=30, seconds=5), inclusive=False),
    "duration:1s500ms": Duration(timedelta(seconds=1.5)),
    "duration:0s": Duration(timedelta(0)),
}


@pytest.mark.parametrize(("text", "expected"), FORMS.items())
def test_every_form_is_read_and_read_again_from_its_own_text(text: str, expected: Comparator) -> None:
    assert parse_comparator(text) == expected
    assert parse_comparator(str(expected)) == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("near:1", "no comparator 'near:1'"),
        ("", "no comparator"),
        ("epsilon", "needs a number"),
        ("epsilon:much", "could not convert"),
        ("epsilon:-1", "from 0 upwards"),
        ("epsilon:nan", "from 0 upwards"),
        ("epsilon:inf", "from 0 upwards"),
        ("epsilon:1%:absolute", "a percentage is relative"),
        ("epsilon:1:inclusive:exclusive", "both inclusive and exclusive"),
        ("epsilon:1:sharp", "unknown option 'sharp'"),
        ("duration:5", "needs a length"),
        ("duration:", "needs a length"),
        ("duration:5m:ordered", "unknown option 'ordered'"),
        ("map:sorted", "unknown option 'sorted'"),
        ("equal:1", "unknown option '1'"),
    ],
)
def test_unreadable_comparators_are_named(text: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        parse_comparator(text)


def test_only_comparators_stricter_than_equality_are_finer() -> None:
    finer = {str(form) for form in FORMS.values() if form.is_finer}
    assert finer == {"bitwise", "map:ordered"}
