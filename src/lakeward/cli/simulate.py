"""``lakeward simulate``: write the files of a random source, to test a pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

import click

from lakeward.cli.options import LakewardCommand, command
from lakeward.cli.output import add_row, count, emit, table

if TYPE_CHECKING:
    from rich.console import Console

    from lakeward import SimulationResult
    from lakeward.cli.options import Invocation

# All files are written at once: options on the time at which files arrive have no meaning.
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
    document = {
        "directory": str(result.directory),
        "landing": str(result.landing),
        "truth": str(result.truth),
        "configuration": str(result.configuration),
        "files": result.files,
        "changes": result.changes,
        "rows": {str(name): rows for name, rows in result.rows.items()},
    }
    emit(invocation, document, lambda console: _draw(console, result))


def _draw(console: Console, result: SimulationResult) -> None:
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
