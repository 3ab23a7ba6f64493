"""One server of each kind for all processes of a test run: python -m tests.servers.shared MODULE FOLDER PID.

The first process that needs a server starts a keeper, which starts the server and writes down how to reach it. The
keeper ends the server as soon as the process that leads the run is gone, however it or any other process ended.

A kind of server is a module with ``served(folder)``: a context manager around the server's life that yields how to
reach it, as JSON can hold it.
"""

from __future__ import annotations

import fcntl
import importlib
import json
import os
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

_POLL_SECONDS = 0.2
_ROOT = Path(__file__).parents[2]


def worker_number() -> int:
    """Return this process's number among those that share the run, from 0."""
    return int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))


def shared_server(module: str, paths: pytest.TempPathFactory) -> dict[str, Any]:
    """Return how to reach the run's server of a kind; skip the test where it cannot be had on this machine."""
    base, leader = paths.getbasetemp(), os.getpid()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base, leader = base.parent, os.getppid()
    return ask_for(module, base / "servers", leader)


def ask_for(module: str, folder: Path, leader: int) -> dict[str, Any]:
    """Return how to reach a server in a folder, which lives as long as the process ``leader``."""
    folder.mkdir(parents=True, exist_ok=True)
    answer = _answer(folder, module)
    with _locked(answer.with_suffix(".lock")):
        if not answer.exists():
            _start_keeper(module, folder, leader)
    found: dict[str, Any] = json.loads(answer.read_text("utf-8"))
    if reason := found.get("skipped"):
        pytest.skip(reason)
    if reason := found.get("failed"):
        raise RuntimeError(reason)
    return found


def _answer(folder: Path, module: str) -> Path:
    return folder / f"{module.rpartition('.')[2]}.json"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _start_keeper(module: str, folder: Path, leader: int) -> None:
    """Start a keeper in a separate session, where no signal to this process reaches it, and wait for its answer."""
    answer = _answer(folder, module)
    log, environment = str(answer.with_suffix(".log")), {**os.environ, "PYTHONPATH": os.pathsep.join(_import_paths())}
    command = [sys.executable, "-m", __name__, module, str(folder), str(leader)]
    output = (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    actions = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0), output, (os.POSIX_SPAWN_DUP2, 1, 2)]
    keeper = os.posix_spawn(sys.executable, command, environment, file_actions=actions, setsid=True)
    while not answer.exists():
        if os.waitpid(keeper, os.WNOHANG)[0] and not answer.exists():
            msg = f"the keeper of {module} ended: {Path(log).read_text(errors='replace')[-2000:]}"
            raise RuntimeError(msg)
        time.sleep(_POLL_SECONDS)


def _import_paths() -> list[str]:
    return [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]


def keep(module: str, folder: Path, leader: int) -> None:
    """Run a server until the leading process is gone."""
    answer, leading = _answer(folder, module), psutil.Process(leader)
    try:
        own = folder / answer.stem
        own.mkdir()
        with importlib.import_module(module).served(own) as reached:
            _write(answer, reached)
            while _lives(leading):
                time.sleep(_POLL_SECONDS)
    except pytest.skip.Exception as skipped:
        _write(answer, {"skipped": str(skipped)})
    except Exception as error:
        _write(answer, {"failed": f"{module}: {error}"})
        raise


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _write(answer: Path, content: dict[str, Any]) -> None:
    """Write the answer in one step, so that no reader sees half of it."""
    unfinished = answer.with_suffix(".new")
    unfinished.write_text(json.dumps(content), "utf-8")
    unfinished.rename(answer)


if __name__ == "__main__":
    keep(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
