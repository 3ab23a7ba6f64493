"""``lakeward cassandra apply``: a change set written into a table."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from lakeward.cli.cassandra_options import cluster_option, limits_from, tasks_option, write_limits
from lakeward.cli.cassandra_written import ledger_beside, show_written, writing_options
from lakeward.cli.options import command
from lakeward.cli.output import note

if TYPE_CHECKING:
    from lakeward.cli.invocation import Invocation


@command("apply")
@click.argument("change_set", metavar="DIFF")
@cluster_option()
@writing_options
@click.option(
    "--max-delete-share", type=click.FloatRange(min=0, max=1), default=0.5, show_default=True, metavar="SHARE",
    help="Refuse where more of the past's rows would be deleted, from 1,000 rows on.",
)  # fmt: skip
@write_limits
@tasks_option
def apply(invocation: Invocation, change_set: str, **choices: Any) -> int:
    """Apply a change set to a table: what `lakeward cassandra diff`, `compare` or `lakeward diff --to` wrote.

    Inserted and changed rows are upserts, cell by cell: what changed to null is deleted, what did not change is not
    touched. Deleted rows are deleted by their full key. All of it has one time, so that what others wrote later
    survives, and applying it twice changes nothing. A change set is applied once and in order: what was applied is
    recorded beside the table.

    Files without a manifest are taken as well: Parquet, JSON or CSV with diff, the table's key, left_… and right_…
    columns, as the published recipe writes them. They need --timestamp, and their types are those of the table.

    Exit code 3 says that rows were rejected; they are below --dead-letters with the reasons.
    """
    from lakeward.api.cassandra import CassandraDesk
    from lakeward.cassandra.applying import FILL, ApplyRequest, apply_change_set
    from lakeward.cli.waiting import telling

    limits, into, cluster = limits_from(choices), choices.pop("into"), choices.pop("cluster")
    ledger = choices.pop("ledger")
    with telling(invocation) as during, CassandraDesk(invocation.config, during=during) as desk:
        place = desk.table(into, cluster, must_exist=True, remedy=FILL)
        request = ApplyRequest(
            change_set,
            place.name,
            limits=limits,
            ledger=ledger_beside(place, ledger),
            **choices,
        )
        written = apply_change_set(desk.spark, desk.config, place.address, request, tell=partial(note, invocation))
    return show_written(invocation, written)
