"""``lakeward init``: begin a project."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakeward.cli.options import command
from lakeward.cli.output import emit

if TYPE_CHECKING:
    from rich.console import Console

    from lakeward.cli.invocation import Invocation


@command("init")
@click.option("--landing", default="./landing", show_default=True, help="Folder that the capture tool writes.")
@click.option("--force", is_flag=True, help="Replace a configuration file that exists.")
def init(invocation: Invocation, landing: str, force: bool) -> None:
    """Write a commented lakeward.yaml to begin with."""
    from lakeward import write_configuration

    file = write_configuration(invocation.config, landing=landing, force=force)

    def text(console: Console) -> None:
        console.print(f"wrote {file}")
        console.print(f"next: put change files under {landing}, then lakeward doctor, lakeward discover")

    emit(invocation, {"file": str(file), "landing": landing}, text)
