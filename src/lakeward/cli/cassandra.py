"""``lakeward cassandra``: export, import, compare and synchronise tables of Cassandra and Amazon Keyspaces."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from lakeward.cli.cassandra_options import (
    both_limits,
    cluster_option,
    limits_from,
    open_client,
    read_limits,
    show_written,
    tasks_option,
    write_limits,
    writing_options,
)
from lakeward.cli.cassandra_rows import count_rows, delete, top_partitions, ttl
from lakeward.cli.failures import DONE, FAILED
from lakeward.cli.options import INPUTS, MOST_SHOWN, command, csv_columns_option, group, named_columns, span
from lakeward.cli.output import count, emit, emit_json_line, emit_line, note, warn

if TYPE_CHECKING:
    from rich.console import Console

    from lakeward import ComparisonReport, ExportReport, SyncReport
    from lakeward.cli.options import Invocation
    from lakeward.errors import LakewardError


# ``lakeward cassandra export``: write a table as a snapshot.


@command("export")
@click.argument("table", metavar="[CLUSTER/]KEYSPACE.TABLE")
@click.option(
    "--to", required=True, metavar="URI",
    help="Folder of exports: a path, s3://bucket/prefix or another URI. The export is below it, in "
    "KEYSPACE/TABLE/snapshot/year=…/…/minute=… of its start (UTC).",
)  # fmt: skip
@cluster_option()
@click.option(
    "--format", "format_", type=click.Choice(("parquet", "json", "csv")), default="parquet", show_default=True,
    help="Format of the files. CSV holds no collections, tuples or user-defined types.",
)  # fmt: skip
@click.option(
    "--layout", type=click.Choice(("set", "plain")),
    help="set: in buckets by key with checksums, which compares fast; plain: files as they were read, which costs less "
    "to write.  [default: set; plain for JSON and CSV]",
)  # fmt: skip
@click.option(
    "--where", metavar="CQL", help="Export only the rows that meet a condition: \"day >= '2026-11-01' AND state = 3\"."
)
@click.option("--columns", metavar="COLUMN,…", help="Export only these columns, and the key.  [default: all]")
@click.option("--with-writetime", "writetime", is_flag=True, help="Keep the time at which each value was written.")
@click.option("--with-ttl", "ttl", is_flag=True, help="Keep the time at which each value expires as well.")
@click.option("--counters", is_flag=True, help="Export counters as well; they cannot be imported again.")
@read_limits
@tasks_option
@click.option(
    "--splits", type=click.IntRange(min=1), metavar="N",
    help="Number of token ranges to read; more for large tables.  [default: by cores and the table's size]",
)  # fmt: skip
@click.option("--restart", is_flag=True, help="Start over instead of resuming an interrupted export.")
def export(invocation: Invocation, table: str, **choices: Any) -> None:
    """Export a table as a snapshot with _manifest.json and _SUCCESS: complete, or not at all.

    The key and the types are the cluster's own, and every value is kept exactly. The same command resumes an export
    that was interrupted: ranges that were read are not read again. `lakeward cassandra diff` compares exports, and
    `lakeward cassandra import` loads them. No lakeward.yaml is needed: --cluster cassandra://127.0.0.1:9042.
    """
    if choices["layout"] == "set" and choices["format_"] != "parquet":
        msg = f"--layout set needs --format parquet, not {choices['format_']}"
        raise click.UsageError(msg)
    limits, names = limits_from(choices), (choices.pop("columns") or "").split(",")
    with open_client(invocation, choices.pop("cluster")) as client:
        exported = client.export(
            table,
            format=choices.pop("format_"),
            layout=choices.pop("layout") or "set",
            columns=[name.strip() for name in names if name.strip()],
            limits=limits,
            **choices,
        )
    emit(invocation, exported.to_dict(), lambda console: _draw_export(console, exported))


def _draw_export(console: Console, exported: ExportReport) -> None:
    seconds = (exported.ended - exported.started).total_seconds()
    console.print(
        f"{exported.table}: {count(exported.rows, 'row')} of {count(exported.ranges, 'range')} in {seconds:,.0f} s"
    )
    if exported.resumed:
        console.print(f"  went on with the export of {exported.started:%Y-%m-%d %H:%M} UTC")
    if exported.checksum:
        console.print(f"  checksum {exported.checksum}")
    console.print(f"  {exported.folder}")


# ``lakeward cassandra import``: write a snapshot into a table.


@command("import")
@click.argument("snapshot", metavar="SNAPSHOT")
@cluster_option()
@click.option("--create-table", is_flag=True, help="Create the table like the exported one if it does not exist.")
@writing_options
@click.option("--schema", metavar="DDL|FILE", help="Columns of JSON and CSV files that are not an export.")
@click.option(
    "--format", type=click.Choice(INPUTS),
    help="Format of files that are not an export, if their names do not show it; spark-csv: CSV as Spark writes it, "
    "without a line of names, its columns in the order of --schema.",
)  # fmt: skip
@write_limits
@tasks_option
def import_(invocation: Invocation, snapshot: str, **choices: Any) -> int:
    """Write a snapshot into a table: an export, another snapshot, or plain files.

    SNAPSHOT is a folder, or PATH/latest, PATH/2026-11-15 below a folder of exports. Every cell gets the time and the
    time to live that the export recorded for it, or else the time at which the export started; expired cells and nulls
    are left out. Rows that the snapshot does not have stay. The same command resumes an import that was interrupted.

    Exit code 3 means that rows were rejected; they are below --dead-letters with the reasons.
    """
    limits = limits_from(choices)
    with open_client(invocation, choices.pop("cluster")) as client:
        written = client.import_(snapshot, limits=limits, **choices)
    return show_written(invocation, written)


# ``lakeward cassandra diff``: write the changes between two exports as a change set.


@command("diff")
@click.argument("past", metavar="PAST")
@click.argument("current", metavar="CURRENT")
@click.option(
    "--in", "folder", metavar="FOLDER",
    help="Folder of a table's exports that 'latest', 'previous' or a date picks from: URI/KEYSPACE/TABLE.",
)  # fmt: skip
@click.option(
    "--to", metavar="URI",
    help="Write the change set below this folder, in KEYSPACE/TABLE/incremental/year=…/…/minute=….  "
    "[default: beside the exports]",
)  # fmt: skip
@click.option(
    "--max-delete-share", type=click.FloatRange(min=0, max=1), metavar="SHARE",
    help="Refuse if a larger share of the past's rows would be deleted.  [default, from 1,000 rows on: 0.5]",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only show what differs; write nothing.")
@click.option("--exit-code", is_flag=True, help="Exit with 1 when anything differs.")
@click.option(
    "--limit", type=click.IntRange(min=0, max=MOST_SHOWN), default=5, show_default=True,
    help="Examples to show of each kind, with --dry-run.",
)  # fmt: skip
def diff(invocation: Invocation, past: str, current: str, **choices: Any) -> int:
    """Compare two exports of a table and write what changed as a change set for `lakeward cassandra apply`.

    PAST and CURRENT are complete exports: their folders, or within the folder of a table's exports latest, previous,
    2026-11-15 or 2026-11-15T10:30 (UTC). The key is that of the exported table; columns may have been added or widened
    in between.
    """
    from lakeward.cli.diff import draw_diff

    limit, exit_code = choices["limit"], choices.pop("exit_code")
    with open_client(invocation) as client:
        result = client.diff(past, current, **choices)
    note(invocation, f"compared by {result.plan}: {result.reason}")
    emit(invocation, result.to_dict(), lambda console: draw_diff(console, result, limit=limit))
    return 1 if exit_code and not result.summary.is_same else 0


# ``lakeward cassandra apply``: write a change set into a table.


@command("apply")
@click.argument("change_set", metavar="DIFF")
@cluster_option()
@writing_options
@click.option(
    "--max-delete-share", type=click.FloatRange(min=0, max=1), default=0.5, show_default=True, metavar="SHARE",
    help="Refuse if a larger share of the past's rows would be deleted, from 1,000 rows on.",
)  # fmt: skip
@csv_columns_option
@write_limits
@tasks_option
def apply(invocation: Invocation, change_set: str, **choices: Any) -> int:
    """Apply a change set to a table: what `lakeward cassandra diff`, `compare` or `lakeward diff --to` wrote.

    Inserted and changed rows are upserts, cell by cell: a cell that changed to null is deleted, and a cell that did not
    change is not touched. Deleted rows are deleted by their full key. All writes have the same time, so that later
    writes by other clients survive and applying a change set twice changes nothing. Change sets are applied once and
    in order: a table beside the target records which were applied.

    Files without a manifest are accepted as well: Parquet, JSON or CSV with diff, the table's key, left_… and right_…
    columns, as the published recipe writes them. They need --timestamp, and their types are those of the table.

    Exit code 3 means that rows were rejected; they are below --dead-letters with the reasons.
    """
    limits, named = limits_from(choices), named_columns(choices.pop("csv_columns"))
    with open_client(invocation, choices.pop("cluster")) as client:
        written = client.apply(change_set, limits=limits, csv_columns=named, **choices)
    return show_written(invocation, written)


# ``lakeward cassandra compare``: compare a table with its copy in another cluster.


@command("compare")
@click.argument("table", metavar="TABLE")
@click.argument("copy", metavar="COPY")
@cluster_option()
@click.option(
    "--to", metavar="URI",
    help="Write a change set that makes COPY equal to TABLE below this folder, in KEYSPACE/TABLE/incremental/….",
)  # fmt: skip
@click.option(
    "--recheck", type=click.IntRange(min=0), default=1, show_default=True, metavar="TIMES",
    help="How many times to read differing rows again: writes that were still on their way have then arrived.",
)  # fmt: skip
@click.option(
    "--pause", callback=span, default="3s", show_default=True, metavar="SPAN", help="Time to wait before reading again."
)
@click.option(
    "--ranges",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of ranges to split the token ring into, approximately.",
)
@click.option(
    "--staging", metavar="URI",
    help="Folder for rows that differ while they are compared; all tasks must reach it.  [default: --to, or a "
    "temporary folder if Spark runs on this machine alone]",
)  # fmt: skip
@click.option(
    "--max-delete-share", type=click.FloatRange(min=0, max=1), metavar="SHARE",
    help="Write no change set that would delete a larger share of COPY.  [default, from 1,000 rows on: 0.5]",
)  # fmt: skip
@click.option("--exit-code", is_flag=True, help="Exit with 1 when anything differs.")
@click.option(
    "--limit",
    type=click.IntRange(min=0, max=MOST_SHOWN),
    default=5,
    show_default=True,
    help="Examples to show of each kind.",
)
@tasks_option
@read_limits
def compare(invocation: Invocation, table: str, copy: str, **choices: Any) -> int:
    """Compare two tables, usually of two clusters, one token range at a time.

    TABLE and COPY are [CLUSTER/]KEYSPACE.TABLE. A digest of every range of both is computed; only the rows of ranges
    that differ are then compared one by one. Limits apply to each of the clusters.

    With --to, `lakeward cassandra apply` can make COPY equal to TABLE.
    """
    limits, limit, exit_code = limits_from(choices), choices["limit"], choices.pop("exit_code")
    with open_client(invocation, choices.pop("cluster")) as client:
        found = client.compare(table, copy, rechecks=choices.pop("recheck"), limits=limits, **choices)
    emit(invocation, found.to_dict(), lambda console: _draw_comparison(console, found, limit))
    return 1 if exit_code and not found.is_same else 0


def _draw_comparison(console: Console, found: ComparisonReport, limit: int) -> None:
    from lakeward.cli.diff import draw_differences

    console.print(f"table  {found.table}   {count(found.rows[0], 'row')}")
    console.print(f"copy   {found.copy}   {count(found.rows[1], 'row')}")
    for line in found.schema_differences:
        console.print(f"  {line}")
    counts = ", ".join(f"{number:,} {word}" for word, number in found.counts.items())
    differing = f"{found.differing:,} of {count(found.ranges, 'range')}"
    if found.lacking:
        console.print(f"the copy lacks {', '.join(found.lacking)}, whose values were not compared")
    if found.has_same_rows:
        console.print(f"no differences in {count(found.ranges, 'range')}")
    else:
        console.print(f"in the copy: {counts}; {differing} differ")
    if found.result is not None:
        draw_differences(console, found.result, limit=limit)


# ``lakeward cassandra sync``: keep a copy of a table current.


@command("sync")
@click.option("--from", "source", metavar="TABLE", help="The table to copy: [CLUSTER/]KEYSPACE.TABLE.")
@click.option("--into", required=True, metavar="TABLE", help="The copy: [CLUSTER/]KEYSPACE.TABLE.")
@click.option(
    "--to", required=True, metavar="URI", help="Folder of exports and change sets, below it in KEYSPACE/TABLE/."
)
@cluster_option()
@click.option("--every", callback=span, metavar="SPAN", help="Repeat at this interval, such as 1h, until Ctrl-C.")
@click.option(
    "--watch", is_flag=True,
    help="Without --from: wait for complete exports that another job puts into the folder, and apply each in order.",
)  # fmt: skip
@click.option(
    "--poll", callback=span, metavar="SPAN",
    help="With --watch: how often to look at the folder.  [default: 5s; 30s if it is not on a local disk]",
)  # fmt: skip
@click.option(
    "--table",
    metavar="KEYSPACE.TABLE",
    help="Without --from: the table whose exports to follow.  [default: that of --into]",
)
@click.option(
    "--first", type=click.Choice(("import", "assume")),
    help="If the copy has rows but no record of a sync: write the export over them, or assume that they are "
    "those of the export.  [default: refuse]",
)  # fmt: skip
@click.option(
    "--any-cluster", is_flag=True,
    help="Follow exports of any cluster: the one of --from had another name, or its table has moved.",
)  # fmt: skip
@click.option("--create-table", is_flag=True, help="Create the copy's table if it does not exist.")
@click.option("--with-writetime", "writetime", is_flag=True, help="Keep the time at which each value was written.")
@click.option("--with-ttl", "ttl", is_flag=True, help="Keep the time at which each value expires as well.")
@click.option(
    "--timestamp", default="snapshot", show_default=True, metavar="snapshot|now|MICROS",
    help="Time at which changes are written; now for copies without client timestamps.",
)  # fmt: skip
@click.option(
    "--max-delete-share", type=click.FloatRange(min=0, max=1), metavar="SHARE",
    help="Refuse if a larger share of the copy's rows would be deleted.  [default, from 1,000 rows on: 0.5]",
)  # fmt: skip
@click.option(
    "--keep", type=click.IntRange(min=1), metavar="N",
    help="Number of exports to keep; the one that the copy holds always stays.  [default: all]",
)  # fmt: skip
@click.option(
    "--ledger", metavar="KEYSPACE.TABLE", help="Table that records the copy's state.  [default: beside the copy]"
)
@click.option("--dead-letters", metavar="URI", help="Folder for rows that the copy's cluster refuses.")
@tasks_option
@both_limits
def sync(invocation: Invocation, **choices: Any) -> int:
    """Keep a copy of a table current: export it, compare with what the copy holds, apply the difference.

    The first sync fills the copy from the whole export. A sync that was interrupted or killed is finished by the next
    one before it exports again: the exports and change sets in the folder and a small table beside the copy show what
    is still to be done. With --every or --watch, temporary errors are reported and the next round tries again.

    --output json writes one line per round with --every and --watch. Exit code 3 means that rows were refused.
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
    emit(invocation, report.to_dict(), lambda console: _draw_sync(console, report))
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
    """Raise KeyboardInterrupt if a signal arrived; return False otherwise, so that the rounds continue."""
    from lakeward.cli.process import raise_if_interrupted

    raise_if_interrupted()
    return False


def _draw_sync(console: Console, report: SyncReport) -> None:
    for line in _lines(report):
        console.print(line)
    if report.holds is not None:
        console.print(f"the copy holds {report.holds['location']}")


def _lines(report: SyncReport) -> list[str]:
    """Return the status and one line for each step that handled rows."""
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


@group("cassandra")
def cassandra() -> None:
    """Copy tables of Cassandra and Amazon Keyspaces, keep the copies current, and edit rows in bulk.

    A table is [CLUSTER/]KEYSPACE.TABLE, where CLUSTER is one of clusters: in lakeward.yaml. Without a configuration:
    --cluster cassandra://127.0.0.1:9042.
    """


for _command in (export, import_, diff, apply, sync, compare, count_rows, top_partitions, delete, ttl):
    cassandra.add_command(_command)
