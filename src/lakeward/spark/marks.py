"""Messages that rows and Python tasks send to the driver through an error of Spark.

Spark hands the driver a text of many pages, in which a message of Lakeward's is one line or part of a traceback. A
mark at both ends of the message makes it possible to cut it out again, whatever stands around it.

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
    """What stands at both ends of a message of one kind."""

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
        # An empty text that Spark cannot foresee. Otherwise it derives conditions on every other name of every column
        # from this one, which are exponentially many, and takes minutes to plan.
        unforeseen = F.substring(F.monotonically_increasing_id().cast("string"), 1, 0)
        return F.raise_error(F.concat(*parts, unforeseen)).cast("boolean")

    def find(self, text: str) -> str | None:
        """Return the first marked message in a text, None where there is none."""
        _, found, rest = text.partition(self._begin)
        return rest.partition(self._end)[0] if found else None


_TASK = Mark("task")


class TaskError(Exception):
    """An error of a Python task as Spark shows it: type, message and hint of the original between marks."""


@contextmanager
def marked_errors() -> Iterator[None]:
    """In a task: let each :class:`LakewardError` reach the driver whole, where :func:`task_error_in` finds it."""
    try:
        yield
    except LakewardError as error:
        content = {"type": type(error).__name__, "message": error.message, "hint": error.hint}
        raise TaskError(_TASK.around(json.dumps(content))) from error


def in_task(function: Callable[[Given], Iterable[Made]]) -> Callable[[Given], Iterator[Made]]:
    """Return a function for ``mapInArrow`` that marks the errors of the given one."""

    def run(batches: Given) -> Iterator[Made]:
        with marked_errors():
            yield from function(batches)

    return run


def task_error_in(text: str) -> LakewardError | None:
    """Return the error that a task raised under :func:`marked_errors`, None where the text holds none that is whole."""
    found = _TASK.find(text)
    if found is None:
        return None
    try:
        # Spark shows a text of Python as it is, with no escapes of its own.
        content = json.loads(found)
    except json.JSONDecodeError:
        # Something cut the text off. The failure is reported as any other; a new error here would hide it.
        return None
    kind: type[LakewardError] = getattr(errors, content["type"])
    return kind(content["message"], hint=content["hint"])
