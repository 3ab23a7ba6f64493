"""Exact reading and writing of values by the driver, and batches whose statements are already encoded.

By default the driver drops some values or closes the connection because of them:

* a timestamp outside the years 1 to 9999, or a time that is negative, cannot be decoded: numbers are used instead;
* a set becomes a sorted one, which keeps only one of 0.0 and -0.0: it is read as the list that Cassandra sends;
* the types within a vector come as names of Java classes, where the name of a user-defined type may be read as a
  number, and timestamps are as above;
* a user-defined type becomes a Python class, with a warning each time if Python does not allow the names of its
  fields: it is read as the tuple that Cassandra sends;
* a decimal of more than 4,300 digits cannot be decoded.

The driver prepares statements with its default types, whatever handler a session has, so that is done here as well. To
write a batch it makes a call for every value of every row; encoding them here produces the same bytes faster.
"""

from __future__ import annotations

import io
import re
import struct
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cassandra.cluster import Session
    from cassandra.query import BatchStatement, PreparedStatement

_CUSTOM, _TIMESTAMP, _TIME, _SET, _USER_TYPE = 0x0000, 0x000B, 0x0012, 0x0022, 0x0030
_PREFIX = "org.apache.cassandra.db.marshal."
_TOKEN = re.compile(r"\s*([^\s(),:]+|[(),:])")


def make_exact(session: Session) -> Session:
    """Make a session read and write values exactly, also through statements that it prepares."""
    session.client_protocol_handler = taking_encoded(exact_handler())
    session.prepare = partial(_prepare, session)
    return session


def exact_handler(*, compiled: bool = True, in_bytes: bool = False) -> Any:
    """Return a protocol handler of the driver that reads every value exactly.

    Args:
        compiled: whether to use its fast reader; only the one in plain Python can read lists that contain nulls, which
            the server returns for the TTLs of elements.
        in_bytes: whether to return UUIDs and decimals as bytes, which are converted to text faster than Python values.
    """
    from cassandra.obj_parser import ListParser
    from cassandra.protocol import ProtocolHandler, ResultMessage, cython_protocol_handler

    # Python refuses to write a longer number as text, which the driver does to create a decimal.
    sys.set_int_max_str_digits(0)
    base = cython_protocol_handler(ListParser()) if compiled else ProtocolHandler
    messages = dict(base.message_types_by_opcode)
    known = messages[ResultMessage.opcode] if compiled else ResultMessage
    exact = _exact_message(known)
    messages[ResultMessage.opcode] = _message_in_bytes(exact) if in_bytes else exact
    return type("ExactHandler", (base,), {"message_types_by_opcode": messages})


def _prepare(session: Session, query: str) -> PreparedStatement:
    """Prepare a statement as the driver does, but with the session's types.

    It is prepared on other nodes only when they first execute it.
    """
    from cassandra.cluster import EXEC_PROFILE_DEFAULT, ResponseFuture
    from cassandra.protocol import PrepareMessage
    from cassandra.query import PreparedStatement

    # The time-out of any other request: the driver's own is always ten seconds.
    timeout = session.get_execution_profile(EXEC_PROFILE_DEFAULT).request_timeout
    future = ResponseFuture(session, PrepareMessage(query=query), query=None, timeout=timeout)
    future._protocol_handler = session.client_protocol_handler  # noqa: SLF001
    future.send_request()
    answer = future.result().one()
    cluster = session.cluster
    statement = PreparedStatement.from_message(
        answer.query_id,
        answer.bind_metadata,
        answer.pk_indexes,
        cluster.metadata,
        query,
        None,
        cluster.protocol_version,
        answer.column_metadata,
        answer.result_metadata_id,
    )
    cluster.add_prepared(answer.query_id, statement)
    return statement


def _exact_message(known: Any) -> Any:
    from cassandra.cqltypes import ListType, LongType, TupleType
    from cassandra.protocol import read_short, read_string

    class ExactResultMessage(known):  # type: ignore[misc]
        type_codes = {**known.type_codes, _TIMESTAMP: LongType, _TIME: LongType, _SET: ListType}  # noqa: RUF012

        @classmethod
        def read_type(cls, f: Any, user_type_map: Any) -> Any:
            start = f.tell()
            code = read_short(f)
            if code == _CUSTOM:
                return java_type(read_string(f))
            if code == _USER_TYPE:
                return cls._read_user_type(f, user_type_map)
            f.seek(start)
            return super().read_type(f, user_type_map)

        @classmethod
        def _read_user_type(cls, f: Any, user_type_map: Any) -> Any:
            _keyspace, _name = read_string(f), read_string(f)
            fields = [(read_string(f), cls.read_type(f, user_type_map)) for _ in range(read_short(f))]
            return TupleType.apply_parameters(tuple(field_type for _, field_type in fields))

    return ExactResultMessage


