"""A watcher in a thread of the test's, and what it reports."""

from __future__ import annotations

import queue
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakeward.config.services import WatchSettings
from lakeward.mirror.op.report import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward.lake import Lakeward
    from lakeward.mirror.op.report import RunReport

# Only reached when the code under test hangs.
PATIENCE = 600.0


class Runs:
    """Receives finished runs and returns them in order."""

    def __init__(self) -> None:
        self._reports: queue.Queue[RunReport] = queue.Queue()

    def run_finished(self, report: RunReport) -> None:
        self._reports.put(report)

    def next(self) -> RunReport:
        return self._reports.get(timeout=PATIENCE)

    def until(self, table: str, outcome: Outcome) -> list[RunReport]:
        """Return the runs up to the one in which a table came out so."""
        runs = [self.next()]
        while outcome not in {entry.outcome for entry in runs[-1].tables if entry.table == table}:
            runs.append(self.next())
        return runs

    def none_for(self, seconds: float) -> bool:
        time.sleep(seconds)
        return self._reports.empty()


@contextmanager
def watching(lake: Lakeward, **settings: object) -> Iterator[Runs]:
    """Watch for the time of a ``with`` block, whose first run was that of the start."""
    runs = Runs()
    watcher = lake.watch(settings=WatchSettings(**settings), observers=[runs])
    failures: list[BaseException] = []

    def work() -> None:
        try:
            watcher.run()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield runs
    finally:
        watcher.stop()
        thread.join(PATIENCE)
        assert not thread.is_alive()
    if failures:
        raise failures[0]
