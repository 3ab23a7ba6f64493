"""Starting a server process of a test, waiting until it really answers, and ending it."""

from __future__ import annotations

import random
import socket
import subprocess
import time
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

_PATIENCE_SECONDS = 240.0
# Below the ports that the system assigns to clients, also with what some servers add for a second port.
_PORTS, _OFFSET = range(12_000, 22_000), 10_000


def free_ports(count: int) -> list[int]:
    """Return free ports, each with the port 10,000 above it free too."""
    shuffled = random.sample(_PORTS, len(_PORTS))
    return list(islice((port for port in shuffled if _is_free(port) and _is_free(port + _OFFSET)), count))


def _is_free(port: int) -> bool:
    with socket.socket() as candidate:
        try:
            candidate.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@contextmanager
def running(
    command: Sequence[str], log: Path, *, works: Callable[[], object], **options: object
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server for the time of a ``with`` block: from its first real answer until it is ended by its id.

    ``works`` does one real operation and raises as long as the server is not there.
    """
    with log.open("ab") as output:
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, **options)  # type: ignore[call-overload]
        except FileNotFoundError:
            pytest.skip(f"{command[0]} is not installed")
    try:
        _wait(process, log, works)
        yield process
    finally:
        stop(process)


def stop(process: subprocess.Popen[bytes], *, kill: bool = False) -> None:
    """End a server, by force if it does not end on request."""
    if kill:
        process.kill()
    else:
        process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait(process: subprocess.Popen[bytes], log: Path, works: Callable[[], object]) -> None:
    limit = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            works()
        except Exception as error:
            output = log.read_text(errors="replace")[-2000:]
            if process.poll() is not None:
                pytest.skip(f"{log.stem} ended with {process.returncode}: {output}")
            if time.monotonic() > limit:
                pytest.skip(f"{log.stem} does not answer after {_PATIENCE_SECONDS:.0f} s ({error}): {output}")
            time.sleep(0.05)
        else:
            return
