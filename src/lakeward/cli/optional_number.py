"""Options whose number may be left out: ``--watch``, ``--watch 5``."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def with_number(arguments: Sequence[str], option: str, default: str) -> list[str]:
    """Give a bare option its value before click looks for one: what follows it is its own only if it is a number."""
    return [
        f"{option}={default}" if one == option and not _is_number(after) else one
        for one, after in pairwise([*arguments, ""])
    ]


def _is_number(text: str) -> bool:
    try:
        return not math.isnan(float(text))
    except ValueError:
        return False
