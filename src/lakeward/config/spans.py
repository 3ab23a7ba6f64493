"""Spans of time as people write them: ``0.3``, ``90s``, ``10m``, ``2h``, ``1d``."""

from __future__ import annotations

import math
import re

from lakeward.errors import ConfigurationError

_SPAN = re.compile(r"\s*(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>ms|s|m|min|h|d)?\s*", re.ASCII)
_SECONDS = {None: 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}


def parse_span(text: str | float) -> float:
    """Give seconds.

    Raises:
        ConfigurationError: the text is not a span.
    """
    if isinstance(text, int | float) and not isinstance(text, bool):
        return _require_usable(float(text), text)
    match = _SPAN.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise _not_a_span(text)
    return _require_usable(float(match["number"]) * _SECONDS[match["unit"]], text)


def _require_usable(seconds: float, text: object) -> float:
    if not math.isfinite(seconds) or seconds < 0:
        raise _not_a_span(text)
    return seconds


def _not_a_span(text: object) -> ConfigurationError:
    return ConfigurationError(f"{text!r} is not a span of time; expected seconds or a number with s, m, h or d: 10m")
