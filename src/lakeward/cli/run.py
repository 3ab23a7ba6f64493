"""``lakeward plan``, ``run`` and ``watch``: show what a run would do, bring mirrors up to date, and keep them so."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from lakeward import to_json
from lakeward.cli.options import command, span, with_bare_option
from lakeward.cli.output import (
    add_row,
    age,
    count,
    emit,
    emit_line,
    error_line,
    ignored_rows,
    lines,
    note,
    rate,
    size,
    styled,
    table,
    warn,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from lakeward import (
        Config,
        LoadDecision,
        OpReport,
        RunOptions,
        RunReport,
        TablePlan,
        TableReport,
        WatchSettings,
    )
    from lakeward.cli.options import Invocation


_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[kmgt]?)(?:i?b)?", re.ASCII | re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def byte_size(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    """Return a size in bytes; the callback of an option."""
    if value is None:
        return None
    match = _SIZE.fullmatch(value.strip())
    if match is None or not (size := int(float(match["number"]) * _UNITS[match["unit"].lower()])):
        msg = f"{value!r} is not a size; expected bytes or a number with kB, MB or GB: 500MB"
        raise click.BadParameter(msg)
    return size


def time_limit(ctx: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """Return a span greater than zero in seconds; the callback of an option."""
    seconds = span(ctx, parameter, value)
    if seconds == 0:
        msg = "the limit must be greater than zero"
        raise click.BadParameter(msg)
    return seconds


def run_limits(function: Any) -> Any:
    """Add the options that bound a run."""
    for option in reversed(
        [
            click.option(
                "--parallel", type=click.IntRange(min=1), metavar="N",
                help="Number of tables to run at a time, highest priority first.  [default: as configured, 4]",
            ),
            click.option(
                "--max-files", type=click.IntRange(min=1), metavar="N",
                help="Read at most so many files, over all tables; the others wait for the next run.",
            ),
            click.option(
                "--max-bytes", callback=byte_size, metavar="SIZE",
                help="Read files up to this total size, over all tables, such as 500MB.",
            ),
            click.option(
                "--time-limit", callback=time_limit, metavar="SPAN",
                help="Start no further op of a table after this time, such as 10m; cancel an op that takes longer.",
            ),
        ]
    ):  # fmt: skip
        function = option(function)
    return function


def with_limits(options: RunOptions, choices: Mapping[str, Any]) -> RunOptions:
    """Return the options of a run with the limits that were chosen."""
    return replace(options, **{name: choices[name] for name in ("max_files", "max_bytes", "time_limit")})


def run_options(function: Any) -> Any:
    """Add the options that choose files and decide what a run may do."""
    for option in reversed(
        [
            click.option(
                "--file", "files", multiple=True, metavar="URI",
                help="Read only this landing file: a path under landing, a local path, a file:// or s3:// URI; "
                "repeatable.",
            ),
            click.option(
                "--allow-deletes", is_flag=True, help="Accept a batch that deletes more than max_delete_share."
            ),
            click.option(
                "--cut", metavar="TIME",
                help="Change files named at or after this time belong to the reload: 2024-04-05T00:30:52 (UTC unless "
                "it has an offset) or as in file names, 20240405-003052555. With files.order a file instead: file:PATH "
                "for the first that belongs to it, or after:PATH for the last that does not.",
            ),
            click.option("--same-load", is_flag=True, help="Load files with a new time were only copied or touched."),
            click.option(
                "--reload", is_flag=True, help="Load files that were written again are a reload, whatever they contain."
            ),
            click.option(
                "--keep-part", "keep_parts", multiple=True, metavar="PATH",
                help="This load file belongs to the load to be used; repeatable.",
            ),
            click.option(
                "--drop-part", "drop_parts", multiple=True, metavar="PATH",
                help="This load file does not belong to the load to be used; repeatable.",
            ),
            click.option(
                "--accept-changed", multiple=True, metavar="PATH",
                help="Ignore the new content of this file, which was read before; repeatable.",
            ),
        ]
    ):  # fmt: skip
        function = option(function)
    return function


def read_options(names: Sequence[str], choices: Mapping[str, Any]) -> RunOptions:
    """Return the options of a run."""
    from lakeward import RunOptions

    if choices["reload"] and not names:
        msg = "--reload decides about the load files of single tables: name the table"
        raise click.UsageError(msg)
    return RunOptions(
        allow_deletes=choices["allow_deletes"],
        files=choices["files"],
        cut=choices["cut"],
        same_load=choices["same_load"],
        reload=choices["reload"],
        keep_parts=choices["keep_parts"],
        drop_parts=choices["drop_parts"],
        accept_changed=choices["accept_changed"],
    )


_FILES_SHOWN = 5


@command("plan")
@click.argument("names", metavar="[TABLE…]", nargs=-1)
@run_options
def plan(invocation: Invocation, names: tuple[str, ...], **choices: object) -> int:
    """Show what a run would do next, table by table, without writing.

    If the run of a table would be refused, the reason is shown and the exit code is that of the run.
    """
    with invocation.lake() as lake:
        options = read_options(names, choices)
        plans = lake.plan(names, options=options)
    code = max((found.exit_code for found in plans), default=0)
    if not plans:
        note_idle(invocation)
    emit(
        invocation,
        {"exit_code": code, "tables": [found.to_dict() for found in plans]},
        lambda console: _draw_plans(console, plans),
    )
    for found in plans:
        if found.exit_code:
            error_line(found.message or "the run would fail", found.hint)
    return code


def _draw_plans(console: Console, plans: list[TablePlan]) -> None:
    for found in plans:
        if found.op is not None:
            _draw_planned_op(console, found, found.op)
        elif found.exit_code:
            console.print(f"{found.table}: would be refused")
        else:
            reason = f"waits: {found.message}" if found.message else "nothing to do"
            console.print(f"{found.table}: {reason}")
        if found.snapshots_due:
            console.print(f"{found.table}: snapshots due: {', '.join(found.snapshots_due)}")


def _draw_planned_op(console: Console, found: TablePlan, op: OpReport) -> None:
    waiting = count(found.files_waiting, "waiting file")
    late = ", reaching back before changes already applied" if op.late else ""
    console.print(f"{found.table}: op {op.op} ({op.kind}, generation {op.generation}{late})")
    names = list(found.files[:_FILES_SHOWN])
    more = f" and {len(found.files) - len(names):,} more" if len(found.files) > len(names) else ""
    entries = [
        ("files", f"{op.files:,} of {waiting}, {size(op.size)}: {', '.join(names)}{more}"),
        ("rows", _rows(op)),
        ("schema", "; ".join(op.schema_changes) or "no change"),
        ("strategy", f"{op.strategy}: {op.reason}"),
    ]
    if op.writes is not None or op.removals is not None:
        entries.append(("mirror", f"{op.writes or 0:,} keys written, {op.removals or 0:,} removed"))
    if op.decision is not None:
        entries.append(("load", _decision(op.decision)))
    if found.replaces is not None:
        changes = found.replaces
        rows = f"{changes.inserted:,} inserted, {changes.updated:,} updated, {changes.deleted:,} deleted"
        entries.append(("replaces", f"rows of the mirror: {rows}"))
    if op.unstable_files:
        entries.append(("left", f"still being written: {', '.join(op.unstable_files)}"))
    lines(console, entries)


def _decision(decision: LoadDecision) -> str:
    """Return which change files follow a load, and by what evidence."""
    names = [("new content", decision.changed), ("kept", decision.kept), ("dropped", decision.dropped)]
    parts = "".join(f"; {label}: {', '.join(paths)}" for label, paths in names if paths)
    shown = decision.shown_cut
    cut = f"change files from {shown} on follow it" if shown else "every change file follows it"
    counts = f"{decision.before:,} before, {decision.after:,} after"
    return f"{cut}, by {decision.evidence} ({counts}){parts}"


def _rows(op: OpReport) -> str:
    read = op.read
    parts = [
        count(read.inserts, "insert"),
        count(read.updates, "update"),
        count(read.deletes, "delete"),
        *([f"{read.bad:,} bad"] if read.bad else []),
    ]
    ignored = f"; {ignored_rows(read.ignored)}" if read.ignored else ""
    return f"{read.rows:,}: {', '.join(parts)}{ignored}"


_WAIT = "--wait"
_OUTCOME_STYLES = {"failed": "red", "locked": "yellow", "waiting": "yellow", "done": "green"}


@command("run", cls=with_bare_option(_WAIT, "inf"))
@click.argument("names", metavar="[TABLE…]", nargs=-1)
@click.option(
    _WAIT, type=click.FloatRange(min=0), default=0.0, metavar="[SECONDS]",
    help="Wait for a table that another writer holds, without SECONDS as long as necessary; otherwise it is skipped.",
)  # fmt: skip
@run_limits
@run_options
def run(invocation: Invocation, names: tuple[str, ...], wait: float, parallel: int | None, **choices: Any) -> int:
    """Bring mirrors up to date: all active tables, or those named.

    A table that fails does not stop the others. A table held by another writer is skipped and reported.
    """
    with invocation.lake() as lake:
        options = read_options(names, choices)
        report = lake.run(names, options=with_limits(options, choices), wait=wait, parallel=parallel)
    if not report.tables:
        note_idle(invocation)
    emit(invocation, report.to_dict(), lambda console: draw_report(console, report))
    report_reasons(invocation, report)
    return report.exit_code


def note_idle(invocation: Invocation) -> None:
    """Print a note that there is no active table."""
    note(invocation, "no table is active; lakeward discover finds tables, lakeward tables set TABLE … --activate")


def report_reasons(invocation: Invocation, report: RunReport) -> None:
    """Write to standard error why tables failed, wait or were skipped."""
    for done in report.tables:
        if done.outcome == "failed":
            error_line(done.message or f"{done.table} failed", done.hint)
        elif done.message:
            note(invocation, f"{done.table}: {done.message}")
        for warning in done.warnings:
            warn(f"{done.table}: {warning}")
        if done.maintenance is not None and done.maintenance.outcome == "failed":
            warn(f"{done.table}: maintenance failed: {done.maintenance.message}")


def draw_report(console: Console, report: RunReport) -> None:
    """Print the report of a run, one line per table."""
    drawn = table(
        "table", "outcome", "> ops", "> files", "> rows", "> inserts", "> updates", "> deletes", "> set aside",
        "> mirror rows", "> seconds", "> rows/s", "strategy",
    )  # fmt: skip
    for done in report.tables:
        add_row(drawn, [done.table, styled(done.outcome, _OUTCOME_STYLES.get(done.outcome, "dim")), *_figures(done)])
    console.print(drawn)
    for done in report.tables:
        if done.rows_ignored:
            console.print(f"{done.table}: {ignored_rows(done.rows_ignored)}")
        for snapshot in done.snapshots:
            console.print(f"{done.table}: snapshot {snapshot.version} {snapshot.action}: {snapshot.location}")
        if done.maintenance is not None and done.maintenance.work:
            work_done = ", ".join(f"{work.kind} {work.target}" for work in done.maintenance.work)
            console.print(f"{done.table}: maintained: {work_done}")
    failed = f", {len(report.failed):,} failed" if report.failed else ""
    console.print(f"{count(len(report.tables), 'table')}{failed}, {age(report.seconds)}")


def _figures(done: TableReport) -> list[Any]:
    read = [op.read for op in done.ops]
    strategies = dict.fromkeys(op.strategy for op in done.ops)
    return [
        len(done.ops),
        sum(op.files for op in done.ops),
        done.rows_in,
        sum(counts.inserts for counts in read),
        sum(counts.updates for counts in read),
        sum(counts.deletes for counts in read),
        done.rows_quarantined,
        done.mirror_rows,
        f"{done.seconds:.1f}",
        rate(done.rows_in, sum(op.seconds for op in done.ops)).removesuffix(" rows/s"),
        ", ".join(strategies),
    ]


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
    aside += "".join(f"  snapshot {snapshot.version} {snapshot.action}" for snapshot in done.snapshots)
    reason = f"  {done.message}" if done.message and done.outcome != "failed" else ""
    return f"{text}{aside}  {done.seconds:.1f} s{reason}"
