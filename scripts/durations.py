"""`make durations`: how long each test file and each test took in the last `make test`, longest first.

    python scripts/durations.py RESULTS.xml … > tests/durations.txt

Reads the JUnit files that pytest leaves. Seconds are those of set-up, test and tear-down together, as they passed
beside other processes on the machine. Test runs read the report to begin with the longest files.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from typing import TYPE_CHECKING
from xml.etree import ElementTree

if TYPE_CHECKING:
    from collections.abc import Iterable

# Shorter tests are in the sums of their files.
_SHORTEST_SECONDS = 1.0


def read(paths: Iterable[str]) -> dict[tuple[str, str], float]:
    """Return the seconds of each test by its file and name."""
    seconds: dict[tuple[str, str], float] = defaultdict(float)
    for path in paths:
        for case in ElementTree.parse(path).iter("testcase"):
            seconds[case.get("file", ""), _name(case)] += float(case.get("time", 0))
    return seconds


def _name(case: ElementTree.Element) -> str:
    """Return a test's name as pytest takes it after the file: with its class, if it has one."""
    module = case.get("file", "").removesuffix(".py").replace("/", ".")
    group = case.get("classname", "").removeprefix(module).lstrip(".").replace(".", "::")
    return "::".join(filter(None, [group, case.get("name", "")]))


def report(seconds: dict[tuple[str, str], float]) -> str:
    """Return the report: a line for each file, then one for each long test."""
    files: dict[str, float] = defaultdict(float)
    for (file, _), taken in seconds.items():
        files[file] += taken
    tests = {f"{file}::{name}": taken for (file, name), taken in seconds.items() if taken >= _SHORTEST_SECONDS}
    head = [
        "# Seconds of each test file, and of each test of a second or more. Renewed by: make test && make durations",
        f"# {len(seconds):,} tests in {len(files):,} files, {sum(files.values()):,.0f} s in all processes together",
    ]
    return "\n".join([*head, "", *_lines(files), "", *_lines(tests), ""])


def _lines(seconds: dict[str, float]) -> list[str]:
    longest_first = sorted(seconds.items(), key=lambda item: (-item[1], item[0]))
    return [f"{taken:8.1f}  {name}" for name, taken in longest_first]


if __name__ == "__main__":
    sys.stdout.write(report(read(sys.argv[1:])))
