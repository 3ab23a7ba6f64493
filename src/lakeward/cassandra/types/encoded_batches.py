"""Batches whose statements are bytes already, which the driver sends as they are.

Its own way is a call for every value of every row, after which it puts together the same bytes.
"""

from __future__ import annotations

import io
import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cassandra.query import BatchStatement

# The kind of a batch and the number of its statements, which are what comes before these.
_KIND, _COUNT = slice(0, 1), slice(1, 3)


class EncodedStatements:
    """Statements of a batch as the protocol has them: of each the id of what was prepared, and its values."""

    __slots__ = ("_count", "data")

    def __init__(self, count: int, data: bytes | memoryview) -> None:
        """Take the bytes of so many statements."""
        self._count, self.data = count, data

    def __len__(self) -> int:
        """Give their number: the driver takes an empty batch for none."""
        return self._count


def statement_start(query_id: bytes, values: int) -> bytes:
    """Give what is before the values of a prepared statement within a batch."""
    return struct.pack(f">BH{len(query_id)}sH", 1, len(query_id), query_id, values)


def encoded_batch(statements: EncodedStatements, *, keyspace: str, partition: Sequence[bytes]) -> BatchStatement:
    """Give a batch of statements of one partition; its key tells the driver which nodes to send it to.

    Without a log: the rows are of one partition, and the job sends again what was not acknowledged.
    """
    from cassandra.query import BatchStatement, BatchType

    batch = BatchStatement(batch_type=BatchType.UNLOGGED)
    batch._statements_and_parameters = statements  # noqa: SLF001
    batch.keyspace, batch.routing_key = keyspace, tuple(partition)
    batch.is_idempotent = True
    return batch


def taking_encoded(handler: Any) -> Any:
    """Give a handler of the driver's messages that takes batches of bytes, too."""

    class EncodedBatchHandler(handler):  # type: ignore[misc]
        @classmethod
        def encode_message(cls, msg: Any, *arguments: Any, **options: Any) -> Any:
            is_encoded = isinstance(getattr(msg, "queries", None), EncodedStatements)
            return super().encode_message(_EncodedMessage(msg) if is_encoded else msg, *arguments, **options)

    return EncodedBatchHandler


class _EncodedMessage:
    """A batch as the driver would write it, but for its statements."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch
        self.opcode, self.tracing, self.custom_payload = batch.opcode, batch.tracing, batch.custom_payload

    def send_body(self, stream: Any, protocol: int) -> None:
        batch, around = self._batch, io.BytesIO()
        times = (batch.serial_consistency_level, batch.timestamp, batch.keyspace)
        type(batch)(batch.batch_type, (), batch.consistency_level, *times).send_body(around, protocol)
        empty = around.getvalue()
        stream.write(empty[_KIND])
        stream.write(len(batch.queries).to_bytes(2, "big"))
        stream.write(batch.queries.data)
        stream.write(empty[_COUNT.stop :])
