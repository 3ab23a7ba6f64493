"""Errors of the operating system and of AWS services: which pass, and what the others mean."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Any

from lakeward.errors import ConfigurationError, LakewardError, RetriableError

# What errors of the operating system mean: a disk that is full, a place that is wrong, something that passes.


# They do not get better by waiting: the address is wrong, or permissions are.
WRONG_PLACE = frozenset({
    errno.EACCES, errno.EEXIST, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTDIR, errno.ENOTEMPTY,
    errno.EPERM, errno.EROFS,
})  # fmt: skip
# Symbolic links and names that no waiting and no permission makes readable.
UNREACHABLE = frozenset({errno.ELOOP, errno.ENAMETOOLONG})
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_SCARCE = {
    errno.EMFILE: ("this process has too many files open", "raise the limit: ulimit -n 65536"),
    errno.ENFILE: ("the machine has too many files open", "end other programs, or raise fs.file-max"),
    errno.ENOMEM: ("the machine has no memory left", "end other programs, or use a machine with more memory"),
}
FULL_HINT = "free space there (df -h tells which disk), then run again: what was published stays, the rest is done anew"


def scarcity(error: OSError, what: str) -> LakewardError | None:
    """Return the error for something that has run out, disk space above all; None for anything else."""
    place = f" ({error.filename})" if error.filename else ""
    if error.errno in _FULL:
        return RetriableError(f"{what}: the disk is full{place}", hint=FULL_HINT)
    if error.errno in _SCARCE:
        found, hint = _SCARCE[error.errno]
        return RetriableError(f"{what}: {found}{place}", hint=hint)
    return None


def system_error(error: OSError, place: str = "") -> LakewardError:
    """Return the error that says what to do; ``place`` is named where the error itself names nothing."""
    where = str(error.filename or place or "the operating system")
    found = scarcity(error, where) if not isinstance(error, ConnectionError) else None
    if found is not None:
        return found
    msg = f"{where}: {error.strerror or error}"
    if error.errno in WRONG_PLACE:
        return ConfigurationError(msg, hint="check the path and its permissions")
    return RetriableError(msg, hint="run again")


# Errors of AWS clients: what a service answered, and whether the same call may succeed later.
# What an answer means for the work is decided where the service is called; which codes pass by themselves is the same
# for all services. Nothing here imports botocore before an error is looked at.


# Codes by which services say that asking again may help.
_PASSING = frozenset({
    "InternalError", "InternalServerError", "LimitExceededException", "OperationAborted",
    "ProvisionedThroughputExceededException", "RequestLimitExceeded", "RequestTimeout", "RequestTimeoutException",
    "ServiceUnavailable", "SlowDown", "ThrottledException", "Throttling", "ThrottlingException", "TooManyRequests",
    "TransactionCanceledException", "TransactionConflictException", "TransactionInProgressException",
})  # fmt: skip
_TOO_MANY_REQUESTS, _SERVER_FAULTS = 429, 500


@dataclass(frozen=True)
class Answer:
    """What a service answered instead of doing what was asked; empty where it never got there."""

    code: str = ""
    message: str = ""
    status: int = 0

    @property
    def is_passing(self) -> bool:
        """Whether the same call may succeed later."""
        return self.code in _PASSING or self.status >= _SERVER_FAULTS or self.status == _TOO_MANY_REQUESTS

    def __str__(self) -> str:
        return f"{self.code} {self.message}".strip()


def answer_in(error: BaseException | None) -> Answer:
    """Return the answer of a service that an error of its client holds."""
    response: dict[str, Any] = getattr(error, "response", None) or {}
    detail, metadata = response.get("Error", {}), response.get("ResponseMetadata", {})
    return Answer(str(detail.get("Code", "")), str(detail.get("Message", "")), int(metadata.get("HTTPStatusCode", 0)))


def is_without_answer(error: BaseException) -> bool:
    """Whether the service was not reached, or broke off before it had answered."""
    from botocore import exceptions

    return isinstance(error, exceptions.HTTPClientError | exceptions.ConnectionError)
