"""The command ``lakeward``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from lakeward import __version__
from lakeward.cli.cassandra import cassandra
from lakeward.cli.corrections import erase, quarantine, undo
from lakeward.cli.diff import diff, patch
from lakeward.cli.failures import guarded
from lakeward.cli.history import changes, history, scd2
from lakeward.cli.maintain import maintain
from lakeward.cli.options import Invocation, common_options
from lakeward.cli.points import points
from lakeward.cli.process import end_on_signals, reserve_stdout
from lakeward.cli.project import discover, doctor, init, state
from lakeward.cli.run import plan, run, watch
from lakeward.cli.samples import demo, simulate
from lakeward.cli.snapshot import snapshot
from lakeward.cli.sql import sql
from lakeward.cli.status import runs, status
from lakeward.cli.tables import tables
from lakeward.cli.verify import verify

if TYPE_CHECKING:
    from collections.abc import Sequence


class _Root(click.Group):
    """The top-level group, which lists commands in the order of their use and reports errors."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order in which they were added."""
        return list(self.commands)

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, *_: Any, **extra: Any) -> Any:
        """Run the command and exit with its exit code."""
        arguments = list(sys.argv[1:] if args is None else args)
        invocation = extra.get("obj") or Invocation()
        command = super().main
        sys.exit(
            guarded(
                lambda: command(arguments, prog_name, standalone_mode=False, obj=invocation),
                invocation,
                arguments,
            )
        )


@click.group(cls=_Root, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@common_options()
@click.version_option(__version__, prog_name="lakeward", message="%(prog)s %(version)s")
def cli() -> None:
    """Keep an exact, queryable copy of operational databases in a data lake.

    Start with `lakeward demo`, or with `lakeward init` in your own folder.

    Results go to standard output, everything else to standard error. Exit codes: 0 done, 1 a finding that the
    command was asked to report, 2 usage, configuration or refused input, 3 some table failed and the others are done,
    130 interrupted.
    """


for _command in (
    init,
    demo,
    doctor,
    discover,
    tables,
    plan,
    run,
    watch,
    status,
    runs,
    sql,
    history,
    changes,
    scd2,
    snapshot,
    points,
    quarantine,
    verify,
    undo,
    erase,
    maintain,
    diff,
    patch,
    cassandra,
    state,
    simulate,
):
    cli.add_command(_command)


def main() -> None:
    """Run the command line as a separate process."""
    reserve_stdout()
    end_on_signals()
    cli.main(prog_name="lakeward")


if __name__ == "__main__":
    main()
