"""``lakeward cassandra import`` and ``apply``, as a user calls them: without a configuration."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from lakeward.cli.main import cli
from lakeward.session.sessions import table_session
from tests.cassandra.hand_made import export, schema_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.servers.cassandra import CassandraServer

TABLE = schema_of("customer text pk, day int ck, total decimal")


@pytest.fixture
def cluster_call(
    call: Callable[..., Result],
    spark: SparkSession,
    cassandra_server: CassandraServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Result]:
    monkeypatch.chdir(tmp_path)
    settings = cassandra_server.address.settings
    where = ["--cluster", f"cassandra://{settings.hosts[0]}:{settings.port}"]

    def invoke(command: str, *arguments: Any) -> Result:
        return call("cassandra", command, *arguments, *where)

    return invoke


def test_a_table_is_loaded_and_kept_current_by_commands(
    cluster_call: Callable[..., Result],
    spark: SparkSession,
    cassandra_server: CassandraServer,
    keyspace: str,
    tmp_path: Path,
) -> None:
    session, into = cassandra_server.session(), f"{keyspace}.orders"
    rows = [("ann", 1, "1.00"), ("ann", 2, "2.00"), ("bob", 1, "3.00")]
    past = export(table_session(spark), tmp_path, TABLE, "2026-11-14T02:00", rows)
    current = export(table_session(spark), tmp_path, TABLE, "2026-11-15T02:00", [*rows[1:], ("", 1, "4.00")])

    missing = cluster_call("import", past, "--into", into)
    assert (missing.exit_code, missing.stdout) == (2, "")
    loaded = cluster_call(
        "import", f"{tmp_path}/shop/orders/2026-11-14", "--into", into, "--create-table", "--output", "json"
    )
    assert loaded.exit_code == 0, loaded.stderr
    document = json.loads(loaded.stdout)
    assert {name: document[name] for name in ("into", "status", "upserted", "deleted", "rejected")} == {
        "into": into, "status": "done", "upserted": 3, "deleted": 0, "rejected": 0,
    }  # fmt: skip
    again = cluster_call("import", past, "--into", into)
    assert (again.exit_code, again.stdout) == (0, f"{into}: nothing to do, it was written before\n")

    made = call_diff(tmp_path, past, current)
    dry = cluster_call("apply", made, "--into", into, "--dry-run", "--max-wcu", "1")
    assert dry.exit_code == 0, dry.stderr
    assert dry.stdout == f"{into}: would be 1 row upserted, 1 deleted; 2 WCU, about 2 s\n"
    applied = cluster_call("apply", made, "--into", into)
    assert applied.exit_code == 3, "a row was rejected"
    assert f"{into}: 0 rows upserted, 1 deleted in " in applied.stdout
    (letters,) = (tmp_path / "lakeward-dead-letters").rglob("*.jsonl")
    assert f"1 row rejected in {letters.parent}" in applied.stdout
    assert json.loads(letters.read_text())["values"] == {"total": "4.00"}
    assert sorted(tuple(row[:2]) for row in session.execute(f"SELECT * FROM {into}")) == [("ann", 2), ("bob", 1)]
    retried = cluster_call("apply", made, "--into", into)
    assert retried.exit_code == 0
    assert "1 rows were rejected" in retried.stderr

    wrong = cluster_call("apply", made, "--into", into, "--timestamp", "soon", "--force", "--output", "json")
    assert wrong.exit_code == 2
    assert "expected snapshot, now, or microseconds" in json.loads(wrong.stdout)["error"]["message"]
    backwards = cluster_call("import", past, "--into", into)
    assert backwards.exit_code == 2
    assert "--force" in backwards.stderr


def call_diff(folder: Path, past: str, current: str) -> str:
    arguments = ["cassandra", "diff", past, current, "--to", str(folder / "changes"), "--output", "json"]
    made = CliRunner().invoke(cli, arguments, prog_name="lakeward")
    assert made.exit_code == 0, made.stderr
    return str(json.loads(made.stdout)["change_set"])
