"""Errors of Lakeward's own that were raised inside Spark tasks, found again in what Spark says of them."""

from __future__ import annotations

import re

from lakeward import errors
from lakeward.errors import LakewardError

_RAISED = re.compile(
    r"^lakeward\.errors\.(?P<kind>\w+Error): (?P<message>.*?)(?:\nTry: (?P<hint>[^\n]*))?$", re.MULTILINE
)


def lakeward_error_in(error: BaseException) -> LakewardError | None:
    """Give the error that a task raised, None where it is another's."""
    found = _RAISED.search(str(error))
    kind = getattr(errors, found["kind"], None) if found else None
    if found is None or not (isinstance(kind, type) and issubclass(kind, LakewardError)):
        return None
    return kind(found["message"], hint=found["hint"])
