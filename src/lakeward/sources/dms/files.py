"""Opening a landing file's bytes: gzip is told by its magic bytes, never by the name."""

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

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward.sources.dms.limits import Limits

_GZIP_MAGIC = b"\x1f\x8b"
_CHUNK = 1 << 20
ENCODING, ENCODING_ERRORS = "utf-8", "surrogateescape"


@dataclass(frozen=True)
class Shape:
    """What a quick look over all bytes of a CSV file tells about how it must be read."""

    size: int
    odd_quotes: bool
    lone_returns: bool
    adjacent_line_ends: bool
    is_text: bool
    adjacent_quotes: bool = False


def is_gzip(local_path: str) -> bool:
    """Tell a gzip file by its first bytes."""
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
    """Give a path with the decompressed content: the file itself, or a temporary copy of a gzip file."""
    if not is_gzip(local_path):
        yield local_path
        return
    with tempfile.NamedTemporaryFile(prefix="lakeward-") as copy:
        with open_bytes(local_path, limits) as source:
            shutil.copyfileobj(source, copy, _CHUNK)
        copy.flush()
        yield copy.name


def scan_shape(local_path: str, quote: str, limits: Limits) -> Shape:
    """Look over a CSV file's bytes; a damaged gzip file is found out here, before any row is given.

    A file of nothing but a byte order mark is empty.
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
            # What was kept of the chunk before shows line ends that the border cuts in two.
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
