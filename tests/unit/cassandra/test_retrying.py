"""What passes, what is a row's own fault, and asking again."""

from __future__ import annotations

import struct

import pytest
from cassandra import (
    AuthenticationFailed,
    InvalidRequest,
    OperationTimedOut,
    ReadTimeout,
    Unauthorized,
    Unavailable,
    WriteTimeout,
)
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionShutdown
from cassandra.protocol import OverloadedErrorMessage, ServerError, SyntaxException

from lakeward.cassandra.retry import (
    call_again,
    error_text,
    is_overload,
    is_passing,
    is_refusal,
    is_rejection,
    pause_before,
)
from lakeward.errors import RetriableError

OVERLOADED = OverloadedErrorMessage(0x1001, "too much", None)
PASSING = [
    OperationTimedOut(),
    ReadTimeout("late"),
    WriteTimeout("late", write_type=0),
    Unavailable("few"),
    ConnectionShutdown("gone"),
    OVERLOADED,
    ServerError(0, "inside", None),
    ConnectionRefusedError("no"),
    NoHostAvailable("none", {"10.0.0.1:9042": OVERLOADED}),
    NoHostAvailable("none", {}),
]
REJECTIONS = [InvalidRequest("bad"), SyntaxException(0x2000, "bad", None), TypeError("not text"), struct.error("range")]
REFUSALS = [Unauthorized("no"), AuthenticationFailed("no")]


class Budget:
    """Records reports."""

    def __init__(self):
        self.reasons = []

    def slow_down(self, reason):
        self.reasons.append(reason)


@pytest.mark.parametrize("error", PASSING, ids=lambda error: type(error).__name__)
def test_temporary_errors(error):
    assert is_passing(error)
    assert not is_rejection(error)
    assert not is_refusal(error)


@pytest.mark.parametrize("error", [*REJECTIONS, *REFUSALS, KeyError("bug")], ids=lambda error: type(error).__name__)
def test_errors_that_are_not_temporary(error):
    assert not is_passing(error)
    assert is_rejection(error) == (error in REJECTIONS)


def test_no_host_available_because_of_the_login_is_not_temporary():
    assert not is_passing(NoHostAvailable("none", {"a": OVERLOADED, "b": AuthenticationFailed("no")}))


def test_overload_is_distinguished_from_other_failures():
    assert is_overload(OVERLOADED)
    assert is_overload(NoHostAvailable("none", {"a": WriteTimeout("late", write_type=0)}))
    assert not is_overload(Unavailable("few"))


def test_work_is_done_again_after_growing_pauses_until_it_succeeds():
    failures, pauses, budget = [OVERLOADED, Unavailable("few"), OperationTimedOut()], [], Budget()

    def work():
        if failures:
            raise failures.pop(0)
        return "done"

    assert call_again(work, budget=budget, sleep=pauses.append) == "done"
    assert 0.05 <= pauses[0] <= 0.1 <= pauses[1] <= 0.2 <= pauses[2] <= 0.4
    assert len(budget.reasons) == 2
    assert "too much" in budget.reasons[0]


def test_requests_that_never_succeed_are_reported_with_their_tries():
    failure = NoHostAvailable("none", {"10.0.0.1:9042": ConnectionRefusedError("refused")})

    def work():
        raise failure

    with pytest.raises(RetriableError, match=r"range 7 failed 3 times .*10\.0\.0\.1:9042: ConnectionRefusedError"):
        call_again(work, attempts=3, what="range 7", sleep=lambda _: None)


@pytest.mark.parametrize("error", [*REJECTIONS, *REFUSALS], ids=lambda error: type(error).__name__)
def test_errors_that_are_not_temporary_are_not_retried(error):
    calls = []

    def work():
        calls.append(1)
        raise error

    with pytest.raises(type(error)):
        call_again(work, sleep=lambda _: None)
    assert len(calls) == 1


def test_pauses_have_an_end():
    assert 5 <= pause_before(50) <= 10


def test_an_error_is_described_in_one_line():
    assert (
        error_text(OSError("Tried connecting to [('h', 1)]. Last error: Connection\n refused"))
        == "OSError: Connection refused"
    )
    assert error_text(NoHostAvailable("none", {})) == "no node answers"
