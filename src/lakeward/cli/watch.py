"""``lakeward watch``: keep mirrors up to date as files land."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from lakeward import to_json
from lakeward.cli.options import command, span
from lakeward.cli.output import count, emit_line, error_line, note

if TYPE_CHECKING:
    from lakeward import Config, RunReport, TableReport, WatchSettings
    from lakeward.cli.options import Invocation


@command("watch")
@click.argument("names", metavar="[TABLE…]", nargs=-1)
@click.option("--queue", metavar="URL", help="SQS queue with the landing bucket's events.  [default: watch.queue]")
@click.option(
    "--every", callback=span, metavar="SPAN", help="Run at this interval, such as 10m, instead of watching the folder."
)
@click.option(
    "--cron", metavar="EXPR", help="Run at the times of a cron expression, such as '0 * * * *', instead of watching."
)
@click.option("--timezone", metavar="ZONE", help="Time zone of --cron.  [default: UTC]")
@click.option(
    "--settle", callback=span, metavar="SPAN", help="Collect files until none arrived for this long.  [default: 0.3]"
)
@click.option(
    "--rescan", callback=span, metavar="SPAN",
    help="Check every table this often, in case an event for a file was lost; 0: never.  [default: 10m]",
)  # fmt: skip
@click.option(
    "--prefix", multiple=True, metavar="PATH", help="Only files whose path under landing starts with this; repeatable."
)
@click.option("--suffix", multiple=True, metavar="TEXT", help="Only files whose path ends with this; repeatable.")
@click.option(
    "--metrics-port", type=click.IntRange(1, 65_535), metavar="PORT",
    help="Serve metrics for Prometheus at /metrics on this port.  [default: metrics.port]",
)  # fmt: skip
@click.option("--once", is_flag=True, help="Run what waits (with --queue also its messages), then exit.")
def watch(
    invocation: Invocation, names: tuple[str, ...], *, once: bool, metrics_port: int | None, **choices: Any
) -> int:
    """Keep mirrors up to date as files land: all active tables, or those named.

    Keeps one Spark application running. First runs everything that waits, then the tables whose files land: notified by
    the operating system for a local landing folder, by a queue for S3, or found on a schedule. A table that fails does
    not end it; Ctrl-C and SIGTERM do, cleanly, with exit code 130.

    --output json writes one line per run, a RunReport each.
    """
    from lakeward.cli.progress import NoProgress, open_lake

    with open_lake(invocation.config, NoProgress()) as lake:
        settings = _settings(lake.config, choices)
        if port := metrics_port or lake.config.metrics.port:
            lake.metrics.serve(port, lake.config.metrics.address)
        watcher = lake.watch(names, settings=settings, observers=[_Lines(invocation)])
        if once:
            report = watcher.once()
            return report.exit_code if report else 0
        note(invocation, f"watching {lake.config.landing}; Ctrl-C ends it")
        watcher.run()
    return 0


def _settings(config: Config, choices: dict[str, Any]) -> WatchSettings:
    """Return the configured settings with the options that were set."""
    chosen = {name: value for name, value in choices.items() if value is not None and value != ()}
    return config.watch.model_validate({**config.watch.model_dump(), **chosen})


class _Lines:
    """Output of every run: a line per table that had something to do, or a JSON document per run."""

    def __init__(self, invocation: Invocation) -> None:
        self._invocation = invocation

    def run_finished(self, report: RunReport) -> None:
        """Write one run."""
        if self._invocation.is_json:
            emit_line(self._invocation, to_json(report.to_dict()))
            return
        for done in report.tables:
            if done.outcome != "idle":
                emit_line(self._invocation, f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}  {_line(done)}")
            if done.outcome == "failed":
                error_line(done.message or f"{done.table} failed", done.hint)
        sys.stderr.flush()


def _line(done: TableReport) -> str:
    files = count(sum(op.files for op in done.ops), "file")
    text = f"{done.table}  {done.outcome}  {count(len(done.ops), 'op')}  {files}  {count(done.rows_in, 'row')}"
    aside = f"  {count(done.rows_quarantined, 'row')} set aside" if done.rows_quarantined else ""
    reason = f"  {done.message}" if done.message and done.outcome != "failed" else ""
    return f"{text}{aside}  {done.seconds:.1f} s{reason}"
