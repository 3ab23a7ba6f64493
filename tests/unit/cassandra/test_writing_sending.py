"""How statements are put together and sent, with a driver that only gives the configured answers."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from cassandra import InvalidRequest, OperationTimedOut, Unauthorized
from cassandra.query import BatchStatement
from tests.unit.cassandra.writing import Budget, Future, Statement

from lakeward.cassandra import write_requests
from lakeward.cassandra.connection import SpreadSession
from lakeward.cassandra.cql import TableName
from lakeward.cassandra.jobs import Job
from lakeward.cassandra.keyspaces import WriteLimits
from lakeward.cassandra.write_frames import MOST_UNITS, unit_count
from lakeward.cassandra.write_plan import DeadLetterPlace, DeadLetters, place_for
from lakeward.cassandra.write_requests import BoundRequest, Ceiling, Sender, bound_requests
from lakeward.cassandra.write_rows import Row, Statements, StatementShape, Verb, WriteOperation, packed_time
from lakeward.config import Config
from lakeward.config.services import S3Settings
from lakeward.errors import ConfigurationError, DataError

if TYPE_CHECKING:
    from collections.abc import Callable

LIMITS = WriteLimits(batch_rows=3, batch_bytes=300)
SHAPE = StatementShape(Verb.INSERT, ("p", "c"), ("a",))
LISTED = StatementShape(Verb.UPDATE, ("p", "c"), ("l",))


def row_of(partition: str, name: str, size: int = 10, operations: int = 1, base: int | None = None) -> Row:
    shape = SHAPE if base is None else LISTED
    made = [WriteOperation(shape, [b"", name.encode(), partition.encode(), b""], base) for _ in range(operations)]
    return Row(None, 0, "I", (partition.encode(),), made, size)


def values_of(found: list[BoundRequest]) -> list[list[str]]:
    return [[operation.values[1].decode() for _, operation in entry.entries] for entry in found]


def test_consecutive_rows_of_a_partition_go_together_within_the_limits() -> None:
    rows = [row_of("p", "1"), row_of("p", "2"), row_of("p", "3"), row_of("p", "4"), row_of("q", "5"), row_of("p", "6")]
    assert values_of(list(bound_requests(rows, LIMITS))) == [["1", "2", "3"], ["4"], ["5"], ["6"]]
    # Four cells count 16 bytes each beside their values.
    wide = [row_of("p", "1", size=100), row_of("p", "2", size=100), row_of("p", "3", size=900), row_of("p", "4")]
    assert values_of(list(bound_requests(wide, LIMITS))) == [["1"], ["2"], ["3"], ["4"]]


def test_a_row_with_more_statements_than_a_batch_takes_is_split_and_counted_once() -> None:
    found = list(bound_requests([row_of("p", "1"), row_of("p", "2", size=3_000, operations=5)], LIMITS))
    assert values_of(found) == [["1"], ["2", "2", "2"], ["2", "2"]]
    assert [entry.rows for entry in found] == [1, 1, 0]
    assert sum(entry.units for entry in found) == pytest.approx(1 + 4)


class Server:
    """A session that fails where ``fails`` is true; ``sent`` are the values of each request."""

    def __init__(self, fails: Callable[[list[list[Any]]], Exception | None]) -> None:
        self.fails, self.sent = fails, list[list[list[Any]]]()

    def prepared(self, _: StatementShape) -> Statement:
        return Statement()

    def _answer(self, statement: Any) -> Exception | None:
        is_batch = isinstance(statement, BatchStatement)
        values = (
            [parameter[2] for parameter in statement._statements_and_parameters] if is_batch else [statement.values]
        )
        self.sent.append(values)
        return self.fails(values)

    def execute_async(self, statement: Any) -> Future:
        return Future(self._answer(statement))

    def execute(self, statement: Any) -> None:
        if (error := self._answer(statement)) is not None:
            raise error


class Scene:
    def __init__(self, fails: Callable[[list[list[Any]]], Exception | None]) -> None:
        self.server, self.budget = Server(fails), Budget()
        self.rejected: dict[str, str] = {}
        statements: Any = self.server
        budget: Any = self.budget
        self.sender = Sender(self.server, statements, budget, LIMITS, in_flight=2, reject=self.reject)

    def reject(self, row: Row, reason: str) -> None:
        self.rejected[row.operations[0].values[1].decode()] = reason

    def send(self, *rows: Row) -> None:
        for request in bound_requests(rows, LIMITS):
            self.sender.send(request)
        self.sender.drain()


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakeward.cassandra.retry.time.sleep", lambda _: None)


def names(values: list[list[Any]]) -> list[str]:
    return [value[1].decode() for value in values]


def test_of_a_rejected_batch_only_the_row_that_is_to_blame_is_left_out() -> None:
    scene = Scene(lambda values: InvalidRequest("too long") if "2" in names(values) else None)
    scene.send(row_of("p", "1"), row_of("p", "2"), row_of("p", "3"), row_of("q", "4"))
    assert scene.rejected == {"2": "InvalidRequest: too long"}
    accepted = [names(message) for message in scene.server.sent if "2" not in names(message)]
    assert sorted(accepted) == [["1"], ["3"], ["4"]]
    assert scene.budget.taken["rows"] == 4


def test_a_request_that_may_have_arrived_is_sent_again_and_lists_are_then_later() -> None:
    failures = iter([OperationTimedOut("slow"), OperationTimedOut("slow"), None, None])
    scene = Scene(lambda _: next(failures))
    scene.sender.shift = 7_000
    scene.send(row_of("p", "1", base=1_000_000))
    assert scene.rejected == {}
    assert [message[0][0] for message in scene.server.sent] == [packed_time(1_007_000 + number) for number in range(3)]
    assert scene.budget.slowed, "the whole job goes slower"
    # Everything else is sent as it was: its time makes it the same write.
    failures = iter([OperationTimedOut("slow"), None])
    plain = Scene(lambda _: next(failures))
    plain.send(row_of("p", "1"))
    assert plain.server.sent[0] == plain.server.sent[1]


def test_a_statement_is_prepared_again_where_that_may_help_and_other_errors_are_raised() -> None:
    failures = iter([OperationTimedOut("slow"), None])

    def prepare(_: str) -> Statement:
        if (error := next(failures)) is not None:
            raise error
        return Statement()

    session = SimpleNamespace(prepare=prepare)
    statements = Statements(session, TableName("ks", "t"))
    assert statements.prepared(SHAPE) is statements.prepared(SHAPE)
    failures = iter([InvalidRequest("unknown column")])
    with pytest.raises(DataError, match=r"does not accept rows of ks\.t: InvalidRequest: unknown column"):
        statements.prepared(LISTED)


def test_a_statement_prepared_in_one_session_works_in_all() -> None:
    """A node that lacks a statement of a batch reports its id, and the session that sent it must have the statement."""
    clusters = [Counter[bytes]() for _ in range(3)]
    sessions = [
        SimpleNamespace(
            prepare=lambda _, known=known: known.update([b"id"]) or Statement(),
            cluster=SimpleNamespace(add_prepared=lambda query_id, _, known=known: known.update([query_id])),
        )
        for known in clusters
    ]
    SpreadSession(sessions).prepare("INSERT")
    assert clusters == [{b"id": 1}] * 3


def test_permanent_errors_not_caused_by_a_row_end_the_task() -> None:
    scene = Scene(lambda _: Unauthorized("no"))
    with pytest.raises(DataError, match="does not accept rows: Unauthorized: no"):
        scene.send(row_of("p", "1"))


def test_a_partition_gets_no_more_than_its_share_of_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now, slept = [100.25], list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(write_requests.time, "sleep", sleep)
    ceiling = Ceiling(1_000.0, clock=lambda: now[0])
    for _ in range(4):
        ceiling.take((b"hot",), 300.0)
        ceiling.take((b"other",), 10.0)
    assert slept == [0.75]
    ceiling.take((b"large",), 5_000.0)
    assert slept == [0.75], "one request that is larger than the share waits for nothing"
    Ceiling(None).take((b"hot",), 1e9)


def test_dead_letters_are_added_to_and_have_no_file_before_the_first(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    letters = DeadLetters(DeadLetterPlace.at(f"file://{folder}", S3Settings()), "task.jsonl")
    letters.keep()
    assert not folder.exists()
    letters.add({"key": {"k": "'ü'"}})
    letters.keep()
    letters.add({"key": {"k": "2"}})
    letters.keep()
    lines = (folder / "task.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["key"]["k"] for line in lines] == ["'ü'", "2"]
    with pytest.raises(ConfigurationError, match=r"could not be kept in .*/task.jsonl/x: .*/task.jsonl is not a"):
        DeadLetterPlace.at(f"{folder}/task.jsonl/x", S3Settings())
    lost = DeadLetters(DeadLetterPlace(f"{folder}/task.jsonl"), "task.jsonl")
    lost.add({})
    with pytest.raises(DataError, match=r"rejected rows cannot be kept in .*/task.jsonl/task.jsonl"):
        lost.keep()
    with pytest.raises(ConfigurationError, match="hdfs://x/y"):
        DeadLetterPlace.at("hdfs://x/y", S3Settings())


def test_dead_letters_in_s3_are_one_object_that_holds_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    put = list[dict[str, Any]]()

    class Client:
        def put_object(self, **given: Any) -> None:
            put.append(given)

    monkeypatch.setattr("lakeward.storage.s3._shared_client", lambda *_: Client())
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(master="yarn"))
    job, config = Job("import-1", "import", 8, 1), Config(base=Path())
    place = place_for(spark, config, None, "s3://bucket/exports/minute=30", job)
    letters = DeadLetters(place, "task.jsonl")
    for number in range(2):
        letters.add({"key": number})
        letters.keep()
    key = "exports/_lakeward-dead-letters/minute=30-import-1/task.jsonl"
    assert [(request["Bucket"], request["Key"], request["Body"].count(b"\n")) for request in put] == [
        ("bucket", key, 1), ("bucket", key, 2),
    ]  # fmt: skip
    # A folder that was named is shared by jobs.
    assert place_for(spark, config, "s3://bucket/dead/", "/data", job).folder == "s3://bucket/dead/import-1"
    with pytest.raises(ConfigurationError, match="Spark runs on other machines"):
        place_for(spark, config, None, "/data/exports", job)


@pytest.mark.parametrize(("rows", "units"), [(None, 8), (0, 8), (40_000, 16), (10**6, 256), (10**9, MOST_UNITS)])
def test_units_are_a_power_of_two_that_grows_with_the_rows(rows: int | None, units: int) -> None:
    assert unit_count(rows) == units
