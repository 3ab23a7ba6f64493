"""``lakeward doctor`` and clusters."""

from __future__ import annotations

import json

from cassandra import Unauthorized
from click.testing import CliRunner

from lakeward.cli.main import cli
from tests.servers.process import free_ports


def examined(tmp_path, clusters):
    (tmp_path / "landing").mkdir(exist_ok=True)
    file = tmp_path / "lakeward.yaml"
    file.write_text(json.dumps({"landing": "./landing", "clusters": clusters}))
    outcome = CliRunner().invoke(cli, ["doctor", "--no-spark", "--config", str(file), "--output", "json"])
    checks = json.loads(outcome.stdout)["checks"]
    return outcome, {check["name"]: check for check in checks if "cluster" in check["name"]}


def test_every_configured_cluster_is_looked_at(cassandra_server, tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_PW", "pa55w0rd")
    settings = cassandra_server.address.settings
    [port] = free_ports(1)
    outcome, checks = examined(
        tmp_path,
        {
            "good": {"hosts": settings.hosts[0], "port": settings.port},
            "gone": {"hosts": "127.0.0.1", "port": port, "username": "app", "password": "env:SOME_PW", "timeout": 3},
            "unset": {"hosts": "127.0.0.1", "username": "app", "password": "env:NO_SUCH_PW"},
        },
    )
    assert outcome.exit_code == 2
    assert checks["cluster good"]["status"] == "ok"
    assert "Murmur3Partitioner" in checks["cluster good"]["detail"]
    assert "; driver 3." in checks["cluster good"]["detail"]
    assert checks["cluster gone"]["status"] == checks["cluster unset"]["status"] == "problem"
    assert "no node of gone answers" in checks["cluster gone"]["detail"]
    assert "NO_SUCH_PW" in checks["cluster unset"]["remedy"]
    assert "pa55w0rd" not in outcome.stdout + outcome.stderr


def test_without_clusters_no_check_of_them_is_reported(tmp_path):
    _, checks = examined(tmp_path, {})
    assert checks == {}


def test_a_cluster_that_does_not_answer_what_is_asked_is_a_problem_like_any_other(
    cassandra_server, tmp_path, monkeypatch
):
    def refused(*_):
        msg = "no SELECT permission on system.local"
        raise Unauthorized(msg)

    monkeypatch.setattr("lakeward.cassandra.tables.examine_cluster", refused)
    settings = cassandra_server.address.settings
    outcome, checks = examined(tmp_path, {"good": {"hosts": settings.hosts[0], "port": settings.port}})
    assert outcome.exit_code == 2
    assert "no SELECT permission on system.local" in checks["cluster good"]["detail"]
    assert checks["cluster good"]["remedy"]
