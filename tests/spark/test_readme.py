"""The README's tour is run as a user would run it, and must print what the README shows."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def steps() -> list[tuple[str, str]]:
    """Return (command, shown output) of the tour."""
    tour = README.split("<!-- tour: begin")[1].split("<!-- tour: end")[0]
    block = tour.split("```console\n")[1].split("```")[0]
    found = []
    for part in block.split("$ ")[1:]:
        command, _, shown = part.partition("\n")
        found.append((command, shown))
    return found


def comparable(text: str) -> list[str]:
    """Leave out what differs from run to run: seconds, rows per second, and the width of columns."""
    text = re.sub(r"\b\d+(\.\d+)? (s|min)\b", "TIME", text)
    text = re.sub(r"\b\d+\.\d\s+[\d,]+(?=\s+load)", "TIME RATE", text)
    return [" ".join(line.replace("─", " ").split()) for line in text.splitlines() if line.strip(" ─")]


def run(command: list[str], folder: Path) -> str:
    env = {**os.environ, "COLUMNS": "120", "NO_COLOR": "1"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_tour_prints_what_the_readme_shows(tmp_path: Path) -> None:
    lakeward = [sys.executable, "-m", "lakeward.cli.main"]
    simulate = re.search(r"`lakeward (simulate [^`]+)`", README)
    assert simulate
    run([*lakeward, *shlex.split(simulate[1])], tmp_path)
    (tmp_path / "play" / "landing").rename(tmp_path / "landing")
    tour = steps()
    assert len(tour) == 5
    for command, shown in tour:
        name, *arguments = shlex.split(command)
        assert name == "lakeward"
        assert comparable(run([*lakeward, *arguments], tmp_path)) == comparable(shown), command
