"""An exact RFC 4180 tokenizer, for what Arrow's CSV reader cannot do: ragged files, record texts, lone returns.

It reads a record as Arrow does, with one difference: a carriage return alone is text, not the end of a record.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

    from lakeward.config import CsvSettings
    from lakeward.sources.dms.limits import Limits

_CHUNK = 1 << 18
BYTE_ORDER_MARK = "\ufeff"


@dataclass(frozen=True)
class Record:
    """One CSV record: its fields, None where the null token stands unquoted, and its text without line end.

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
    """Match one field and what ends it; an unquoted field may hold returns that no line feed follows."""
    d, q = re.escape(delimiter), re.escape(quote)
    plain = rf"[^{d}\r\n]*(?:\r(?!\n)[^{d}\r\n]*)*"
    return re.compile(rf"(?:{q}([^{q}]*(?:{q}{q}[^{q}]*)*)({q}?)({plain})|({plain}))({d}|\r?\n|\Z)")


def tokenize(stream: TextIO, settings: CsvSettings, limits: Limits) -> Iterator[Record]:
    """Give the records of a text stream opened with ``newline=""``, holding little more than one record.

    A value whose quote is never closed makes the last record, with ``is_closed`` false.

    Raises:
        UnusableFileError: a record is larger than ``limits`` allow.
    """
    number = 1
    buffer, start, size = stream.read(_CHUNK).removeprefix(BYTE_ORDER_MARK), 0, _CHUNK
    ended = not buffer
    while start < len(buffer) or not ended:
        found = _record(buffer, start, settings)
        # A record that reaches the end of what was read may go on: so may a quote doubled, or a return.
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


def _record(text: str, start: int, settings: CsvSettings) -> tuple[Record, int] | None:
    """Read one record; None when the text holds none from there."""
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
                return Record(fields, text[start:], is_closed=False), len(text)
        position = match.end()
        if end != settings.delimiter:
            return Record(fields, text[start : match.start(5)], quoted_empty=quoted_empty), position


def format_record(fields: list[str | None], settings: CsvSettings) -> str:
    """Write fields so that :func:`tokenize` reads the same fields and nulls back."""
    return settings.delimiter.join(_format_field(field, settings) for field in fields)


def _format_field(field: str | None, settings: CsvSettings) -> str:
    if field is None:
        return settings.null or ""
    special = (settings.delimiter, settings.quote, "\n", "\r")
    if field == settings.null or any(character in field for character in special):
        return settings.quote + field.replace(settings.quote, settings.quote * 2) + settings.quote
    return field
