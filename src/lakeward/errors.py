"""Every error Lakeward raises on purpose, grouped by what to do about it.

    LakewardError
    ├── ConfigurationError   fix the configuration or the command line            exit 2
    ├── DataError            look at the input; nothing of it was applied         exit 3
    │   ├── BadRowError      a row does not fit the schema
    │   ├── ChangedFileError a consumed file came back with other content
    │   ├── SchemaError      files and table differ in a way that is not safe
    │   ├── CutError         it is unclear which files a reload replaces
    │   ├── DeleteShareError the batch would delete more than the guard allows
    │   ├── VanishedError    the table's folder is gone
    │   ├── RefusedInputError  a snapshot or change set cannot be taken as it is  exit 2
    │   └── TimeLimitError   the batch takes longer than the table may
    ├── RetriableError       try again; the same call may succeed                 exit 3
    ├── ConflictError        another writer committed first; start over                exit 3
    │   └── LeaseHeldError   a live writer holds the table
    ├── SparkDiedError       Spark's JVM is gone; look at the machine's memory     exit 3
    └── BugError             an invariant of Lakeward itself is broken            exit 3

A message states what failed, what was found and what was expected; ``hint`` names the command that helps. Passwords are
hidden in both.
"""

from __future__ import annotations

from typing import TypedDict

from lakeward.redaction import redact


class ErrorFields(TypedDict):
    """The fields in which reports hold the error that ended their work."""

    message: str
    hint: str | None
    error_kind: str
    exit_code: int


class LakewardError(Exception):
    """Base of all errors that Lakeward raises on purpose."""

    exit_code = 3
    kind = "error"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        self.message = redact(message)
        self.hint = redact(hint) if hint else hint
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message}\nTry: {self.hint}" if self.hint else self.message

    def as_fields(self) -> ErrorFields:
        """Return what reports hold of an error, by the names of their fields."""
        return {"message": self.message, "hint": self.hint, "error_kind": self.kind, "exit_code": self.exit_code}

    def __reduce__(self) -> tuple[object, ...]:
        """Keep the hint when the error is pickled from a Spark task to the driver."""
        return (_rebuild, (type(self), self.message, self.hint))


def _rebuild(error_type: type[LakewardError], message: str, hint: str | None) -> LakewardError:
    return error_type(message, hint=hint)


class ConfigurationError(LakewardError):
    """The configuration or the command line is wrong; nothing was started."""

    exit_code = 2
    kind = "configuration"


class DataError(LakewardError):
    """The input is refused; nothing of it was applied."""

    kind = "data"


class BadRowError(DataError):
    """A row does not fit the schema and ``on_bad_row`` is ``fail``."""


class ChangedFileError(DataError):
    """A consumed file came back under the same name with other content."""


class SchemaError(DataError):
    """The files' schema differs from the table's in a way that is not a safe evolution."""


class CutError(DataError):
    """It cannot be decided which change files belong to a reload."""


class DeleteShareError(DataError):
    """The batch would delete a larger share of the mirror than ``max_delete_share`` allows."""


class VanishedError(DataError):
    """The landing folder of a table that was consumed before is gone."""


class RefusedInputError(DataError):
    """A snapshot or change set is incomplete, ambiguous or does not fit; nothing was written."""

    exit_code = 2


class TimeLimitError(DataError):
    """An op took longer than ``time_limit``; a retry of the same batch would too."""


class RetriableError(LakewardError):
    """A temporary error: the same call may succeed later."""

    kind = "retriable"


class ConflictError(LakewardError):
    """Another writer published first; the op must start over from the new state."""

    kind = "conflict"


class LeaseHeldError(ConflictError):
    """A live writer holds the table's lease."""


class SparkDiedError(LakewardError):
    """Spark's JVM was killed, ended or ran out of memory; this process cannot continue with it."""

    kind = "spark"


class BugError(LakewardError):
    """An invariant of Lakeward itself does not hold; please report it."""

    kind = "bug"
