"""Errors of the operating system and of AWS services: which are temporary, and what the others mean."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Any

from lakeward.errors import ConfigurationError, LakewardError, RetriableError

# Errors of the operating system.

# Waiting does not help: the path or its permissions are wrong.
WRONG_PLACE = frozenset({
    errno.EACCES, errno.EEXIST, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTDIR, errno.ENOTEMPTY,
    errno.EPERM, errno.EROFS,
})  # fmt: skip
# Symbolic links and names that neither waiting nor permissions make readable.
UNREACHABLE = frozenset({errno.ELOOP, errno.ENAMETOOLONG})
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_SCARCE = {
    errno.EMFILE: ("this process has too many files open", "raise the limit: ulimit -n 65536"),
    errno.ENFILE: ("the machine has too many files open", "end other programs, or raise fs.file-max"),
    errno.ENOMEM: ("the machine has no memory left", "end other programs, or use a machine with more memory"),
}
FULL_HINT = (
    "free space there (df -h shows which disk), then run again: what was published stays, the rest is done again"
)


def scarcity(error: OSError, what: str) -> LakewardError | None:
    """Return the error for a resource that has run out, such as disk space; None for any other error."""
    place = f" ({error.filename})" if error.filename else ""
    if error.errno in _FULL:
        return RetriableError(f"{what}: the disk is full{place}", hint=FULL_HINT)
    if error.errno in _SCARCE:
        found, hint = _SCARCE[error.errno]
        return RetriableError(f"{what}: {found}{place}", hint=hint)
    return None


def system_error(error: OSError, place: str = "") -> LakewardError:
    """Return the Lakeward error for an error of the system; ``place`` is used where that names no file."""
    where = str(error.filename or place or "the operating system")
    found = scarcity(error, where) if not isinstance(error, ConnectionError) else None
    if found is not None:
        return found
    msg = f"{where}: {error.strerror or error}"
    if error.errno in WRONG_PLACE:
        return ConfigurationError(msg, hint="check the path and its permissions")
    return RetriableError(msg, hint="run again")


# Errors of AWS clients. The caller of a service decides what a response means; which codes are temporary is the same
# for all services. Nothing here imports botocore before there is an error.

# Codes of errors that a retry may solve.
_PASSING = frozenset({
    "InternalError", "InternalServerError", "LimitExceededException", "OperationAborted",
    "ProvisionedThroughputExceededException", "RequestLimitExceeded", "RequestTimeout", "RequestTimeoutException",
    "ServiceUnavailable", "SlowDown", "ThrottledException", "Throttling", "ThrottlingException", "TooManyRequests",
    "TransactionCanceledException", "TransactionConflictException", "TransactionInProgressException",
})  # fmt: skip
_TOO_MANY_REQUESTS, _SERVER_FAULTS = 429, 500


@dataclass(frozen=True)
class Answer:
    """The error response of a service; empty where the request never reached it."""

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
    """Return the error response that an error of an AWS client holds."""
    response: dict[str, Any] = getattr(error, "response", None) or {}
    detail, metadata = response.get("Error", {}), response.get("ResponseMetadata", {})
    return Answer(str(detail.get("Code", "")), str(detail.get("Message", "")), int(metadata.get("HTTPStatusCode", 0)))


def is_without_answer(error: BaseException) -> bool:
    """Whether the service was not reached, or the connection ended before it had answered."""
    from botocore import exceptions

    return isinstance(error, exceptions.HTTPClientError | exceptions.ConnectionError)
