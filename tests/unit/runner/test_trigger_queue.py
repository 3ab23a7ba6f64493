"""The queue poller without a queue's server: whatever one message does, the next one is handled."""

import json
import queue
import time

import pytest

from lakeward.errors import RetriableError
from lakeward.runner.watch.queue import QueuePoller

# Only reached when the code under test hangs.
PATIENCE = 300
NESTED = "[" * 100_000


class FakeQueue:
    """Hands out the messages it was given, and notes which were deleted."""

    hold_seconds, patience = 60, 5.0

    def __init__(self, *rounds, dead_letters=False):
        self.rounds = list(rounds)
        self.dead_letters = dead_letters
        self.deleted = []
        self.given_back = []

    def has_dead_letters(self):
        return self.dead_letters

    def receive(self, *, wait=None):
        if not self.rounds:
            time.sleep(0.01)
            return []
        found = self.rounds.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    def delete(self, messages):
        self.deleted += [found.id for found in messages]

    def give_back(self, messages):
        self.given_back += [found.id for found in messages]

    def hold(self, messages):
        pass

    def close(self):
        pass


def message(number, body):
    return {"MessageId": f"m{number}", "ReceiptHandle": f"h{number}", "Body": body}


def event(key):
    names = {"bucket": {"name": "lake"}, "object": {"key": key}}
    return json.dumps({"Records": [{"eventName": "ObjectCreated:Put", "s3": names}]})


def received(source, put=None, **options):
    """Start a poller on a queue and return the request of the first readable message."""
    requests = queue.Queue()
    poller = QueuePoller(source, "s3://lake/landing", put(requests) if put else requests.put, **options)
    poller.start()
    try:
        return requests.get(timeout=PATIENCE)
    finally:
        poller.stop()


@pytest.mark.parametrize("poison", [NESTED, "no json", '{"Records":' * 50_000, json.dumps({"Records": [NESTED]})])
def test_unreadable_messages_do_not_end_receiving(poison, caplog):
    source, counted = FakeQueue([message(1, poison), message(2, event("landing/sales/product/1.csv"))]), []
    request = received(source, on_poison=lambda: counted.append(1))
    assert request.folders == {"sales/product"}
    assert counted == [1]
    assert "message m1 is set aside: not an S3 event notification" in caplog.text
    assert source.deleted == ["m1"], "without dead letters it would come again for ever"


def test_unreadable_messages_are_left_to_the_dead_letter_queue_if_there_is_one():
    source = FakeQueue([message(1, NESTED), message(2, event("landing/sales/product/1.csv"))], dead_letters=True)
    received(source)
    assert source.deleted == [] and source.given_back == ["m2"]


def test_after_any_failure_with_a_message_the_next_is_handled(caplog):
    def failing_once(requests):
        calls = []

        def put(request):
            calls.append(request)
            if len(calls) == 1:
                raise ZeroDivisionError
            requests.put(request)

        return put

    messages = [message(1, event("landing/sales/a/1.csv")), {}, message(2, event("landing/sales/b/1.csv"))]
    source = FakeQueue(messages, dead_letters=True)
    assert received(source, failing_once).folders == {"sales/b"}
    assert "processing it failed: ZeroDivisionError" in caplog.text and "KeyError" in caplog.text


def test_an_unexpected_answer_does_not_end_receiving(monkeypatch):
    monkeypatch.setattr("lakeward.runner.watch.queue._OUTAGE_FIRST", 0.0)
    faults = [ValueError("odd answer"), RetriableError("gone")]
    source = FakeQueue(*faults, [message(1, event("landing/sales/product/1.csv"))])
    assert received(source).folders == {"sales/product"}
