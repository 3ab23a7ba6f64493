"""A clock that a test sets, and a lake that only records requests."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from lakeward.config import TableSettings, parse_config
from lakeward.mirror.op.report import Outcome, RunReport, TableReport
from lakeward.model import TableId
from lakeward.runner.tables import Discovery, KnownTable


class FakeClock:
    """Both clocks in one: seconds that pass when the test advances them."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now


class FakeReceipt:
    def __init__(self) -> None:
        self.end: str | None = None

    def done(self) -> None:
        self.end = "done"

    def failed(self) -> None:
        self.end = "failed"


def known(name: str, *, active: bool = True, **settings: Any) -> KnownTable:
    return KnownTable(TableId.parse(name), TableSettings(**settings), active, declared=True)


# Only reached when the code under test hangs.
TIMEOUT = 300.0


class FakeLake:
    """Answers runs with the configured outcomes, idle otherwise; tables in ``gates`` take until their gate opens."""

    def __init__(self, *tables: KnownTable, **config: Any) -> None:
        self.config = parse_config(config, base=Path("nowhere"))
        self.known = list(tables)
        self.found: list[KnownTable] = []
        self.runs: list[list[str]] = []
        self.discoveries = 0
        self.reports: dict[str, TableReport] = {}
        self.gates: dict[str, threading.Event] = {}
        self.attempts: list[int | None] = []
        self.error: BaseException | None = None
        self.alive = True
        self.spark = SimpleNamespace()

    def has_spark(self) -> bool:
        return self.alive

    def tables(self) -> list[KnownTable]:
        return self.known

    def discover(self) -> Discovery:
        self.discoveries += 1
        new, self.found = self.found, []
        self.known = [*self.known, *new]
        return Discovery(new=tuple(table.table for table in new))

    def run(self, tables: Any = (), *, options: Any = None, stop: Any = None, observers: Any = ()) -> RunReport:
        names, number = list(tables), len(self.runs)
        if self.error is not None:
            raise self.error
        self.runs.append(names)
        self.attempts.append(options.attempts if options else None)
        found = []
        for name in sorted(names, key=lambda name: name in self.gates):
            self._pass(name, stop)
            found.append(self.reports.get(name, TableReport(name, Outcome.IDLE)))
            for observer in observers:
                observer.table_finished(found[-1])
        return RunReport(f"r{number}", tuple(found))

    def hold(self, name: str) -> threading.Event:
        """Make runs of a table wait until the event is set."""
        return self.gates.setdefault(name, threading.Event())

    def _pass(self, name: str, stop: threading.Event) -> None:
        deadline = time.monotonic() + TIMEOUT
        while (gate := self.gates.get(name)) and not gate.wait(0.005):
            assert time.monotonic() < deadline
            if stop.is_set():
                raise KeyboardInterrupt

    def answer(self, name: str, outcome: Outcome, **fields: Any) -> None:
        self.reports[name] = TableReport(name, outcome, **fields)
