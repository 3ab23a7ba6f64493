"""Everything that the files of a lake hold, compressed or not, as bytes in which a value can be looked for."""

from __future__ import annotations

import gzip
import zlib
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_AVRO = b"Obj\x01"
_SYNC_BYTES = 16


def files_holding(folder: Path, wanted: bytes, *, apart_from: Path) -> list[str]:
    """Return the files below a folder that hold some bytes, except those below another; and how many were searched."""
    return [
        str(path.relative_to(folder))
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_relative_to(apart_from) and any(wanted in part for part in _contents(path))
    ]


def _contents(path: Path) -> Iterator[bytes]:
    data = path.read_bytes()
    yield path.name.encode()
    yield data
    if data.startswith(b"\x1f\x8b"):
        yield gzip.decompress(data)
    elif data.startswith(_AVRO):
        yield from _avro_blocks(data)
    elif data.startswith(b"PAR1"):
        table = pq.read_table(path, partitioning=None)
        yield repr(table.to_pydict()).encode()
        yield repr(table.schema.metadata).encode()


def _avro_blocks(data: bytes) -> Iterator[bytes]:
    """Yield the records of a file of Iceberg's manifests, each block unpacked."""
    position, is_packed = len(_AVRO), b"deflate" in data[:4096]
    while (entries := _Long(data, position)).value:
        position = entries.end
        for _ in range(2 * abs(entries.value)):
            text = _Long(data, position)
            position = text.end + text.value
    position = entries.end + _SYNC_BYTES
    while position < len(data):
        size = _Long(data, _Long(data, position).end)
        block = data[size.end : size.end + size.value]
        yield zlib.decompress(block, -15) if is_packed else block
        position = size.end + size.value + _SYNC_BYTES


class _Long:
    """A number of Avro: seven bits in each byte, the sign in the lowest."""

    def __init__(self, data: bytes, position: int) -> None:
        raw, shift = 0, 0
        while True:
            byte = data[position]
            position += 1
            raw |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                break
        self.value, self.end = (raw >> 1) ^ -(raw & 1), position
