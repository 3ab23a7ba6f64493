"""Ranges of a table as Arrow batches, several of them under way at one time."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from lakeward.cassandra.budget import budget_client
from lakeward.cassandra.reading.batches import BatchMaker
from lakeward.cassandra.reading.pages import Query, RangePages
from lakeward.cassandra.reading.plan import CHANGED
from lakeward.cassandra.schema import read_table_schema
from lakeward.cassandra.units import read_units
from lakeward.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from cassandra.cluster import Session

    from lakeward.cassandra.ranges import TokenRange
    from lakeward.cassandra.reading.pages import Page
    from lakeward.cassandra.reading.plan import ReadPlan

IN_FLIGHT = 4


def read_range(session: Session, plan: ReadPlan, one: TokenRange) -> Iterator[pa.RecordBatch]:
    """Give the rows of a range, each once; see :func:`read_ranges`."""
    for _, batch in read_ranges(session, plan, [one]):
        yield batch


def read_ranges(
    session: Session, plan: ReadPlan, ranges: Sequence[TokenRange], *, in_flight: int = IN_FLIGHT
) -> Iterator[tuple[TokenRange, pa.RecordBatch]]:
    """Give the rows of ranges, each once, with the range that they are of; every range has one batch at least.

    While a page is worked on, the next ones of up to ``in_flight`` ranges are on their way, or of as many as the
    cluster's ``max_in_flight`` allows. Requests that fail are repeated with growing pauses; nothing that was given is
    given again.

    Raises:
        ConfigurationError: the server does not take the query, or the table changed while it was read.
        RetriableError: the cluster did not answer, however often it was asked.
    """
    budget = budget_client(plan.budget) if plan.budget is not None else None
    prepared, settings = plan.prepare(session, budget), plan.address.settings
    query = Query(session, prepared, budget, page_rows=plan.page_rows, slow=plan.needs_slow_reader)
    waiting, at_once = deque(ranges), min(in_flight, settings.max_in_flight)
    reading: deque[tuple[RangePages, BatchMaker]] = deque()
    while waiting or reading:
        while waiting and len(reading) < at_once:
            reading.append((RangePages(query, waiting.popleft()), BatchMaker(plan)))
        pages, maker = reading.popleft()
        page = pages.next_page()
        batch = _batch(session, plan, maker, page)
        query.account(page, read_units(batch.nbytes, consistency=settings.consistency))
        if not pages.is_over:
            reading.append((pages, maker))
        yield pages.range, batch


def _batch(session: Session, plan: ReadPlan, maker: BatchMaker, page: Page) -> pa.RecordBatch:
    try:
        return maker.batch(page.rows, page.asked_at)
    except (TypeError, ValueError) as error:
        there = read_table_schema(session, plan.schema.name, [one.name for one in plan.selected]).columns
        changed = [one.name for one in plan.selected if one not in there]
        if not changed:
            raise
        msg = f"{plan.schema.name} changed while it was read, in {', '.join(changed)}: {error}"
        raise ConfigurationError(msg, hint=CHANGED) from error
