"""A server is started once for a run, and ends with it."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.servers.shared import ask_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KIND = "tests.unit.idle_server"
PATIENCE_SECONDS = 60


@pytest.fixture
def leader() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        yield process
        process.kill()


def test_all_processes_share_a_server_and_it_ends_with_a_run_that_is_killed(
    tmp_path: Path, leader: subprocess.Popen[bytes]
) -> None:
    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(lambda _: ask_for(KIND, tmp_path, leader.pid)["pid"], range(3)))
    assert len(set(answers)) == 1
    server = psutil.Process(answers[0])
    assert server.is_running()
    leader.kill()
    limit = time.monotonic() + PATIENCE_SECONDS
    while server.is_running() and time.monotonic() < limit:
        time.sleep(0.05)
    assert not server.is_running()


def test_the_reason_why_a_server_does_not_start_is_shown(tmp_path: Path, leader: subprocess.Popen[bytes]) -> None:
    with pytest.raises(RuntimeError, match=r"No module named 'tests\.servers\.none'"):
        ask_for("tests.servers.none", tmp_path, leader.pid)
