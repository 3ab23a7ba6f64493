"""One column of values on the way to its lake type: what could be converted, and which rows could not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    Mask = npt.NDArray[np.bool_]
    Convert = Callable[[pa.Array], pa.Array]


@dataclass(frozen=True)
class Cells:
    """A column's values in their lake type, null where a value does not fit.

    ``failed`` marks those rows, None when there are none; ``source`` holds the values as the file has them.
    """

    values: pa.Array
    source: pa.Array
    failed: Mask | None = None

    def shown(self, index: int) -> str | None:
        """Give one value as the file has it, for a message."""
        return show(self.source[index])


def show(scalar: pa.Scalar) -> str | None:
    """Give a value as text, for a message."""
    if pa.types.is_temporal(scalar.type):
        scalar = scalar.cast(pa.string())  # Python's own times know neither nanoseconds nor the year 10000
    if not scalar.is_valid:
        return None
    if pa.types.is_string(scalar.type) or pa.types.is_binary(scalar.type):
        return decoded(scalar)
    return str(scalar.as_py())


def decoded(scalar: pa.Scalar) -> str:
    r"""Return a text or binary value as text, bytes that are not UTF-8 as ``\xNN``; Arrow does not check them."""
    return str(scalar.as_buffer().to_pybytes().decode("utf-8", "backslashreplace"))


def convert_each(source: pa.Array, convert: Convert, target: pa.DataType) -> Cells:
    """Convert a column at once; when that is refused, find exactly the values that are to blame."""
    try:
        return Cells(convert(source), source)
    except pa.ArrowInvalid:
        failed = np.zeros(len(source), dtype=bool)
        pieces = _halve(source, 0, convert, target, failed)
        return Cells(pa.concat_arrays(pieces), source, failed)


def _halve(source: pa.Array, start: int, convert: Convert, target: pa.DataType, failed: Mask) -> list[pa.Array]:
    """Convert in ever smaller halves down to the single values that are refused: cheap while these are few."""
    try:
        return [convert(source)]
    except pa.ArrowInvalid:
        if len(source) == 1:
            failed[start] = True
            return [pa.nulls(1, target)]
    middle = len(source) // 2
    return [
        *_halve(source.slice(0, middle), start, convert, target, failed),
        *_halve(source.slice(middle), start + middle, convert, target, failed),
    ]


def to_mask(array: pa.Array) -> Mask:
    """Give a boolean array as a numpy mask; null counts as false."""
    filled = array.fill_null(False) if array.null_count else array
    mask: Mask = filled.to_numpy(zero_copy_only=False)
    return mask


def any_true(mask: Mask | None) -> bool:
    """Tell whether a mask marks any row."""
    return mask is not None and bool(mask.any())


def null_where(marked: pa.Array, values: pa.Array) -> pa.Array:
    """Give null where marked, and the values elsewhere.

    Not by ``if_else(marked, None, values)``: with a null scalar and a slice of text Arrow 23 and older give garbage
    (apache/arrow issue 49410).
    """
    return pc.if_else(marked, pa.nulls(len(values), values.type), values)
