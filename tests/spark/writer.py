"""A run in a thread of its own that stops where a test wants it to, and continues on command."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Self

from lakeward.config import parse_config
from lakeward.lake import Lakeward
from lakeward.session.sessions import session_for

if TYPE_CHECKING:
    from types import TracebackType

    from lakeward.mirror.op.report import TableReport
    from tests.spark.scene import Scene

# Only reached when the code under test hangs.
_TIMEOUT = 600


class Writer:
    """One writer on a scene's lake: a Lakeward object and a Spark session of its own.

    Two writers with different state stores have no lease between them.
    """

    def __init__(self, scene: Scene, *, state: str = "sqlite:///state.db") -> None:
        config = parse_config({**scene._settings, "state": state}, base=scene.folder)
        self.steps: list[str] = []
        self.lakeward = Lakeward(config, spark=session_for(scene._root, config), on_step=self._on_step)
        self._pool = ThreadPoolExecutor(1)
        self._stop_at: str | None = None
        self._stopped = threading.Event()
        self._go_on = threading.Event()
        self._running: Future[TableReport] | None = None

    def start(self, *, stop_at: str | None = None) -> None:
        """Begin a run; return when it stands at the step."""
        self._stop_at = stop_at
        self._running = self._pool.submit(lambda: self.lakeward.run().tables[0])
        if stop_at is not None:
            self._wait(stop_at)

    def go_on(self, *, stop_at: str) -> None:
        """Go on to another step."""
        self._stop_at = stop_at
        self._go_on.set()
        self._wait(stop_at)

    def finish(self) -> TableReport:
        """Go on to the end and give the table's report."""
        self._stop_at = None
        self._go_on.set()
        assert self._running is not None
        return self._running.result(_TIMEOUT)

    def run(self) -> TableReport:
        """Run without a stop."""
        self.start()
        return self.finish()

    def _wait(self, step: str) -> None:
        assert self._stopped.wait(_TIMEOUT), f"the writer did not reach {step}; it passed {self.steps}"
        self._stopped.clear()

    def _on_step(self, _table: str, step: str) -> None:
        self.steps.append(step)
        if step == self._stop_at:
            self._stop_at = None
            self._go_on.clear()
            self._stopped.set()
            assert self._go_on.wait(_TIMEOUT), f"the test did not let the writer go on at {step}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop_at = None
        self._go_on.set()
        self._pool.shutdown()
        self.lakeward.close()
