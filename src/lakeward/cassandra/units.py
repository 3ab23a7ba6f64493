"""What reads and writes cost in units of Amazon Keyspaces, which are a good measure of work for any cluster."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy

WRITE_UNIT_BYTES = 1024
READ_UNIT_BYTES = 4096
# What Keyspaces counts beside the data: for each row, and at most for each of its columns.
ROW_BYTES, COLUMN_BYTES = 100, 4


def write_units(size: float) -> float:
    """Give the units (WCU) of writing or deleting a row of so many bytes: one for each started KB."""
    return float(max(math.ceil(size / WRITE_UNIT_BYTES), 1))


def write_units_of(sizes: numpy.ndarray[Any, Any]) -> numpy.ndarray[Any, Any]:
    """Give the units of writing rows of so many bytes each, as `write_units` does for one."""
    import numpy

    units: numpy.ndarray[Any, Any] = numpy.maximum(numpy.ceil(sizes / WRITE_UNIT_BYTES), 1.0)
    return units


def read_units(size: float, *, consistency: str = "LOCAL_QUORUM") -> float:
    """Give the units (RCU) of reading so many bytes: one for each started 4 KB, half of that for one replica alone."""
    whole = float(max(math.ceil(size / READ_UNIT_BYTES), 1))
    return whole / 2 if consistency in {"ONE", "LOCAL_ONE"} else whole
