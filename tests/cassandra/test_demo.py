"""``lakeward demo cassandra``, and the server and files that it leaves."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import time

import pytest

from lakeward.cli.samples import NEXT_CASSANDRA_COMMANDS as NEXT_COMMANDS
from lakeward.demo.cassandra.project import cassandra_demo_server
from lakeward.errors import ConfigurationError
from tests.commands import invoke


@pytest.fixture(scope="module")
def played(spark, tmp_path_factory):
    """The demo, played once; gives its folder and its result."""
    folder = tmp_path_factory.mktemp("demo") / "shop"
    try:
        server_jars()
    except ConfigurationError as missing:
        pytest.skip(missing.message)
    result = invoke("demo", "cassandra", str(folder), "--output", "json")
    return folder, result


def server_jars():
    from lakeward.demo.cassandra.server import resolve_cassandra

    return resolve_cassandra()


@pytest.mark.slow
def test_the_demo_ends_with_two_equal_tables(played):
    _, result = played
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    steps = [(step["name"], step["ok"]) for step in document["steps"]]
    names = ["fill", "export", "import", "change", "export", "diff", "apply", "prove"]
    assert steps == [(name, True) for name in names]
    assert document["steps"][5]["outcome"] == "30 inserted, 205 changed, 61 deleted"
    assert document["steps"][7]["outcome"].endswith("9,970 of shop_copy.orders, 0 different")
    rows = {row["row"]: (row["before"], row["after"]) for row in document["rows"]}
    assert rows["order 0"] == ("0, '', null, null", "0.00, 'changed', ['changed'], [('gift', 0)]")
    assert rows["order 1"][1] == "null, null"
    assert rows["order 2"][1] is None
    assert rows["customer 5"] == ("'Customer 5'", "'Customer 5, married'")


@pytest.mark.slow
def test_its_server_runs_again_with_its_data_and_the_commands_it_names_work(played, monkeypatch):
    folder, _ = played
    server = cassandra_demo_server(folder)
    command = [sys.executable, "-m", "lakeward.cli.main", "demo", "cassandra", str(folder), "--serve"]
    serving = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        while (line := serving.stderr.readline()) and b"answers at" not in line:
            pass
        monkeypatch.chdir(folder)
        for _, text in NEXT_COMMANDS[:2]:
            done = invoke(*shlex.split(text), "--output", "json")
            assert done.exit_code == 0, (text, done.output)
            document = json.loads(done.stdout)
        assert document["same"]
        assert document["rows"] == {"table": 10_469, "copy": 10_469}
    finally:
        serving.send_signal(signal.SIGINT)
        serving.communicate(timeout=300)
    assert serving.returncode == 130
    with pytest.raises(OSError, match="refused"):
        _knock(server)


def _knock(server):
    import socket

    time.sleep(0.2)
    socket.create_connection((server.hosts[0], server.port), timeout=2).close()


def test_a_folder_that_is_in_use_is_not_touched(tmp_path):
    (tmp_path / "own.txt").write_text("mine")
    result = invoke("demo", "cassandra", str(tmp_path))
    assert result.exit_code == 2
    assert "lakeward demo cassandra OTHER_FOLDER" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["own.txt"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["cassandra", "a", "b"], "expected one folder, found 2: a b"),
        (["a", "--serve"], "--serve is for lakeward demo cassandra"),
        (["cassandra", "nowhere", "--serve"], "nowhere holds no demo with Cassandra"),
    ],
)
def test_calls_that_make_no_sense_are_refused(tmp_path, monkeypatch, arguments, problem):
    monkeypatch.chdir(tmp_path)
    result = invoke("demo", *arguments)
    assert result.exit_code == 2
    assert problem in result.stderr
