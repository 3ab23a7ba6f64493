"""Patterns of paths below a table's folder, by which files are read that are not named as DMS names them.

A pattern is matched on the whole relative path, case-sensitively: ``*`` and ``?`` stand for characters other than a
slash, ``[0-9]`` and ``[!a-z]`` for one character, and ``**`` for any number of folders, also none.
"""

from __future__ import annotations

import re
from functools import lru_cache

# The endings of files that can be read.
DATA_ENDINGS = (".csv", ".parquet", ".csv.gz", ".parquet.gz")
_WILD = "*?["
_CLASS = re.compile(r"\[(?P<negated>!?)(?P<members>\]?[^\]/]*)\]")


@lru_cache
def path_pattern(pattern: str) -> re.Pattern[str]:
    """Return a pattern as a regular expression for whole relative paths.

    Raises:
        ValueError: no file that can be read matches the pattern.
    """
    segments = pattern.split("/")
    for segment in segments:
        _require_usable(pattern, segment)
    if segments[-1] == "**":
        raise _refused(pattern, "it ends with **, which stands for folders: add the names of files, as in **/*.csv")
    tail = re.split(r"[*?\]]", segments[-1])[-1]
    if not any(tail.endswith(ending) or ending.endswith(tail) for ending in DATA_ENDINGS):
        raise _refused(pattern, f"files that end in {tail!r} are not read, only {', '.join(DATA_ENDINGS)}")
    folders = "".join(r"(?:[^/]+/)*" if segment == "**" else f"{_segment(segment)}/" for segment in segments[:-1])
    try:
        return re.compile(folders + _segment(segments[-1]), re.DOTALL)
    except re.error as error:
        raise _refused(pattern, f"a range in brackets is not one: {error}") from None


def _require_usable(pattern: str, segment: str) -> None:
    if not segment:
        raise _refused(pattern, "it begins or ends with a slash, or has two in a row")
    if segment in (".", ".."):
        raise _refused(pattern, f"{segment!r} is not the name of a folder below the table's")
    if segment.startswith(("_", ".")) or segment.endswith(".tmp"):
        raise _refused(pattern, "names that begin with _ or . or end in .tmp are of temporary files")
    if "**" in segment and segment != "**":
        raise _refused(pattern, "** stands for whole folders, as in **/delta_*.csv")


def _refused(pattern: str, why: str) -> ValueError:
    return ValueError(f"no file is read by the pattern {pattern!r}: {why}")


def _segment(segment: str) -> str:
    """Return the regular expression of what is between two slashes."""
    found, at = "", 0
    while at < len(segment):
        character = segment[at]
        match = _CLASS.match(segment, at) if character == "[" else None
        if match is not None and match["members"]:
            # Two dashes are kept for later versions of Python, which warns of them.
            members = re.sub(r"([\\^\[\]&~|]|(?<=-)-)", r"\\\1", match["members"])
            found += f"[^/{members}]" if match["negated"] else f"[{members}]"
            at = match.end()
            continue
        found += {"*": "[^/]*", "?": "[^/]"}.get(character, re.escape(character))
        at += 1
    return found


def proposed_pattern(path: str) -> str:
    """Return a pattern that matches a relative path and paths that differ from it after their first digit.

    The part of the name before its first digit stays, and so does its ending; files of all folders are meant where the
    path names one.
    """
    folder, _, name = path.rpartition("/")
    ending = max((ending for ending in DATA_ENDINGS if name.endswith(ending)), key=len, default="")
    stem = name.removesuffix(ending)
    kept = re.split(r"[0-9]", stem)[0]
    shown = "".join("?" if character in _WILD + "]" else character for character in kept)
    numbered = "" if kept == stem else "*" if kept else "[0-9]*"
    return f"{'**/' if folder else ''}{shown}{numbered}{ending}"
