"""``lakeward tables``: list tables, and show, change and check their settings."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from lakeward import redact_values
from lakeward.cli.failures import DONE, FAILED, FINDING
from lakeward.cli.lifecycle import remove, rename, reset
from lakeward.cli.options import command, confirmed, group, require_answerable
from lakeward.cli.output import add_row, console_on, count, emit, error_line, lines, note, styled, table, warn

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import Console

    from lakeward import (
        ColumnsRepair,
        Finding,
        GeneratorTables,
        ImportedTable,
        KnownTable,
        TakeoverPlan,
        WrittenProposals,
    )
    from lakeward.cli.options import Invocation


def read_settings(
    primary_key: Sequence[str],
    partition_by: Sequence[str],
    assignments: Sequence[str],
    unset: Sequence[str],
    rules: Sequence[str] = (),
    *,
    before: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the settings to change; None means the default. ``before`` holds the current settings."""
    settings: dict[str, Any] = {_top_level(key): None for key in unset}
    if primary_key:
        settings["primary_key"] = _names(primary_key)
    if partition_by:
        settings["partition_by"] = _names(partition_by)
    for assignment in assignments:
        _assign(settings, assignment, before)
    if rules:
        settings["columns"] = {**(settings.get("columns", before.get("columns")) or {}), **_rules(rules)}
    return settings


def _rules(texts: Sequence[str]) -> dict[str, str]:
    """Read ``ssn=hash``; the last equals sign separates, because a column's name may have one."""
    found = {}
    for text in texts:
        name, equals, rule = text.rpartition("=")
        if not equals or not name or not rule:
            msg = f"--column {text!r}: expected COLUMN=RULE, as in ssn=hash"
            raise click.UsageError(msg)
        found[name] = rule
    return found


def _assign(settings: dict[str, Any], assignment: str, before: Mapping[str, Any]) -> None:
    key, equals, text = assignment.partition("=")
    if not equals or not key.strip():
        msg = f"--set {assignment!r}: expected KEY=VALUE"
        raise click.UsageError(msg)
    from lakeward import parse_setting

    value = parse_setting(text)
    name, dot, inner = key.strip().partition(".")
    if dot:
        # The registry replaces a setting as a whole, so that the current inner settings are added.
        kept = settings.get(name) or before.get(name) or {}
        settings[name] = {**kept, inner: value}
    else:
        settings[name] = value


def _top_level(key: str) -> str:
    if "." in key:
        msg = f"--unset {key!r}: a setting is unset as a whole; expected {key.partition('.')[0]!r}"
        raise click.UsageError(msg)
    return key


def _names(values: Sequence[str]) -> list[str]:
    """Split at commas outside parentheses: ``dept,bucket(16, id)`` are two fields."""
    return [name for value in values for name in _split(value)]


def _split(value: str) -> Iterator[str]:
    depth, start = 0, 0
    for position, character in enumerate(f"{value},"):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            if part := value[start:position].strip():
                yield part
            start = position + 1


_STYLES = {"error": "bold red", "warning": "bold yellow"}
no_check_data = click.option(
    "--no-check-data", is_flag=True, help="Do not read the loads: duplicate keys are not found."
)


@command("check")
@click.argument("names", metavar="[TABLE…]", nargs=-1)
@no_check_data
def check(invocation: Invocation, names: tuple[str, ...], no_check_data: bool) -> int:
    """Check the settings of tables against their files: all known tables, or those named.

    Finds columns that do not exist, an impossible partition, a key that is not unique in the load, and a missing schema
    or timestamp column. The exit code is 1 when something would stop a table or lose rows; warnings do not count. A
    load beyond 64 MiB is read by Spark.
    """
    with invocation.lake() as lake:
        findings = lake.check_tables(names, check_data=not no_check_data)
        checked = len(names) or len(lake.tables())
    document = {"tables": checked, "findings": [finding.to_dict() for finding in findings]}
    emit(invocation, document, lambda console: _draw_findings(console, findings, checked))
    return FINDING if any(finding.is_error for finding in findings) else DONE


