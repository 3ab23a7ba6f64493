"""Text that came from outside, made safe to store and to print: file names, column names, values, messages.

A file name that is not UTF-8 reaches Python as lone surrogates, which no database, no JSON reader and no terminal
takes; control characters move the cursor, recolour a terminal, or forge a line of a log.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

# C0 without line feed and tab, DEL and C1, lone surrogates, line separators, marks that turn the writing direction.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_IN_NAMES = re.compile(f"[\t\n]|{_UNPRINTABLE.pattern}")
_UNDECODED = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


def is_utf8(text: str) -> bool:
    """Whether the text can be written as UTF-8: it holds no byte that could not be decoded."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def escape_undecoded(text: str) -> str:
    r"""Return the text with bytes that were not UTF-8 written as ``\xNN``; everything else stays as it is."""
    return _UNDECODED.sub(_escaped, text)


def escape_text(text: str) -> str:
    r"""Return the text as it may be printed: what would control a terminal is written as ``\xNN`` or ``\uNNNN``.

    Line feeds and tabs stay: they are part of messages and of values.
    """
    return _UNPRINTABLE.sub(_escaped, text)


def escape_name(name: str) -> str:
    """Return the name of a file, folder, table or column as it may be printed, in one line."""
    return _IN_NAMES.sub(_escaped, name)


def name_problem(name: str) -> str | None:
    """Say why a name cannot be kept in tables, ledgers and logs; None for one that can."""
    if not is_utf8(name):
        return "its name is not UTF-8"
    return "its name holds a control character" if _CONTROL.search(name) else None


def to_json(document: Any, *, indent: int | None = None, default: Callable[[Any], str] = str) -> str:
    """Return a document as JSON that any terminal and any reader takes: unprintable characters are escaped.

    ``default`` makes texts of values that JSON does not have.
    """
    text = json.dumps(document, indent=indent, ensure_ascii=False, default=default)
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return {9: "\\t", 10: "\\n"}.get(code, f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
