"""``lakeward snapshot`` on a real lake: all tables at one moment, retention by settings, undone ops."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.commands import invoke

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark

CONFIGURATION = """
spark: {master: "local[2]", conf: {spark.sql.shuffle.partitions: "2", spark.driver.memory: 1g}}
tables:
  people.persons:
    primary_key: id
    schema: "id int, name string"
    timestamp_column: ts
    snapshots: {keep: 1}
  people.towns: {primary_key: id, schema: "id int, name string"}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: Any) -> Path:
    (tmp_path / "lakeward.yaml").write_text(CONFIGURATION)
    files = {
        "persons/LOAD00000001.csv": "I,2024-01-01 00:00:00,1,Ann\n",
        "persons/20240102-000000000.csv": "U,2024-01-02 10:00:00,1,Anna\n",
        "towns/LOAD00000001.csv": "1,Rome\n",
    }
    for name, text in files.items():
        file = tmp_path / "landing/people" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def json_of(*arguments: str, exit_code: int = 0) -> Any:
    result = invoke(*arguments, "--output", "json")
    assert result.exit_code == exit_code, result.output
    return json.loads(result.stdout)


def test_all_tables_at_one_moment_and_what_settings_keep(project: Path) -> None:
    json_of("run")
    created = json_of("snapshot", "create", "--all", "--as-of", "2024-01-01", "--to", "out", exit_code=3)
    assert [(snapshot["table"], snapshot["outcome"], snapshot["rows"]) for snapshot in created["snapshots"]] == [
        ("people.persons", "done", 1),
        ("people.towns", "failed", None),
    ]
    assert "no timestamp_column" in created["snapshots"][1]["message"]
    folder = project / "out/people.persons"
    assert created["snapshots"][0]["location"] == str(folder / "version=2024-01-01")
    shown = invoke("snapshot", "create", "people.persons", "--as-of", "2024-01-02", "--to", "out")
    assert (shown.exit_code, "version=2024-01-02" in shown.stdout) == (0, True)
    assert [path.name for path in folder.iterdir()] == ["version=2024-01-02"], "keep: 1 was not acted on"
    again = invoke("snapshot", "create", "people.persons", "--as-of", "2024-01-02", "--to", "out")
    assert (again.exit_code, "--replace" in again.stderr) == (2, True)
    json_of("snapshot", "create", "people.towns", "--as-of", "op:1", "--tag", "start")
    undone = invoke("undo", "people.persons", "--to-op", "1", "--yes")
    assert undone.exit_code == 0, undone.output
    listed = {entry["version"]: entry["state"] for entry in json_of("snapshot", "list")["versions"]}
    assert listed == {"2024-01-02": "undone", "op-1": "current"}
    assert [snapshot["outcome"] for snapshot in json_of("snapshot", "refresh")["snapshots"]] == ["done"]
    [version] = json_of("snapshot", "list", "people.persons")["versions"]
    assert (version["state"], version["op"]) == ("current", 3)
    assert json_of("snapshot", "drop", "people.persons", "--keep", "0", "--dry-run")["snapshots"][0]["rows"] == 1
    assert json_of("snapshot", "drop", "people.persons", "--keep", "0")["snapshots"][0]["outcome"] == "dropped"
    assert list(folder.iterdir()) == []