def warn_of(finding: Finding) -> None:
    """Print a finding as a warning beside the result of another command."""
    warn(f"{finding.table}: {finding.setting}: {finding.message}")


def _draw_findings(console: Console, findings: Sequence[Finding], checked: int) -> None:
    for finding in findings:
        console.print(
            styled(finding.severity, _STYLES[finding.severity]),
            f"{finding.table}: {finding.setting}: {finding.message}",
        )
        if finding.hint:
            console.print(f"  try: {finding.hint}")
    errors = sum(finding.is_error for finding in findings)
    warnings = len(findings) - errors
    console.print(f"{count(checked, 'table')} checked: {count(errors, 'error')}, {count(warnings, 'warning')}")


@command("hash")
@click.argument("name", metavar="TABLE")
@click.argument("column", metavar="COLUMN")
def hash_values(invocation: Invocation, name: str, column: str) -> None:
    """Show what values become in a hashed column: they are read from standard input, one per line.

    With these, rows of a table whose column has the rule `hash` can be found, for example to erase them. Values are
    not taken as arguments, which other users of the machine can read.
    """
    values = [line.rstrip("\r\n") for line in sys.stdin]
    with invocation.lake() as lake:
        found = lake.hash_values(name, column, values)
    document = {"table": name, "column": column, "hashes": found}
    emit(invocation, document, lambda console: console.print("\n".join(found)))


@command("import")
@click.option("--dynamodb", metavar="TABLE", help="DynamoDB table of the deployment: DMSCDC_Controller.")
@click.option(
    "--sources", metavar="FILE", help="Configuration file of a Spark CDC snapshot generator: core/sources.py."
)
@click.option("--lake", metavar="PATH", help="Folder of its lake, with which tables begin whose load files are gone.")
@click.option("--region", metavar="REGION", help="AWS region.  [default: from the environment]")
@click.option("--endpoint", metavar="URL", help="Address of the service, if it is not that of AWS.")
@click.option("--dry-run", is_flag=True, help="Only show what would be imported.")
def import_tables(
    invocation: Invocation, dynamodb: str | None, sources: str | None, dry_run: bool, **where: str | None
) -> int:
    """Import the tables of a DMS walkthrough deployment, or of a Spark CDC snapshot generator.

    --dynamodb imports the tables of a deployment: key, partition and whether a table is active.

    Where landing holds a table's load files, only settings are imported, and the landing files are read again. Where
    they are gone, --lake names the lake that the deployment wrote: the table's first run begins with its rows, and
    applies the change files after the newest one that the deployment applied. Nothing in that lake is changed.

    Tables that are declared, active or already set are left alone. A table whose settings do not fit its files, that
    has no folder in landing, or about whose files there is a doubt, is imported as inactive; loads in landing are not
    searched for duplicate keys, which `lakeward tables check` does. An item that cannot be read is skipped, and the
    exit code is then 3.

    --sources adds the tables of a generator's configuration file to lakeward.yaml: path, key, schema and start of the
    capture. The file is not executed; what is no plain value is named with its line, and its table is written in
    comments. Tables that lakeward.yaml holds already are left alone.
    """
    if (dynamodb is None) == (sources is None):
        msg = "use either --dynamodb or --sources"
        raise click.UsageError(msg)
    if sources is not None:
        if any(where.values()):
            msg = "--lake, --region and --endpoint belong to --dynamodb"
            raise click.UsageError(msg)
        return _import_sources(invocation, sources, dry_run=dry_run)
    return _import_items(invocation, str(dynamodb), dry_run=dry_run, **where)


