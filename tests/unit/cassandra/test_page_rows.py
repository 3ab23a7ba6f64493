"""How much is requested at a time, and the effect of answers that are missing or do not fit, without a server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from cassandra import InvalidRequest, OperationTimedOut, ReadTimeout, Unauthorized, Unavailable

from lakeward.cassandra.budget import RateLimits
from lakeward.cassandra.connection import ClusterAddress
from lakeward.cassandra.cql import TableName, parse_cql_type
from lakeward.cassandra.read_plan import ReadPlan, TokenRange, page_rows
from lakeward.cassandra.reading import Page, Query, RangePages, read_ranges
from lakeward.cassandra.schema import ColumnKind, CqlColumn, TableSchema
from lakeward.config.services import ClusterSettings
from lakeward.errors import ConfigurationError, RetriableError

ADDRESS = ClusterAddress("one", ClusterSettings(hosts=("127.0.0.1",), page_size=2_000))


def test_pages_are_small_where_reading_is_limited() -> None:
    assert page_rows(ADDRESS, RateLimits()) is None
    assert page_rows(ADDRESS, RateLimits(requests_per_second=5)) is None
    assert page_rows(ADDRESS, RateLimits(rows_per_second=5_000)) == 500
    assert page_rows(ADDRESS, RateLimits(rows_per_second=10)) == 100
    assert page_rows(ADDRESS, RateLimits(rows_per_second=1e6)) == 2_000
    assert page_rows(ADDRESS, RateLimits(rows_per_second=1e6, read_units=1_000)) == 400


class _Budget:
    def __init__(self) -> None:
        self.rows = self.requests = self.read_units = 0.0

    def take(self, rows: float = 0, requests: float = 0) -> None:
        self.rows, self.requests = self.rows + rows, self.requests + requests

    def spent(self, rows: float = 0, read_units: float = 0, requests: float = 0) -> None:
        self.rows, self.read_units = self.rows + rows, self.read_units + read_units


class _Answer:
    """What comes of a request: an error, or rows and where the next ones begin."""

    def __init__(self, session: _Session, bound: _Prepared.Bound, answer: Any) -> None:
        self._session, self.fetch_size, self._answer = session, bound.fetch_size, answer

    def result(self) -> Any:
        self._session.under_way -= 1
        if isinstance(self._answer, Exception):
            raise self._answer
        rows, state = self._answer
        return SimpleNamespace(current_rows=rows, paging_state=state)


class _Session:
    """Returns one answer after the other, and records requests."""

    client_protocol_handler: object = None
    default_fetch_size = 2_000

    def __init__(self, *answers: Any, schema: list[Any] | None = None) -> None:
        self.answers, self.schema = list(answers), schema
        self.requests: list[tuple[int, bytes | None]] = []
        self.under_way = self.most_under_way = 0

    def execution_profile_clone_update(self, *_: object, **__: object) -> None:
        return None

    def prepare(self, _: str) -> _Prepared:
        return _Prepared()

    def execute(self, query: str, _: object) -> list[Any]:
        return self.schema or [] if "system_schema.columns" in query else [("place", ["a", "b"], ["int", "int"])]

    def execute_async(self, bound: _Prepared.Bound, paging_state: bytes | None = None, **_: object) -> _Answer:
        self.requests.append((bound.fetch_size, paging_state))
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        return _Answer(self, bound, self.answers.pop(0) if self.answers else ([], None))


class _Prepared:
    column_metadata = (None, None)

    class Bound:
        fetch_size = 0

    def bind(self, _: object) -> Bound:
        return self.Bound()


_RANGE = TokenRange(0, 1)


def _query(session: _Session, budget: _Budget | None = None, **choices: Any) -> Query:
    return Query(cast("Any", session), cast("Any", _Prepared()), cast("Any", budget), **choices)


def test_a_page_is_paid_for_before_it_is_requested_and_the_unused_part_is_returned() -> None:
    budget = _Budget()
    query = _query(_Session(), budget, page_rows=500)
    page = query.ask(_RANGE, None)
    assert (page.fetch_size, budget.rows, budget.requests) == (500, 500, 1)
    query.account(Page([()] * 7, 0, 500), 2.0)
    assert (budget.rows, budget.requests, budget.read_units) == (7, 1, 2.0)


@pytest.fixture
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakeward.cassandra.retry.FIRST_PAUSE_SECONDS", 0.0)


@pytest.mark.usefixtures("_no_pauses")
def test_pages_that_time_out_are_requested_again_half_as_large() -> None:
    late = (OperationTimedOut(), ReadTimeout("late"), Unavailable("no replica"))
    session = _Session(([(1,)], b"here"), *late, ([(2,)], None), ([(3,)], None))
    query = _query(session)
    pages = RangePages(query, _RANGE)

    assert [pages.next_page().rows, pages.next_page().rows] == [[(1,)], [(2,)]]
    sizes = [2_000, 2_000, 1_000, 500, 500]
    assert session.requests == list(zip(sizes, [None, *[b"here"] * 4], strict=True))
    # Another range of the same task need not find out again.
    assert RangePages(query, _RANGE).next_page().wanted == 500


@pytest.mark.usefixtures("_no_pauses")
def test_if_even_a_page_of_one_row_times_out_the_setting_is_named() -> None:
    session = _Session(*[OperationTimedOut()] * 12)
    with pytest.raises(RetriableError, match="12 times") as failed:
        RangePages(_query(session), _RANGE).next_page()
    assert session.requests[-1][0] == 1
    assert "page_size" in str(failed.value.hint)


def _plan(settings: ClusterSettings = ADDRESS.settings) -> ReadPlan:
    columns = (
        CqlColumn("p", parse_cql_type("int", {}), ColumnKind.PARTITION_KEY, 0),
        CqlColumn("u", parse_cql_type("place", _PLACE), ColumnKind.REGULAR, -1),
    )
    schema = TableSchema(TableName("k", "t"), columns, _PLACE)
    return ReadPlan(ClusterAddress("one", settings), schema)


_PLACE = {"place": (("a", "int"),)}


@pytest.mark.parametrize(("setting", "most"), [(64, 4), (2, 2)])
def test_no_more_ranges_are_under_way_than_the_cluster_allows(setting: int, most: int) -> None:
    session = _Session()
    plan = _plan(ADDRESS.settings.model_copy(update={"max_in_flight": setting}))
    ranges = [TokenRange(start, start + 1) for start in range(8)]
    assert len(list(read_ranges(cast("Any", session), plan, ranges))) == 8
    assert session.most_under_way == most


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (InvalidRequest("unconfigured table"), "can no longer be read as before: .*unconfigured table"),
        (Unauthorized("no SELECT"), "can no longer be read"),
        # The type has a field more than when the reading began.
        (([(1, (2, 3))], None), r"k\.t changed while it was read, in u"),
    ],
)
def test_a_table_that_changes_while_it_is_read_is_reported_with_a_remedy(answer: Any, words: str) -> None:
    changed = [("p", "int", "partition_key", 0, "none"), ("u", "place", "regular", -1, "none")]
    session = _Session(answer, schema=changed)
    with pytest.raises(ConfigurationError, match=words) as refused:
        list(read_ranges(cast("Any", session), _plan(), [_RANGE]))
    assert "--restart" in str(refused.value.hint)
