"""Lines that tell people how far a long piece of work is."""

from __future__ import annotations

from collections.abc import Callable

Tell = Callable[[str], None]
"""Takes one line for humans."""

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


def progress_line(
    rows: int,
    expected: int | None,
    rate: float,
    *,
    written: tuple[float, float] = (0, 0),
    read: tuple[float, float] = (0, 0),
) -> str:
    """Say how many rows are done, how fast, how long the rest takes, and what it costs: per second, and until now.

    >>> progress_line(412_000, 3_000_000, 9_980, written=(9_980, 412_000))
    '412,000 of about 3,000,000 rows, 9,980 rows/s, 4 min left, 9,980 WCU/s, 412,000 WCU so far'
    """
    whole = f" of about {expected:,}" if expected is not None and expected >= rows else ""
    parts = [f"{rows:,}{whole} rows", f"{rate:,.0f} rows/s"]
    if expected is not None and rate > 0 and expected > rows:
        parts.append(f"{duration((expected - rows) / rate)} left")
    for (units_rate, units), unit in ((written, "WCU"), (read, "RCU")):
        if units:
            parts.append(f"{units_rate:,.0f} {unit}/s, {units:,.0f} {unit} so far")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """Say a span in the one unit that fits it."""
    for unit, name in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:,.0f} {name}"
    return f"{seconds:,.0f} s"
