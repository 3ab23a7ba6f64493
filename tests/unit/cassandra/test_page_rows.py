"""How much is asked for at one time where reading is limited."""

from lakeward.cassandra.budget import Limits
from lakeward.cassandra.connecting import ClusterAddress
from lakeward.cassandra.reading.pages import Query
from lakeward.cassandra.reading.plan import page_rows
from lakeward.config.clusters import ClusterSettings

ADDRESS = ClusterAddress("one", ClusterSettings(hosts=("127.0.0.1",), page_size=2_000))


def test_pages_are_small_where_reading_is_limited() -> None:
    assert page_rows(ADDRESS, Limits()) is None
    assert page_rows(ADDRESS, Limits(requests_per_second=5)) is None
    assert page_rows(ADDRESS, Limits(rows_per_second=5_000)) == 500
    assert page_rows(ADDRESS, Limits(rows_per_second=10)) == 100
    assert page_rows(ADDRESS, Limits(rows_per_second=1e6)) == 2_000
    assert page_rows(ADDRESS, Limits(rows_per_second=1e6, read_units=1_000)) == 400


class _Budget:
    def __init__(self) -> None:
        self.rows = self.requests = self.read_units = 0.0

    def take(self, rows: float = 0, requests: float = 0) -> None:
        self.rows, self.requests = self.rows + rows, self.requests + requests

    def spent(self, rows: float = 0, read_units: float = 0, requests: float = 0) -> None:
        self.rows, self.read_units = self.rows + rows, self.read_units + read_units


class _Session:
    client_protocol_handler: object = None

    def execution_profile_clone_update(self, *_: object, **__: object) -> None:
        return None

    def execute_async(self, bound: object, **_: object) -> object:
        return bound


class _Prepared:
    class Bound:
        fetch_size = None

    def bind(self, _: object) -> Bound:
        return self.Bound()


def test_a_page_is_paid_for_before_it_is_asked_for_and_what_it_lacks_is_given_back() -> None:
    class _Range:
        start, end = 0, 1

    budget = _Budget()
    query = Query(_Session(), _Prepared(), budget, page_rows=500)
    asked = query.ask(_Range(), None)
    assert (asked.fetch_size, budget.rows, budget.requests) == (500, 500, 1)
    query.account(7, 2.0)
    assert (budget.rows, budget.requests, budget.read_units) == (7, 1, 2.0)
