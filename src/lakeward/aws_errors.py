"""Errors of AWS clients: what a service answered, and whether the same call may succeed later.

What an answer means for the work is decided where the service is called; which codes pass by themselves is the same for
all services. Nothing here imports botocore before an error is looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
