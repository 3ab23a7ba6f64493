"""CPU-seconds of this process and everything it started: the JVM and Spark's Python workers."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator


@dataclass
class Spent:
    """What a measured block cost."""

    cpu: float = 0.0


def tree_cpu(without: Collection[int] = ()) -> float:
    """Return user and system time used so far; whatever has ended counts through the process that started it.

    ``without`` names processes that are not to count, such as a server that the benchmark started.
    """
    total = 0.0
    process = psutil.Process()
    for child in (process, *process.children(recursive=True)):
        if child.pid in without:
            continue
        try:
            times = child.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


@contextmanager
def measured(without: Collection[int] = ()) -> Iterator[Spent]:
    """Measure a block."""
    spent, before = Spent(), tree_cpu(without)
    yield spent
    spent.cpu = tree_cpu(without) - before


def cost(work: Callable[[], object], without: Collection[int] = ()) -> float:
    """Measure once, and again if a Python worker that had been idle ended meanwhile: its time would be missing."""
    while True:
        before = _processes()
        with measured(without) as spent:
            work()
        if before <= _processes():
            return spent.cpu


def _processes() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}
