"""The places of change files in the order of files, where ``files.order`` decides and not the times in DMS's names.

A place is text that sorts as the files do. By name it is the path below the table's folder, in which numbers sort by
their value; otherwise it is the number under which the file was recorded when it was first seen. Times of names have 20
digits, so that the form of a place shows what it was made of.
"""

from __future__ import annotations

import re

NOT_RECORDED = "#"
TIME_PATTERN = "^[0-9]{20}$"
_TIME = re.compile(TIME_PATTERN, re.ASCII)
_NUMBER = re.compile(r"#(?P<number>[0-9]{12})(?P<after> ?)", re.ASCII)
_RUN = re.compile(r"[0-9]+", re.ASCII)
_WIDTH = 4


def place_by_name(path: str) -> str:
    """Return the place of a path: a run of digits sorts as the number it is, everything else by code point."""
    return _RUN.sub(_sortable, path)


def _sortable(digits: re.Match[str]) -> str:
    number = digits[0].lstrip("0") or "0"
    return f"{len(number):0{_WIDTH}}{number}"


def place_by_number(number: int) -> str:
    """Return the place of the file that was recorded under a number."""
    return f"#{number:012}"


def number_of(place: str | None) -> int:
    """Return the number of a recorded file's place, 0 where there is none."""
    match = _NUMBER.fullmatch(place or "")
    return int(match["number"]) if match else 0


def place_after(place: str) -> str:
    """Return the first place after a place: no path has a character that sorts before the blank."""
    return f"{place} "


def is_time(place: str) -> bool:
    """Whether a place is a name's time in 20 digits."""
    return _TIME.fullmatch(place) is not None


def kind_of(place: str) -> str:
    """Return what a place was made of, in words."""
    if is_time(place):
        return "the times in their names"
    return "the order in which they were first seen" if _NUMBER.fullmatch(place) else "their names"


def shown_place(place: str) -> str:
    """Return a place in a form for people: a time as in file names, a file's name, or its number."""
    if is_time(place):
        return f"{place[:8]}-{place[8:]}"
    if match := _NUMBER.fullmatch(place):
        return f"{'after ' if match['after'] else ''}file number {int(match['number'])}"
    name = re.sub(rf"[0-9]{{{_WIDTH}}}([0-9]+)", r"\1", place.rstrip(" "))
    return f"{'after ' if place.endswith(' ') else ''}{name}"
