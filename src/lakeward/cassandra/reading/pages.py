"""The pages of a range: the next one is on its way while one is worked on, and asked for again if it does not come."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lakeward.cassandra.retrying import call_again
from lakeward.cassandra.types.wire import exact_handler
from lakeward.errors import BugError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cassandra.cluster import ResponseFuture, ResultSet, Session
    from cassandra.query import PreparedStatement

    from lakeward.cassandra.budget import BudgetClient
    from lakeward.cassandra.ranges import TokenRange


class Query:
    """The query of a table, as a session runs it for one range after the other."""

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

        self._session, self._prepared, self.budget, self._page_rows = session, prepared, budget, page_rows
        self._profile = session.execution_profile_clone_update(EXEC_PROFILE_DEFAULT, row_factory=_whole_rows)
        self._handler = exact_handler(compiled=not slow, in_bytes=True)

    def ask(self, one: TokenRange, state: bytes | None) -> ResponseFuture:
        """Ask for a page of a range, the first or the one that follows."""
        if self.budget is not None:
            # A whole page is paid for before it is asked for, as all tasks may do so at once.
            self.budget.take(rows=self._page_rows or 0, requests=1)
        bound = self._prepared.bind((one.start, one.end))
        if self._page_rows is not None:
            bound.fetch_size = self._page_rows
        with self._reader():
            return self._session.execute_async(bound, execution_profile=self._profile, paging_state=state)

    def account(self, rows: int, read_units: float) -> None:
        """Pay for what a page was, and take back what was paid for rows that it did not have."""
        if self.budget is not None:
            self.budget.spent(rows=rows - (self._page_rows or 0), read_units=read_units, requests=0)

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
        self._asked_at = 0
        self._ask()
        self.is_over = False

    def next_page(self) -> tuple[Sequence[tuple[Any, ...]], int]:
        """Give the next page, and the second in which it was asked for.

        A page that fails to come is asked for again at the place where the range had got to.

        Raises:
            RetriableError: the cluster did not give it, however often it was asked.
        """
        result = call_again(self._receive, budget=self._query.budget)
        rows, asked_at = result.current_rows, self._asked_at
        self._state = result.paging_state
        self.is_over = self._state is None
        if not self.is_over:
            self._ask()
        return rows, asked_at

    def _ask(self) -> ResponseFuture:
        self._asked = self._query.ask(self.range, self._state)
        # From here on what the values have left counts; they may lie here for a while before they are looked at.
        self._asked_at = int(time.time())
        return self._asked

    def _receive(self) -> ResultSet:
        asked, self._asked = self._asked or self._ask(), None
        return asked.result()


def _whole_rows(names: Sequence[str], rows: Sequence[tuple[Any, ...]] | None) -> Sequence[tuple[Any, ...]]:
    """Let no reader of the driver's lose rows in silence: some give none at all where they cannot decode them."""
    if rows is None:
        msg = f"the driver gave no rows for the columns {', '.join(names)}"
        raise BugError(msg)
    return rows
