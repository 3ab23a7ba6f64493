"""The page on diffs: its files are made, its commands run in order, and they print what the page shows."""

import json
import re
import shlex
import subprocess
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import lakeward
from lakeward.cli.main import cli
from lakeward.diffing.comparison import DiffResult

PAGE = (Path(__file__).parents[2] / "docs/diff.md").read_text(encoding="utf-8")
WRITTEN = "exports/incremental/year=2026/month=11/day=15/hour=21/minute=05"
FILE = re.compile(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", re.DOTALL)
# What the exit code stands for: these two sides differ.
DIFFERS = 1


def comparable(text: str) -> list[str]:
    """Leave out the width of columns and the lines between them."""
    return [" ".join(line.replace("─", " ").split()) for line in text.splitlines() if line.strip(" ─")]


def test_every_command_of_the_page(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in FILE.findall(PAGE):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8")
    blocks = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    commands = [part.partition("\n") for block in blocks for part in block.split("$ ")[1:]]
    assert len(commands) == 8
    for command, _, shown in commands:
        name, *arguments = shlex.split(command)
        if name == "touch":
            subprocess.run([name, *arguments], check=True)
            continue
        made = sorted(tmp_path.glob("exports/incremental/*/*/*/*/minute=*"))
        place = str(made[-1].relative_to(tmp_path)) if made else ""
        given = [place if argument == WRITTEN else argument for argument in arguments]
        result = CliRunner().invoke(cli, given, prog_name=name)
        expected = DIFFERS if "--exit-code" in arguments and "no differences" not in shown else 0
        assert result.exit_code == expected, result.stderr
        if shown:
            assert comparable(result.stdout) == comparable(shown), command
    assert (tmp_path / "diff.html").is_file()
    [manifest] = tmp_path.glob("exports/incremental/*/*/*/*/*/_manifest.json")
    _require_fields("The manifest", json.loads(manifest.read_text()))


def test_the_python_of_the_page(spark: Any) -> None:
    code, _ = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    past = spark.createDataFrame([(1, "a"), (2, "b")], "id int, text string")
    current = spark.createDataFrame([(1, "x"), (3, "c")], "id int, text string")
    names: dict[str, Any] = {"past": past, "current": current}
    exec(code, names)
    assert names["lakeward"] is lakeward
    assert sorted(names["again"].collect()) == sorted(current.collect())
    assert sorted(names["before"].collect()) == sorted(past.collect())


def test_a_program_for_spark_extension_with_another_import(spark: Any) -> None:
    _, code = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    table = "id int, price double, note string"
    past = spark.createDataFrame([(1, 2.5, "a"), (2, 3.0, "b"), (3, 4.0, "c")], table)
    current = spark.createDataFrame([(1, 2.505, "a"), (2, 3.5, "x"), (3, 4.0, "y")], table)
    names: dict[str, Any] = {"past": past, "current": current}
    exec(code, names)
    assert [tuple(row) for row in names["changed"].sort("id").collect()] == [
        ("C", ["price", "note"], 2, 3.0, 3.5, "b", "x"),
        ("C", ["note"], 3, 4.0, 4.0, "c", "y"),
    ]
    labels = names["sides"].select("diff", "left.id", "right.note").sort("id").collect()
    assert [tuple(row) for row in labels] == [("C", 1, "a"), ("C", 2, "x"), ("N", 3, "y")]
    assert "gresearch" not in names["past"].diff.__func__.__module__


def test_every_field_of_the_json_is_described() -> None:
    named = {"differences": "schema_differences", "reason": "plan"}
    _require_fields("The JSON", {named.get(field.name, field.name): None for field in fields(DiffResult)})


def _require_fields(title: str, document: dict[str, Any]) -> None:
    section = PAGE.split(f"## {title}\n")[1].split("\n## ")[0]
    first_cells = re.findall(r"^\| (`[^|]+) \|", section, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", " ".join(first_cells))) == set(document)
