"""``lakeward snapshot list``: versions, and whether each still says what it would say today."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from lakeward.cli.options import command
from lakeward.cli.output import add_row, emit, note, styled, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from lakeward import Version
    from lakeward.cli.invocation import Invocation

_STYLES = {"current": "green", "stale": "yellow", "undone": "yellow", "missing": "red"}
_SECONDS = len("2020-11-14T10:30:00")


@command("list")
@click.argument("names", metavar="[TABLE…]", nargs=-1)
def list_versions(invocation: Invocation, names: tuple[str, ...]) -> None:
    """List snapshots, and mark those that would come out differently now.

    current: it is right. stale: changes that belong into it arrived later. undone: it holds ops that were undone since.
    missing: its files or its tag are gone. former: a newer copy of the current state took its place.
    """
    with invocation.lake() as lake:
        found = lake.snapshots.list(names)
    emit(invocation, {"versions": [asdict(one) for one in found]}, lambda console: _draw(console, found))
    if behind := [one for one in found if _can_refresh(one)]:
        tables = " ".join(dict.fromkeys(one.table for one in behind))
        note(invocation, f"{len(behind)} would come out differently now: lakeward snapshot refresh {tables}")


def _can_refresh(one: Version) -> bool:
    """Tell what a refresh makes anew: copies of the current state follow with the next run, those by op stay."""
    return one.state in ("stale", "undone") and one.kind != "current" and not one.as_of.startswith("op:")


def _draw(console: Console, found: Sequence[Version]) -> None:
    drawn = table("table", "version", "kind", "state", "> rows", "> op", "created", "place", "reason")
    for one in found:
        state = styled(one.state, _STYLES.get(one.state, "dim"))
        created = one.created[:_SECONDS]
        add_row(
            drawn,
            [one.table, one.version, one.kind, state, one.rows, one.op, created, one.location, one.reason],
        )
    console.print(drawn)
