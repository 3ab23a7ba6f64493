"""CSV files as rows of text: through Arrow where it is fast and right, through an exact tokenizer elsewhere.

Arrow takes a lone carriage return for the end of a record, drops a quote that is never closed, shows a blank line as a
row of empty fields, cannot pass on a bad row that is not UTF-8, and fails on a record larger than its block. Files that
may contain such things are found by a scan over their bytes.
"""

from __future__ import annotations

import re
import time
import traceback
import weakref
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from lakeward.formats.dms.blocks import TextRows
from lakeward.formats.dms.files import (
    ENCODING,
    ENCODING_ERRORS,
    Limits,
    Shape,
    UnusableFileError,
    open_bytes,
    open_text,
    scan_shape,
)
from lakeward.formats.dms.values import RefusedRow, any_true, to_mask
from lakeward.text import escape_name, escape_undecoded, is_utf8

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import TextIO

    from lakeward.config import CsvSettings
    from lakeward.formats.dms.blocks import Rows
    from lakeward.formats.dms.values import Mask


# The tokenizer follows RFC 4180, for what Arrow's CSV reader cannot do: ragged files, record texts, lone returns. It
# reads a record as Arrow does, except that a lone carriage return is text and not the end of a record.
_CHUNK = 1 << 18
BYTE_ORDER_MARK = "\ufeff"


@dataclass(frozen=True)
class CsvRecord:
    """A CSV record: its fields, None where the null token is unquoted, and its text without line end.

    ``quoted_empty`` are the positions of fields that are empty within quotes.
    """

    fields: list[str | None]
    text: str
    is_closed: bool = True
    quoted_empty: tuple[int, ...] = ()

    @property
    def is_blank(self) -> bool:
        """Whether the record is an empty line."""
        return not self.text


@lru_cache
def _pattern(delimiter: str, quote: str) -> re.Pattern[str]:
    """Return the pattern of one field and its end; an unquoted field may contain lone carriage returns."""
    d, q = re.escape(delimiter), re.escape(quote)
    plain = rf"[^{d}\r\n]*(?:\r(?!\n)[^{d}\r\n]*)*"
    return re.compile(rf"(?:{q}([^{q}]*(?:{q}{q}[^{q}]*)*)({q}?)({plain})|({plain}))({d}|\r?\n|\Z)")


def tokenize(stream: TextIO, settings: CsvSettings, limits: Limits) -> Iterator[CsvRecord]:
    """Yield the records of a text stream opened with ``newline=""``, with little more than one record in memory.

    A value whose quote is never closed ends in the last record, with ``is_closed`` false.

    Raises:
        UnusableFileError: a record is larger than ``limits`` allow.
    """
    number = 1
    buffer, start, size = stream.read(_CHUNK).removeprefix(BYTE_ORDER_MARK), 0, _CHUNK
    ended = not buffer
    while start < len(buffer) or not ended:
        found = _record(buffer, start, settings)
        # A record that reaches the end of the buffer may continue, as may a doubled quote or a carriage return.
        if found is None or (found[1] >= len(buffer) and not ended):
            more = stream.read(size)
            if len(buffer) - start > limits.row_bytes:
                raise limits.row_too_large(number)
            # Doubling keeps the cost of one huge record linear.
            buffer, start, size, ended = buffer[start:] + more, 0, size * 2, not more
            continue
        record, start = found
        limits.require_record(number, record.text)
        size, number = _CHUNK, number + 1
        yield record


def _record(text: str, start: int, settings: CsvSettings) -> tuple[CsvRecord, int] | None:
    """Return the record at a position and its end; None when there is none."""
    if start >= len(text):
        return None
    match_field, position = _pattern(settings.delimiter, settings.quote).match, start
    fields: list[str | None] = []
    quoted_empty: tuple[int, ...] = ()
    quote = settings.quote
    while True:
        match = match_field(text, position)
        assert match is not None  # the pattern matches everywhere, the empty text included
        quoted, closing, rest, plain, end = match.groups()
        if quoted is None:
            fields.append(None if plain == settings.null else plain)
        else:
            fields.append(quoted.replace(quote + quote, quote) + rest)
            if not fields[-1]:
                quoted_empty = (*quoted_empty, len(fields) - 1)
            if not closing:
                return CsvRecord(fields, text[start:], is_closed=False), len(text)
        position = match.end()
        if end != settings.delimiter:
            return CsvRecord(fields, text[start : match.start(5)], quoted_empty=quoted_empty), position


def format_record(fields: list[str | None], settings: CsvSettings) -> str:
    """Return fields as text from which :func:`tokenize` reads the same fields and nulls."""
    return settings.delimiter.join(_format_field(field, settings) for field in fields)


