"""A server for tests of how servers are shared: a process that does nothing."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.servers.process import running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def served(folder: Path) -> Iterator[dict[str, int]]:
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    with running(command, folder / "idle.log", works=lambda: None) as process:
        yield {"pid": process.pid}
