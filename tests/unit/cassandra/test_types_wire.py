"""How the driver is made to read values exactly, without a server."""

import struct
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import pytest
from cassandra.cqltypes import Int32Type, ListType, LongType, TupleType, VectorType
from cassandra.protocol import ResultMessage

from lakeward.cassandra.wire import exact_handler, java_type, make_exact

MARSHAL = "org.apache.cassandra.db.marshal."


def of_java(text: str) -> Any:
    """Read a type whose class names are written here without their package."""
    return java_type(text.replace("~", MARSHAL))


@pytest.fixture(params=[True, False], ids=["compiled", "plain"])
def read_type(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Read a type from the bytes that the server would send, by either of the driver's readers."""
    return partial(_read_type, exact_handler(compiled=request.param))


def _read_type(handler: Any, *parts: int | str) -> Any:
    message = handler.message_types_by_opcode[ResultMessage.opcode]
    raw = b"".join(
        struct.pack(">H", part) if isinstance(part, int) else struct.pack(">H", len(part)) + part.encode()
        for part in parts
    )
    return message.read_type(BytesIO(raw), {})


def test_timestamps_and_times_are_numbers_and_sets_are_lists(read_type):
    assert read_type(0x000B) is LongType
    assert read_type(0x0012) is LongType
    found = read_type(0x0022, 0x000B)
    assert issubclass(found, ListType)
    assert found.subtypes == (LongType,)


def test_types_named_by_their_java_class_are_read_anywhere(read_type):
    found = read_type(0x0020, 0x0000, f"{MARSHAL}VectorType({MARSHAL}TimestampType, 2)")
    assert issubclass(found, ListType)
    vector = found.subtypes[0]
    assert issubclass(vector, VectorType)
    value = [-(2**62), 2**62]
    assert vector.deserialize(vector.serialize(value, 5), 5) == value


def test_a_user_type_may_have_a_name_whose_letters_look_like_a_number():
    name, field = b"address".hex(), b"B c".hex()
    assert name.isdigit()
    found = of_java(f"~VectorType(~UserType(ks,{name},{field}:~Int32Type,61:~FrozenType(~SetType(~TimeType))), 1)")
    assert found.subtype.subtypes[0] is Int32Type
    value = [(7, [1, 2])]
    assert found.deserialize(found.serialize(value, 5), 5) == value


def test_a_user_type_is_a_tuple_whatever_its_fields_are_called(read_type, caplog):
    found = read_type(0x0030, "ks", "address", 2, "B c", 0x0009, "select", 0x000B)
    assert issubclass(found, TupleType)
    assert found.subtypes == (Int32Type, LongType)
    assert found.deserialize(found.serialize((7, None), 5), 5) == (7, None)
    assert not caplog.records


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("~VectorType(~TimeType, 2)", [1, 86_399_999_999_999]),
        ("~VectorType(~VectorType(~FloatType, 1), 2)", [[1.5], [-0.0]]),
        ("~VectorType(~TupleType(~UTF8Type,~TimestampType), 1)", [("", None)]),
        ("~ReversedType(~VectorType(~ListType(~Int32Type), 1))", [[1, 2]]),
        ("~VectorType(~DecimalType, 1)", [Decimal("1.50")]),
    ],
)
def test_values_of_such_types_are_read_as_they_are_written(text, value):
    found = of_java(text)
    assert found.deserialize(found.serialize(value, 5), 5) == value


def test_decimals_may_have_more_digits_than_python_converts():
    exact_handler()
    from cassandra.cqltypes import DecimalType

    value = Decimal("1" + "0" * 5000 + ".5")
    assert DecimalType.deserialize(DecimalType.serialize(value, 5), 5) == value


def test_preparing_may_take_as_long_as_any_request(monkeypatch):
    timeouts = []

    class Future:
        def __init__(self, *_: Any, timeout: float, **__: Any) -> None:
            timeouts.append(timeout)

        def send_request(self) -> None:
            msg = "asked"
            raise LookupError(msg)

    monkeypatch.setattr("cassandra.cluster.ResponseFuture", Future)
    profile = SimpleNamespace(request_timeout=77.0)
    session = make_exact(SimpleNamespace(get_execution_profile=lambda _: profile, default_timeout=10.0))
    with pytest.raises(LookupError):
        session.prepare("SELECT 1")
    assert timeouts == [77.0]
