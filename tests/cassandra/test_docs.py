"""The page on Cassandra: its statements and commands run in order, and print what the page shows."""

import re
import shlex
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lakeward.cassandra.compare import ComparisonReport
from lakeward.cassandra.counting import CountReport, PartitionsReport
from lakeward.cassandra.cql import TableName
from lakeward.cassandra.edits import EditReport
from lakeward.cassandra.export import ExportReport
from lakeward.cassandra.schema import read_table_schema
from lakeward.cassandra.sync_rounds import SyncReport
from lakeward.cassandra.write_plan import WriteReport
from lakeward.cli.main import cli
from tests.cassandra.clock import set_back
from tests.cassandra.scene import read_cells

PAGE = (Path(__file__).parents[2] / "docs/cassandra.md").read_text(encoding="utf-8")
FILE = re.compile(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", re.DOTALL)
BLOCK = re.compile(r"```(sql|console)\n(.*?)```", re.DOTALL)
WRITTEN = re.compile(r"exports/\w+/orders/incremental/year=\S+")


def comparable(text: str) -> list[str]:
    """Leave out the width of columns and the lines between them."""
    return [" ".join(line.replace("─", " ").split()) for line in text.splitlines() if line.strip(" ─")]


def test_every_command_of_the_page(
    spark: Any, cassandra_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    clock, session = set_back(monkeypatch), cassandra_server.session()
    first, second = cassandra_server.keyspace(), cassandra_server.keyspace()
    page = PAGE.replace("shop_eu", second).replace("shop", first)
    settings = cassandra_server.address.settings
    for name, content in FILE.findall(page):
        here = content.replace("9042", str(settings.port)).replace("127.0.0.1", settings.hosts[0])
        (tmp_path / name).write_text(here, encoding="utf-8")
    commands = 0
    for kind, block in BLOCK.findall(page):
        if kind == "sql":
            for statement in filter(str.strip, block.split(";\n")):
                session.execute(statement)
            continue
        for command, _, shown in (part.partition("\n") for part in block.split("$ ")[1:]):
            clock.next_minute()
            made = sorted(tmp_path.glob("exports/*/orders/incremental/*/*/*/*/minute=*"))
            found = WRITTEN.sub(str(made[-1].relative_to(tmp_path)) if made else "", command)
            name, *arguments = shlex.split(found)
            result = CliRunner().invoke(cli, arguments, prog_name=name)
            assert result.exit_code == 0, result.stderr
            if shown:
                assert comparable(result.stdout) == comparable(shown), command
            commands += 1
    assert commands == 12
    clock.next_minute()
    [example] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    found: dict[str, Any] = {}
    exec(example, found)
    assert found["exported"].rows == 4
    copies = [read_table_schema(session, TableName(owner, "orders")) for owner in (first, second)]
    cells = [read_cells(session, copy) for copy in copies]
    assert cells[0] == cells[1] and len(cells[0]) == 4


def first_cells(title: str) -> set[str]:
    section = PAGE.split("## The JSON\n")[1].split(f"### {title}\n")[1].split("\n### ")[0]
    return set(re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`[^|]+) \|", section, re.MULTILINE))))


def test_every_field_of_the_json_is_described() -> None:
    assert first_cells("export") == {field.name for field in fields(ExportReport)}
    assert first_cells("import and apply") == {field.name for field in fields(WriteReport)}
    assert first_cells("count") == {field.name for field in fields(CountReport)}
    assert first_cells("top-partitions") == {field.name for field in fields(PartitionsReport)}
    assert first_cells("delete and ttl") == {field.name for field in fields(EditReport)}
    assert first_cells("sync") == set(SyncReport((), None).to_dict())
    empty = ComparisonReport("a", "b", (0, 0), 1, 0, 1, (), None, 0.0)
    assert first_cells("compare") == set(empty.to_dict())
