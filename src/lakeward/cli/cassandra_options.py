"""Options that commands for tables of Cassandra share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.cassandra.budget import Limits

_POSITIVE = click.FloatRange(min=0, min_open=True)


def cluster_option(help_text: str = "") -> Callable[[Any], Any]:
    """Add ``--cluster``."""
    return click.option(
        "--cluster", metavar="NAME|URI",
        help=help_text or "Cluster of the configuration, or cassandra://HOST:PORT, for a table that names none.  "
        "[default: the only one configured]",
    )  # fmt: skip


def read_limits(function: Any) -> Any:
    """Add the options that limit what is read."""
    return _limits(function, ("read_units", "--max-rcu", "RCU"), "read")


def write_limits(function: Any) -> Any:
    """Add the options that limit what is written."""
    return _limits(function, ("write_units", "--max-wcu", "WCU"), "written")


def both_limits(function: Any) -> Any:
    """Add the options for a command that reads one table and writes another."""
    function = click.option(
        "--max-rcu", "read_units", type=_POSITIVE, metavar="RCU", help="Read units per second, of the whole job."
    )(function)
    return write_limits(function)


def tasks_option(function: Any) -> Any:
    """Add ``--tasks``."""
    return click.option(
        "--tasks", type=click.IntRange(min=1), metavar="N", help="Tasks that work at one time.  [default: all cores]"
    )(function)


def limits_from(choices: dict[str, Any]) -> Limits:
    """Take the limits out of a command's options."""
    from lakeward.cassandra.budget import Limits

    return Limits(
        rows_per_second=choices.pop("rows_per_second", None),
        write_units=choices.pop("write_units", None),
        read_units=choices.pop("read_units", None),
    )


def _limits(function: Any, units: tuple[str, str, str], verb: str) -> Any:
    name, option, short = units
    for one in (
        click.option(option, name, type=_POSITIVE, metavar=short, help=f"{short} per second, of the whole job."),
        click.option(
            "--max-rows-per-second", "rows_per_second", type=_POSITIVE, metavar="ROWS",
            help=f"Rows {verb} per second, by all tasks of the job together.",
        ),
    ):  # fmt: skip
        function = one(function)
    return function
