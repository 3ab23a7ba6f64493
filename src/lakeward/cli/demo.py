"""``lakeward demo``: a sample shop, loaded, changed and checked."""

from __future__ import annotations

import shlex
import shutil
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lakeward.cli.failures import DONE, FAILED
from lakeward.cli.options import command
from lakeward.cli.output import add_row, age, emit, note, styled, table

if TYPE_CHECKING:
    from rich.console import Console

    from lakeward import CassandraDemoReport, DemoReport
    from lakeward.cli.options import Invocation


_FOLDER, _CASSANDRA = "lakeward-demo", "cassandra"
NEXT_COMMANDS = (
    (
        "ask the mirror",
        'sql "SELECT dept, count(*) AS products, avg(price) AS price FROM sampledb.product GROUP BY dept"',
    ),
    ("read its history", 'sql "SELECT * FROM sampledb_changes.product" --output json'),
    ("see the state of the tables", "status"),
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

    DIR is ./lakeward-demo by default. Everything stays there for you to look at.

    `lakeward demo cassandra` starts its own Cassandra server instead, exports a table, changes it, exports it again
    and applies the changes to a copy. Its DIR is ./lakeward-demo-cassandra by default.
    """
    is_cassandra = bool(words) and words[0] == _CASSANDRA
    folders = words[1:] if is_cassandra else words
    if len(folders) > 1:
        msg = f"expected one folder, found {len(folders)}: {' '.join(folders)}"
        raise click.UsageError(msg)
    if not is_cassandra:
        if serve:
            msg = "--serve is for lakeward demo cassandra"
            raise click.UsageError(msg)
        return _play_shop(invocation, folders[0] if folders else _FOLDER, force=force)

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
    """Return the command line of the program, which works in the demo's folder as well."""
    return "lakeward" if shutil.which("lakeward") else shlex.quote(str(Path(sys.argv[0]).absolute()))


# ``lakeward demo cassandra``: export, change, compare and copy a table of a local server.


FOLDER = "lakeward-demo-cassandra"
# To be called in the demo's folder while its server runs.
NEXT_CASSANDRA_COMMANDS = (
    ("see what changed", "cassandra diff previous latest --in exports/shop/orders --dry-run"),
    ("compare the copy with the table", "cassandra compare shop.orders shop_copy.orders"),
    ("export once more", "cassandra export shop.orders --to exports"),
    (
        "keep the copy current",
        "cassandra sync --from local/shop.orders --into local/shop_copy.orders --to exports --every 5m",
    ),
)


def play_demo(invocation: Invocation, directory: str, *, force: bool) -> int:
    """Run the Cassandra demo in a folder, which keeps everything but the running server."""
    from lakeward import CassandraClient, CassandraDemo, cassandra_demo_server, write_cassandra_demo
    from lakeward.cli.progress import announcing

    begun, folder = time.monotonic(), Path(directory)
    config = write_cassandra_demo(folder, force=force)
    on_progress = partial(note, invocation)
    with (
        announcing(invocation) as during,
        CassandraClient(str(config), on_progress=on_progress, during=during) as client,
        ExitStack() as stack,
    ):
        with during("starting the demo's Cassandra server (its jars are downloaded once)"):
            server = stack.enter_context(cassandra_demo_server(folder))
        outcome = CassandraDemo(client, server.address, folder, on_progress).play()
    seconds = time.monotonic() - begun
    document = {"directory": str(folder), "seconds": round(seconds, 3), **outcome.to_dict()}
    emit(invocation, document, lambda console: _draw_cassandra(console, folder, outcome, seconds))
    return DONE if outcome.ok else FAILED


def serve_demo(invocation: Invocation, directory: str) -> int:
    """Run the server of an earlier demo until Ctrl-C."""
    from lakeward import cassandra_demo_server

    with cassandra_demo_server(Path(directory)) as server:
        note(invocation, f"Cassandra answers at 127.0.0.1:{server.port}; Ctrl-C ends it")
        threading.Event().wait()
    return DONE


def _draw_cassandra(console: Console, folder: Path, outcome: CassandraDemoReport, seconds: float) -> None:
    waited = f", {age(outcome.waited)} of it waiting for the next minute" if outcome.waited else ""
    console.print(f"done in {age(seconds)}{waited}")
    drawn = table("", "step", "> time", "outcome")
    for step in outcome.steps:
        sign = styled("✓", "green") if step.ok else styled("✗", "bold red")
        add_row(drawn, [sign, step.name, age(step.seconds), step.outcome])
    console.print(drawn)
    console.print()
    rows = table("row of the copy", "before", "after")
    for sample in outcome.samples:
        add_row(rows, [sample.row, sample.before or styled("-", "dim"), sample.after or styled("-", "dim")])
    console.print(rows)
    console.print("\nTry next, with the demo's server running in another terminal:")

    command = program()
    console.print(f"  cd {shlex.quote(str(folder))}", soft_wrap=True)
    console.print(f"  {command} demo cassandra . --serve   # start the server again", soft_wrap=True)
    for purpose, arguments in NEXT_CASSANDRA_COMMANDS:
        console.print(f"  {command} {arguments}   # {purpose}", soft_wrap=True)
