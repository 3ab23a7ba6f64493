"""Read ranges of a table as Arrow batches, several at a time.

The next page of a range is requested while the current one is processed, and requested again if it fails.
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from lakeward.cassandra.budget_server import budget_client
from lakeward.cassandra.conversion import to_arrow
from lakeward.cassandra.keyspaces import read_units
from lakeward.cassandra.read_plan import CHANGED, Part
from lakeward.cassandra.retry import call_again, error_text
from lakeward.cassandra.schema import ColumnKind, read_table_schema
from lakeward.cassandra.snapshots import EXPIRES, WRITETIME, snapshot_arrow_schema
from lakeward.cassandra.wire import exact_handler
from lakeward.errors import BugError, ConfigurationError, DataError, RetriableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from cassandra.cluster import ResponseFuture, ResultSet, Session
    from cassandra.query import PreparedStatement

    from lakeward.cassandra.budget_server import BudgetClient
    from lakeward.cassandra.read_plan import Cell, ReadPlan, TokenRange


class Page(NamedTuple):
    """The rows of a page, the second in which it was requested, and the requested number of rows."""

    rows: Sequence[tuple[Any, ...]]
    asked_at: int
    wanted: int


class Query:
    """The query of a table, which a session runs for one range after the other.

    ``page_rows`` is the most rows of a page; ``is_limited`` is whether they count against the budget.
    """

    def __init__(
        self,
        session: Session,
        prepared: PreparedStatement,
        budget: BudgetClient | None,
        *,
        page_rows: int | None = None,
        slow: bool = False,
    ) -> None:
        from cassandra.cluster import EXEC_PROFILE_DEFAULT

        self._session, self._prepared, self.budget = session, prepared, budget
        self.page_rows, self.is_limited = page_rows or session.default_fetch_size, page_rows is not None
        self._profile = session.execution_profile_clone_update(EXEC_PROFILE_DEFAULT, row_factory=_whole_rows)
        self._handler = exact_handler(compiled=not slow, in_bytes=True)

    def ask(self, token_range: TokenRange, state: bytes | None) -> ResponseFuture:
        """Request a page of a range, the first or the next."""
        if self.budget is not None:
            # A full page is paid for in advance, since all tasks may request one at the same time.
            self.budget.take(rows=self.page_rows if self.is_limited else 0, requests=1)
        bound = self._prepared.bind((token_range.start, token_range.end))
        bound.fetch_size = self.page_rows
        with self._reader():
            return self._session.execute_async(bound, execution_profile=self._profile, paging_state=state)

    def ask_for_less(self, wanted: int) -> None:
        """Halve the page size after a time-out; the position in a range stays valid."""
        self.page_rows = min(self.page_rows, max(wanted // 2, 1))

    def account(self, page: Page, read_units: float) -> None:
        """Pay for the size of a page, and take back what was paid for rows that it did not have."""
        if self.budget is not None:
            paid = page.wanted if self.is_limited else 0
            self.budget.spent(rows=len(page.rows) - paid, read_units=read_units)

    @contextmanager
    def _reader(self) -> Iterator[None]:
        """Use this query's protocol handler for requests in the block."""
        usual, self._session.client_protocol_handler = self._session.client_protocol_handler, self._handler
        try:
            yield
        finally:
            self._session.client_protocol_handler = usual


class RangePages:
    """The pages of a range in order. The next one is always requested while one is processed."""

    def __init__(self, query: Query, token_range: TokenRange) -> None:
        self.range, self._query = token_range, query
        self._state: bytes | None = None
        self._asked: ResponseFuture | None = None
        self._asked_at = self._wanted = 0
        self._ask()
        self.is_over = False

    def next_page(self) -> Page:
        """Return the next page.

        A page that fails is requested again from the same position, with fewer rows after a time-out.

        Raises:
            ConfigurationError: the cluster no longer accepts the query.
            RetriableError: all attempts failed.
        """
        result = self._received()
        page = Page(result.current_rows, self._asked_at, self._wanted)
        self._state = result.paging_state
        self.is_over = self._state is None
        if not self.is_over:
            self._ask()
        return page

    def _ask(self) -> ResponseFuture:
        self._wanted = self._query.page_rows
        self._asked = self._query.ask(self.range, self._state)
        # The time left of values counts from here; the page may wait a while before it is processed.
        self._asked_at = int(time.time())
        return self._asked

    def _received(self) -> ResultSet:
        from cassandra import InvalidRequest, Unauthorized

        try:
            return call_again(self._receive, budget=self._query.budget)
        except (InvalidRequest, Unauthorized) as error:
            msg = f"the table can no longer be read as before: {error_text(error)}"
            raise ConfigurationError(msg, hint=CHANGED) from error
        except RetriableError as error:
            if not isinstance(error.__cause__, _too_slow()):
                raise
            what = f"the last page had {self._wanted} rows: set a smaller page_size or a longer timeout of the cluster"
            raise RetriableError(error.message, hint=f"{error.hint}; {what}") from error

    def _receive(self) -> ResultSet:
        asked, self._asked = self._asked or self._ask(), None
        try:
            return asked.result()
        except _too_slow():
            self._query.ask_for_less(self._wanted)
            raise


