"""What the ledger makes of what it finds, with a table of its own that is a dictionary."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import pytest

from lakeward.cassandra.jobs import Job
from lakeward.cassandra.ledger import Ledger
from lakeward.cassandra.names import TableName
from lakeward.errors import ConflictError

ONE = {"location": "/1", "checksum": "c1", "rows": 10}
TWO = {"location": "/2", "checksum": "c2", "rows": 12}
_TEXT = re.compile(r"\('((?:[^']|'')*)', '((?:[^']|'')*)', (-?\d+), (\w+), '((?:[^']|'')*)'\)", re.ASCII)


class Server:
    """Answers what a ledger asks; ``id`` is that of the target, ``has_rows`` whether anything is in it."""

    def __init__(self) -> None:
        self.id: str | None = "first"
        self.has_rows = True
        self.rows: dict[tuple[str, str, int], list[Any]] = {}
        self.statements_left = 1_000

    def execute(self, statement: Any, values: Any = None) -> list[tuple[Any, ...]]:
        self.statements_left -= 1
        if self.statements_left < 0:
            raise KeyboardInterrupt
        query = statement if isinstance(statement, str) else getattr(statement, "query_string", None)
        if query is None:
            for _, text, _ in statement._statements_and_parameters:
                self._insert(*_TEXT.search(text).groups())  # type: ignore[union-attr]
            return []
        if "system_schema" in query:
            return [(self.id,)] if self.id else []
        if query.endswith("LIMIT 1"):
            return [(1,)] if self.has_rows else []
        return self._on_ledger(query, values)

    def _insert(self, target: str, job: str, unit: str, attempt: str, document: str) -> None:
        number = None if attempt == "NULL" else int(attempt)
        self.rows[target, job, int(unit)] = [number, document.replace("''", "'")]

    def _on_ledger(self, query: str, values: Any) -> list[tuple[Any, ...]]:
        found = {key: row for key, row in sorted(self.rows.items()) if key[: len(values)] == tuple(values)}
        if query.startswith("INSERT"):
            (target, job, unit, value), place = values, 0 if "attempt" in query else 1
            self.rows.setdefault((target, job, unit), [None, None])[place] = value
        elif query.startswith("DELETE"):
            for key in found:
                if "unit >= 0" not in query or key[2] >= 0:
                    del self.rows[key]
        elif query.startswith("SELECT job"):
            return [(*key[1:], *row) for key, row in found.items()]
        elif query.startswith("SELECT unit"):
            return [(key[2], row[1]) for key, row in found.items()]
        else:
            return [tuple(row) for row in found.values()]
        return []


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def ledger(server: Server) -> Ledger:
    return Ledger(server, TableName("ks", "t"))


def job(name: str = "one", timestamp: int = 5, **more: Any) -> Job:
    return Job(name, more.pop("kind", "import"), 8, timestamp, more.pop("identity", ONE), **more)


def test_what_is_recorded_of_a_table_that_was_dropped_or_emptied_is_void(server: Server, ledger: Ledger) -> None:
    ledger.begin(job())
    assert ledger.lost() is None
    ledger.finish_unit(job(), 3, rows=5, rejected=0)
    server.has_rows = False
    assert "is empty" in str(ledger.lost())
    server.id, server.has_rows = "second", True
    assert "was dropped" in str(ledger.lost())
    assert ledger.under_way() is None, "its rows are not in this table"
    ledger.begin(job())
    assert ledger.done(job()) == set()

    ledger.finish(job())
    last = ledger.last()
    assert last is not None
    assert (last.table_id, ledger.holds_other_table(last), ledger.lost()) == ("second", False, None)
    server.has_rows = False
    assert "is empty" in str(ledger.lost())
    for gone in ("third", None):
        server.id = gone
        assert ledger.holds_other_table(last)
        assert "was dropped" in str(ledger.lost())
    ledger.forget()
    assert (ledger.lost(), ledger.last()) == (None, None)


def test_a_state_belongs_to_the_table_that_its_rows_went_to(server: Server, ledger: Ledger) -> None:
    ledger.begin(job())
    server.id = "second"
    ledger.finish(job())
    last = ledger.last()
    assert last is not None
    assert ledger.holds_other_table(last)
    ledger.record(TWO)
    last = ledger.last()
    assert last is not None
    assert (last.table_id, last.timestamp, ledger.holds_other_table(last)) == ("second", None, False)


def test_a_table_may_be_empty_where_nothing_was_written(server: Server, ledger: Ledger) -> None:
    server.has_rows = False
    for identity, rejected in (({"rows": 0}, 0), ({"rows": 2}, 2)):
        ledger.begin(job(identity=identity))
        ledger.finish_unit(job(identity=identity), 1, rows=rejected, rejected=rejected)
        assert ledger.lost() is None
        ledger.finish(job(identity=identity), rejected=rejected)
        assert ledger.lost() is None


def test_a_dry_run_forgets_nothing(server: Server, ledger: Ledger) -> None:
    ledger.record(ONE)
    server.id = "second"
    looking = Ledger(server, TableName("ks", "t"))
    looking.look()
    looking.forget()
    assert looking.last() is None
    assert ledger.last() is not None


@pytest.mark.parametrize("statements", range(8))
def test_a_job_that_is_killed_at_its_end_is_done_or_goes_on(server: Server, ledger: Ledger, statements: int) -> None:
    ledger.begin(job("other", 4))
    ledger.begin(job())
    server.statements_left = statements
    with contextlib.suppress(KeyboardInterrupt):
        ledger.finish(job())
    server.statements_left = 1_000
    is_done = ledger.last() is not None
    assert (ledger.under_way(), ledger.known("one")) == ((None, None) if is_done else (job(), job()))


def test_a_state_ends_the_job_that_led_to_it_and_no_other(server: Server, ledger: Ledger) -> None:
    """As after a kill on a server that does not write a batch at once."""
    ledger.begin(job())
    headers = dict(server.rows)
    ledger.finish(job())
    server.rows.update(headers)
    assert ledger.under_way() is None
    # Half of the rows have a later time than the state says.
    ledger.begin(job("later", 6))
    assert ledger.under_way() == job("later", 6)


def test_lists_are_written_later_than_by_any_job_that_may_have_had_their_times(server: Server, ledger: Ledger) -> None:
    server.has_rows = False
    assert [ledger.begin(job()) for _ in range(2)] == [0, 1]
    ledger.finish(job())
    change = job("change", 7, kind="apply", identity=TWO, change_set="set")
    assert ledger.begin(change) == 0, "nothing has its time"
    ledger.finish(change)
    assert ledger.begin(job("two", 7, identity=TWO)) == 2
    assert ledger.begin(job("two, with times of its cells", 8, identity=TWO)) == 3
    remade = job("remade", 7, kind="apply", identity=TWO, change_set="remade")
    assert ledger.begin(remade) == 3
    # Others may have written lists at this time, and nothing tells of them.
    ledger.forget()
    server.has_rows = True
    first = ledger.begin(remade)
    assert 100 <= first < 1_000
    assert ledger.begin(remade) == first + 1


def test_the_state_has_the_latest_time_of_its_cells(server: Server, ledger: Ledger) -> None:
    for one, expected in (
        (job(), 5),
        (job("now", 9), 9),
        (job("older", 3), 9),
        (job("repair", 20, kind="apply", change_set="r", is_repair=True), 9),
    ):
        ledger.begin(one)
        ledger.finish(one)
        last = ledger.last()
        assert last is not None
        assert last.timestamp == expected
    ledger.record(TWO)
    last = ledger.last()
    assert last is not None
    assert last.timestamp == 9, "nothing was written"


def test_a_slow_job_does_not_record_its_state_over_that_of_another(server: Server, ledger: Ledger) -> None:
    later = job("two", 9, identity=TWO)
    for one in (job(), later):
        ledger.begin(one)
    ledger.finish(later)
    with pytest.raises(ConflictError, match="another job was"):
        ledger.finish(job())
    assert ledger.last() is not None
    # The same job twice at one time leads to one state.
    ledger.finish(later)


def test_a_job_that_is_begun_anew_has_no_units(ledger: Ledger) -> None:
    ledger.begin(job())
    ledger.finish_unit(job(), 3, rows=5, rejected=0)
    ledger.begin(job())
    assert ledger.done(job()) == {3}
    ledger.begin(job(), anew=True)
    assert ledger.done(job()) == set()
