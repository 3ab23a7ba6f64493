"""Options that every command has, and the command class that obeys them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lakeward.cli.invocation import Invocation
from lakeward.cli.process import set_up_logging

if TYPE_CHECKING:
    from collections.abc import Callable

pass_invocation = click.make_pass_decorator(Invocation, ensure=True)

# The largest number of rows that SQLite, Spark and DynamoDB all take for a limit.
MOST_SHOWN = 1_000_000_000


class LakewardCommand(click.Command):
    """A command that sets up logging once all options are known."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        invocation = ctx.ensure_object(Invocation)
        set_up_logging(debug=invocation.debug, quiet=invocation.quiet, log_format=invocation.log_format)
        return super().invoke(ctx)


def _keep(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
    """Note a global option where it is given; a later place wins over an earlier one."""
    if value is not None and parameter.name is not None:
        setattr(ctx.ensure_object(Invocation), parameter.name, value)


def is_common(parameter: click.Parameter) -> bool:
    """Tell the global options from a command's own."""
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
                    help="Show whole tracebacks and the log of Spark.",
                ),
                click.option(
                    "-q", "--quiet", is_flag=True, default=None, expose_value=False, callback=_keep,
                    help="Show no progress and no notes; warnings and errors stay.",
                ),
                click.option(
                    "--log-format", type=click.Choice(("auto", "text", "json")), expose_value=False, callback=_keep,
                    help="Form of the log on standard error: lines for eyes, or one JSON object per line.  "
                    "[default: text on a terminal, json elsewhere]",
                ),
            ]
        ):  # fmt: skip
            function = option(function)
        return function

    return decorate


def command(name: str, *, outputs: tuple[str, ...] = ("text", "json"), **settings: Any) -> Callable[[Any], Any]:
    """Make a function a command with the global options; it is handed the invocation first."""

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