def _too_slow() -> tuple[type[Exception], ...]:
    from cassandra import OperationTimedOut, ReadTimeout

    return OperationTimedOut, ReadTimeout


def _whole_rows(names: Sequence[str], rows: Sequence[tuple[Any, ...]] | None) -> Sequence[tuple[Any, ...]]:
    """Raise if the driver's reader lost rows: some return none at all if they cannot decode them."""
    if rows is None:
        msg = f"the driver returned no rows for the columns {', '.join(names)}"
        raise BugError(msg)
    return rows


class BatchMaker:
    """Converts the pages of one range, in order, to batches.

    Cassandra repeats the static values of a partition in each of its rows. Here they are a separate row, and null in
    all others: a change of a static value is then one change. The plan may ask for them as Cassandra returns them.
    """

    def __init__(self, plan: ReadPlan) -> None:
        self.schema = snapshot_arrow_schema(plan.schema, plan.chosen, writetime=plan.writetime, ttl=plan.ttl)
        self._plan, self._cells = plan, plan.cells
        self._makers = [_maker(cell) for cell in self._cells]
        self._statics = [column.name for column in plan.selected if column.kind is ColumnKind.STATIC]
        self._last: tuple[Any, ...] | None = None

    def batch(self, rows: Sequence[tuple[Any, ...]], read_at: int) -> pa.RecordBatch:
        """Return rows as a batch; ``read_at`` is the second from which their time left counts."""
        if not rows:
            return pa.RecordBatch.from_pylist([], schema=self.schema)
        columns = dict(zip([cell.field for cell in self._cells], zip(*rows, strict=True), strict=True))
        found = {cell.field: make(columns, read_at) for cell, make in zip(self._cells, self._makers, strict=True)}
        self._fill_times(found)
        whole = pa.RecordBatch.from_arrays([found[name] for name in self.schema.names], schema=self.schema)
        self._require_keys(whole)
        is_split = self._plan.schema.statics and not self._plan.repeats_statics
        return self._split(whole) if is_split else whole

    def _require_keys(self, rows: pa.RecordBatch) -> None:
        """Refuse empty keys, which Cassandra allows and the driver returns as null: rows would be lost.

        Only the static row of a partition has null in its clustering columns; then in all, and no regular value.
        """
        schema = self._plan.schema
        absent = [column for column in schema.partition_key if rows.column(column.name).null_count]
        clustering = [rows.column(column.name).is_null() for column in schema.clustering]
        if any(column.true_count for column in clustering):
            others = [column.name for column in self._plan.selected if column.kind is ColumnKind.REGULAR]
            has_value = [pc.and_(clustering[0], rows.column(name).is_valid()).true_count for name in others]
            is_alike = all(column.equals(clustering[0]) for column in clustering)
            absent += schema.clustering if not (schema.statics and is_alike) or any(has_value) else ()
        if absent:
            names = ", ".join(column.name for column in absent)
            msg = f"{schema.name} has rows whose key is empty in {names}: the driver cannot distinguish them"
            raise DataError(msg, hint="remove or rewrite the rows whose key was made by blobAs…(0x)")

    def _fill_times(self, found: dict[str, pa.Array]) -> None:
        """Use the latest times of the row for collections whose own times the server does not return."""
        for column in self._plan.without_times:
            same = [other.name for other in self._plan.selected if other.kind is column.kind]
            nothing = pa.nulls(len(found[column.name]), pa.int64())
            for mark in (WRITETIME, EXPIRES):
                known = [name for name in same if mark + name in found]
                latest = pc.max_element_wise(*[found[mark + name] for name in known]) if known else nothing
                for name in known if mark == EXPIRES else ():
                    # A value without an expiry stays forever, and so may the collection.
                    stays = pc.and_(pc.is_valid(found[name]), pc.is_null(found[mark + name]))
                    latest = pc.if_else(stays, nothing, latest)
                found[mark + column.name] = pc.if_else(pc.is_valid(found[column.name]), latest, nothing)

    def _split(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Move static values to a separate row for each partition that has any, before its other rows."""
        schema = self._plan.schema
        statics, regulars = self._static_places(rows), _places_of_valid(rows.column(schema.clustering[0].name))
        in_static = pa.array([*statics, *[None] * len(regulars)], pa.int64())
        in_regular = pa.array([*[None] * len(statics), *regulars], pa.int64())
        in_both = pa.array([*statics, *regulars], pa.int64())
        places = {ColumnKind.PARTITION_KEY: in_both, ColumnKind.STATIC: in_static}
        kinds = {
            prefix + column.name: column.kind for column in self._plan.selected for prefix in ("", WRITETIME, EXPIRES)
        }
        arrays = [
            array.take(places.get(kinds[name], in_regular))
            for name, array in zip(self.schema.names, rows.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _static_places(self, rows: pa.RecordBatch) -> list[int]:
        """Return the first row of each partition that begins here and has a static value."""
        # In the form of a snapshot, keys are equal exactly where Cassandra considers them equal: NaN equals NaN.
        keys = list(
            zip(*[rows.column(column.name).to_pylist() for column in self._plan.schema.partition_key], strict=True)
        )
        before = [self._last, *keys]
        self._last = keys[-1]
        valid = [rows.column(name).is_valid().to_pylist() for name in self._statics]
        return [at for at, key in enumerate(keys) if key != before[at] and any(flags[at] for flags in valid)]


def _places_of_valid(array: pa.Array) -> list[int]:
    return [at for at, is_valid in enumerate(array.is_valid().to_pylist()) if is_valid]


def _maker(cell: Cell) -> Callable[[Mapping[str, Sequence[Any]], int], pa.Array]:
    name, cql = cell.column.name, cell.column.type
    if cell.part is Part.VALUE:
        change = to_arrow(cql, key=cell.column.kind.is_key)
        return lambda columns, _: change(columns[name])
    if cell.part is Part.WRITETIME:
        return lambda columns, _: pa.array(columns[cell.field], pa.int64())
    if not cql.is_multi_cell:
        return lambda columns, read_at: _moments(columns[cell.field], read_at)
    left = _left_of_elements if cql.is_collection else _left_of_fields
    return lambda columns, read_at: _moments(map(left, columns[cell.field], columns[name]), read_at)


def _moments(left: Iterable[int | None], read_at: int) -> pa.Array:
    """Return the second in which each value expires, from its time left."""
    return pa.array([None if seconds is None else read_at + seconds for seconds in left], pa.int64())


def _left_of_elements(left: Sequence[int | None] | None, _: Any = None) -> int | None:
    """Return the longest time left of the elements; None where one stays forever."""
    found = [field for field in left or () if field is not None]
    return max(found) if found and len(found) == len(left or ()) else None


def _left_of_fields(left: Sequence[int | None] | None, value: Sequence[Any] | None) -> int | None:
    """Return the longest time left of the fields; those without a value have no time either."""
    pairs = zip(left or (), value or (), strict=True)
    return _left_of_elements([seconds for seconds, part in pairs if part is not None])


_IN_FLIGHT = 4


def read_ranges(
    session: Session, plan: ReadPlan, ranges: Sequence[TokenRange]
) -> Iterator[tuple[TokenRange, pa.RecordBatch]]:
    """Yield the rows of ranges, each once, with their range; every range has at least one batch.

    While a page is processed, the next ones of up to four ranges are requested, or of as many as the cluster's
    ``max_in_flight`` allows. Requests that fail are repeated with growing pauses; no row is yielded twice.

    Raises:
        ConfigurationError: the server does not accept the query, or the table changed while it was read.
        RetriableError: the cluster did not answer any attempt.
    """
    budget = budget_client(plan.budget) if plan.budget is not None else None
    prepared, settings = plan.prepare(session, budget), plan.address.settings
    query = Query(session, prepared, budget, page_rows=plan.page_rows, slow=plan.needs_slow_reader)
    waiting, at_once = deque(ranges), min(_IN_FLIGHT, settings.max_in_flight)
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
        there = read_table_schema(session, plan.schema.name, [column.name for column in plan.selected]).columns
        changed = [column.name for column in plan.selected if column not in there]
        if not changed:
            raise
        msg = f"{plan.schema.name} changed while it was read, in {', '.join(changed)}: {error}"
        raise ConfigurationError(msg, hint=CHANGED) from error
