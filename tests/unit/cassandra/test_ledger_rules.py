"""How the ledger interprets what it finds, with a dictionary as its table."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict
from typing import Any

import pytest
from tests.cassandra.ledger_server import Server

from lakeward.cassandra.cql import TableName
from lakeward.cassandra.jobs import Job
from lakeward.cassandra.ledger import Ledger
from lakeward.errors import ConflictError

ONE = {"location": "/1", "checksum": "c1", "rows": 10}
TWO = {"location": "/2", "checksum": "c2", "rows": 12}


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def ledger(server: Server) -> Ledger:
    return Ledger(server, TableName("ks", "t"))


def job(name: str = "one", timestamp: int = 5, **more: Any) -> Job:
    return Job(name, more.pop("kind", "import"), 8, timestamp, more.pop("identity", ONE), **more)


def test_the_record_of_a_table_that_was_dropped_or_emptied_is_void(server: Server, ledger: Ledger) -> None:
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
    assert (last.table_id, ledger.lost()) == ("second", None)
    server.has_rows = False
    assert "is empty" in str(ledger.lost())
    for gone in ("third", None):
        server.id = gone
        assert "was dropped" in str(ledger.lost())
    ledger.forget()
    assert (ledger.lost(), ledger.last()) == (None, None)


def test_a_state_belongs_to_the_table_that_its_rows_went_to(server: Server, ledger: Ledger) -> None:
    ledger.begin(job())
    server.id = "second"
    ledger.finish(job())
    assert "was dropped" in str(ledger.lost())
    ledger.record(TWO)
    last = ledger.last()
    assert last is not None
    assert (last.table_id, last.timestamp, ledger.lost()) == ("second", None, None)


def test_a_table_may_be_empty_where_nothing_was_written(server: Server, ledger: Ledger) -> None:
    server.has_rows = False
    for identity, rejected in (({"rows": 0}, 0), ({"rows": 2}, 2)):
        ledger.begin(job(identity=identity))
        ledger.finish_unit(job(identity=identity), 1, rows=rejected, rejected=rejected)
        assert ledger.lost() is None
        ledger.finish(job(identity=identity), rejected=rejected)
        assert ledger.lost() is None


def test_a_dry_run_removes_no_record(server: Server, ledger: Ledger) -> None:
    ledger.record(ONE)
    server.id = "second"
    looking = Ledger(server, TableName("ks", "t"))
    looking.look()
    looking.forget()
    assert looking.last() is None
    assert ledger.last() is not None


@pytest.mark.parametrize("statements", range(8))
def test_a_job_that_is_killed_at_its_end_is_done_or_resumed(server: Server, ledger: Ledger, statements: int) -> None:
    ledger.begin(job("other", 4))
    ledger.begin(job())
    server.statements_left = statements
    with contextlib.suppress(KeyboardInterrupt):
        ledger.finish(job())
    server.statements_left = 1_000
    is_done = ledger.last() is not None
    assert (ledger.under_way(), ledger.known("one")) == ((None, None) if is_done else (job(), job()))


def test_a_state_ends_the_job_that_led_to_it_and_no_other(server: Server, ledger: Ledger) -> None:
    """As after a kill on a server that does not write a batch atomically."""
    ledger.begin(job())
    headers = dict(server.rows)
    ledger.finish(job())
    server.rows.update(headers)
    assert ledger.under_way() is None
    # Half of the rows have a later time than the state.
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
    # Others may have written lists at this time, of which there is no record.
    ledger.forget()
    server.has_rows = True
    first = ledger.begin(remade)
    assert 100 <= first < 1_000
    assert ledger.begin(remade) == first + 1


def test_the_state_has_the_latest_time_of_its_cells(server: Server, ledger: Ledger) -> None:
    for found, expected in (
        (job(), 5),
        (job("now", 9), 9),
        (job("older", 3), 9),
        (job("repair", 20, kind="apply", change_set="r", is_repair=True), 9),
    ):
        ledger.begin(found)
        ledger.finish(found)
        last = ledger.last()
        assert last is not None
        assert last.timestamp == expected
    ledger.record(TWO)
    last = ledger.last()
    assert last is not None
    assert last.timestamp == 9, "nothing was written"


def test_a_slow_job_does_not_record_its_state_over_that_of_another(server: Server, ledger: Ledger) -> None:
    later = job("two", 9, identity=TWO)
    for found in (job(), later):
        ledger.begin(found)
    ledger.finish(later)
    with pytest.raises(ConflictError, match="another job wrote to"):
        ledger.finish(job())
    assert ledger.last() is not None
    # The same job twice at one time leads to one state.
    ledger.finish(later)


def test_a_job_that_is_started_again_has_no_units(ledger: Ledger) -> None:
    ledger.begin(job())
    ledger.finish_unit(job(), 3, rows=5, rejected=0)
    ledger.begin(job())
    assert ledger.done(job()) == {3}
    ledger.begin(job(), anew=True)
    assert ledger.done(job()) == set()


def test_records_of_earlier_versions_are_read_without_further_assumptions(server: Server, ledger: Ledger) -> None:
    """Those did not distinguish a finished job from an abandoned one, nor record the effect of a forced one."""
    states = {
        "state": {
            "identity": ONE, "change_set": None, "at": "2026-11-15T10:30:00+00:00", "rejected": 0, "dead_letters": None,
            "timestamp": 5, "table_id": "first",
        },
        "header": {"status": "done", "job": asdict(job()), "at": "2026-11-15T10:30:00+00:00", "table_id": "first"},
    }  # fmt: skip
    server.rows["ks.t", "", -1] = [None, json.dumps(states["state"])]
    server.rows["ks.t", "one", -1] = [0, json.dumps(states["header"])]
    last = ledger.last()
    assert last is not None
    assert (last.unknown, last.doubt, last.timestamp) == (None, None, 5)
    assert last.to_dict() == states["state"], "one that says no more is written as it was"
    assert not ledger.history().has_written(job())
    ledger.begin(job())
    ledger.finish(job())
    assert ledger.history().has_written(job())


def test_rejected_rows_of_one_change_set_are_missing_after_the_next(ledger: Ledger) -> None:
    for done, rejected, counted in ((job(), 2, 2), (_change("set", TWO, 6), 0, 2), (_change("next", ONE, 7), 3, 5)):
        ledger.begin(done)
        ledger.finish(done, rejected=rejected, dead_letters="/dead" if rejected else None)
        last = ledger.last()
        assert last is not None
        assert (last.rejected, last.dead_letters) == (counted, "/dead")
    # A whole export writes them again.
    ledger.begin(job("again", 9))
    ledger.finish(job("again", 9))
    assert ledger.last().rejected == 0  # type: ignore[union-attr]


def _change(name: str, identity: dict[str, Any], timestamp: int) -> Job:
    return job(name, timestamp, kind="apply", identity=identity, change_set=name)


def test_the_record_of_another_unfinished_job_is_kept(ledger: Ledger) -> None:
    ledger.begin(job())
    ledger.finish(job())
    half = _change("half", TWO, 6)
    ledger.begin(half)
    ledger.claim(half, 0)
    following = _change("following", TWO, 7)
    ledger.begin(following)
    ledger.finish(following)
    last = ledger.last()
    assert last is not None
    assert last.unknown == "the change set half was written in part before the change set following"
    assert (last.identity, last.timestamp) == (ONE, 7)


def test_a_job_that_started_and_wrote_nothing_leaves_no_doubt(ledger: Ledger) -> None:
    ledger.begin(job())
    ledger.finish(job())
    ledger.begin(_change("half", TWO, 6))
    following = _change("following", TWO, 7)
    ledger.begin(following)
    ledger.finish(following)
    assert ledger.last().unknown is None  # type: ignore[union-attr]
