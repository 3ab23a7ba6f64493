"""Deletion vectors: all kinds of containers, and bytes that are not a vector."""

import struct
import zlib

import numpy as np
import pytest

from lakeward.iceberg.file_changes import vector_positions


def blob(body: bytes) -> bytes:
    whole = b"\xd1\xd3\x39\x64" + body
    return struct.pack(">i", len(whole)) + whole + struct.pack(">I", zlib.crc32(whole))


def plain(containers: dict[int, list[int]]) -> bytes:
    """Write a 32-bit bitmap without runs: small containers as arrays, large ones as bits."""
    head = struct.pack("<II", 12346, len(containers))
    head += b"".join(struct.pack("<HH", key, len(values) - 1) for key, values in containers.items())
    parts = []
    for values in containers.values():
        if len(values) <= 4096:
            parts.append(np.array(values, "<u2").tobytes())
        else:
            bits = np.zeros(65536, np.uint8)
            bits[values] = 1
            parts.append(np.packbits(bits, bitorder="little").tobytes())
    offsets, at = [], len(head) + 4 * len(containers)
    for part in parts:
        offsets.append(at)
        at += len(part)
    return head + np.array(offsets, "<u4").tobytes() + b"".join(parts)


def test_arrays_and_bits_in_two_halves():
    low = {0: [0, 7, 65535], 2: list(range(0, 65536, 2))}
    body = struct.pack("<q", 2) + struct.pack("<I", 0) + plain(low) + struct.pack("<I", 1) + plain({0: [5]})
    expected = [0, 7, 65535, *range(131072, 196608, 2), (1 << 32) + 5]
    assert vector_positions(blob(body)).tolist() == expected


@pytest.mark.parametrize("containers", [1, 5])
def test_runs(containers):
    # From four containers on, their places are listed.
    head = struct.pack("<I", 12347 | (containers - 1) << 16) + bytes([0b1] + [0] * ((containers + 7) // 8 - 1))
    head += b"".join(struct.pack("<HH", key, 6 if key == 0 else 0) for key in range(containers))
    head += bytes(4 * containers) if containers >= 4 else b""
    runs = struct.pack("<HHHHH", 2, 3, 4, 100, 1)
    others = b"".join(struct.pack("<H", 9) for _ in range(1, containers))
    found = vector_positions(blob(struct.pack("<qI", 1, 0) + head + runs + others))
    assert found.tolist() == [3, 4, 5, 6, 7, 100, 101, *[65536 * key + 9 for key in range(1, containers)]]


def test_empty_and_damaged_vectors():
    assert vector_positions(blob(struct.pack("<q", 0))).tolist() == []
    damaged = bytearray(blob(struct.pack("<qI", 1, 0) + plain({0: [1]})))
    damaged[20] ^= 1
    with pytest.raises(ValueError, match="damaged"):
        vector_positions(bytes(damaged))
    with pytest.raises(ValueError, match="deserialize"):
        vector_positions(blob(struct.pack("<qI", 1, 0) + struct.pack("<II", 5, 5)))
