"""A digest of the rows of a token range, taken as they are read.

Two clusters give the rows of a range in the same order (by token, then by the clustering columns), but cut into other
pages. A digest therefore does not depend on where batches end: every column is a few streams of bytes (which values are
null, how long they are, the values themselves), and each stream is hashed as if it were whole. Static rows come
wherever a page begins, so that they are hashed apart.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

_BYTES = 16


class RangeDigest:
    """Takes batches of rows in order; ``clustering`` is the first clustering column, None where there is none."""

    def __init__(self, columns: Sequence[str], clustering: str | None) -> None:
        self.rows = 0
        self._columns, self._clustering = columns, clustering
        self._streams: dict[str, Any] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Take the next rows."""
        self.rows += batch.num_rows
        if self._clustering is None:
            self._add("rows", batch)
            return
        is_static = pc.is_null(batch.column(self._clustering))
        self._add("statics", batch.filter(is_static))
        self._add("rows", batch.filter(pc.invert(is_static)))

    def text(self) -> str:
        """Give the digest of all rows so far."""
        whole = hashlib.blake2b(digest_size=_BYTES)
        for name in sorted(self._streams):
            whole.update(name.encode() + b"\0" + self._streams[name].digest())
        return whole.hexdigest()

    def _add(self, what: str, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            for at, name in enumerate(self._columns):
                self._values(f"{what}/{at}", batch.column(name))

    def _feed(self, stream: str, values: pa.Array) -> None:
        """Hash numbers; those of an array without nulls are its bytes."""
        if stream not in self._streams:
            self._streams[stream] = hashlib.blake2b(digest_size=_BYTES)
        self._streams[stream].update(values.to_numpy(zero_copy_only=False).tobytes())

    def _values(self, path: str, values: pa.Array) -> None:
        self._feed(f"{path}?", pc.is_valid(values).cast(pa.uint8()))
        there, kind = values.drop_null(), values.type
        if pa.types.is_struct(kind):
            for at, part in enumerate(there.flatten()):
                self._values(f"{path}.{at}", part)
        elif pa.types.is_map(kind):
            first, last = _span(there)
            self._feed(f"{path}#", _lengths(there))
            self._values(f"{path}[key]", there.keys.slice(first, last - first))
            self._values(f"{path}[value]", there.items.slice(first, last - first))
        elif pa.types.is_list(kind):
            self._feed(f"{path}#", _lengths(there))
            self._values(f"{path}[]", there.flatten())
        elif pa.types.is_string(kind) or pa.types.is_binary(kind):
            self._feed(f"{path}#", _lengths(there))
            self._feed(path, _bytes(there))
        else:
            self._feed(path, there.cast(pa.uint8()) if pa.types.is_boolean(kind) else there)


def _lengths(values: pa.Array) -> pa.Array:
    """Give how long every text, list or map is."""
    ends = _offsets(values)
    return pc.subtract(ends.slice(1), ends.slice(0, len(values)))


def _offsets(values: pa.Array) -> pa.Array:
    if not len(values):
        return pa.array([0], pa.int32())
    return pa.Array.from_buffers(pa.int32(), len(values) + 1, [None, values.buffers()[1]], offset=values.offset)


def _span(values: pa.Array) -> tuple[int, int]:
    """Give where the content of an array begins and ends among that of the one it is a part of."""
    ends = _offsets(values)
    return ends[0].as_py(), ends[-1].as_py()


def _bytes(values: pa.Array) -> pa.Array:
    """Give the bytes of all texts, one after the other."""
    first, last = _span(values)
    content = values.buffers()[2] if len(values) else None
    if content is None:
        return pa.array([], pa.uint8())
    return pa.Array.from_buffers(pa.uint8(), last - first, [None, content], offset=first)
