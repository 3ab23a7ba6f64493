"""The state store in DynamoDB: the contract, and what only it has to fear."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from botocore.awsrequest import AWSResponse

from lakeward.errors import ConfigurationError, LeaseHeldError, RetriableError
from lakeward.model import Progress
from lakeward.state import dynamodb, dynamodb_connection, dynamodb_rows
from lakeward.state.base import open_state
from lakeward.state.dynamodb import DynamoStateStore
from lakeward.state.leases import current_owner
from lakeward.testing.state_contract import ELSEWHERE, PRODUCT, PROGRESS, SharedStoreContract, make_entry
from tests.servers.dynamodb import dynamodb_client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def table_name(address: str) -> str:
    return address.removeprefix("dynamodb://").partition("?")[0]


class TestContract(SharedStoreContract):
    # Waves of batches, and pages of a query; the server of the tests takes a millisecond and more for each item.
    many_files = 2500

    @pytest.fixture
    def address(self, dynamodb_uri: str) -> str:
        return dynamodb_uri

    @pytest.fixture
    def wipe(self, address: str, client: Any) -> Callable[[], None]:
        return lambda: client.delete_table(TableName=table_name(address))


@pytest.fixture
def client(dynamodb_endpoint: str) -> Iterator[Any]:
    with closing(dynamodb_client(dynamodb_endpoint)) as client:
        yield client


@pytest.fixture
def store(dynamodb_uri: str) -> Iterator[DynamoStateStore]:
    with closing(DynamoStateStore(dynamodb_uri)) as store:
        yield store


class Meddler:
    """A proxy between a store and its server, which sees every call and answers some itself."""

    def __init__(self, store: DynamoStateStore) -> None:
        self.calls: Counter[str] = Counter()
        self.answers: list[tuple[str, Callable[[dict[str, Any]], Any]]] = []
        store._connection._client.meta.events.register("before-send.dynamodb", self._see)

    def answer(self, operation: str, answer: Callable[[dict[str, Any]], Any], times: int = 1) -> None:
        """Answer the next calls of an operation; an answer of None lets the call pass."""
        self.answers.extend([(operation, answer)] * times)

    def fail(self, operation: str, code: str, times: int = 1, status: int = 400) -> None:
        body = {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": f"{code} set by the test"}
        self.answer(operation, lambda _asked: (status, body), times)

    def _see(self, request: Any, **_rest: object) -> AWSResponse | None:
        operation = request.headers["X-Amz-Target"].decode().partition(".")[2]
        self.calls[operation] += 1
        for number, (wanted, answer) in enumerate(self.answers):
            if wanted == operation:
                del self.answers[number]
                return self._response(request, answer(json.loads(request.body)))
        return None

    def _response(self, request: Any, answer: Any) -> AWSResponse | None:
        if answer is None:
            return None
        status, body = answer
        return AWSResponse(request.url, status, {"date": format_datetime(datetime.now(UTC))}, Raw(json.dumps(body)))


class Raw:
    """A body as botocore reads it."""

    def __init__(self, text: str) -> None:
        self._left = [text.encode()]

    def stream(self) -> Iterator[bytes]:
        while self._left:
            yield self._left.pop()


@pytest.fixture
def meddler(store: DynamoStateStore, monkeypatch: pytest.MonkeyPatch) -> Meddler:
    monkeypatch.setattr(dynamodb_rows, "pause", lambda attempt: None)
    return Meddler(store)


class TestBatches:
    def test_unprocessed_items_of_a_batch_are_retried(self, store: DynamoStateStore, meddler: Meddler) -> None:
        def nothing_written(request: dict[str, Any]) -> Any:
            return 200, {"UnprocessedItems": request["RequestItems"]}

        def nothing_read(request: dict[str, Any]) -> Any:
            return 200, {"Responses": {}, "UnprocessedKeys": request["RequestItems"]}

        entries = {f"{number}": make_entry(f"{number}") for number in range(40)}
        meddler.answer("BatchWriteItem", nothing_written, times=3)
        store.replace_ledger(PRODUCT, 1, PROGRESS, entries.values())
        meddler.answer("BatchGetItem", nothing_read, times=3)
        assert store.lookup(PRODUCT, list(entries)) == entries
        assert (meddler.calls["BatchWriteItem"], meddler.calls["BatchGetItem"]) == (5, 4)

    def test_a_batch_that_is_never_done_is_retriable(self, store: DynamoStateStore, meddler: Meddler) -> None:
        store.replace_ledger(PRODUCT, 1, PROGRESS, [make_entry("old")])
        meddler.answer("BatchWriteItem", lambda request: (200, {"UnprocessedItems": request["RequestItems"]}), times=99)
        with pytest.raises(RetriableError, match="did not process 1 items of a batch in 10 tries"):
            store.replace_ledger(PRODUCT, 2, PROGRESS, [make_entry("new")])
        assert (store.ledger_position(PRODUCT), store.count_files(PRODUCT)) == (1, 1)

    def test_queries_continue_after_a_page(self, store: DynamoStateStore) -> None:
        # A page is a megabyte at most.
        long = "x" * 5000
        store.replace_ledger(PRODUCT, 1, PROGRESS, (make_entry(f"{number}{long}") for number in range(120)))
        assert store.count_files(PRODUCT) == 120
        assert not store.has_files(PRODUCT, generation=7)


class TestFaults:
    @pytest.mark.parametrize(
        "code", ["ThrottlingException", "ProvisionedThroughputExceededException", "InternalServerError"]
    )
    def test_a_temporary_error_is_retried_and_then_retriable(
        self, store: DynamoStateStore, meddler: Meddler, code: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("time.sleep", lambda seconds: None)
        status = 500 if code == "InternalServerError" else 400
        meddler.fail("GetItem", code, times=2, status=status)
        assert store.find_table(PRODUCT) is None
        meddler.fail("GetItem", code, times=5, status=status)
        with pytest.raises(RetriableError, match=code):
            store.find_table(PRODUCT)

    @pytest.mark.parametrize(
        "code", ["UnrecognizedClientException", "InvalidSignatureException", "ExpiredTokenException"]
    )
    def test_wrong_credentials_are_configuration_errors(
        self, store: DynamoStateStore, meddler: Meddler, code: str
    ) -> None:
        meddler.fail("GetItem", code)
        with pytest.raises(ConfigurationError, match=code) as refused:
            store.find_table(PRODUCT)
        assert "credentials" in str(refused.value.hint)

    def test_conflicting_transactions_are_retried(self, store: DynamoStateStore, meddler: Meddler) -> None:
        reasons = {"CancellationReasons": [{"Code": "TransactionConflict"}, {"Code": "None"}]}
        body = {"__type": "x#TransactionCanceledException", "message": "met", **reasons}
        meddler.answer("TransactWriteItems", lambda _asked: (400, body), times=2)
        store.replace_ledger(PRODUCT, 1, PROGRESS, [])
        assert store.ledger_position(PRODUCT) == 1

    def test_an_unknown_error_is_not_hidden(self, store: DynamoStateStore, meddler: Meddler) -> None:
        meddler.fail("GetItem", "ValidationException")
        with pytest.raises(Exception, match="ValidationException"):
            store.find_table(PRODUCT)

    def test_an_unreachable_server_is_retriable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("time.sleep", lambda seconds: None)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        with pytest.raises(RetriableError, match="does not answer"):
            open_state("dynamodb://lakeward?region=eu-west-1&endpoint=http://127.0.0.1:1", Path())

    @pytest.mark.parametrize(
        ("uri", "expected"),
        [
            ("dynamodb://lakeward?endpoint=http://127.0.0.1:1", "no region is configured"),
            ("dynamodb://lakeward?region=eu-west-1&endpoint=http://127.0.0.1:1", "Unable to locate credentials"),
        ],
    )
    def test_without_region_or_credentials_no_request_is_sent(
        self, uri: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
        with pytest.raises(ConfigurationError, match=expected):
            open_state(uri, tmp_path)


class TestTable:
    def test_it_is_created_with_payment_by_request(self, store: DynamoStateStore, client: Any) -> None:
        found = client.describe_table(TableName=store._connection.address.table)["Table"]
        assert found["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"

    def test_a_table_that_may_not_be_created_is_reported_with_the_command(
        self, store: DynamoStateStore, meddler: Meddler
    ) -> None:
        store._connection._opened = None
        meddler.fail("DescribeTable", "ResourceNotFoundException")
        meddler.fail("CreateTable", "AccessDeniedException")
        with pytest.raises(ConfigurationError, match="may not be created") as refused:
            store.find_table(PRODUCT)
        assert "aws dynamodb create-table" in str(refused.value.hint)

    def test_a_table_that_another_process_creates_is_waited_for(
        self, store: DynamoStateStore, meddler: Meddler, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("time.sleep", lambda seconds: None)
        store._connection._opened = None
        meddler.fail("DescribeTable", "ResourceNotFoundException", times=2)
        meddler.fail("CreateTable", "ResourceInUseException")
        creating = {"Table": {"TableStatus": "CREATING", "KeySchema": []}}
        meddler.answer("DescribeTable", lambda _asked: (200, creating), times=2)
        assert store.find_table(PRODUCT) is None
        assert (meddler.calls["CreateTable"], meddler.calls["DescribeTable"]) == (1, 5)

    def test_a_table_that_never_becomes_active_is_retriable(
        self, store: DynamoStateStore, meddler: Meddler, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(dynamodb_connection, "_CREATION_SECONDS", 0)
        store._connection._opened = None
        meddler.fail("DescribeTable", "ResourceNotFoundException")
        meddler.fail("CreateTable", "ResourceInUseException")
        with pytest.raises(RetriableError, match="not active after 0 seconds"):
            store.find_table(PRODUCT)

    def test_a_table_of_another_program_is_left_alone(self, dynamodb_uri: str, client: Any) -> None:
        client.create_table(
            TableName=table_name(dynamodb_uri),
            KeySchema=[{"AttributeName": "path", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "path", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        with pytest.raises(ConfigurationError, match="its keys are path, expected pk and sk"):
            open_state(dynamodb_uri, Path())

    def test_a_table_of_a_newer_version_is_refused(
        self, store: DynamoStateStore, dynamodb_uri: str, client: Any
    ) -> None:
        item = {"pk": {"S": "store"}, "sk": {"S": "version"}, "version": {"N": "99"}}
        client.put_item(TableName=table_name(dynamodb_uri), Item=item)
        with pytest.raises(ConfigurationError, match="newer Lakeward: its version is 99, this one knows up to 1"):
            open_state(dynamodb_uri, Path())


class TestLeases:
    def test_a_lease_renewed_at_the_last_moment_is_not_taken_over(
        self, store: DynamoStateStore, meddler: Meddler
    ) -> None:
        lease = store.acquire_lease(PRODUCT, ELSEWHERE, seconds=-1)

        def renew_first(_asked: dict[str, Any]) -> None:
            store.renew_lease(lease, seconds=30)

        meddler.answer("PutItem", renew_first)
        with pytest.raises(LeaseHeldError):
            store.acquire_lease(PRODUCT, current_owner("late"), seconds=30)
        assert store.renew_lease(lease, seconds=30).token == lease.token

    def test_a_write_whose_answer_got_lost_counts(self, store: DynamoStateStore, meddler: Meddler) -> None:
        def write_and_lose_the_answer(request: dict[str, Any]) -> Any:
            with closing(dynamodb_client(str(store._connection.address.endpoint))) as other:
                other.put_item(TableName=request["TableName"], Item=request["Item"])
            return 500, {"__type": "x#InternalServerError", "message": "the answer got lost"}

        meddler.answer("PutItem", write_and_lose_the_answer)
        lease = store.acquire_lease(PRODUCT, ELSEWHERE, seconds=30)
        assert store.lease_of(PRODUCT) == lease

    @pytest.mark.parametrize("hours", [-2, 2])
    def test_hosts_whose_clocks_differ_agree_on_the_end(
        self, dynamodb_uri: str, hours: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with closing(DynamoStateStore(dynamodb_uri)) as right:
            lease = right.acquire_lease(PRODUCT, ELSEWHERE, seconds=30)
            monkeypatch.setattr("lakeward.state.dynamodb_connection.datetime", moved_clock(timedelta(hours=hours)))
            with closing(DynamoStateStore(dynamodb_uri)) as wrong:
                assert wrong.lease_of(PRODUCT) == lease
                with pytest.raises(LeaseHeldError):
                    wrong.acquire_lease(PRODUCT, current_owner("wrong"), seconds=30)
                renewed = wrong.renew_lease(lease, seconds=30)
                assert abs(renewed.expires_at - lease.expires_at) < timedelta(seconds=15)


def moved_clock(offset: timedelta) -> type[datetime]:
    class Moved(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(tz) + offset

    return Moved


class TestLedger:
    def test_an_interrupted_extension_leaves_no_cache_until_the_next_rebuild(
        self, store: DynamoStateStore, meddler: Meddler
    ) -> None:
        store.replace_ledger(PRODUCT, 1, PROGRESS, [make_entry("a")])
        meddler.fail("BatchWriteItem", "AccessDeniedException")
        with pytest.raises(ConfigurationError):
            store.extend_ledger(PRODUCT, after=1, snapshot_id=2, progress=Progress(op=2), entries=[make_entry("b")])
        assert (store.ledger_position(PRODUCT), store.progress(PRODUCT)) == (None, None)
        for after in (1, 2, None):
            assert not store.extend_ledger(PRODUCT, after=after, snapshot_id=3, progress=PROGRESS, entries=[])
        store.replace_ledger(PRODUCT, 3, PROGRESS, [make_entry("c")])
        assert (store.ledger_position(PRODUCT), store.count_files(PRODUCT)) == (3, 1)

    def test_an_extension_overtaken_by_a_rebuild_changes_nothing(
        self, store: DynamoStateStore, meddler: Meddler
    ) -> None:
        store.replace_ledger(PRODUCT, 1, PROGRESS, [make_entry("a")])
        meddler.answer("BatchWriteItem", lambda _: store.replace_ledger(PRODUCT, 5, PROGRESS, [make_entry("x")]))
        assert not store.extend_ledger(PRODUCT, after=1, snapshot_id=2, progress=PROGRESS, entries=[make_entry("b")])
        assert (store.ledger_position(PRODUCT), store.count_files(PRODUCT)) == (5, 1)

    def test_a_reader_overtaken_by_a_rebuild_reads_again(self, store: DynamoStateStore, meddler: Meddler) -> None:
        store.replace_ledger(PRODUCT, 1, PROGRESS, [make_entry("a", op=1)])
        meddler.answer("BatchGetItem", lambda _: store.replace_ledger(PRODUCT, 2, PROGRESS, [make_entry("a", op=2)]))
        assert store.lookup(PRODUCT, ["a"]) == {"a": make_entry("a", op=2)}
        meddler.answer("BatchGetItem", lambda _: store.forget_ledger(PRODUCT))
        assert store.lookup(PRODUCT, ["a"]) == {}

    def test_remains_of_a_version_after_a_crash_are_deleted_later(
        self, store: DynamoStateStore, client: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def crashing() -> Iterator[Any]:
            yield from (make_entry(f"{number}") for number in range(300))
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            store.replace_ledger(PRODUCT, 1, PROGRESS, crashing())
        store.replace_ledger(PRODUCT, 2, PROGRESS, [make_entry("a")])
        assert partitions(client, store)["files"] > 200
        monkeypatch.setattr(dynamodb, "LEFTOVER_AGE", timedelta(0))
        store.replace_ledger(PRODUCT, 3, PROGRESS, [make_entry("a")])
        assert partitions(client, store) == {"files": 1, "ledgers": 1, "store": 1}

    def test_a_version_cleaned_up_while_it_was_filled_does_not_become_current(
        self, store: DynamoStateStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def slow() -> Iterator[Any]:
            yield make_entry("slow")
            monkeypatch.setattr(dynamodb, "LEFTOVER_AGE", timedelta(0))
            store.replace_ledger(PRODUCT, 2, PROGRESS, [make_entry("quick")])

        with pytest.raises(RetriableError, match="cleaned up meanwhile"):
            store.replace_ledger(PRODUCT, 1, PROGRESS, slow())
        assert (store.ledger_position(PRODUCT), store.count_files(PRODUCT)) == (2, 1)

    def test_a_forgotten_ledger_leaves_no_files(self, store: DynamoStateStore, client: Any) -> None:
        store.replace_ledger(PRODUCT, 1, PROGRESS, [make_entry(f"{number}") for number in range(60)])
        store.forget_ledger(PRODUCT)
        assert partitions(client, store) == {"versions": 1, "store": 1}


def test_pruned_runs_leave_nothing(store: DynamoStateStore, client: Any) -> None:
    from lakeward.testing.state_contract import NOON, make_run

    noise = {str(number): str(hash((number, "noise"))) for number in range(60_000)}
    store.record_run(replace(make_run("big"), report=noise))
    assert partitions(client, store)["report"] >= 1
    assert store.prune_runs(before=NOON + timedelta(days=1)) == 1
    assert partitions(client, store) == {"store": 1}


def partitions(client: Any, store: DynamoStateStore) -> dict[str, int]:
    """How many items there are of each kind."""
    pages = client.get_paginator("scan").paginate(TableName=store._connection.address.table)
    return dict(Counter(item["pk"]["S"].partition("#")[0] for page in pages for item in page["Items"]))
