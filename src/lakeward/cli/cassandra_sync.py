"""``lakeward cassandra sync``: a copy of a table kept current by shipping what changed."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from lakeward.cli.cassandra_options import both_limits, cluster_option, limits_from, tasks_option
from lakeward.cli.cassandra_written import ledger_beside
from lakeward.cli.options import command
from lakeward.cli.output import emit, emit_line, note, warn
from lakeward.cli.spans import span
from lakeward.texts import to_json
from lakeward.words import count

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from lakeward.api.cassandra import CassandraDesk
    from lakeward.cassandra.names import TableName
    from lakeward.cassandra.sync_work import SyncRequest
    from lakeward.cassandra.syncing import SyncReport
    from lakeward.cli.invocation import Invocation

_FAILED = 3


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
    from lakeward.api.cassandra import CassandraDesk
    from lakeward.cli.waiting import telling

    with telling(invocation) as during, CassandraDesk(invocation.config, during=during) as desk:
        request = _request(desk, choices)
        rounds = _Rounds(invocation, desk, request)
        if choices["watch"]:
            return rounds.for_ever(_landings(desk, request, choices["poll"]))
        if choices["every"] is not None:
            return rounds.for_ever(_intervals(choices["every"]))
        report = rounds.once()
    for line in report.warnings:
        warn(line)
    emit(invocation, report.to_document(), lambda console: _draw(console, report))
    return _FAILED if report.rejected else 0


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


def _request(desk: CassandraDesk, choices: dict[str, Any]) -> SyncRequest:
    from lakeward.cassandra.budget import Limits
    from lakeward.cassandra.sync_steps import First
    from lakeward.cassandra.sync_work import SyncRequest

    into = desk.table(choices["into"], choices["cluster"])
    source = desk.table(choices["source"], choices["cluster"]) if choices["source"] else None
    table = source.name if source is not None else into.name
    if choices["table"]:
        table = _named_table(choices["table"])
    limits = limits_from(dict(choices))
    return SyncRequest(
        source=source.address if source is not None else None,
        table=table,
        target=into.address,
        into=into.name,
        to=choices["to"],
        first=First(choices["first"]) if choices["first"] else None,
        any_cluster=choices["any_cluster"],
        keep=choices["keep"],
        create_table=choices["create_table"],
        writetime=choices["writetime"],
        ttl=choices["ttl"],
        timestamp=choices["timestamp"],
        max_delete_share=choices["max_delete_share"],
        export_limits=Limits(rows_per_second=limits.rows_per_second, read_units=limits.read_units),
        limits=Limits(rows_per_second=limits.rows_per_second, write_units=limits.write_units),
        tasks=choices["tasks"],
        ledger=ledger_beside(into, choices["ledger"]),
        dead_letters=choices["dead_letters"],
    )


def _named_table(text: str) -> TableName:
    from lakeward.cassandra.names import TableAddress

    found = TableAddress.parse(text)
    if found.cluster is not None:
        msg = f"--table {found}: exports are looked for below --to, and no cluster is asked; expected {found.name}"
        raise click.UsageError(msg)
    return found.name


class _Rounds:
    """Rounds of a sync, one after the other."""

    def __init__(self, invocation: Invocation, desk: CassandraDesk, request: SyncRequest) -> None:
        self._invocation, self._desk, self._request = invocation, desk, request

    def once(self) -> SyncReport:
        from lakeward.cassandra.sync_work import sync_once

        return sync_once(self._desk.spark, self._desk.config, self._request, tell=partial(note, self._invocation))

    def for_ever(self, wait: Callable[[SyncReport | None], None]) -> int:
        """Do rounds until a signal ends it; errors that pass are told, all others end it.

        ``wait`` waits for the next one, and is told what came of this one, None where it failed.
        """
        from lakeward.cli.process import raise_if_interrupted
        from lakeward.errors import ConflictError, RetriableError

        while True:
            try:
                report = self.once()
                self._tell(report)
                raise_if_interrupted()
                wait(report)
            except (RetriableError, ConflictError) as error:
                raise_if_interrupted()
                warn(f"{error.message}; tried again with the next round")
                wait(None)
            raise_if_interrupted()

    def _tell(self, report: SyncReport) -> None:
        for line in report.warnings:
            warn(line)
        if self._invocation.is_json:
            emit_line(self._invocation, to_json(report.to_document()))
        elif report.steps:
            emit_line(self._invocation, f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}  {'  '.join(_lines(report))}")


def _intervals(every: float) -> Callable[[SyncReport | None], None]:
    """Give what waits for the next beginning of a round; one that took longer is followed at once."""
    began = time.monotonic()

    def wait(_report: SyncReport | None) -> None:
        nonlocal began
        time.sleep(max(began + every - time.monotonic(), 0))
        began = time.monotonic()

    return wait


def _landings(desk: CassandraDesk, request: SyncRequest, poll: float | None) -> Callable[[SyncReport | None], None]:
    """Give what waits for the next export of another job."""
    from lakeward.cassandra.export_folders import name_in
    from lakeward.cassandra.folder_watch import REMOTE_POLL, wait_for_export
    from lakeward.cassandra.sync_work import export_folder

    folder = export_folder(desk.spark, desk.config, request)

    def wait(report: SyncReport | None) -> None:
        if report is None:
            time.sleep(poll or REMOTE_POLL)
        else:
            wait_for_export(folder, name_in(report.holds or {}), poll)

    return wait


def _draw(console: Console, report: SyncReport) -> None:
    for line in _lines(report):
        console.print(line)
    if report.holds is not None:
        console.print(f"the copy holds {report.holds['location']}")


def _lines(report: SyncReport) -> list[str]:
    """Say what was done, a line for each step that a person cares for."""
    found = [report.status]
    for one in report.steps:
        result = one.result
        if "upserted" in result:
            found.append(f"{one.action}: {result['upserted']:,} upserted, {result['deleted']:,} deleted")
        elif "rows" in result:
            found.append(f"{one.action}: {result['rows']:,} rows in {result['folder']}")
        if one.rejected:
            rows = count(one.rejected, "row was refused; it is", "rows were refused; they are")
            found.append(f"{rows} in {result['dead_letters']}")
    found += [f"{len(report.removed):,} old exports and change sets removed"] if report.removed else []
    return found
