"""Messages that rows and Python tasks send to the driver through an error of Spark.

Spark reports an error to the driver as a long text, in which a message of Lakeward is one line or part of a traceback.
Marks at both ends of the message make it possible to extract it.

Nothing here imports pyspark before it is needed: code that never starts Spark imports this module, too.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from lakeward import errors
from lakeward.errors import LakewardError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import Column

Given = TypeVar("Given")
Made = TypeVar("Made")


@dataclass(frozen=True)
class Mark:
    """The texts at both ends of a message of one kind."""

    name: str

    @property
    def _begin(self) -> str:
        return f"lakeward-{self.name}: "

    @property
    def _end(self) -> str:
        return f" :lakeward-{self.name}"

    def around(self, message: str) -> str:
        """Return a message between its marks."""
        return f"{self._begin}{message}{self._end}"

    def failing(self, *message: Column | str) -> Column:
        """Return a condition that makes the query fail with the message when it is evaluated; no part may be null."""
        from pyspark.sql import functions as F

        parts = [F.lit(part) if isinstance(part, str) else part for part in (self._begin, *message, self._end)]
        # An empty text that Spark cannot fold into a constant. Otherwise it derives an exponential number of conditions
        # from this one, for all aliases of every column, and takes minutes to plan.
        not_constant = F.substring(F.monotonically_increasing_id().cast("string"), 1, 0)
        return F.raise_error(F.concat(*parts, not_constant)).cast("boolean")

    def find(self, text: str) -> str | None:
        """Return the first marked message in a text, None where there is none."""
        _, found, rest = text.partition(self._begin)
        return rest.partition(self._end)[0] if found else None


_TASK = Mark("task")


class TaskError(Exception):
    """The error of a Python task for Spark: type, message and hint of the original between marks."""


@contextmanager
def marked_errors() -> Iterator[None]:
    """Mark each :class:`LakewardError` in a task, so that :func:`task_error_in` can restore it on the driver."""
    try:
        yield
    except LakewardError as error:
        content = {"type": type(error).__name__, "message": error.message, "hint": error.hint}
        raise TaskError(_TASK.around(json.dumps(content))) from error


def in_task(function: Callable[[Given], Iterable[Made]]) -> Callable[[Given], Iterator[Made]]:
    """Return a function for ``mapInArrow`` that calls the given one and marks its errors."""

    def run(batches: Given) -> Iterator[Made]:
        with marked_errors():
            yield from function(batches)

    return run


def task_error_in(text: str) -> LakewardError | None:
    """Return the error that a task raised under :func:`marked_errors`, None where the text has no complete one."""
    found = _TASK.find(text)
    if found is None:
        return None
    try:
        # Spark includes Python's text unchanged, without escapes.
        content = json.loads(found)
    except json.JSONDecodeError:
        # The text was cut off. The failure is reported like any other; raising here would hide it.
        return None
    kind: type[LakewardError] = getattr(errors, content["type"])
    return kind(content["message"], hint=content["hint"])
