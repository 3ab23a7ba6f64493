"""What commands for tables of Cassandra share: their options, and the client that does their work."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from lakeward.cli.output import note

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakeward import CassandraClient, RateLimits
    from lakeward.cli.options import Invocation

_POSITIVE = click.FloatRange(min=0, min_open=True)


@contextmanager
def open_client(invocation: Invocation, cluster: str | None = None) -> Iterator[CassandraClient]:
    """Open the client for a command: it shows progress, and Ctrl-C ends it while Spark starts."""
    from lakeward import CassandraClient
    from lakeward.cli.progress import announcing

    with (
        announcing(invocation) as during,
        CassandraClient(
            invocation.config, cluster=cluster, on_progress=partial(note, invocation), during=during
        ) as client,
    ):
        yield client


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


def limits_from(choices: dict[str, Any]) -> RateLimits:
    """Take the limits out of a command's options."""
    from lakeward import RateLimits

    return RateLimits(
        rows_per_second=choices.pop("rows_per_second", None),
        write_units=choices.pop("write_units", None),
        read_units=choices.pop("read_units", None),
    )


def _limits(function: Any, units: tuple[str, str, str], verb: str) -> Any:
    name, option, short = units
    for add in (
        click.option(option, name, type=_POSITIVE, metavar=short, help=f"{short} per second, of the whole job."),
        click.option(
            "--max-rows-per-second", "rows_per_second", type=_POSITIVE, metavar="ROWS",
            help=f"Rows {verb} per second, by all tasks of the job together.",
        ),
    ):  # fmt: skip
        function = add(function)
    return function