def _format_field(field: str | None, settings: CsvSettings) -> str:
    if field is None:
        return settings.null or ""
    special = (settings.delimiter, settings.quote, "\n", "\r")
    if field == settings.null or any(character in field for character in special):
        return settings.quote + field.replace(settings.quote, settings.quote * 2) + settings.quote
    return field


PROBED_RECORDS = 200
MAX_ROWS = 1 << 16
_EXACT_ROWS = 1 << 13
_EXACT_CHARACTERS = 32 << 20
_SHOWN = 200
_BLOCK_BYTES = 4 << 20
# How long a thread of Arrow may keep the stream; it needs microseconds, a busy machine more.
_RETURN_SECONDS = 60.0
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class CsvFile:
    """A CSV file with its shape and, if it has one, its header record."""

    local_path: str
    settings: CsvSettings
    shape: Shape
    limits: Limits
    hides_values: bool = False

    @classmethod
    def open(
        cls, local_path: str, settings: CsvSettings, limits: Limits | None = None, *, hides_values: bool = False
    ) -> CsvFile:
        """Scan the file; without ``limits`` the defaults apply. With ``hides_values`` no message shows its content.

        Raises:
            UnusableFileError: it unpacks to more than the limits allow.
        """
        limits = limits or Limits()
        return cls(local_path, settings, scan_shape(local_path, settings.quote, limits), limits, hides_values)

    @cached_property
    def header(self) -> CsvRecord | None:
        """The header record, None for headerless and empty files."""
        if not self.settings.header:
            return None
        with open_text(self.local_path, self.limits) as stream:
            return next(tokenize(stream, self.settings, self.limits), None)

    def names(self) -> tuple[str, ...]:
        """Return the header's names.

        Raises:
            UnusableFileError: the header is not UTF-8, so that its columns are unknown.
        """
        fields = self.header.fields if self.header else []
        if self.header and not is_utf8(self.header.text):
            shown = "" if self.hides_values else f": {escape_name(self.header.text[:_SHOWN])!r}"
            msg = f"its header is not valid UTF-8{shown}; let the capture write UTF-8"
            raise UnusableFileError(msg)
        return tuple((self.settings.null or "") if name is None else name for name in fields)

    def records(self) -> Iterator[tuple[int, CsvRecord]]:
        """Yield records with their physical numbers, the header left out."""
        with open_text(self.local_path, self.limits) as stream:
            records = tokenize(stream, self.settings, self.limits)
            yield from enumerate(islice(records, 1 if self.header else 0, None), start=1)

    def probe(self) -> list[list[str | None]]:
        """Return the fields of the first records."""
        return [record.fields for _, record in take_chunk(self.records(), PROBED_RECORDS)]

    def probe_texts(self) -> list[str]:
        """Return the texts of the first records."""
        return [record.text for _, record in islice(self.records(), PROBED_RECORDS)]

    def raw(self, text: str) -> str:
        """Return a record's text with the header, without which its fields have no meaning."""
        return f"{self.header.text}\n{text}" if self.header else text

    def read(self, width: int, *, quotes_count: bool = False) -> Iterator[TextRows]:
        """Yield all rows as text, in chunks; those without exactly ``width`` fields as bad rows.

        With ``quotes_count`` empty fields with and without quotes are distinguished, which Arrow does not do.
        """
        next_row = 1
        if self._is_plain() and not (quotes_count and self.shape.adjacent_quotes):
            try:
                for rows in _FastReader(self, width).read():
                    self.limits.require_texts(rows.rows, rows.texts)
                    yield from _bounded(rows)
                    next_row = max([next_row, *(rows.rows[-1:] + 1), *(bad.row + 1 for bad in rows.bad)])
            except pa.ArrowInvalid:
                pass  # a record is larger than Arrow's block, or too many do not fit: continue exactly where it stopped
            else:
                return
        rest = ((row, record) for row, record in self.records() if row >= next_row)
        yield from exact_rows(rest, width, self.raw, self.limits)

    def _is_plain(self) -> bool:
        """Whether Arrow reads this file correctly."""
        ascii_only = (self.settings.delimiter + self.settings.quote).isascii()
        shape = self.shape
        return ascii_only and shape.is_text and not (shape.odd_quotes or shape.lone_returns)