def _message_in_bytes(known: Any) -> Any:
    from cassandra.cqltypes import BytesType, DecimalType, TimeUUIDType, UUIDType

    class ResultMessageInBytes(known):  # type: ignore[misc]
        def recv_results_metadata(self, f: Any, user_type_map: Any) -> None:
            super().recv_results_metadata(f, user_type_map)
            self.column_metadata = [
                (*place, BytesType if kind in (DecimalType, TimeUUIDType, UUIDType) else kind)
                for *place, kind in self.column_metadata or ()  # type: ignore[has-type]
            ]

    return ResultMessageInBytes


def java_type(text: str) -> Any:
    """Return the driver's type for a Java class of the server."""
    return _JavaTypeParser(_TOKEN.findall(text)).type()


class _JavaTypeParser:
    """A parser of ``Name`` and ``Name(argument, …)``, where an argument is a type, a number or ``field:type``."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens
        self.tokens.reverse()

    def type(self) -> Any:
        name = self.tokens.pop().removeprefix(_PREFIX)
        if name == "UserType":
            return self._user_type()
        if name == "VectorType":
            return self._vector()
        return _driver_type(name, self._types())

    def _types(self) -> list[Any]:
        found = []
        if self._accept("("):
            found.append(self.type())
            while self._accept(","):
                found.append(self.type())
            self._accept(")")
        return found

    def _vector(self) -> Any:
        from cassandra.cqltypes import VectorType

        self._accept("(")
        element = self.type()
        self._accept(",")
        dimension = int(self.tokens.pop())
        self._accept(")")
        return VectorType.apply_parameters([element, dimension], None)

    def _user_type(self) -> Any:
        from cassandra.cqltypes import TupleType

        # The keyspace, and the name as hexadecimal digits: neither is a type.
        self._accept("(")
        self.tokens.pop()
        self._accept(",")
        self.tokens.pop()
        fields = []
        while self._accept(","):
            self.tokens.pop()
            self._accept(":")
            fields.append(self.type())
        self._accept(")")
        return TupleType.apply_parameters(tuple(fields))

    def _accept(self, sign: str) -> bool:
        if self.tokens and self.tokens[-1] == sign:
            self.tokens.pop()
            return True
        return False


def _driver_type(name: str, inner: list[Any]) -> Any:
    from cassandra import cqltypes

    if name in ("FrozenType", "ReversedType"):
        return inner[0]
    if name == "TimestampType":
        return cqltypes.LongType
    if name == "TimeType":
        # Within a vector the server sends a length before each time, unlike for other numbers.
        return type("_Time", (cqltypes.LongType,), {"serial_size": classmethod(lambda _: None)})
    known = cqltypes.lookup_casstype_simple("ListType" if name == "SetType" else name)
    return known.apply_parameters(tuple(inner)) if inner else known


# Before the statements of a batch: its kind and the number of statements.
_KIND, _COUNT = slice(0, 1), slice(1, 3)


class EncodedStatements:
    """The encoded statements of a batch: for each the id of the prepared statement, and its values."""

    __slots__ = ("_count", "data")

    def __init__(self, count: int, data: bytes | memoryview) -> None:
        """Take the number and the bytes of the statements."""
        self._count, self.data = count, data

    def __len__(self) -> int:
        """Return their number, by which the driver recognises an empty batch."""
        return self._count


def statement_start(query_id: bytes, values: int) -> bytes:
    """Return the bytes before the values of a prepared statement in a batch."""
    return struct.pack(f">BH{len(query_id)}sH", 1, len(query_id), query_id, values)


def encoded_batch(statements: EncodedStatements, *, keyspace: str, partition: Sequence[bytes]) -> BatchStatement:
    """Return a batch of statements of one partition; by its key the driver chooses the node.

    It is unlogged: the rows are in one partition, and the job sends again what was not acknowledged.
    """
    from cassandra.query import BatchStatement, BatchType

    batch = BatchStatement(batch_type=BatchType.UNLOGGED)
    batch._statements_and_parameters = statements  # noqa: SLF001
    batch.keyspace, batch.routing_key = keyspace, tuple(partition)
    batch.is_idempotent = True
    return batch


def taking_encoded(handler: Any) -> Any:
    """Return a protocol handler that also accepts encoded batches."""

    class EncodedBatchHandler(handler):  # type: ignore[misc]
        @classmethod
        def encode_message(cls, msg: Any, *arguments: Any, **options: Any) -> Any:
            is_encoded = isinstance(getattr(msg, "queries", None), EncodedStatements)
            return super().encode_message(_EncodedMessage(msg) if is_encoded else msg, *arguments, **options)

    return EncodedBatchHandler


class _EncodedMessage:
    """A message with a batch whose statements are already encoded."""

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
