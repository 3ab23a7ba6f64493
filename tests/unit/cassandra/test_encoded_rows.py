"""Rows made bytes column by column: what is sent is what the driver makes of the same rows one by one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from cassandra import ConsistencyLevel, InvalidRequest
from cassandra.protocol import BatchMessage, ProtocolHandler, QueryMessage
from cassandra.query import UNSET_VALUE, BatchStatement, BatchType
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.cassandra.writing import Budget, Future, Statement, plan_of, reader_of

from lakeward.cassandra.keyspaces import WriteLimits
from lakeward.cassandra.wire import taking_encoded
from lakeward.cassandra.write_batches import EncodedRequest, EncodedRows
from lakeward.cassandra.write_requests import Sender, bound_requests
from lakeward.cassandra.write_rows import Row, StatementShape, Verb, WriteOperation, packed_time

STAMP = packed_time(1_700_000_000_000_000)
SHAPE = StatementShape(Verb.INSERT, ("p", "q", "c"), ("a", "b"))
HANDLER = taking_encoded(ProtocolHandler)
KEYS = st.sampled_from([b"", b"a", b"b" * 40])
CELLS = st.one_of(st.none(), st.binary(max_size=30), st.just(b"x" * 1_500))
ROWS = st.lists(st.tuples(KEYS, KEYS, st.binary(max_size=4), CELLS, CELLS), min_size=1, max_size=30)
LIMITS = st.builds(WriteLimits, batch_rows=st.integers(1, 5), batch_bytes=st.integers(1, 2_000))


def encoded(rows: list[tuple[Any, ...]], stamp: bytes | None = STAMP) -> EncodedRows:
    columns = [pa.array(column, pa.large_binary()) for column in zip(*rows, strict=True)]
    prepared = Statement()
    batch: Any = "the batch"
    return EncodedRows(batch, columns, keyspace="ks", partition_columns=2, prepared=prepared, stamp=stamp)


def bound(row: tuple[Any, ...], stamp: bytes | None) -> Row:
    values = [*(UNSET_VALUE if value is None else value for value in row), *([] if stamp is None else [stamp])]
    size = sum(len(value or b"") for value in (*row, stamp))
    return Row(None, 0, "I", row[:2], [WriteOperation(SHAPE, values)], size)


def body(message: Any, handler: Any = ProtocolHandler) -> bytes:
    return bytes(handler.encode_message(message, 7, 4, compressor=None, allow_beta_protocol_version=False))


def batch_message(statements: Any) -> BatchMessage:
    return BatchMessage(BatchType.UNLOGGED, statements, ConsistencyLevel.LOCAL_QUORUM, None, 12345)


@given(ROWS, LIMITS, st.sampled_from([STAMP, None]))
def test_requests_and_their_bytes_equal_those_of_rows_bound_singly(
    rows: list[tuple[Any, ...]], limits: WriteLimits, stamp: bytes | None
) -> None:
    expected = list(bound_requests([bound(row, stamp) for row in rows], limits))
    found = list(encoded(rows, stamp).requests(limits))
    statements: Any = SimpleNamespace(prepared=lambda _: Statement())
    assert [(entry.rows, entry.deleted, entry.units, entry.partition) for entry in found] == [
        (wanted.rows, wanted.deleted, wanted.units, wanted.partition) for wanted in expected
    ]
    for entry, other in zip(found, expected, strict=True):
        sent, wanted = entry.statement(statements, 0), other.statement(statements, 0)
        if entry.rows == 1:
            assert sent.values == wanted.values
        else:
            assert isinstance(sent, BatchStatement) and sent.is_idempotent and sent.batch_type is BatchType.UNLOGGED
            message, driver = (batch_message(each._statements_and_parameters) for each in (sent, wanted))
            assert body(message, HANDLER) == body(driver)


def test_a_batch_has_the_routing_key_of_its_partition() -> None:
    [request] = encoded([(b"a", b"bc", b"1", b"v", None), (b"a", b"bc", b"2", None, None)]).requests(
        WriteLimits(9, 9_999)
    )
    statements: Any = None
    sent = request.statement(statements, 0)
    assert (sent.keyspace, sent.routing_key) == ("ks", b"\x00\x01a\x00\x00\x02bc\x00")
    assert len(sent) == 2, "the driver takes an empty batch for no statement at all"


def test_other_messages_are_sent_unchanged() -> None:
    for message in (QueryMessage("SELECT 1", ConsistencyLevel.ONE), batch_message([(True, b"id", [b"v", None])])):
        assert body(message, HANDLER) == body(message)


def test_of_a_rejected_batch_only_the_row_that_is_to_blame_is_left_out() -> None:
    sent, rejected, refusal = list[int](), list[tuple[int, str]](), InvalidRequest("too long")

    class Session:
        def execute_async(self, statement: Any) -> Future:
            sent.append(len(statement))
            return Future(refusal)

        def execute(self, statement: Any) -> None:
            sent.append(1)
            if statement.values[2] == b"2":
                raise refusal

    budget: Any = Budget()
    none: Any = None
    limits = WriteLimits(batch_rows=10, batch_bytes=9_999)
    sender = Sender(
        Session(), none, budget, limits, in_flight=2, reject=lambda row, why: rejected.append((row.index, why))
    )
    for request in encoded([(b"a", b"", b"%d" % number, b"v", None) for number in range(4)]).requests(limits):
        sender.send(request)
    sender.drain()
    assert (sent, rejected) == ([4, 1, 1, 1, 1], [(2, "InvalidRequest: too long")])


@pytest.mark.parametrize(
    ("columns", "batch", "is_encoded"),
    [
        ({"p": "text", "a": "int"}, {"k0": ["x"], "v0": pa.array([None], pa.int32())}, True),
        ({"p": "text", "a": "int"}, {"k0": pa.array([None], pa.string()), "v0": pa.array([1], pa.int32())}, False),
        ({"p": "double", "a": "int"}, {"k0": ["much"], "v0": pa.array([1], pa.int32())}, False),
        ({"p": "text", "s": "int"}, {"k0": ["x"], "v0": pa.array([1], pa.int32())}, False),
    ],
)
def test_only_rows_that_share_one_statement_are_written_as_whole_columns(
    columns: dict[str, str], batch: dict[str, Any], is_encoded: bool
) -> None:
    reader, _ = reader_of(plan_of(columns))
    found = list(reader.requests(pa.record_batch(batch), lambda *_: None))
    assert [isinstance(entry, EncodedRequest) for entry in found] in ([[is_encoded]] if is_encoded else [[False], []])
