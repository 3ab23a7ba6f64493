"""An export that is killed goes on where it was, and ends exact."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from lakeward.cassandra import export
from lakeward.cli.main import cli
from tests.cassandra.export_scene import Exports

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.servers.cassandra import CassandraServer

pytestmark = pytest.mark.spark
_ROWS, _PARTS = 1200, 8
_PATIENCE_SECONDS = 600
_LAKEWARD = "from lakeward.cli.main import main; main()"
# Ends as if killed at the moment when all is written and would be seen next.
_DYING = (
    "import os; from lakeward.storage.filesystem import LocalFileSystem; "
    "LocalFileSystem.move = lambda *_: os.kill(os.getpid(), 9)"
)


@pytest.fixture
def exports(spark: SparkSession, cassandra_server: CassandraServer, keyspace: str, tmp_path: Path) -> Exports:
    return Exports(spark, cassandra_server, keyspace, tmp_path)


def test_a_killed_export_goes_on_and_reads_nothing_twice(exports: Exports, monkeypatch: pytest.MonkeyPatch) -> None:
    _fill(exports)
    command = _command(exports, monkeypatch)
    work = exports.folder / "out" / exports.keyspace / "t" / ".export-in-progress"

    with _slow(command) as killed:
        _wait_for(lambda: len(list(work.glob("group-*.json"))) >= 2, killed)
        # However long the other one takes, this one comes no further.
        os.killpg(killed.pid, signal.SIGSTOP)
        busy = CliRunner().invoke(cli, command, prog_name="lakeward")
    done = {int(path.stem.split("-")[1]) for path in work.glob("group-*.json")}

    assert busy.exit_code == 3
    assert f"process {killed.pid} on" in busy.stderr
    assert 2 <= len(done) < _PARTS
    other = CliRunner().invoke(cli, [*command, "--where", "v > 3"], prog_name="lakeward")
    assert other.exit_code == 2
    assert 'where was null, is now "v > 3"' in other.stderr
    asked = _noting_what_is_read(monkeypatch)
    ended = CliRunner().invoke(cli, command, prog_name="lakeward")
    assert ended.exit_code == 0, ended.output
    result = json.loads(ended.stdout)
    assert result["resumed"] is True
    assert set(asked) == set(range(_PARTS)) - done
    rows = exports.side(f"{exports.folder}/out/{exports.keyspace}/t/latest").frame.collect()
    assert {(row["p"], row["v"]) for row in rows} == {(number, number * 7) for number in range(_ROWS)}
    assert len(rows) == result["rows"] == _ROWS
    assert not work.exists()
    assert result["folder"].endswith(time.strftime("year=%Y/month=%m/day=%d/hour=%H/minute=%M", _started(result)))


def test_an_export_that_is_killed_while_it_is_published_reads_nothing_again_in_whatever_format(
    exports: Exports, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fill(exports)
    command = _command(exports, monkeypatch)
    root = exports.folder / "out" / exports.keyspace / "t"

    killed = [sys.executable, "-c", f"{_DYING}; {_LAKEWARD}", *command, "--format", "csv"]
    assert subprocess.run(killed, start_new_session=True, timeout=_PATIENCE_SECONDS, check=False).returncode == -9
    assert [path for path in root.rglob("_SUCCESS") if ".staging-" in str(path)]
    asked = _noting_what_is_read(monkeypatch)
    ended = CliRunner().invoke(cli, [*command, "--layout", "plain"], prog_name="lakeward")

    assert ended.exit_code == 0, ended.output
    result = json.loads(ended.stdout)
    assert (result["resumed"], result["format"], result["rows"], asked) == (True, "parquet", _ROWS, [])
    rows = exports.side(f"{root}/latest").frame.collect()
    assert sorted((row["p"], row["v"]) for row in rows) == [(number, number * 7) for number in range(_ROWS)]
    assert not [path for path in root.rglob("*") if ".staging-" in str(path) or ".export" in str(path)]


def _command(exports: Exports, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    settings = exports.server.address.settings
    uri = f"cassandra://{settings.hosts[0]}:{settings.port}"
    monkeypatch.chdir(exports.folder)
    command = ["cassandra", "export", f"{exports.keyspace}.t", "--cluster", uri, "--to", "out", "--tasks", "1"]
    return [*command, "--splits", str(4 * _PARTS), "--output", "json", "-q"]


def _fill(exports: Exports) -> None:
    exports.run("CREATE TABLE t (p int PRIMARY KEY, v bigint)")
    insert = exports.session.prepare("INSERT INTO t (p, v) VALUES (?, ?)")
    futures = [exports.session.execute_async(insert, (number, number * 7)) for number in range(_ROWS)]
    for future in futures:
        future.result()


@contextmanager
def _slow(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run an export that takes long, and kill it with all its children at the end of the block."""
    limited = [*command, "--max-rows-per-second", "60"]
    with subprocess.Popen(
        [sys.executable, "-c", _LAKEWARD, *limited], start_new_session=True, stderr=subprocess.PIPE
    ) as process:
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def _wait_for(condition: Any, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        assert process.poll() is None, process.stderr.read().decode() if process.stderr else ""
        assert time.monotonic() < end, "the export did not get far enough"
        time.sleep(0.05)


def _noting_what_is_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    asked: list[int] = []
    read = export.read_groups

    def noting(spark: Any, plan: Any, place: Any, groups: Any, **choices: Any) -> Any:
        asked.extend(group.number for group in groups)
        return read(spark, plan, place, groups, **choices)

    monkeypatch.setattr(export, "read_groups", noting)
    return asked


def _started(result: dict[str, Any]) -> time.struct_time:
    from datetime import datetime

    return datetime.fromisoformat(result["started"]).timetuple()