def _import_items(invocation: Invocation, dynamodb: str, *, dry_run: bool, **where: str | None) -> int:
    with invocation.lake() as lake:
        found = lake.import_walkthrough(dynamodb, dry_run=dry_run, **where)
    document = {"dry_run": dry_run, "tables": [item.to_dict() for item in found]}
    emit(invocation, document, lambda console: _draw_imported(console, found, dry_run=dry_run))
    skipped = [item for item in found if item.outcome == "skipped"]
    for item in skipped:
        error_line(f"{item.path or 'an item without path'} was skipped: {item.reason}")
    if dry_run:
        note(invocation, "nothing was changed (--dry-run)")
    return FAILED if skipped else DONE


def _import_sources(invocation: Invocation, sources: str, *, dry_run: bool) -> int:
    with invocation.lake() as lake:
        found = lake.read_generator(sources)
        written = None if dry_run else lake.write_proposals(found.tables)
    document = {"dry_run": dry_run, **found.to_dict(), "written": written.to_dict() if written else None}
    emit(invocation, document, lambda console: _draw_sources(console, found, written))
    for problem in found.problems:
        error_line(f"{sources}, {problem}")
    if dry_run:
        note(invocation, "nothing was changed (--dry-run)")
    return FAILED if found.problems else DONE


def _draw_sources(console: Console, found: GeneratorTables, written: WrittenProposals | None) -> None:
    drawn = table("table", "primary key", "capture began", "in doubt")
    for name, proposal in found.tables.items():
        add_row(drawn, [name, ", ".join(proposal.primary_key), proposal.cdc_start, "; ".join(proposal.doubts)])
    console.print(drawn)
    if written is None:
        return
    for names, outcome in (
        (written.declared, "declared"),
        (written.commented, "in comments"),
        (written.present, "there before"),
    ):
        if names:
            console.print(f"{written.file}: {outcome}: {', '.join(names)}")


_OF_ITEMS = ("imported", "left", "skipped")


def _draw_imported(console: Console, found: Sequence[ImportedTable], *, dry_run: bool) -> None:
    drawn = table("table", "outcome", "active", "primary key", "partition by", "path", "why")
    for item in found:
        keys, fields = (", ".join(item.settings.get(name, [])) for name in ("primary_key", "partition_by"))
        active = None if item.active is None else "yes" if item.active else "no"
        add_row(drawn, [item.table, item.outcome, active, keys, fields, item.path, item.reason])
    console.print(drawn)
    for item in found:
        if item.plan is not None and item.plan.lake is not None:
            _draw_takeover(console, item.table or "", item.plan)
    taken, items = (sum(item.outcome in names for item in found) for names in (("imported",), _OF_ITEMS))
    console.print(f"{count(taken, 'table')} {'would be ' if dry_run else ''}taken over of {count(items, 'item')}")


def _draw_takeover(console: Console, name: str, plan: TakeoverPlan) -> None:
    rows = "" if plan.rows is None else f", {count(plan.rows, 'row')}"
    console.print(f"{name}: begins with {count(plan.lake_files, 'file')} of {plan.lake}{rows}")
    folders = f"   (by folder: {', '.join(plan.partitions)})" if plan.partitions else ""
    console.print(f"  columns: {plan.columns}{folders}")
    again = f", of these {plan.read_again:,} once more" if plan.read_again else ""
    since = f" from {plan.cut} on" if plan.cut else ""
    files = count(plan.contained, "change file is in it", "change files are in it")
    console.print(f"  {files}; {plan.unread + plan.read_again:,} are applied on top{again}{since}")
    for path in plan.doubtful:
        console.print("  ", styled("may be missing", "bold yellow"), path)
    for warning in plan.warnings:
        console.print("  ", styled("warning", "bold yellow"), warning)
    console.print(f"  to compare both after a run: {plan.compare}")


