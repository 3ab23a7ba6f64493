"""Sample data: ``lakeward demo``, a shop that is loaded, changed and checked, and ``simulate``, a random source."""

from __future__ import annotations

import shlex
import shutil
import sys
import threading
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

import click

from lakeward.cli.failures import DONE, FAILED
from lakeward.cli.options import LakewardCommand, command
from lakeward.cli.output import add_row, age, count, emit, note, styled, table

if TYPE_CHECKING:
    from rich.console import Console

    from lakeward import CassandraDemoReport, DemoReport, SimulationResult
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

    DIR is ./lakeward-demo by default. Everything stays there for inspection.

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
    document = {"directory": str(folder), **report.to_dict()}
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


# All files are written together: options on the time at which files arrive have no meaning.
NOT_OFFERED = frozenset({"stages", "delay", "reorder", "late_load", "reload_fewer_parts", "truncates"})
HELP = {
    "seed": "The same seed and options produce the same files.",
    "tables": "Number of tables.",
    "rows": "Rows per table in the first load.",
    "changes": "Changes over all tables.",
    "batches": "How often the capture writes its files.",
    "format": "Format of files.",
    "header": "CSV files name their columns.",
    "gzip": "CSV files are compressed.",
    "delimiter": "Field delimiter of CSV files.",
    "null": "Unquoted text that means NULL in CSV files.",
    "unchanged": "Text for a column whose value an update does not contain.",
    "rfc4180": "CSV files are quoted according to RFC 4180.",
    "op_in_load": "Load files have an operation column.",
    "op_in_changes": "Change files have an operation column.",
    "timestamp_column": "Commit time column; none for no such column.",
    "change_sequence": "Files have AR_H_CHANGE_SEQ.",
    "before_image": "Which before-image columns change files have.",
    "row_group_rows": "Rows per row group of Parquet files.",
    "date_folders": "Change files are in date folders; none for no such folders.",
    "date_delimiter": "Delimiter inside date folders.",
    "segments": "Load parts are named or placed by segment.",
    "load_parts": "Number of load parts per table.",
    "load_start": "Counter of the first load part.",
    "odd_widths": "Counters and times have varying numbers of digits.",
    "transactions": "Changes come as CDC_TXN files with all tables in one.",
    "composite_keys": "Some keys have several columns.",
    "nullable_keys": "Some key values are NULL.",
    "keyless": "Some tables have no key.",
    "odd_names": "Names of columns contain blanks, quotes, dots, reserved words.",
    "odd_values": "Values contain quotes, newlines, extremes.",
    "null_updates": "Updates set columns to NULL.",
    "null_means_unchanged": "NULL in some columns of an update means that the value did not change.",
    "key_only_deletes": "Deletes carry only the key.",
    "odd_operations": "The source inserts what exists and deletes what does not.",
    "change_keys": "Updates change keys; needs --before-image.",
    "shuffle_keys": "Rows take each other's keys within a commit: shifts, swaps, cycles; needs --change-keys.",
    "add_columns": "Tables get new columns over time.",
    "drop_columns": "Tables lose columns over time; their mirrors keep them.",
    "overlap": "Changes that are both in the first load and in change files.",
    "reloads": "How often tables are reloaded.",
    "duplicate": "Share of changes or files that are delivered twice.",
    "split": "Share of files that are split in two.",
    "empty_files": "Share of change files without a row.",
    "bad_rows": "Share of changes followed by a bad row, which is set aside.",
}
_TYPES: dict[type, click.ParamType[Any]] = {int: click.INT, float: click.FLOAT, str: click.STRING}


class _SimulateCommand(LakewardCommand):
    """A command with the simulator's options, which are loaded only when it is used."""

    _offered: list[click.Parameter] | None = None

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the simulator's options, then those of every command."""
        if self._offered is None:
            self._offered = _simulator_options()
        return [*self._offered, *super().get_params(ctx)]


@command("simulate", cls=_SimulateCommand)
@click.argument("directory", metavar="DIR")
def simulate(invocation: Invocation, directory: str, **chosen: Any) -> None:
    """Write landing files of a random source into DIR, with the true final rows beside them as Parquet.

    DIR gets landing/, truth/ and a lakeward.yaml for `lakeward run --config DIR/lakeward.yaml`.
    """
    from lakeward import SimulatorOptions, write_simulation

    result = write_simulation(directory, SimulatorOptions(**chosen))
    emit(invocation, result.to_dict(), lambda console: _draw_simulation(console, result))


def _draw_simulation(console: Console, result: SimulationResult) -> None:
    console.print(f"{count(result.files, 'file')} with {count(result.changes, 'change')} in {result.landing}")
    drawn = table("table", "> rows at the end")
    for name, rows in result.rows.items():
        add_row(drawn, [name, rows])
    console.print(drawn)
    console.print(f"truth: {result.truth}")
    console.print(f"next: lakeward run --config {result.configuration}")


def _simulator_options() -> list[click.Parameter]:
    from dataclasses import fields

    from lakeward import SimulatorOptions

    types = get_type_hints(SimulatorOptions)
    offered = [field for field in fields(SimulatorOptions) if field.name not in NOT_OFFERED]
    return [_option(field.name, types[field.name], field.default) for field in offered]


def _option(name: str, value_type: Any, default: Any) -> click.Option:
    flag, text = f"--{name.replace('_', '-')}", HELP[name]
    if value_type is bool:
        return click.Option([f"{flag}/--no-{flag.removeprefix('--')}"], default=default, show_default=True, help=text)
    is_optional = type(None) in get_args(value_type)
    plain = (
        next(argument for argument in get_args(value_type) if argument is not type(None)) if is_optional else value_type
    )
    return click.Option(
        [flag],
        type=_OrNone(_click_type(plain)) if is_optional else _click_type(plain),
        default="none" if default is None else default,
        show_default=True,
        help=text,
    )


def _click_type(value_type: Any) -> click.ParamType[Any]:
    if get_origin(value_type) is Literal:
        return click.Choice(get_args(value_type))
    return _TYPES[value_type]


class _OrNone(click.ParamType[Any]):
    """A value, or the word none."""

    def __init__(self, inner: click.ParamType[Any]) -> None:
        self._inner = inner
        self.name = inner.name

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Show the choices, and none."""
        return (self._inner.get_metavar(param, ctx) or self._inner.name.upper()).removesuffix("]").lstrip("[") + "|none"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a value; None for the word none."""
        return None if value is None or value == "none" else self._inner.convert(value, param, ctx)
