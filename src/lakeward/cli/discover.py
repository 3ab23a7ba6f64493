"""``lakeward discover``: find tables in landing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.cli.options import command
from lakeward.cli.output import count, emit

if TYPE_CHECKING:
    from rich.console import Console

    from lakeward.cli.invocation import Invocation


@command("discover")
def discover(invocation: Invocation) -> None:
    """Register tables found in landing; they stay inactive until someone sets their key and activates them."""
    with invocation.lake() as lake:
        new = [str(table) for table in lake.discover()]
        known = [str(one.table) for one in lake.tables()]

    def text(console: Console) -> None:
        console.print(f"{count(len(new), 'new table')}, {len(known):,} known")
        for name in new:
            console.print(f"  {name}   lakeward tables set {name} --primary-key COLUMN --activate")

    emit(invocation, {"new": new, "tables": known}, text)
