"""``lakeward demo``: a sample shop, loaded, changed and checked."""

from __future__ import annotations

import shlex
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lakeward.cli.failures import DONE, FAILED
from lakeward.cli.options import command
from lakeward.cli.output import add_row, age, emit, styled, table

if TYPE_CHECKING:
    from rich.console import Console

    from lakeward import DemoReport
    from lakeward.cli.options import Invocation

_FOLDER, _CASSANDRA = "lakeward-demo", "cassandra"
NEXT_COMMANDS = (
    (
        "ask the mirror",
        'sql "SELECT dept, count(*) AS products, avg(price) AS price FROM sampledb.product GROUP BY dept"',
    ),
    ("read its history", 'sql "SELECT * FROM sampledb_changes.product" --output json'),
    ("see how tables stand", "status"),
    ("see what a run would do", "plan"),
    ("make a random source", "simulate random --seed 7 --tables 3 --changes 1000"),
    ("mirror it", "run --config random/lakeward.yaml"),
)


@command("demo")
@click.argument("words", metavar="[cassandra] [DIR]", nargs=-1)
@click.option("--force", is_flag=True, help="Replace an earlier demo, or use a folder that is not empty.")
@click.option("--serve", is_flag=True, help="With cassandra: only run the server of an earlier demo, until Ctrl-C.")
def demo(invocation: Invocation, words: tuple[str, ...], force: bool, serve: bool) -> int:
    """Load a small sample shop into DIR, change it, and check the mirrors.

    DIR is ./lakeward-demo unless given. Everything stays there to be looked at.

    `lakeward demo cassandra` starts a Cassandra of its own instead, exports a table, changes it, exports it again,
    and applies what changed to a copy. Its DIR is ./lakeward-demo-cassandra unless given.
    """
    is_cassandra = bool(words) and words[0] == _CASSANDRA
    folders = words[1:] if is_cassandra else words
    if len(folders) > 1:
        msg = f"one folder, not {len(folders)}: {' '.join(folders)}"
        raise click.UsageError(msg)
    if not is_cassandra:
        if serve:
            msg = "--serve is for lakeward demo cassandra"
            raise click.UsageError(msg)
        return _play_shop(invocation, folders[0] if folders else _FOLDER, force=force)
    from lakeward.cli.demo_cassandra import FOLDER, play_demo, serve_demo

    directory = folders[0] if folders else FOLDER
    return serve_demo(invocation, directory) if serve else play_demo(invocation, directory, force=force)


def _play_shop(invocation: Invocation, directory: str, *, force: bool) -> int:
    from lakeward import play_demo, write_demo

    folder = Path(directory)
    invocation.config = str(write_demo(folder, force=force))
    with invocation.lake() as lake:
        report = play_demo(lake, folder)
    document = {
        "directory": str(folder),
        "ok": report.ok,
        "seconds": report.loaded.seconds + report.changed.seconds,
        "tables": [asdict(check) for check in report.tables],
        "rows": [asdict(row) for row in report.rows],
    }
    emit(invocation, document, lambda console: _draw(console, folder, report))
    return DONE if report.ok else FAILED


def _draw(console: Console, folder: Path, report: DemoReport) -> None:
    console.print(f"loaded in {age(report.loaded.seconds)}, changed in {age(report.changed.seconds)}")
    drawn = table("", "table", "> before", "> after", "> expected", "changes")
    for check in report.tables:
        sign = styled("✓", "green") if check.ok else styled("✗", "bold red")
        add_row(drawn, [sign, check.table, check.before, check.after, check.expected, check.changes])
    console.print(drawn)
    console.print()
    rows: Any = table("row", "before", "after")
    for sample in report.rows:
        add_row(rows, [sample.row, sample.before or styled("-", "dim"), sample.after or styled("-", "dim")])
    console.print(rows)
    console.print("\nTry next:")
    command_line = program()
    console.print(f"  cd {shlex.quote(str(folder))}", soft_wrap=True)
    for purpose, arguments in NEXT_COMMANDS:
        console.print(f"  {command_line} {arguments}   # {purpose}", soft_wrap=True)


def program() -> str:
    """Return the command as it can be called from the demo's folder."""
    return "lakeward" if shutil.which("lakeward") else shlex.quote(str(Path(sys.argv[0]).absolute()))
