"""Classify the errors of a cluster as transient, overload or rejected row, and retry with growing pauses."""

from __future__ import annotations

import logging
import random
import struct
import time
from typing import TYPE_CHECKING, Any, TypeVar

from lakeward.errors import RetriableError
from lakeward.logs import event

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakeward.cassandra.budget_server import BudgetClient

logger = logging.getLogger(__name__)
Result = TypeVar("Result")
# About a minute in all: a lost node is noticed after about ten seconds.
ATTEMPTS = 12
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 10.0


def is_passing(error: BaseException) -> bool:
    """Whether the same request may succeed later: overload, time-outs, lost nodes and connections."""
    from cassandra import (
        OperationTimedOut,
        ReadFailure,
        ReadTimeout,
        Unavailable,
        WriteFailure,
        WriteTimeout,
    )
    from cassandra.cluster import NoHostAvailable
    from cassandra.connection import ConnectionBusy, ConnectionException
    from cassandra.pool import NoConnectionsAvailable
    from cassandra.protocol import (
        IsBootstrappingErrorMessage,
        OverloadedErrorMessage,
        PreparedQueryNotFound,
        ServerError,
        TruncateError,
    )

    if isinstance(error, NoHostAvailable):
        return not any(is_refusal(cause) for cause in errors_of(error))
    # Cassandra and Keyspaces report any internal failure as a server error.
    passing = (
        OperationTimedOut, ReadTimeout, WriteTimeout, ReadFailure, WriteFailure, Unavailable, ConnectionException,
        ConnectionBusy, NoConnectionsAvailable, OverloadedErrorMessage, IsBootstrappingErrorMessage,
        PreparedQueryNotFound, ServerError, TruncateError, OSError,
    )  # fmt: skip
    return isinstance(error, passing)


def is_overload(error: BaseException) -> bool:
    """Whether the cluster is overloaded, so that the whole job must slow down."""
    from cassandra import OperationTimedOut, ReadTimeout, WriteTimeout
    from cassandra.cluster import NoHostAvailable
    from cassandra.protocol import OverloadedErrorMessage

    if isinstance(error, NoHostAvailable):
        return any(is_overload(cause) for cause in errors_of(error))
    return isinstance(error, (OperationTimedOut, ReadTimeout, WriteTimeout, OverloadedErrorMessage))


def is_rejection(error: BaseException) -> bool:
    """Whether the server, or the driver before it, rejects the row itself."""
    from cassandra import InvalidRequest
    from cassandra.protocol import SyntaxException

    return isinstance(error, (InvalidRequest, SyntaxException, TypeError, ValueError, struct.error, OverflowError))


def is_refusal(error: BaseException) -> bool:
    """Whether the login or its permissions are refused."""
    from cassandra import AuthenticationFailed, Unauthorized
    from cassandra.protocol import BadCredentials

    return isinstance(error, (AuthenticationFailed, Unauthorized, BadCredentials))


def call_again(
    work: Callable[[], Result],
    *,
    budget: BudgetClient | None = None,
    attempts: int = ATTEMPTS,
    what: str = "the request",
    sleep: Callable[[float], None] = time.sleep,
) -> Result:
    """Call ``work``, and again after growing pauses where it fails with a transient error; return its result.

    Other errors are raised as they are. Overload is reported to ``budget``, so that the whole job slows down.

    Raises:
        RetriableError: all ``attempts`` failed; the message has the last error.
    """
    begun = time.monotonic()
    for attempt in range(1, attempts + 1):
        try:
            return work()
        except Exception as error:
            if not is_passing(error):
                raise
            if budget is not None and is_overload(error):
                budget.slow_down(error_text(error))
            if attempt == attempts:
                span = time.monotonic() - begun
                msg = f"{what} failed {attempts} times within {span:.0f} s, the last time with {error_text(error)}"
                raise RetriableError(msg, hint="the same command resumes where this one ended") from error
            logger.debug("%s failed, try %d: %s", what, attempt, error_text(error), extra=event("cassandra.again"))
        sleep(pause_before(attempt + 1))
    raise AssertionError(attempts)


def pause_before(attempt: int) -> float:
    """Return the seconds to wait before an attempt, counted from 1: doubled each time, with a random part."""
    longest = min(FIRST_PAUSE_SECONDS * 2.0 ** (attempt - 2), LONGEST_PAUSE_SECONDS)
    return longest * random.uniform(0.5, 1.0)


def error_text(error: BaseException) -> str:
    """Return an error of the driver as one line."""
    from cassandra.cluster import NoHostAvailable

    if isinstance(error, NoHostAvailable):
        each = [f"{host}: {error_text(cause)}" for host, cause in _nodes(error)]
        return f"no node answers ({'; '.join(each)})" if each else "no node answers"
    # The text before it is the history of the driver's own attempts.
    text = " ".join(str(error).split()).rpartition("Last error: ")[2]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _nodes(error: BaseException) -> list[tuple[str, BaseException]]:
    errors = getattr(error, "errors", None)
    if not isinstance(errors, dict):
        return []
    return [(str(host), cause) for host, cause in errors.items() if isinstance(cause, BaseException)]


def errors_of(error: BaseException) -> list[BaseException]:
    """Return the error of each node, where no node could execute the request."""
    return [cause for _, cause in _nodes(error)]


def rows_of(session: Any, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """Return the rows of a small query or of a schema change, retried after transient errors.

    Raises:
        RetriableError: all attempts failed.
    """
    return call_again(lambda: list(session.execute(query, tuple(values))))
