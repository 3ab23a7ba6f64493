"""Opening landing files: compression, the shape of CSV files, unusable files, and limits on what a file may hold."""

from __future__ import annotations

import codecs
import gzip
import io
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakeward.config import TableDefaults
    from lakeward.formats.dms.blocks import Rows


_GZIP_MAGIC = b"\x1f\x8b"
_CHUNK = 1 << 20
ENCODING, ENCODING_ERRORS = "utf-8", "surrogateescape"


@dataclass(frozen=True)
class Shape:
    """The findings of a scan over all bytes of a CSV file that decide how it must be read."""

    size: int
    odd_quotes: bool
    lone_returns: bool
    adjacent_line_ends: bool
    is_text: bool
    adjacent_quotes: bool = False


def is_gzip(local_path: str) -> bool:
    """Whether a file is compressed with gzip, by its first bytes and not by its name."""
    with Path(local_path).open("rb") as file:
        return file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC


def open_bytes(local_path: str, limits: Limits) -> BinaryIO:
    """Open a file's content, decompressed; reading beyond what it may unpack to raises UnusableFileError."""
    if is_gzip(local_path):
        return cast("BinaryIO", io.BufferedReader(_Unpacked(local_path, limits), _CHUNK))
    return Path(local_path).open("rb")


def open_text(local_path: str, limits: Limits) -> io.TextIOWrapper:
    """Open a file's content as text with its line ends; bytes that are not UTF-8 become lone surrogates."""
    return io.TextIOWrapper(open_bytes(local_path, limits), ENCODING, ENCODING_ERRORS, newline="")


class _Unpacked(io.RawIOBase):
    """The content of a gzip file, up to what its size allows."""

    def __init__(self, local_path: str, limits: Limits) -> None:
        self._limits = limits
        self._stored = Path(local_path).stat().st_size
        self._file = gzip.open(local_path, "rb")  # noqa: SIM115 - closed with this object

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._file.readinto(buffer)
        self._limits.require_expansion(self._file.tell(), self._stored)
        return count

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        self._file.close()
        super().close()


@contextmanager
def plain_file(local_path: str, limits: Limits) -> Iterator[str]:
    """Yield a path with the decompressed content: the file itself, or a temporary copy of a gzip file."""
    if not is_gzip(local_path):
        yield local_path
        return
    with tempfile.NamedTemporaryFile(prefix="lakeward-") as copy:
        with open_bytes(local_path, limits) as source:
            shutil.copyfileobj(source, copy, _CHUNK)
        copy.flush()
        yield copy.name


def scan_shape(local_path: str, quote: str, limits: Limits) -> Shape:
    """Scan a CSV file's bytes; a damaged gzip file is detected here, before any row is emitted.

    A file with only a byte order mark is empty.
    """
    size = quotes = 0
    lone = adjacent = quoted = False
    last = b""
    rest, mark, decoder = b"\n", quote.encode(ENCODING), codecs.getincrementaldecoder(ENCODING)()
    is_text = True
    first = b""
    with open_bytes(local_path, limits) as file:
        while chunk := file.read(_CHUNK):
            first = first or chunk[: len(codecs.BOM_UTF8) + 1]
            size += len(chunk)
            quotes += chunk.count(mark)
            is_text = is_text and _decodes(decoder, chunk)
            quoted = quoted or mark + mark in last + chunk
            last = chunk[-len(mark) :]
            # With the end of the previous chunk, line ends that cross the border are seen, too.
            joint = rest + chunk
            adjacent = adjacent or b"\n\n" in joint or b"\n\r\n" in joint
            lone = lone or joint.count(b"\r") - joint.endswith(b"\r") != joint.count(b"\r\n")
            rest = joint[-2:] if joint.endswith(b"\r") else joint[-1:]
    is_text = is_text and _decodes(decoder, b"", final=True)
    size = 0 if first == codecs.BOM_UTF8 else size
    return Shape(size, quotes % 2 == 1, lone or rest.endswith(b"\r"), adjacent, is_text, quoted)


def _decodes(decoder: codecs.IncrementalDecoder, chunk: bytes, *, final: bool = False) -> bool:
    try:
        decoder.decode(chunk, final)
    except UnicodeDecodeError:
        return False
    return True


# Why a whole file cannot be used. The reader catches these errors and puts them in the file's summary.


class UnusableFileError(Exception):
    """The file cannot be used; the message names the fault."""


class MismatchedFileError(Exception):
    """The columns the file names do not fit the table's schema."""


# Start of the message for a problem that the reader does not expect; tests look for it.
READER_FAULT = "reading it failed because of a bug in Lakeward"


def unforeseen(error: Exception, *, hides_values: bool = False) -> str:
    """Return the problem of a file that made a reader fail unexpectedly: the file stops its table, not the others."""
    return f"{READER_FAULT}: {type(error).__name__}{_HIDDEN if hides_values else f': {error}'}"


# What is shown in place of the text of an error, which may hold values of the file.
_HIDDEN = " (its text is not shown, because the table has a column policy)"


def error_text(error: Exception, *, hides_values: bool) -> str:
    """Return the text of an error while a file was read; what Arrow says may quote values of the file."""
    return f"{type(error).__name__}{_HIDDEN}" if hides_values and isinstance(error, pa.ArrowException) else str(error)


# Limits on the resources that reading one file may take; a file beyond a limit is unusable. A megabyte of gzip can hold
# a gigabyte, and a kilobyte of Parquet a billion rows. Every reader checks what it unpacks against these limits, and
# the message names the setting to raise.

# The ratio is not checked for content up to this size: small files may be that repetitive.
FREE_BYTES = 64 << 20
FREE_ROWS = 1 << 20
_BYTES_PER_CHARACTER = 4


@dataclass(frozen=True)
class Limits:
    """The limits of a table: bytes of a value, bytes of a row, and by how much a file may expand when unpacked."""

    value_bytes: int = 64 << 20
    row_bytes: int = 128 << 20
    expansion: float = 200

    @classmethod
    def of(cls, settings: TableDefaults) -> Limits:
        """Return the limits that a table's settings name."""
        return cls(settings.max_value_bytes, settings.max_row_bytes, settings.max_expansion)

    def unpacked(self, stored_bytes: int) -> int:
        """Return how many bytes a file of this size may unpack to."""
        return max(FREE_BYTES, int(stored_bytes * self.expansion))

    def require_expansion(self, unpacked_bytes: int, stored_bytes: int) -> None:
        """Refuse content that unpacks to more than the file's size allows.

        Raises:
            UnusableFileError: the limit is exceeded.
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
            UnusableFileError: the limit is exceeded.
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
            UnusableFileError: the record is too long.
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
            UnusableFileError: a limit is exceeded; the message names the row.
        """
        lengths = [length for column in columns if (length := byte_lengths(column)) is not None]
        longest = [int(length.max(initial=0)) for length in lengths]
        for length, longest_value in zip(lengths, longest, strict=True):
            if longest_value > self.value_bytes:
                row = int(rows[int(np.argmax(length > self.value_bytes))])
                where = f"record {row}"
                raise self.value_too_large(where, longest_value)
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
