"""``lakeward state``: the state store, which is a cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.cli.options import command, group
from lakeward.cli.output import count, emit

if TYPE_CHECKING:
    from rich.console import Console

    from lakeward.cli.invocation import Invocation


@group("state")
def state() -> None:
    """Look after the state store."""


@command("rebuild")
def rebuild(invocation: Invocation) -> None:
    """Fill the state store anew from the lake; only run history cannot be brought back."""
    with invocation.lake() as lake:
        found = lake.rebuild_state()

    def text(console: Console) -> None:
        console.print(f"{count(len(found), 'table')} found in the lake")
        for name in found:
            console.print(f"  {name}")

    emit(invocation, {"tables": found}, text)


state.add_command(rebuild)
