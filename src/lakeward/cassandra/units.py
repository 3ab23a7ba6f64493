"""What reads and writes cost in units of Amazon Keyspaces, which are a good measure of work for any cluster."""

from __future__ import annotations

import math

WRITE_UNIT_BYTES = 1024
READ_UNIT_BYTES = 4096
# What Keyspaces counts beside the data: for each row, and at most for each of its columns.
ROW_BYTES, COLUMN_BYTES = 100, 4


def write_units(size: float) -> float:
    """Give the units (WCU) of writing or deleting a row of so many bytes: one for each started KB."""
    return float(max(math.ceil(size / WRITE_UNIT_BYTES), 1))


def read_units(size: float, *, consistency: str = "LOCAL_QUORUM") -> float:
    """Give the units (RCU) of reading so many bytes: one for each started 4 KB, half of that for one replica alone."""
    whole = float(max(math.ceil(size / READ_UNIT_BYTES), 1))
    return whole / 2 if consistency in {"ONE", "LOCAL_ONE"} else whole
