"""Whole columns of UUIDs from bytes to text and back, without a call for each."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy
    import pyarrow as pa

NO_UUID = "00000000-0000-0000-0000-000000000000"
_BYTES, _LETTERS = 16, len(NO_UUID)
_DASHES = [at for at, letter in enumerate(NO_UUID) if letter == "-"]
_DIGITS = [at for at, letter in enumerate(NO_UUID) if letter != "-"]
_HEXADECIMAL = b"0123456789abcdef"
_NO_DIGIT = 255


def uuid_texts(values: Sequence[Any]) -> pa.StringArray | None:
    """Give the texts of UUIDs that came as bytes; None where one of them is not there or has none."""
    import numpy
    import pyarrow as pa

    if None in values:
        return None
    joined = b"".join(values)
    # A server has UUIDs of 16 bytes and of none: if they are as many as can be, all have theirs.
    if not values or len(joined) != _BYTES * len(values):
        return None
    raw = numpy.frombuffer(joined, numpy.uint8)
    digits = numpy.stack([raw >> 4, raw & 15], axis=1).reshape(-1, 2 * _BYTES)
    letters = numpy.full((len(values), _LETTERS), ord("-"), dtype=numpy.uint8)
    letters[:, _DIGITS] = numpy.frombuffer(_HEXADECIMAL, numpy.uint8)[digits]
    ends = numpy.arange(0, letters.size + 1, _LETTERS, dtype=numpy.int32)
    return pa.StringArray.from_buffers(len(values), pa.py_buffer(ends), pa.py_buffer(letters))


def uuid_bytes(texts: pa.LargeBinaryArray) -> numpy.ndarray[Any, Any] | None:
    """Give the bytes of texts in the usual form, 16 for each; None where one is in any other, which may still be one.

    ``texts`` are the letters of each, and none of them is null.
    """
    import numpy

    ends = numpy.frombuffer(texts.buffers()[1], numpy.int64)[texts.offset : texts.offset + len(texts) + 1]
    if not len(texts) or not (numpy.diff(ends) == _LETTERS).all():
        return None
    letters = numpy.frombuffer(texts.buffers()[2], numpy.uint8)[ends[0] : ends[-1]].reshape(-1, _LETTERS)
    digits = _digits()[letters[:, _DIGITS]]
    if (letters[:, _DASHES] != ord("-")).any() or (digits == _NO_DIGIT).any():
        return None
    # What is chosen by places may lie column by column.
    return numpy.ascontiguousarray((digits[:, ::2] << 4) | digits[:, 1::2])


@cache
def _digits() -> numpy.ndarray[Any, Any]:
    """Give the number that each letter stands for as a hexadecimal digit."""
    import numpy

    found = numpy.full(256, _NO_DIGIT, dtype=numpy.uint8)
    for number, letter in enumerate(_HEXADECIMAL):
        found[letter] = number
    return found
