"""The tutorial: its files are written and its commands run in the order of the page, and print what it shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lakeward.cli.main import cli

PAGE = (Path(__file__).parents[2] / "docs/tutorial.md").read_text(encoding="utf-8")
STEP = re.compile(
    r"<!-- file: (?P<file>\S+) -->\n```\w+\n(?P<content>.*?)```|```console\n(?P<console>.*?)```", re.DOTALL
)
COMMANDS = 14


def comparable(text: str) -> list[str]:
    """Leave out what differs from run to run: times, speed, and the width of columns."""
    text = re.sub(r"\b\d+(\.\d+)? (s|min)\b", "SECONDS", text)
    text = re.sub(r"\b\d+\.\d\s+[\d,]+(?=\s+(load|full rewrite)$)", "SECONDS RATE", text, flags=re.MULTILINE)
    text = re.sub(r"(?<=before-nine)\s+\d+\.\d$", " SECONDS", text, flags=re.MULTILINE)
    text = re.sub(r"(?<=verified through op 5 at )\S+", "TIME", text)
    return [" ".join(line.replace("─", " ").split()) for line in text.splitlines() if line.strip(" ─")]


@pytest.mark.slow
def test_every_command_prints_what_the_page_shows(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    commands = 0
    for step in STEP.finditer(PAGE):
        if step["file"]:
            file = tmp_path / step["file"]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(step["content"], encoding="utf-8")
            continue
        for part in step["console"].split("$ ")[1:]:
            command, _, shown = part.partition("\n")
            name, *arguments = shlex.split(command)
            result = CliRunner().invoke(cli, arguments, prog_name=name)
            assert result.exit_code == 0, result.stderr
            assert comparable(result.stdout) == comparable(shown), command
            commands += 1
    assert commands == COMMANDS
