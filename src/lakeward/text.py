"""Text from outside, made safe to store, print and read back; counts with their nouns; JSON, addresses, time zones."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from lakeward.errors import ConfigurationError, DataError, LakewardError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager


# File names, column names, values and messages may come from outside. A file name that is not UTF-8 reaches Python as
# lone surrogates, which no database, JSON reader or terminal accepts; control characters move the cursor, recolour a
# terminal, or forge a log line.


# C0 without line feed and tab, DEL and C1, lone surrogates, line separators, marks that change the writing direction.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_IN_NAMES = re.compile(f"[\t\n]|{_UNPRINTABLE.pattern}")
_UNDECODED = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


def is_utf8(text: str) -> bool:
    """Whether the text can be encoded as UTF-8: it holds no byte that could not be decoded."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def escape_undecoded(text: str) -> str:
    r"""Return the text with bytes that were not UTF-8 written as ``\xNN``; everything else stays as it is."""
    return _UNDECODED.sub(_escaped, text)


def escape_text(text: str) -> str:
    r"""Return the text in printable form: what would control a terminal is written as ``\xNN`` or ``\uNNNN``.

    Line feeds and tabs stay: they are part of messages and of values.
    """
    return _UNPRINTABLE.sub(_escaped, text)


def escape_name(name: str) -> str:
    """Return the name of a file, folder, table or column in printable form, on one line."""
    return _IN_NAMES.sub(_escaped, name)


def name_problem(name: str) -> str | None:
    """Return why a name cannot be stored in tables, ledgers and logs; None if it can."""
    if not is_utf8(name):
        return "its name is not UTF-8"
    return "its name holds a control character" if _CONTROL.search(name) else None


def to_json(document: Any, *, indent: int | None = None, default: Callable[[Any], str] = str) -> str:
    """Return a document as JSON with unprintable characters escaped, for any terminal and any reader.

    ``default`` converts values that JSON does not have to text.
    """
    text = json.dumps(document, indent=indent, ensure_ascii=False, default=default)
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return {9: "\\t", 10: "\\n"}.get(code, f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def count(number: int, singular: str, plural: str | None = None) -> str:
    """Return ``1 file`` or ``1,000 files``; a given plural may include its verb, as in ``keys come``."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def listed(names: Iterable[str], *, most: int = 5) -> str:
    """Return names in a row: ``a, b``, or ``a, b and 3 more``."""
    found = list(names)
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(found[:most]) + more


def rate(rows: int, seconds: float) -> str:
    """Return ``1,000 rows/s``."""
    return f"{rows / seconds:,.0f} rows/s" if seconds > 0 else "- rows/s"


# JSON that Lakeward wrote earlier may be damaged, and addresses may be mistyped. Neither is a bug, whatever exception
# the reader raises.

# What reading an unexpected document can raise.
MALFORMED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


@contextmanager
def refusing_damage(what: str, *, hint: str, kind: type[LakewardError] = DataError) -> Iterator[None]:
    """Turn whatever reading a document raises into an error that names the document.

    Raises:
        LakewardError: of the given kind; the document is not as it was written.
    """
    try:
        yield
    except MALFORMED as error:
        found = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        msg = f"{what} is damaged: {found}"
        raise kind(msg, hint=hint) from error


def reading_property(name: str, *, of: str) -> AbstractContextManager[None]:
    """Refuse a table property that is not as it was written.

    Raises:
        DataError: inside the context.
    """
    earlier = (
        f"set {name} back to what an earlier metadata file of the {of} says (its table metadata_log_entries names them)"
    )
    return refusing_damage(f"the property {name} of the {of}", hint=earlier)


def json_object(text: str) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        ValueError: the text is not JSON, or not an object.
    """
    found = json.loads(text)
    if not isinstance(found, dict):
        msg = f"expected a JSON object, found {text[:40]!r}"
        raise ValueError(msg)  # noqa: TRY004 - one type for all that is wrong with the text
    return found


@lru_cache
def time_zone(name: str, setting: str | None = None) -> ZoneInfo:
    """Return a time zone by its name; ``setting`` is where the name comes from.

    Raises:
        ConfigurationError: there is none of that name.
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as error:
        where = f"{setting} " if setting else ""
        msg = f"{where}{name!r} is not a known time zone; expected a name such as Europe/Berlin"
        raise ConfigurationError(msg) from error


def split_address(text: str, what: str) -> SplitResult:
    """Split an address into its parts.

    Raises:
        ConfigurationError: it is malformed; the message does not repeat it, because it may hold a password.
    """
    try:
        return urlsplit(text)
    except ValueError as error:
        msg = f"{what} is not an address: {error}"
        raise ConfigurationError(msg, hint="an address of IPv6 is written in brackets: http://[::1]:8080/") from None
