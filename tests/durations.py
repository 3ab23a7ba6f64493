"""In which order files of tests are begun: the longest first, so that processes that share them end together."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

# What a file with a test that is marked as slow takes, as long as no report has it.
_SLOW_SECONDS = 60.0


def file_seconds(report: Path) -> dict[str, float]:
    """Return the seconds of each file in a report that ``make durations`` wrote; nothing where there is none."""
    if not report.exists():
        return {}
    lines = (line.split(maxsplit=1) for line in report.read_text("utf-8").splitlines() if not line.startswith("#"))
    return {name: float(seconds) for seconds, name in filter(None, lines) if "::" not in name}


def longest_first(files: Iterable[str], seconds: Mapping[str, float], slow: Collection[str]) -> list[str]:
    """Return the files in the order in which to begin them."""
    return sorted(files, key=lambda file: -seconds.get(file, _SLOW_SECONDS if file in slow else 0.0))
