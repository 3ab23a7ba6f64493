"""``lakeward tables``: which tables there are and how each is set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lakeward import redact_values
from lakeward.cli.options import command, group
from lakeward.cli.output import add_row, count, emit, lines, note, table, warn
from lakeward.cli.tables_check import check, no_check_data, warn_of
from lakeward.cli.tables_import import import_tables
from lakeward.cli.tables_repair import repair

if TYPE_CHECKING:
    from rich.console import Console

    from lakeward import KnownTable
    from lakeward.cli.invocation import Invocation


force = click.option("--force", is_flag=True, help="Activate whatever the files say.")


@group("tables")
def tables() -> None:
    """List tables, show and change their settings."""


@command("list")
def list_tables(invocation: Invocation) -> None:
    """List all tables that are declared or registered."""
    with invocation.lake() as lake:
        known = lake.tables()
    if not known:
        note(invocation, "no table is declared or registered; lakeward discover looks for them in landing")
    emit(invocation, {"tables": [_summary(one) for one in known]}, lambda console: _draw_list(console, known))


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
    "--set", "assignments", multiple=True, metavar="KEY=VALUE",
    help="Any other setting of a table, its value as in YAML: on_bad_row=quarantine, csv.header=true; repeatable.",
)  # fmt: skip
@click.option("--unset", multiple=True, metavar="KEY", help="Go back to the default of a setting; repeatable.")
@click.option("--activate/--deactivate", "active", default=None, help="Take part in runs, or no longer.")
@force
@no_check_data
def set_table(
    invocation: Invocation,
    name: str,
    primary_key: tuple[str, ...],
    partition_by: tuple[str, ...],
    assignments: tuple[str, ...],
    unset: tuple[str, ...],
    active: bool | None,
    **choices: bool,
) -> None:
    """Change the settings of a table that is not declared in the configuration file.

    Before a table is activated its settings are held against its files, as `lakeward tables check` does; one that does
    not fit stays inactive, and the settings of the command are kept for the next one.
    """
    from lakeward.cli.assignments import read_settings

    with invocation.lake() as lake:
        settings = read_settings(primary_key, partition_by, assignments, unset, before=lake.own_settings(name))
        if not settings and active is None:
            msg = "nothing to set: give --primary-key, --partition-by, --set, --unset, --activate or --deactivate"
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
    """Let tables take part in runs; one whose settings do not fit its files is refused, and those after it."""
    _switch(invocation, names, active=True, **_checking(choices))


@command("deactivate")
@click.argument("names", metavar="TABLE…", nargs=-1, required=True)
def deactivate(invocation: Invocation, names: tuple[str, ...]) -> None:
    """Leave tables out of runs; their mirrors stay as they are."""
    _switch(invocation, names, active=False)


for _command in (list_tables, show, set_table, check, activate, deactivate, repair, import_tables):
    tables.add_command(_command)


def _switch(invocation: Invocation, names: tuple[str, ...], *, active: bool, **checking: Any) -> None:
    with invocation.lake() as lake:
        # All names are looked up before any is switched.
        known = [lake.table(name) for name in names]
        switched = [lake.set_table(str(one.table), active=active, **checking) for one in known]
    emit(invocation, {"tables": [_summary(one) for one in switched]}, lambda console: _draw_list(console, switched))


def _checking(choices: dict[str, bool]) -> dict[str, Any]:
    """Say how a table is looked at before it is activated."""
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
    for one in known:
        keys, fields = ", ".join(one.settings.primary_key), ", ".join(one.settings.partition_by)
        first_line = one.error.splitlines()[0] if one.error else None
        where = "configuration file" if one.declared else "registry"
        add_row(drawn, [one.table, "yes" if one.active else "no", keys, fields, where, first_line])
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