@command("repair")
@click.argument("name", metavar="TABLE")
@click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def repair(invocation: Invocation, name: str, dry_run: bool, yes: bool) -> None:
    """Change the columns of an existing mirror to those of its settings; its rows stay as they are.

    Columns get the names that `renames` declares, which repairs a mirror that cannot be read because names differ only
    in case or are those of Iceberg's own columns. A column that is now declared as `timestamp_column` (or
    `sequence_column`, `operation_column`) and is not part of the `schema` is removed from the mirror.
    """
    if not dry_run:
        require_answerable(yes=yes)
    with invocation.lake() as lake:
        plan = lake.repair_table(name, dry_run=True)
        has_work = bool(plan.renamed or plan.dropped)
        if has_work and not dry_run and not yes:
            _draw_repair(console_on(sys.stderr), plan, done=False)
            if not confirmed("Do this?", yes=yes):
                note(invocation, "nothing was changed")
                return
        if has_work and not dry_run:
            plan = lake.repair_table(name)
    document = {**plan.to_dict(), "done": has_work and not dry_run}
    emit(invocation, document, lambda console: _draw_repair(console, plan, done=not dry_run))


def _draw_repair(console: Console, plan: ColumnsRepair, *, done: bool) -> None:
    if not plan.renamed and not plan.dropped:
        console.print(f"{plan.table}: its columns agree with its settings; there is nothing to repair")
        return
    console.print(f"{plan.table}: {'repaired' if done else 'would be repaired'}")
    for old, new in plan.renamed.items():
        console.print(f"  column {old} {'is now named' if done else 'would be named'} {new}")
    for name in plan.dropped:
        console.print(f"  column {name} {'was' if done else 'would be'} removed: the capture added it")
    if plan.dropped:
        console.print(
            "files that were read before are not read again for it; to do that: "
            f"lakeward undo {plan.table} --to-op 0, then lakeward run {plan.table}"
        )


force = click.option("--force", is_flag=True, help="Activate the table even if its settings do not fit its files.")


@group("tables")
def tables() -> None:
    """List tables, show and change their settings, reset, rename and remove them."""


@command("list")
def list_tables(invocation: Invocation) -> None:
    """List all tables that are declared or registered."""
    with invocation.lake() as lake:
        known = lake.tables()
    if not known:
        note(invocation, "no table is declared or registered; lakeward discover looks for them in landing")
    emit(invocation, {"tables": [_summary(entry) for entry in known]}, lambda console: _draw_list(console, known))


@command("show")
@click.argument("name", metavar="TABLE")
def show(invocation: Invocation, name: str) -> None:
    """Show one table with all its settings."""
    with invocation.lake() as lake:
        known = lake.table(name)
    _emit_table(invocation, known, with_defaults=True)


@command("set")
@click.argument("name", metavar="TABLE")
@click.option("--primary-key", multiple=True, metavar="COLUMN[,…]", help="Key columns; repeatable.")
@click.option(
    "--partition-by", multiple=True, metavar="FIELD[,…]", help="dept, days(ts), bucket(16, id) …; repeatable."
)
@click.option(
    "--column",
    "rules",
    multiple=True,
    metavar="COLUMN=RULE",
    help="What becomes of a column's values before they are stored: mask, hash, drop, redact, truncate(4); repeatable.",
)
@click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE",
    help="Any other setting of a table, its value as in YAML: on_bad_row=quarantine, csv.header=true; repeatable.",
)  # fmt: skip
@click.option("--unset", multiple=True, metavar="KEY", help="Reset a setting to its default; repeatable.")
@click.option("--activate/--deactivate", "active", default=None, help="Include the table in runs, or leave it out.")
@force
@no_check_data
def set_table(
    invocation: Invocation,
    name: str,
    primary_key: tuple[str, ...],
    partition_by: tuple[str, ...],
    rules: tuple[str, ...],
    assignments: tuple[str, ...],
    unset: tuple[str, ...],
    active: bool | None,
    **choices: bool,
) -> None:
    """Change the settings of a table that is not declared in the configuration file.

    Before a table is activated its settings are checked against its files, as `lakeward tables check` does; if they do
    not fit, the table stays inactive and keeps the new settings.
    """
    with invocation.lake() as lake:
        settings = read_settings(primary_key, partition_by, assignments, unset, rules, before=lake.own_settings(name))
        if not settings and active is None:
            options = "--primary-key, --partition-by, --column, --set, --unset, --activate or --deactivate"
            msg = f"nothing to set: use {options}"
            raise click.UsageError(msg)
        before = lake.find_table(name)
        known = lake.set_table(name, settings=settings, active=active, **_checking(choices))
        changed = lake.changed_reading(before, known) if before else None
    _emit_table(invocation, known)
    if changed is not None:
        warn(changed)


