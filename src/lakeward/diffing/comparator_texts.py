"""Comparators as they are written on the command line and in manifests: ``epsilon:1%``, ``duration:5m``, ``map``."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING

from lakeward.diffing.comparators import Bitwise, Comparator, Duration, Epsilon, Equality, MapEntries, Whitespace
from lakeward.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

FORMS = (
    "equal, bitwise, epsilon:0.01, epsilon:1%, epsilon:0.01:exclusive, epsilon:0.01:relative, whitespace, "
    "duration:5m, duration:1d12h:exclusive, map, map:ordered"
)
_UNITS = {
    "us": timedelta(microseconds=1),
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
_PIECE = re.compile(r"(\d+)(us|ms|s|m|h|d)")
_LENGTH = re.compile(rf"(?:{_PIECE.pattern})+")


def parse_comparator(text: str) -> Comparator:
    """Read a comparator; every one is read back from its own ``str()``."""
    name, *arguments = text.strip().split(":")
    build = _BUILDERS.get(name.lower())
    if build is None:
        msg = f"There is no comparator {text!r}; there are: {FORMS}"
        raise ConfigurationError(msg)
    try:
        return build([one.strip().lower() for one in arguments])
    except ValueError as wrong:
        msg = f"The comparator {text!r} cannot be read: {wrong}; possible are: {FORMS}"
        raise ConfigurationError(msg) from None


def _without_arguments(comparator: Comparator) -> Callable[[list[str]], Comparator]:
    def build(arguments: list[str]) -> Comparator:
        _take(arguments, ())
        return comparator

    return build


def _epsilon(arguments: list[str]) -> Comparator:
    if not arguments:
        msg = "epsilon needs a number"
        raise ValueError(msg)
    number, words = arguments[0], _take(arguments[1:], ("relative", "absolute", "inclusive", "exclusive"))
    is_share = number.endswith("%")
    epsilon = float(number.removesuffix("%")) / (100 if is_share else 1)
    if not 0 <= epsilon < float("inf"):
        msg = f"epsilon must be a number from 0 upwards, not {number}"
        raise ValueError(msg)
    if is_share and "absolute" in words:
        msg = "a percentage is relative"
        raise ValueError(msg)
    return Epsilon(epsilon, relative=is_share or "relative" in words, inclusive="exclusive" not in words)


def _duration(arguments: list[str]) -> Comparator:
    if not arguments or not _LENGTH.fullmatch(arguments[0]):
        msg = "duration needs a length such as 90s, 5m, 1h30m or 2d"
        raise ValueError(msg)
    length = sum((int(number) * _UNITS[unit] for number, unit in _PIECE.findall(arguments[0])), timedelta())
    return Duration(length, inclusive="exclusive" not in _take(arguments[1:], ("inclusive", "exclusive")))


def _map(arguments: list[str]) -> Comparator:
    return MapEntries(ordered=bool(_take(arguments, ("ordered",))))


def _take(words: list[str], allowed: tuple[str, ...]) -> list[str]:
    """Give the words behind the colons, once each is known to be allowed, not repeated and not its own opposite."""
    unknown = [one for one in words if one not in allowed]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is not known here" + (f" (one of {', '.join(allowed)})" if allowed else ""))
    for one, other in (("relative", "absolute"), ("inclusive", "exclusive")):
        if one in words and other in words:
            msg = f"it cannot be both {one} and {other}"
            raise ValueError(msg)
    return words


_BUILDERS: dict[str, Callable[[list[str]], Comparator]] = {
    "equal": _without_arguments(Equality()),
    "bitwise": _without_arguments(Bitwise()),
    "whitespace": _without_arguments(Whitespace()),
    "epsilon": _epsilon,
    "duration": _duration,
    "map": _map,
}