class _SharedStream:
    """All Python objects that Arrow's threads hold while they read a file: its stream, and the handler of wrong rows.

    The handler is a method, so that a reference to it is a reference to this object.
    """

    closed = False  # Arrow reads this; the caller closes the stream

    def __init__(self, stream: BinaryIO, on_wrong_width: Callable[[arrow_csv.InvalidRow], str]) -> None:
        self._stream = stream
        self._on_wrong_width = on_wrong_width

    def read(self, size: int) -> bytes:
        return self._stream.read(size)

    def close(self) -> None:
        pass

    def on_wrong_width(self, row: arrow_csv.InvalidRow) -> str:
        return self._on_wrong_width(row)


def _wait_until_gone(shared: weakref.ref[_SharedStream]) -> None:
    """Wait until Arrow's threads have dropped the stream.

    The thread that drops it holds the interpreter's lock until it needs Python no more, so that the interpreter may be
    shut down once the object is gone.
    """
    deadline = time.monotonic() + _RETURN_SECONDS
    while shared() is not None and time.monotonic() < deadline:
        time.sleep(0.0001)


class _FastReader:
    """Reads a CSV file through Arrow and keeps the physical numbers of its records."""

    def __init__(self, file: CsvFile, width: int) -> None:
        self.file = file
        self.width = width
        self.wrong: dict[int, RefusedRow] = {}
        self.held = 0
        self.next_row = 1

    def read(self) -> Iterator[TextRows]:
        with open_bytes(self.file.local_path, self.file.limits) as stream:
            if _skip(stream, self.file.header) >= self.file.shape.size:
                return
            yield from map(self._rows, self._batches(stream))
        # Rows of a wrong width after the last good row.
        yield TextRows(np.empty(0, np.int64), [], str, tuple(self.wrong.values()))

    def _batches(self, stream: BinaryIO) -> Iterator[pa.RecordBatch]:
        """Yield the batches that Arrow reads, and return only when its threads have released every Python object.

        They read and parse ahead, and drop the stream and the handler some time after the last batch. A thread that
        needs the interpreter during its shutdown ends the whole process.
        """
        shared = _SharedStream(stream, self._on_wrong_width)
        returned = weakref.ref(shared)
        try:
            reader = self._arrow_reader(shared)
            del shared
            yield from reader
        except BaseException as error:
            # The frames of a failed call would keep the objects alive.
            traceback.clear_frames(error.__traceback__)
            raise
        finally:
            reader = shared = None  # type: ignore[assignment] # noqa: F841 - nothing here may keep them
            _wait_until_gone(returned)

    def _arrow_reader(self, shared: _SharedStream) -> arrow_csv.CSVStreamingReader:
        settings = self.file.settings
        names = [str(position) for position in range(self.width)]
        return arrow_csv.open_csv(
            pa.PythonFile(shared, mode="r"),
            arrow_csv.ReadOptions(use_threads=False, column_names=names, block_size=_BLOCK_BYTES),
            arrow_csv.ParseOptions(
                delimiter=settings.delimiter,
                quote_char=settings.quote,
                newlines_in_values=True,
                ignore_empty_lines=False,
                invalid_row_handler=shared.on_wrong_width,
            ),
            arrow_csv.ConvertOptions(
                check_utf8=False,  # the scan of the bytes did
                column_types=dict.fromkeys(names, pa.string()),
                null_values=[] if settings.null is None else [settings.null],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )

    def _on_wrong_width(self, row: arrow_csv.InvalidRow) -> str:
        bad = wrong_width(row.number, row.actual_columns, self.width, self.file.raw(row.text))
        self.wrong[row.number] = bad
        self.held += len(bad.raw or "")
        # Where few rows fit, Arrow returns none for a long time; the exact reader passes bad rows on as it reads.
        return "skip" if self.held <= _EXACT_CHARACTERS else "error"

    def _rows(self, batch: pa.RecordBatch) -> TextRows:
        rows, texts = self._numbers(batch.num_rows), batch.columns
        bad = [self.wrong.pop(row) for row in sorted(self.wrong) if row < self.next_row]
        self.held -= sum(len(row.raw or "") for row in bad)
        blank = self._blank(batch, rows)
        if any_true(blank):
            bad += [wrong_width(row, 1, self.width, self.file.raw("")) for row in rows[blank].tolist()]
            rows, texts = rows[~blank], batch.filter(pa.array(~blank)).columns
        return TextRows(rows, texts, lambda index: self.file.raw(_format(texts, index, self.file.settings)), tuple(bad))

    def _numbers(self, size: int) -> Rows:
        """Return the physical numbers of the next good rows: those that no wrong row has."""
        taken = [row for row in self.wrong if row >= self.next_row]
        candidates = np.arange(self.next_row, self.next_row + size + len(taken), dtype=np.int64)
        numbers: Rows = candidates[~np.isin(candidates, taken)][:size] if taken else candidates
        if size:
            self.next_row = int(numbers[-1]) + 1
        return numbers

    def _blank(self, batch: pa.RecordBatch, rows: Rows) -> Mask:
        """Return a mask of the blank lines, which Arrow shows as empty fields."""
        nothing: Mask = np.zeros(len(rows), dtype=bool)
        if self.width == 1 or not self.file.shape.adjacent_line_ends:
            return nothing
        empty = ~nothing
        for column in batch.columns:
            empty &= to_mask(column.is_null()) | to_mask(pc.equal(column, ""))
            if not empty.any():
                return nothing
        return empty & np.isin(rows, self._blank_lines)

    @cached_property
    def _blank_lines(self) -> list[int]:
        return [row for row, record in self.file.records() if record.is_blank]


def exact_rows(
    records: Iterable[tuple[int, CsvRecord]], width: int, raw: Callable[[str], str], limits: Limits
) -> Iterator[TextRows]:
    """Yield rows as text from tokenized records; ``raw`` returns the complete text of a record."""
    remaining = iter(records)
    while chunk := take_chunk(remaining, _EXACT_ROWS):
        bad, good = [], []
        for row, record in chunk:
            if not record.is_closed:
                msg = f"the file ends inside a quoted value of record {row}: was it cut off?"
                raise UnusableFileError(msg)
            if len(record.fields) != width:
                bad.append(wrong_width(row, len(record.fields), width, raw(escape_undecoded(record.text))))
            elif not is_utf8(record.text):
                bad.append(undecodable(row, raw(escape_undecoded(record.text))))
            else:
                good.append((row, record))
        found = _exact_chunk(good, bad, width, raw)
        limits.require_texts(found.rows, found.texts)
        yield found


def take_chunk(records: Iterator[tuple[int, CsvRecord]], limit: int) -> list[tuple[int, CsvRecord]]:
    """Return the next records, at most ``limit`` and fewer where they are large."""
    taken, size = [], 0
    for row, record in islice(records, limit):
        taken.append((row, record))
        size += len(record.text)
        if size > _EXACT_CHARACTERS:
            break
    return taken


def _exact_chunk(
    good: list[tuple[int, CsvRecord]], bad: list[RefusedRow], width: int, raw: Callable[[str], str]
) -> TextRows:
    fields = zip(*(record.fields for _, record in good), strict=True) if good else [()] * width
    texts = [pa.array(values, pa.string()) for values in fields]
    rows = np.array([row for row, _ in good], dtype=np.int64)
    quoted: dict[int, list[int]] = {}
    for index, (_, record) in enumerate(good):
        for position in record.quoted_empty:
            quoted.setdefault(position, []).append(index)
    return TextRows(rows, texts, lambda index: raw(good[index][1].text), tuple(bad), quoted_empty=quoted)


def wrong_width(row: int, found: int, expected: int, raw: str) -> RefusedRow:
    """Return the bad row for a record with too few or too many fields."""
    return RefusedRow(row, f"has {found} fields, expected {expected}", None, None, raw)


def undecodable(row: int, raw: str) -> RefusedRow:
    """Return the bad row for a record that is not UTF-8."""
    return RefusedRow(row, "is not valid UTF-8", None, None, raw)


def _format(texts: list[pa.Array], index: int, settings: CsvSettings) -> str:
    return format_record([text[index].as_py() for text in texts], settings)


def _bounded(rows: TextRows) -> Iterator[TextRows]:
    """Yield rows in pieces of at most MAX_ROWS."""
    yield TextRows(rows.rows[:MAX_ROWS], [text[:MAX_ROWS] for text in rows.texts], rows.raw, rows.bad)
    for start in range(MAX_ROWS, len(rows.rows), MAX_ROWS):
        piece = slice(start, start + MAX_ROWS)

        def raw(index: int, start: int = start) -> str:
            return rows.raw(start + index)

        yield TextRows(rows.rows[piece], [text[piece] for text in rows.texts], raw)


def _skip(stream: BinaryIO, header: CsvRecord | None) -> int:
    """Move a stream past byte order mark and header; return the number of bytes skipped."""
    if header is None:
        return 0
    mark = len(_BYTE_ORDER_MARK) if stream.read(len(_BYTE_ORDER_MARK)) == _BYTE_ORDER_MARK else 0
    position = mark + len(header.text.encode(ENCODING, ENCODING_ERRORS))
    stream.seek(position)
    ending = stream.read(2)
    position += 2 if ending == b"\r\n" else min(1, len(ending))
    stream.seek(position)
    return position
