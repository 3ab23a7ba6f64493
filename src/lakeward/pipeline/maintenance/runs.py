"""Which files of a changelog are to be sorted together, so that one key's history lies in few of them.

A *run* is a range of op numbers whose changes lie sorted by key in files that do not overlap. Ops that were logged
since form the next run. Runs of about equal size are joined: their number grows with the logarithm of the changelog,
and a change is sorted few times in its life.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.reading_back import reading_property

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# A property of the changelog.
RUNS_PROPERTY = "lakeward.clustered"


@dataclass(frozen=True)
class LogFile:
    """A data file of a changelog: its size, and the smallest and greatest op number in it."""

    path: str
    size: int
    first: int
    last: int


@dataclass(frozen=True)
class Run:
    """Ops whose changes lie sorted together, both ends included."""

    first: int
    last: int

    def holds(self, file: LogFile) -> bool:
        """Tell whether all of a file's ops are in the run."""
        return self.first <= file.first and file.last <= self.last

    def meets(self, file: LogFile) -> bool:
        """Tell whether any op of a file may be in the run."""
        return file.first <= self.last and self.first <= file.last


@dataclass(frozen=True)
class Clustering:
    """Files to be sorted together, and the runs that there are once they are."""

    files: tuple[LogFile, ...]
    runs: tuple[Run, ...]

    @property
    def size(self) -> int:
        """Bytes of the files."""
        return sum(one.size for one in self.files)


def read_runs(text: str | None) -> tuple[Run, ...]:
    """Read what :func:`write_runs` wrote."""
    with reading_property(RUNS_PROPERTY, of="changelog"):
        return tuple(Run(int(first), int(last)) for first, last in json.loads(text)) if text else ()


def write_runs(runs: Iterable[Run]) -> str:
    """Write runs for the changelog's property."""
    return json.dumps([(one.first, one.last) for one in runs])


def unsorted_files(files: Iterable[LogFile], runs: Sequence[Run]) -> list[LogFile]:
    """Give the files that no run holds, oldest ops first."""
    return sorted((one for one in files if not any(run.holds(one) for run in runs)), key=_by_op)


def plan_clustering(files: Sequence[LogFile], runs: Sequence[Run], *, max_bytes: int) -> Clustering | None:
    """Choose the next files to be sorted together; None where fewer than two would be."""
    loose = unsorted_files(files, runs)
    # A file across the border of a run breaks it: what was sorted there is sorted no more.
    whole = [run for run in sorted(runs, key=lambda one: one.first) if not any(run.meets(file) for file in loose)]
    loose = unsorted_files(files, whole)
    if not loose:
        return None
    taken = _up_to(loose, max_bytes)
    first, last = min(one.first for one in taken), max(one.last for one in taken)
    kept = [run for run in whole if run.last < first]
    others = [run for run in whole if run.first > last]
    while kept and (joined := _joined(kept[-1], taken, files, max_bytes)):
        taken, first = joined, kept.pop().first
    if len(taken) < 2:
        return None
    return Clustering(tuple(taken), (*kept, Run(first, last), *others))


def _up_to(files: Sequence[LogFile], max_bytes: int) -> list[LogFile]:
    """Take files up to so many bytes; two at least, as one alone would not change much."""
    taken: list[LogFile] = []
    for file in files:
        if len(taken) >= 2 and sum(one.size for one in taken) + file.size > max_bytes:
            break
        taken.append(file)
    return taken


def _joined(run: Run, taken: Sequence[LogFile], files: Sequence[LogFile], max_bytes: int) -> list[LogFile] | None:
    """Give the files with those of the run before them, if that is not larger than they are and all fit."""
    own = [file for file in files if run.holds(file)]
    size, new = sum(one.size for one in own), sum(one.size for one in taken)
    return [*own, *taken] if size <= new and size + new <= max_bytes else None


def _by_op(file: LogFile) -> tuple[int, int, str]:
    return (file.first, file.last, file.path)
