"""Bursts become one round, streams do not starve, and what waits for a moment comes at it.

All times are multiples of a power of two, so that sums and comparisons are exact.
"""

import threading

from tests.unit.runner.trigger_helpers import FakeReceipt

from lakeward.runner.watch.inbox import Inbox, RequestBuffer
from lakeward.runner.watch.requests import RunRequest
from lakeward.runner.watch.triggers import SystemClock


def landed(folder: str) -> RunRequest:
    return RunRequest("files landed", folders=frozenset([folder]))


def test_a_burst_starts_a_run_once_it_has_settled():
    buffer = RequestBuffer(settle=0.25)
    for moment in (10.0, 10.125, 10.25):
        buffer.add(landed(f"a/{moment}"), moment)
    assert buffer.next_due() == 10.5
    assert buffer.take(10.4375) == ()
    assert len(buffer.take(10.5)) == 3
    assert buffer.take(11.0) == () and buffer.next_due() is None


def test_a_steady_stream_starts_a_run_after_a_while():
    buffer = RequestBuffer(settle=0.25)
    moment = 10.0
    while not (taken := buffer.take(moment)):
        buffer.add(landed(f"a/{moment}"), moment)
        moment += 0.125
    assert moment == 12.0 and len(taken) == 16


def test_a_long_settling_has_a_longer_bound():
    assert RequestBuffer(settle=5).limit == 20


def test_the_same_request_is_kept_once_but_every_message_is():
    buffer = RequestBuffer(settle=0.3)
    for _ in range(1000):
        buffer.add(landed("a/b"), 10.0)
    assert len(buffer.fresh) == 1
    for _ in range(2):
        buffer.add(RunRequest("m", folders=frozenset(["a/b"]), receipt=FakeReceipt()), 10.0)
    assert len(buffer.fresh) == 3


def test_a_delayed_request_does_not_start_a_burst_that_has_not_settled():
    buffer = RequestBuffer(settle=0.25)
    buffer.delay(RunRequest("again"), 10.125, "t")
    buffer.add(landed("a/b"), 10.0)
    assert [request.reason for request in buffer.take(10.125)] == ["again"]
    assert [request.reason for request in buffer.take(10.25)] == ["files landed"]


def test_of_two_delayed_requests_with_a_key_the_earlier_counts():
    buffer = RequestBuffer(settle=0.3)
    for due in (20.0, 12.0, 30.0):
        buffer.delay(RunRequest(str(due)), due, "t")
    assert buffer.next_due() == 12.0
    assert [request.reason for request in buffer.take(40.0)] == ["12.0"]


def test_the_inbox_wakes_its_waiting_thread():
    inbox = Inbox(0.01, SystemClock())
    assert inbox.take(0.0) == ()
    threading.Timer(0.05, inbox.put, [landed("a/b")]).start()
    assert [request.reason for request in inbox.take(20.0)] == ["files landed"]


def test_waiting_on_the_inbox_can_be_interrupted_without_losing_requests():
    inbox = Inbox(60, SystemClock())
    inbox.put(landed("a/b"))
    threading.Timer(0.05, inbox.wake).start()
    assert inbox.take(20.0) == ()
    inbox.wake()
    assert inbox.take(20.0) == (), "a wake that comes before the waiting counts"
    assert len(inbox.take_all()) == 1


def test_all_requests_can_be_taken_before_they_settle():
    inbox = Inbox(60, SystemClock())
    inbox.put(landed("a/b"))
    assert len(inbox.take_all()) == 1 and inbox.take_all() == ()
