"""How much one run may do: tables at a time, files, bytes, time per table."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from lakeward.cli.spans import span

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward import RunOptions

_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[kmgt]?)(?:i?b)?", re.ASCII | re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def byte_size(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    """Read a number of bytes; an option's callback."""
    if value is None:
        return None
    match = _SIZE.fullmatch(value.strip())
    if match is None or not (size := int(float(match["number"]) * _UNITS[match["unit"].lower()])):
        msg = f"{value!r} is not a size; expected bytes or a number with kB, MB or GB: 500MB"
        raise click.BadParameter(msg)
    return size


def time_limit(ctx: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """Read a span in which something may be done; an option's callback."""
    seconds = span(ctx, parameter, value)
    if seconds == 0:
        msg = "a limit of no time leaves none to work in"
        raise click.BadParameter(msg)
    return seconds


def run_limits(function: Any) -> Any:
    """Add the options that bound a run."""
    for option in reversed(
        [
            click.option(
                "--parallel", type=click.IntRange(min=1), metavar="N",
                help="Tables that run at one time, those of the highest priority first.  [default: as configured, 4]",
            ),
            click.option(
                "--max-files", type=click.IntRange(min=1), metavar="N",
                help="Take in at most so many files, over all tables; the rest waits for the next run.",
            ),
            click.option(
                "--max-bytes", callback=byte_size, metavar="SIZE",
                help="Take in files up to this size, over all tables, such as 500MB.",
            ),
            click.option(
                "--time-limit", callback=time_limit, metavar="SPAN",
                help="Begin no further op of a table after this time, such as 10m; cancel an op that takes as long.",
            ),
        ]
    ):  # fmt: skip
        function = option(function)
    return function


def with_limits(options: RunOptions, choices: Mapping[str, Any]) -> RunOptions:
    """Give the options of a run with its limits."""
    return replace(options, **{name: choices[name] for name in ("max_files", "max_bytes", "time_limit")})
