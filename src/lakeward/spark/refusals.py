"""Recognise rows that a query refused, and keys that occur twice, in the failure of the query."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lakeward.errors import RefusedInputError
from lakeward.spark.marks import Mark

if TYPE_CHECKING:
    from lakeward.errors import LakewardError
    from lakeward.spark.errors import Failure, Recogniser

REFUSED, DUPLICATE = Mark("refused"), Mark("duplicate key")


def duplicate_key_in(failure: Failure) -> str | None:
    """Return the side and, as JSON, the key that occurs twice there; None where the failure has another reason."""
    found = failure.marked(DUPLICATE)
    if found is None:
        return None
    try:
        content = json.loads(found)
    except json.JSONDecodeError:
        return found.splitlines()[0]
    return f"{content['side']} side: {json.dumps(content['key'], ensure_ascii=False)}"


def refused_row(hint: str | None = None) -> Recogniser:
    """Return a recogniser of rows that were refused, and of keys that occur twice."""

    def recognise(failure: Failure) -> LakewardError | None:
        message = failure.marked(REFUSED)
        if message is None and (key := duplicate_key_in(failure)) is not None:
            message = f"the key {key} occurs more than once and does not identify a row"
        return None if message is None else RefusedInputError(message, hint=hint)

    return recognise
