"""Global options, values of options, questions to the user, and the decorators that make commands."""

from __future__ import annotations

import math
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import click

from lakeward.cli.process import set_up_logging
from lakeward.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lakeward import Lakeward


@dataclass
class Invocation:
    """A call of the command: its global options, before or after the subcommand (the later one counts).

    ``has_output``: standard output holds part of a result, to which no error document may be added.
    ``has_reader``: the reader was still there when the last result was written.
    """

    config: str | None = None
    output: str = "text"
    debug: bool = False
    quiet: bool = False
    log_format: Literal["auto", "text", "json"] = "auto"
    has_output: bool = False
    has_reader: bool = True

    @property
    def is_json(self) -> bool:
        """Whether the result is written as JSON."""
        return self.output == "json"

    @contextmanager
    def lake(self) -> Iterator[Lakeward]:
        """Open the configured lake, with progress on standard error until the block ends; print results after it."""
        from lakeward.cli.progress import open_lake, open_progress

        with open_progress(quiet=self.quiet) as progress, open_lake(self.config, progress) as lake:
            yield lake


def span(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> float | None:
    """Return a span in seconds; the callback of an option."""
    if value is None:
        return None
    # Settings load pydantic, which --help need not wait for.
    from lakeward import parse_span

    try:
        return parse_span(value)
    except ConfigurationError as error:
        raise click.BadParameter(error.message) from None


def with_number(arguments: Sequence[str], option: str, default: str) -> list[str]:
    """Add the default value to a bare option: what follows it is its value only if it is a number."""
    return [
        f"{option}={default}" if argument == option and not _is_number(after) else argument
        for argument, after in pairwise([*arguments, ""])
    ]


def _is_number(text: str) -> bool:
    try:
        return not math.isnan(float(text))
    except ValueError:
        return False


def require_answerable(*, yes: bool) -> None:
    """Raise if consent is needed and nobody can be asked for it; called before anything starts.

    Raises:
        UsageError: there is no terminal to ask on, and --yes is missing.
    """
    if not yes and not (sys.stdin.isatty() and sys.stderr.isatty()):
        msg = "there is no terminal to ask on: use --yes, or look first with --dry-run"
        raise click.UsageError(msg)


def confirmed(question: str, *, yes: bool) -> bool:
    """Whether the user agrees; asks on the terminal unless --yes was set."""
    return yes or click.confirm(question, err=True)


pass_invocation = click.make_pass_decorator(Invocation, ensure=True)

# The largest limit of rows that SQLite, Spark and DynamoDB all accept.
MOST_SHOWN = 1_000_000_000


class LakewardCommand(click.Command):
    """A command that sets up logging once all options are known."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        invocation = ctx.ensure_object(Invocation)
        set_up_logging(debug=invocation.debug, quiet=invocation.quiet, log_format=invocation.log_format)
        return super().invoke(ctx)


def with_bare_option(option: str, default: str) -> type[LakewardCommand]:
    """Return a kind of command whose option may precede a table's name: only a number after it is its value."""

    class Command(LakewardCommand):
        def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
            """Add the default value to the bare option before click looks for one."""
            return super().parse_args(ctx, with_number(args, option, default))

    return Command


def _keep(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
    """Store a global option; the last occurrence on the command line counts."""
    if value is not None and parameter.name is not None:
        setattr(ctx.ensure_object(Invocation), parameter.name, value)


def is_common(parameter: click.Parameter) -> bool:
    """Whether an option is one of the global options."""
    return parameter.callback is _keep


def common_options(*, outputs: tuple[str, ...] = ("text", "json")) -> Callable[[Any], Any]:
    """Add the global options; they work before and after the name of the subcommand."""

    def decorate(function: Any) -> Any:
        for option in reversed(
            [
                click.option(
                    "--config", metavar="FILE", expose_value=False, callback=_keep,
                    help="Configuration file.  [default: lakeward.yaml, or $LAKEWARD_CONFIG]",
                ),
                click.option(
                    "--output", type=click.Choice(outputs), expose_value=False, callback=_keep,
                    help="Form of the result on standard output.  [default: text]",
                ),
                click.option(
                    "--debug", is_flag=True, default=None, expose_value=False, callback=_keep,
                    help="Show full tracebacks and the log of Spark.",
                ),
                click.option(
                    "-q", "--quiet", is_flag=True, default=None, expose_value=False, callback=_keep,
                    help="Show no progress and no notes; warnings and errors stay.",
                ),
                click.option(
                    "--log-format", type=click.Choice(("auto", "text", "json")), expose_value=False, callback=_keep,
                    help="Form of the log on standard error: lines for people, or one JSON object per line.  "
                    "[default: text on a terminal, json elsewhere]",
                ),
            ]
        ):  # fmt: skip
            function = option(function)
        return function

    return decorate


# Formats of files that commands read.
INPUTS = ("parquet", "orc", "json", "csv", "spark-csv")


def named_columns(text: str | None) -> tuple[str, ...]:
    """Return the names in a comma-separated list of columns."""
    return tuple(name.strip() for name in text.split(",") if name.strip()) if text else ()


def csv_columns_option(function: Any) -> Any:
    """Add ``--csv-columns``."""
    return click.option(
        "--csv-columns", metavar="COLUMN,…",
        help="Columns of change sets that are CSV files without a line of names, as Spark writes them, in their order: "
        "diff,id,left_name,right_name.",
    )(function)  # fmt: skip


def command(name: str, *, outputs: tuple[str, ...] = ("text", "json"), **settings: Any) -> Callable[[Any], Any]:
    """Make a function a command with the global options; its first argument is the invocation."""

    def decorate(function: Any) -> Any:
        settings.setdefault("cls", LakewardCommand)
        decorated: Any = common_options(outputs=outputs)(pass_invocation(function))
        make: Any = click.command(name, **settings)
        made = make(decorated)
        # A command's own options come first in its help.
        made.params.sort(key=is_common)
        return made

    return decorate


def group(name: str) -> Callable[[Any], Any]:
    """Make a function a group of commands with the global options."""

    def decorate(function: Any) -> Any:
        return click.group(name)(common_options()(function))

    return decorate
