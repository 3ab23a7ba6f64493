"""CPU-seconds of this process and everything it started: the JVM and Spark's Python workers."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass
class Spent:
    """What a measured block cost."""

    cpu: float = 0.0


def tree_cpu() -> float:
    """Give user and system time used so far; whatever has ended counts through the process that started it."""
    total = 0.0
    process = psutil.Process()
    for one in (process, *process.children(recursive=True)):
        try:
            times = one.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


@contextmanager
def measured() -> Iterator[Spent]:
    """Measure a block."""
    spent, before = Spent(), tree_cpu()
    yield spent
    spent.cpu = tree_cpu() - before
