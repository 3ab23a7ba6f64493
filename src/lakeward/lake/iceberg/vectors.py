"""Deletion vectors of Iceberg's format version 3, read in Python: where a Spark task needs no JVM for it.

A vector is a blob in a Puffin file: its length, a magic number, a 64-bit Roaring bitmap in the portable form, a
checksum. The bitmap is a number of 32-bit ones, each with the upper half of its positions, each made of containers
for 65,536 positions: a sorted array, a bitmap, or runs.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np

_MAGIC = b"\xd1\xd3\x39\x64"
_NO_RUNS, _WITH_RUNS = 12346, 12347
# From so many positions on, a container is a bitmap of 8 KiB.
_DENSE, _BITMAP_BYTES = 4096, 8192
_FEW_CONTAINERS = 4


def vector_positions(blob: bytes) -> np.ndarray:
    """Give the positions of a deletion vector, in order.

    Raises:
        ValueError: the bytes are no deletion vector.
    """
    (length,) = struct.unpack_from(">i", blob, 0)
    body = blob[4 : 4 + length]
    (checksum,) = struct.unpack_from(">I", blob, 4 + length)
    if body[:4] != _MAGIC or zlib.crc32(body) != checksum:
        msg = "these bytes are no deletion vector, or a damaged one"
        raise ValueError(msg)
    (bitmaps,) = struct.unpack_from("<q", body, 4)
    at, found = 12, []
    for _ in range(bitmaps):
        (upper,) = struct.unpack_from("<I", body, at)
        at, lower = _bitmap(body, at + 4)
        found.append(lower + (np.int64(upper) << 32))
    return np.concatenate(found) if found else np.empty(0, dtype=np.int64)


def _bitmap(body: bytes, at: int) -> tuple[int, np.ndarray]:
    """Read a 32-bit bitmap; give where it ends, and its positions."""
    (cookie,) = struct.unpack_from("<I", body, at)
    at += 4
    runs = b""
    if cookie & 0xFFFF == _WITH_RUNS:
        count = (cookie >> 16) + 1
        runs = body[at : at + (count + 7) // 8]
        at += len(runs)
    elif cookie == _NO_RUNS:
        (count,) = struct.unpack_from("<I", body, at)
        at += 4
    else:
        msg = f"a bitmap begins with {cookie}, which is unknown"
        raise ValueError(msg)
    headers = np.frombuffer(body, "<u2", 2 * count, at).astype(np.int64)
    at += 4 * count
    if not runs or count >= _FEW_CONTAINERS:
        # Where each container begins, which reading them in turn tells as well.
        at += 4 * count
    found = []
    for number in range(count):
        key, size = int(headers[2 * number]), int(headers[2 * number + 1]) + 1
        is_run = bool(runs) and bool(runs[number // 8] >> (number % 8) & 1)
        at, values = _container(body, at, size, is_run=is_run)
        found.append(values + (key << 16))
    return at, np.concatenate(found) if found else np.empty(0, dtype=np.int64)


def _container(body: bytes, at: int, size: int, *, is_run: bool) -> tuple[int, np.ndarray]:
    if is_run:
        (count,) = struct.unpack_from("<H", body, at)
        pairs = np.frombuffer(body, "<u2", 2 * count, at + 2).astype(np.int64)
        spans = [np.arange(first, first + more + 1) for first, more in zip(pairs[::2], pairs[1::2], strict=True)]
        return at + 2 + 4 * count, np.concatenate(spans)
    if size > _DENSE:
        bits = np.unpackbits(np.frombuffer(body, np.uint8, _BITMAP_BYTES, at), bitorder="little")
        return at + _BITMAP_BYTES, np.flatnonzero(bits).astype(np.int64)
    return at + 2 * size, np.frombuffer(body, "<u2", size, at).astype(np.int64)
