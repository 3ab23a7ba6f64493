"""``lakeward tables check``: do the settings fit the files?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lakeward.cli.failures import DONE, FINDING
from lakeward.cli.options import command
from lakeward.cli.output import count, emit, styled, warn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from lakeward import Finding
    from lakeward.cli.invocation import Invocation

_STYLES = {"error": "bold red", "warning": "bold yellow"}
no_check_data = click.option(
    "--no-check-data", is_flag=True, help="Do not read the loads: keys that come twice are not found."
)


@command("check")
@click.argument("names", metavar="[TABLE…]", nargs=-1)
@no_check_data
def check(invocation: Invocation, names: tuple[str, ...], no_check_data: bool) -> int:
    """Hold the settings of tables against their files: all known tables, or those named.

    Columns that do not exist, a partition that cannot be, a key that is not unique in the load, a missing schema or
    timestamp column. The exit code is 1 when something would stop a table or lose rows; warnings do not count. A load
    beyond 64 MiB is read by Spark.
    """
    with invocation.lake() as lake:
        findings = lake.check_tables(names, check_data=not no_check_data)
        checked = len(names) or len(lake.tables())
    document = {"tables": checked, "findings": [one.to_dict() for one in findings]}
    emit(invocation, document, lambda console: _draw(console, findings, checked))
    return FINDING if any(one.is_error for one in findings) else DONE


def warn_of(finding: Finding) -> None:
    """Tell a finding beside the result of another command."""
    warn(f"{finding.table}: {finding.setting}: {finding.message}")


def _draw(console: Console, findings: Sequence[Finding], checked: int) -> None:
    for one in findings:
        console.print(styled(one.severity, _STYLES[one.severity]), f"{one.table}: {one.setting}: {one.message}")
        if one.hint:
            console.print(f"  try: {one.hint}")
    errors = sum(one.is_error for one in findings)
    warnings = len(findings) - errors
    console.print(f"{count(checked, 'table')} checked: {count(errors, 'error')}, {count(warnings, 'warning')}")