@command("activate")
@click.argument("names", metavar="TABLE…", nargs=-1, required=True)
@force
@no_check_data
def activate(invocation: Invocation, names: tuple[str, ...], **choices: bool) -> None:
    """Include tables in runs; stops at the first table whose settings do not fit its files."""
    _switch(invocation, names, active=True, **_checking(choices))


@command("deactivate")
@click.argument("names", metavar="TABLE…", nargs=-1, required=True)
def deactivate(invocation: Invocation, names: tuple[str, ...]) -> None:
    """Leave tables out of runs; their mirrors stay as they are."""
    _switch(invocation, names, active=False)


for _command in (
    list_tables, show, set_table, check, activate, deactivate, repair, reset, rename, remove, hash_values,
    import_tables,
):  # fmt: skip
    tables.add_command(_command)


def _switch(invocation: Invocation, names: tuple[str, ...], *, active: bool, **checking: Any) -> None:
    with invocation.lake() as lake:
        # All names are looked up before any is switched.
        known = [lake.table(name) for name in names]
        switched = [lake.set_table(str(entry.table), active=active, **checking) for entry in known]
    emit(invocation, {"tables": [_summary(entry) for entry in switched]}, lambda console: _draw_list(console, switched))


def _checking(choices: dict[str, bool]) -> dict[str, Any]:
    """Return the arguments for the check before a table is activated."""
    return {"force": choices["force"], "check_data": not choices["no_check_data"], "on_finding": warn_of}


def _emit_table(invocation: Invocation, known: KnownTable, *, with_defaults: bool = False) -> None:
    settings = redact_values(known.settings.model_dump(mode="json", by_alias=True))
    document = {**_summary(known), "settings": settings}
    own = redact_values(known.settings.model_dump(mode="json", by_alias=True, exclude_unset=True))
    drawn = settings if with_defaults else own
    emit(invocation, document, lambda console: _draw_table(console, known, drawn, own))


def _summary(known: KnownTable) -> dict[str, Any]:
    return {
        "table": str(known.table),
        "active": known.active,
        "declared": known.declared,
        "primary_key": list(known.settings.primary_key),
        "partition_by": list(known.settings.partition_by),
        "error": known.error,
    }


def _draw_list(console: Console, known: list[KnownTable]) -> None:
    drawn = table("table", "active", "primary key", "partition by", "set in", "error")
    for entry in known:
        keys, fields = ", ".join(entry.settings.primary_key), ", ".join(entry.settings.partition_by)
        first_line = entry.error.splitlines()[0] if entry.error else None
        where = "configuration file" if entry.declared else "registry"
        add_row(drawn, [entry.table, "yes" if entry.active else "no", keys, fields, where, first_line])
    console.print(drawn)
    console.print(count(len(known), "table"))


def _draw_table(console: Console, known: KnownTable, settings: dict[str, Any], own: dict[str, Any]) -> None:
    where = "declared in the configuration file" if known.declared else "registered"
    console.print(f"{known.table}: {'active' if known.active else 'inactive'}, {where}")
    if known.error:
        console.print(f"last error: {known.error}")
    lines(console, [(key, f"{_yaml(value)}{'' if key in own else '   (default)'}") for key, value in settings.items()])


def _yaml(value: Any) -> str:
    import yaml

    flow = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10_000, sort_keys=False)
    return flow.strip().removesuffix("...").strip()
