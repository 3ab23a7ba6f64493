"""``lakeward demo``: a sample shop, loaded, changed and checked."""

from __future__ import annotations

import shlex
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lakeward.cli.failures import DONE, FAILED
from lakeward.cli.options import command
from lakeward.cli.output import add_row, age, emit, styled, table

if TYPE_CHECKING:
    from rich.console import Console

    from lakeward.api import Lakeward
    from lakeward.cli.invocation import Invocation
    from lakeward.pipeline.report import RunReport

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


@dataclass(frozen=True)
class TableCheck:
    """A table's rows before and after the changes, against what they must be."""

    table: str
    before: int
    after: int
    expected: int
    ok: bool
    changes: str


@dataclass(frozen=True)
class _Sample:
    """A row that changed, as it was and as it is."""

    row: str
    before: str | None
    after: str | None


_SAMPLES = (
    ("product 1001", "SELECT name || ', ' || price FROM sampledb.product WHERE id = 1001"),
    ("product 1002", "SELECT name || ', ' || price FROM sampledb.product WHERE id = 1002"),
    ("store 1009", "SELECT city FROM sampledb.store WHERE id = 1009"),
    ("person 7", "SELECT FullName || ', ' || City FROM people.persons WHERE PersonID = 7"),
    ("person 10", "SELECT FullName || ', ' || City FROM people.persons WHERE PersonID = 10"),
    ("person 130", "SELECT FullName || ', ' || City FROM people.persons WHERE PersonID = 130"),
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
    from lakeward.demo import land_changes, write_project

    folder = Path(directory)
    invocation.config = str(write_project(folder, force=force))
    with invocation.lake() as lake:
        loaded = _run(lake)
        before, samples_before = _counts(lake), _samples(lake)
        land_changes(folder)
        changed = _run(lake)
        after, samples_after = _counts(lake), _samples(lake)
    checks = _checks(before, after)
    samples = [_Sample(row, samples_before[row], samples_after[row]) for row, _ in _SAMPLES]
    is_good = all(check.ok for check in checks)
    document = {
        "directory": str(folder),
        "ok": is_good,
        "seconds": loaded.seconds + changed.seconds,
        "tables": [asdict(check) for check in checks],
        "rows": [asdict(sample) for sample in samples],
    }
    emit(invocation, document, lambda console: _draw(console, folder, (loaded, changed), checks, samples))
    return DONE if is_good else FAILED


def _run(lake: Lakeward) -> RunReport:
    """Run all tables; the first that fails ends the demo."""
    from lakeward.errors import DataError

    report = lake.run()
    for failed in report.failed:
        raise DataError(failed.message or f"{failed.table} failed", hint=failed.hint)
    return report


def _counts(lake: Lakeward) -> dict[str, int]:
    from lakeward.demo import TABLES

    return {one.name: lake.sql(f"SELECT count(*) FROM {one.name}").collect()[0][0] for one in TABLES}


def _samples(lake: Lakeward) -> dict[str, str | None]:
    return {row: next((one[0] for one in lake.sql(query).collect()), None) for row, query in _SAMPLES}


def _checks(before: dict[str, int], after: dict[str, int]) -> list[TableCheck]:
    from lakeward.demo import TABLES

    return [
        TableCheck(
            one.name,
            before[one.name],
            after[one.name],
            one.changed,
            before[one.name] == one.loaded and after[one.name] == one.changed,
            one.story,
        )
        for one in TABLES
    ]


def _draw(
    console: Console, folder: Path, runs: tuple[RunReport, RunReport], checks: list[TableCheck], samples: list[_Sample]
) -> None:
    loaded, changed = runs
    console.print(f"loaded in {age(loaded.seconds)}, changed in {age(changed.seconds)}")
    drawn = table("", "table", "> before", "> after", "> expected", "changes")
    for check in checks:
        sign = styled("✓", "green") if check.ok else styled("✗", "bold red")
        add_row(drawn, [sign, check.table, check.before, check.after, check.expected, check.changes])
    console.print(drawn)
    console.print()
    rows: Any = table("row", "before", "after")
    for sample in samples:
        add_row(rows, [sample.row, sample.before or styled("-", "dim"), sample.after or styled("-", "dim")])
    console.print(rows)
    console.print("\nTry next:")
    command_line = program()
    console.print(f"  cd {shlex.quote(str(folder))}", soft_wrap=True)
    for purpose, arguments in NEXT_COMMANDS:
        console.print(f"  {command_line} {arguments}   # {purpose}", soft_wrap=True)


def program() -> str:
    """Give the command as it can be called from the demo's folder."""
    return "lakeward" if shutil.which("lakeward") else shlex.quote(str(Path(sys.argv[0]).absolute()))
