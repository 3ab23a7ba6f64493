"""``lakeward doctor``: is everything there that a run needs?"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from lakeward.cli.failures import DONE, REFUSED
from lakeward.cli.options import command
from lakeward.cli.output import emit, styled
from lakeward.cli.waiting import telling

if TYPE_CHECKING:
    from rich.console import Console

    from lakeward import Check
    from lakeward.cli.invocation import Invocation

_SIGNS = {"ok": ("ok", "green"), "problem": ("problem", "bold red"), "skipped": ("skipped", "dim")}


@command("doctor")
@click.option("--no-spark", is_flag=True, help="Do not start Spark.")
def doctor(invocation: Invocation, no_spark: bool) -> int:
    """Check Java, jars, configuration, landing, lake and state, and do a round trip through Spark and Iceberg.

    The exit code is 0 when all is well, else 2; every problem names its remedy.
    """
    from lakeward import doctor as examine

    with telling(invocation) as during:
        checks = examine(invocation.config, start_spark=not no_spark, during=during)
    is_well = all(check.status != "problem" for check in checks)
    document = {"ok": is_well, "checks": [asdict(check) for check in checks]}
    emit(invocation, document, lambda console: _draw(console, checks))
    return DONE if is_well else REFUSED


def _draw(console: Console, checks: list[Check]) -> None:
    width = max(len(check.name) for check in checks)
    for check in checks:
        word, style = _SIGNS[check.status]
        console.print(styled(word.ljust(8), style), f"{check.name.ljust(width)}  {check.detail}")
        if check.remedy:
            console.print(f"         {' ' * width}  try: {check.remedy}")
