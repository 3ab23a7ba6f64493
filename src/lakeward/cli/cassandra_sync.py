"""``lakeward cassandra sync``: a copy of a table kept current by shipping what changed."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from lakeward.cli.cassandra_options import both_limits, cluster_option, limits_from, open_client, tasks_option
from lakeward.cli.failures import DONE, FAILED
from lakeward.cli.options import command, span
from lakeward.cli.output import count, emit, emit_json_line, emit_line, warn

if TYPE_CHECKING:
    from rich.console import Console

    from lakeward import SyncReport
    from lakeward.cli.options import Invocation
    from lakeward.errors import LakewardError


@command("sync")
@click.option("--from", "source", metavar="TABLE", help="The table to copy: [CLUSTER/]KEYSPACE.TABLE.")
@click.option("--into", required=True, metavar="TABLE", help="The copy: [CLUSTER/]KEYSPACE.TABLE.")
@click.option(
    "--to", required=True, metavar="URI", help="Folder of exports and change sets, below it in KEYSPACE/TABLE/."
)
@cluster_option()
@click.option("--every", callback=span, metavar="SPAN", help="Again at this interval, such as 1h, until Ctrl-C.")
@click.option(
    "--watch", is_flag=True,
    help="Without --from: wait for complete exports that another job puts into the folder, and apply each in order.",
)  # fmt: skip
@click.option(
    "--poll", callback=span, metavar="SPAN",
    help="With --watch: how often the folder is looked at.  [default: 5s, elsewhere than on a disk 30s]",
)  # fmt: skip
@click.option(
    "--table", metavar="KEYSPACE.TABLE", help="Without --from: whose exports are followed.  [default: that of --into]"
)
@click.option(
    "--first", type=click.Choice(("import", "assume")),
    help="A copy that has rows of which nothing is recorded: write the export over them, or take them for what it "
    "holds.  [default: refuse]",
)  # fmt: skip
@click.option(
    "--any-cluster", is_flag=True,
    help="Follow exports of whichever cluster: that of --from had another name, or its table has moved.",
)  # fmt: skip
@click.option("--create-table", is_flag=True, help="Make the copy's table where there is none.")
@click.option("--with-writetime", "writetime", is_flag=True, help="Keep when each value was written.")
@click.option("--with-ttl", "ttl", is_flag=True, help="Keep when each value expires too.")
@click.option(
    "--timestamp", default="snapshot", show_default=True, metavar="snapshot|now|MICROS",
    help="Time at which changes are written; now for copies without client timestamps.",
)  # fmt: skip
@click.option(
    "--max-delete-share", type=click.FloatRange(min=0, max=1), metavar="SHARE",
    help="Refuse where more of the copy's rows would be deleted.  [default, from 1,000 rows on: 0.5]",
)  # fmt: skip
@click.option(
    "--keep", type=click.IntRange(min=1), metavar="N",
    help="Keep so many exports, and always the one that the copy holds.  [default: all]",
)  # fmt: skip
@click.option("--ledger", metavar="KEYSPACE.TABLE", help="Where the copy's state is kept.  [default: beside the copy]")
@click.option("--dead-letters", metavar="URI", help="Folder for rows that the copy's cluster refuses.")
@tasks_option
@both_limits
def sync(invocation: Invocation, **choices: Any) -> int:
    """Keep a copy of a table current: export it, compare with what the copy holds, apply the difference.

    The first time the copy is filled from the whole export. A sync that was interrupted, or killed, is finished by the
    next one before it exports anew: exports and change sets in the folder and a small table beside the copy tell what
    is open. Passing errors of a sync with --every or --watch are told, and it goes on with the next round.

    --output json writes one line per round with --every and --watch. Exit code 3: rows were refused.
    """
    _require_fitting(choices)
    every, poll, watch = choices.pop("every"), choices.pop("poll"), choices.pop("watch")
    limits = limits_from(choices)
    with open_client(invocation, choices.pop("cluster")) as client:
        if watch or every is not None:
            client.keep_in_sync(
                every=every,
                poll=poll,
                on_report=partial(_show_round, invocation),
                on_error=_warn_of,
                stop=_raise_if_interrupted,
                limits=limits,
                **choices,
            )
            return DONE
        report = client.sync(limits=limits, **choices)
    for line in report.warnings:
        warn(line)
    emit(invocation, report.to_dict(), lambda console: _draw(console, report))
    return FAILED if report.rejected else DONE


def _require_fitting(choices: dict[str, Any]) -> None:
    """Refuse options that contradict each other."""
    if choices["source"] and (choices["watch"] or choices["table"]):
        msg = "--watch and --table are for exports of another job; with --from use --every"
        raise click.UsageError(msg)
    if choices["every"] is not None and not choices["source"]:
        msg = "--every needs --from; --watch follows the exports of another job"
        raise click.UsageError(msg)
    if choices["poll"] is not None and not choices["watch"]:
        msg = "--poll is for --watch"
        raise click.UsageError(msg)


def _show_round(invocation: Invocation, report: SyncReport) -> None:
    for line in report.warnings:
        warn(line)
    if invocation.is_json:
        emit_json_line(invocation, report.to_dict())
    elif report.steps:
        emit_line(invocation, f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}  {'  '.join(_lines(report))}")


def _warn_of(error: LakewardError) -> None:
    warn(f"{error.message}; tried again with the next round")


def _raise_if_interrupted() -> bool:
    """End the rounds as Ctrl-C does, if a signal came while nothing could be raised; otherwise they go on."""
    from lakeward.cli.process import raise_if_interrupted

    raise_if_interrupted()
    return False


def _draw(console: Console, report: SyncReport) -> None:
    for line in _lines(report):
        console.print(line)
    if report.holds is not None:
        console.print(f"the copy holds {report.holds['location']}")


def _lines(report: SyncReport) -> list[str]:
    """Return what was done, a line for each step with rows."""
    found = [report.status]
    for step in report.steps:
        result = step.result
        if "upserted" in result:
            found.append(f"{step.action}: {result['upserted']:,} upserted, {result['deleted']:,} deleted")
        elif "rows" in result:
            found.append(f"{step.action}: {result['rows']:,} rows in {result['folder']}")
        if step.rejected:
            rows = count(step.rejected, "row was refused; it is", "rows were refused; they are")
            found.append(f"{rows} in {result['dead_letters']}")
    found += [f"{len(report.removed):,} old exports and change sets removed"] if report.removed else []
    return found
