"""How long to wait before a passing fault is tried again."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from lakeward.errors import ConflictError, RetriableError

if TYPE_CHECKING:
    from lakeward.config import RetrySettings
    from lakeward.errors import LakewardError


def may_pass(error: LakewardError) -> bool:
    """Tell whether the same call may succeed later: a passing fault, or another writer that was faster."""
    return isinstance(error, (RetriableError, ConflictError))


def delay(settings: RetrySettings, attempt: int) -> float:
    """Give the seconds to wait before attempt number ``attempt`` + 1: doubled each time, up to a limit.

    Half of it is left to chance: tables that one fault stopped shall not all come back at one moment.
    """
    longest = min(settings.max_delay, settings.first_delay * 2.0 ** (attempt - 1))
    return longest * random.uniform(0.5, 1)
