"""The pages of a range: the next one is on its way while one is worked on, and asked for again if it does not come."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from lakeward.cassandra.reading.plan import CHANGED
from lakeward.cassandra.retrying import call_again, told
from lakeward.cassandra.types.wire import exact_handler
from lakeward.errors import BugError, ConfigurationError, RetriableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cassandra.cluster import ResponseFuture, ResultSet, Session
    from cassandra.query import PreparedStatement

    from lakeward.cassandra.budget import BudgetClient
    from lakeward.cassandra.ranges import TokenRange


class Page(NamedTuple):
    """Rows that came, the second in which they were asked for, and how many were asked for."""

    rows: Sequence[tuple[Any, ...]]
    asked_at: int
    wanted: int


class Query:
    """The query of a table, as a session runs it for one range after the other.

    ``page_rows`` is how many rows a page has at most; ``is_limited`` says that they are paid for.
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

    def ask(self, one: TokenRange, state: bytes | None) -> ResponseFuture:
        """Ask for a page of a range, the first or the one that follows."""
        if self.budget is not None:
            # A whole page is paid for before it is asked for, as all tasks may do so at once.
            self.budget.take(rows=self.page_rows if self.is_limited else 0, requests=1)
        bound = self._prepared.bind((one.start, one.end))
        bound.fetch_size = self.page_rows
        with self._reader():
            return self._session.execute_async(bound, execution_profile=self._profile, paging_state=state)

    def ask_for_less(self, wanted: int) -> None:
        """Halve pages of so many rows, which the cluster could not give in time; the place in a range stays good."""
        self.page_rows = min(self.page_rows, max(wanted // 2, 1))

    def account(self, page: Page, read_units: float) -> None:
        """Pay for what a page was, and take back what was paid for rows that it did not have."""
        if self.budget is not None:
            paid = page.wanted if self.is_limited else 0
            self.budget.spent(rows=len(page.rows) - paid, read_units=read_units, requests=0)

    @contextmanager
    def _reader(self) -> Iterator[None]:
        """Let a reader of its own take the answers of what is asked in the block."""
        usual, self._session.client_protocol_handler = self._session.client_protocol_handler, self._handler
        try:
            yield
        finally:
            self._session.client_protocol_handler = usual


class RangePages:
    """The pages of a range in their order. One is always on its way while the one before it is worked on."""

    def __init__(self, query: Query, one: TokenRange) -> None:
        self.range, self._query = one, query
        self._state: bytes | None = None
        self._asked: ResponseFuture | None = None
        self._asked_at = self._wanted = 0
        self._ask()
        self.is_over = False

    def next_page(self) -> Page:
        """Give the next page.

        One that fails to come is asked for again at the place where the range had got to, and a smaller one where time
        was too short for it.

        Raises:
            ConfigurationError: the cluster does not take the query any more.
            RetriableError: the cluster did not give it, however often it was asked.
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
        # From here on what the values have left counts; they may lie here for a while before they are looked at.
        self._asked_at = int(time.time())
        return self._asked

    def _received(self) -> ResultSet:
        from cassandra import InvalidRequest, Unauthorized

        try:
            return call_again(self._receive, budget=self._query.budget)
        except (InvalidRequest, Unauthorized) as error:
            msg = f"the table cannot be read any more as it was until now: {told(error)}"
            raise ConfigurationError(msg, hint=CHANGED) from error
        except RetriableError as error:
            if not isinstance(error.__cause__, _too_slow()):
                raise
            what = f"the last page was of {self._wanted} rows: a smaller page_size, or a longer timeout, of the cluster"
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
    """Let no reader of the driver's lose rows in silence: some give none at all where they cannot decode them."""
    if rows is None:
        msg = f"the driver gave no rows for the columns {', '.join(names)}"
        raise BugError(msg)
    return rows
