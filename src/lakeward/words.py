"""Numbers with their nouns, as every message writes them."""

from __future__ import annotations


def count(number: int, singular: str, plural: str | None = None) -> str:
    """Return ``1 file`` or ``1,000 files``; a plural of its own may bring its verb, as in ``keys come``."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def rate(rows: int, seconds: float) -> str:
    """Return ``1,000 rows/s``."""
    return f"{rows / seconds:,.0f} rows/s" if seconds > 0 else "- rows/s"
