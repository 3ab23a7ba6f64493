"""How much one file may ask of the machine that reads it; what is beyond a limit makes the file unusable.

A megabyte of gzip can hold a gigabyte, and a kilobyte of Parquet a billion rows. Every reader holds what it
unpacks against these limits before it goes on, and the message names the setting to raise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.sources.dms.problems import UnusableFileError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward.config import TableDefaults
    from lakeward.sources.dms.blocks import Rows

# Content up to this size is never held against the ratio: small files may well be that repetitive.
FREE_BYTES = 64 << 20
FREE_ROWS = 1 << 20
_BYTES_PER_CHARACTER = 4


@dataclass(frozen=True)
class Limits:
    """The limits of one table: bytes of a value, bytes of a row, and how many times its size a file may unpack to."""

    value_bytes: int = 64 << 20
    row_bytes: int = 128 << 20
    expansion: float = 200

    @classmethod
    def of(cls, settings: TableDefaults) -> Limits:
        """Return the limits that a table's settings name."""
        return cls(settings.max_value_bytes, settings.max_row_bytes, settings.max_expansion)

    def unpacked(self, stored_bytes: int) -> int:
        """Return the bytes that a file of so many bytes may unpack to."""
        return max(FREE_BYTES, int(stored_bytes * self.expansion))

    def require_expansion(self, unpacked_bytes: int, stored_bytes: int) -> None:
        """Refuse content that unpacks to more than its file's size allows.

        Raises:
            UnusableFileError: it does.
        """
        if unpacked_bytes > self.unpacked(stored_bytes):
            msg = (
                f"its {stored_bytes:,} bytes unpack to more than {self.unpacked(stored_bytes):,}, beyond "
                f"max_expansion = {self.expansion:g}; raise max_expansion if the file is as it should be"
            )
            raise UnusableFileError(msg)

    def require_rows(self, rows: int, stored_bytes: int) -> None:
        """Refuse a file that claims to hold many times more rows than bytes.

        Raises:
            UnusableFileError: it does.
        """
        if rows > max(FREE_ROWS, int(stored_bytes * self.expansion)):
            msg = (
                f"its {stored_bytes:,} bytes claim to hold {rows:,} rows, beyond max_expansion = {self.expansion:g}; "
                "raise max_expansion if the file is as it should be"
            )
            raise UnusableFileError(msg)

    def require_record(self, row: int, text: str) -> None:
        """Refuse a record's text that is too long; ``row`` is its number.

        Raises:
            UnusableFileError: it is.
        """
        if len(text) * _BYTES_PER_CHARACTER <= self.row_bytes:
            return
        if len(text) > self.row_bytes or len(text.encode("utf-8", "surrogatepass")) > self.row_bytes:
            raise self.row_too_large(row)

    def row_too_large(self, row: int) -> UnusableFileError:
        """Return the error for a row beyond ``max_row_bytes``."""
        msg = f"record {row} has more than max_row_bytes = {self.row_bytes:,} bytes; raise max_row_bytes to read it"
        return UnusableFileError(msg)

    def value_too_large(self, where: str, found: int) -> UnusableFileError:
        """Return the error for a value of ``found`` bytes, which is beyond ``max_value_bytes``."""
        limit = f"max_value_bytes = {self.value_bytes:,}; raise max_value_bytes to read it"
        msg = f"{where} has a value of {found:,} bytes, beyond {limit}"
        return UnusableFileError(msg)

    def require_texts(self, rows: Rows, columns: Sequence[pa.Array]) -> None:
        """Refuse values and rows that are too large; ``rows`` are the numbers of the rows.

        Raises:
            UnusableFileError: one is; the message names its row.
        """
        lengths = [length for column in columns if (length := byte_lengths(column)) is not None]
        longest = [int(length.max(initial=0)) for length in lengths]
        for length, most in zip(lengths, longest, strict=True):
            if most > self.value_bytes:
                row = int(rows[int(np.argmax(length > self.value_bytes))])
                where = f"record {row}"
                raise self.value_too_large(where, most)
        if sum(longest) > self.row_bytes:
            whole = np.sum(lengths, axis=0)
            if int(whole.max()) > self.row_bytes:
                raise self.row_too_large(int(rows[int(np.argmax(whole > self.row_bytes))]))


def byte_lengths(column: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]] | None:
    """Return the bytes of each value of a column of texts or bytes, or of a dictionary of such; None for others."""
    if pa.types.is_dictionary(column.type):
        values = byte_lengths(column.dictionary)
        if values is None:
            return None
        indices = column.indices.fill_null(0).to_numpy(zero_copy_only=False)
        if not len(values):
            return np.zeros(len(indices), dtype=np.int64)
        return np.asarray(values[indices] * column.is_valid().to_numpy(zero_copy_only=False), dtype=np.int64)
    if not (pa.types.is_string(column.type) or pa.types.is_binary(column.type)):
        return None
    found = pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    return np.asarray(found, dtype=np.int64)
