"""``lakeward demo cassandra``: a table of a local server, exported, changed, compared and kept current in a copy."""

from __future__ import annotations

import shlex
import threading
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from lakeward.cli.failures import DONE, FAILED
from lakeward.cli.output import add_row, age, emit, note, styled, table

if TYPE_CHECKING:
    from rich.console import Console

    from lakeward import CassandraDemoReport
    from lakeward.cli.options import Invocation

FOLDER = "lakeward-demo-cassandra"
# For the demo's folder, while its server runs again.
NEXT_COMMANDS = (
    ("see what changed", "cassandra diff previous latest --in exports/shop/orders --dry-run"),
    ("hold the copy against the table", "cassandra compare shop.orders shop_copy.orders"),
    ("export once more", "cassandra export shop.orders --to exports"),
    (
        "keep the copy current",
        "cassandra sync --from local/shop.orders --into local/shop_copy.orders --to exports --every 5m",
    ),
)


def play_demo(invocation: Invocation, directory: str, *, force: bool) -> int:
    """Play the demo in a folder; everything but the running server stays there."""
    from lakeward import CassandraClient, CassandraDemo, cassandra_demo_server, write_cassandra_demo
    from lakeward.cli.progress import announcing

    begun, folder = time.monotonic(), Path(directory)
    config = write_cassandra_demo(folder, force=force)
    tell = partial(note, invocation)
    with (
        announcing(invocation) as during,
        CassandraClient(str(config), on_progress=tell, during=during) as client,
        ExitStack() as stack,
    ):
        with during("starting a Cassandra of the demo's own (its jars are fetched once)"):
            server = stack.enter_context(cassandra_demo_server(folder))
        outcome = CassandraDemo(client, server.address, folder, tell).play()
    seconds = time.monotonic() - begun
    document = {"directory": str(folder), "seconds": round(seconds, 3), **outcome.to_dict()}
    emit(invocation, document, lambda console: _draw(console, folder, outcome, seconds))
    return DONE if outcome.ok else FAILED


def serve_demo(invocation: Invocation, directory: str) -> int:
    """Run the server of an earlier demo until Ctrl-C."""
    from lakeward import cassandra_demo_server

    with cassandra_demo_server(Path(directory)) as server:
        note(invocation, f"Cassandra answers at 127.0.0.1:{server.port}; Ctrl-C ends it")
        threading.Event().wait()
    return DONE


def _draw(console: Console, folder: Path, outcome: CassandraDemoReport, seconds: float) -> None:
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
    from lakeward.cli.demo import program

    command = program()
    console.print(f"  cd {shlex.quote(str(folder))}", soft_wrap=True)
    console.print(f"  {command} demo cassandra . --serve   # start the server again", soft_wrap=True)
    for purpose, arguments in NEXT_COMMANDS:
        console.print(f"  {command} {arguments}   # {purpose}", soft_wrap=True)
