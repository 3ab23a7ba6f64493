"""Hearing of new objects from an SQS queue that gets the landing bucket's event notifications."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from lakeward.controller.triggers.asks import Ask
from lakeward.controller.triggers.filters import PathFilter, parent
from lakeward.controller.triggers.notices import path_under, read_notice
from lakeward.errors import LakewardError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lakeward.controller.triggers.sqs import Queue

logger = logging.getLogger(__name__)

# Messages held at once; SQS lets a queue have 120,000 in flight.
_MOST_HELD = 1000
_OUTAGE_FIRST, _OUTAGE_MOST = 1.0, 60.0


class Message:
    """A message being worked on: invisible to others until it is ended or given back."""

    def __init__(self, poller: QueuePoller, message_id: str, handle: str) -> None:
        self.id = message_id
        self.handle = handle
        self._poller = poller

    def done(self) -> None:
        """Delete the message: what it tells of is committed."""
        self._poller.end(self)

    def failed(self) -> None:
        """Hold it no longer: it comes again, or goes to the dead-letter queue, as the queue is set up."""
        self._poller.let_go(self)


class QueuePoller:
    """Turns messages into asks, and keeps each message invisible for as long as its tables are worked on.

    A message is deleted when its receipt says so, never before. One that tells of nothing here (a test event,
    another bucket, a removal, no S3 event at all) is said in the log and deleted at once.
    """

    def __init__(
        self, queue: Queue, landing: str, put: Callable[[Ask], None], accepts: PathFilter | None = None
    ) -> None:
        self._queue = queue
        self._landing = landing
        self._put = put
        self._accepts = accepts or PathFilter()
        self._held: dict[str, Message] = {}
        self._ended: list[Message] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._receiving = threading.Thread(target=self._receive, name="lakeward-queue", daemon=True)
        self._holding = threading.Thread(target=self._hold, name="lakeward-queue-hold", daemon=True)

    def start(self) -> None:
        """Begin to receive; the queue must answer.

        Raises:
            ConfigurationError: there is no such queue, or no right to read it.
            RetriableError: the service cannot be reached.
        """
        if not self._queue.has_dead_letters():
            logger.info("%s has no dead-letter queue: messages of a failing table come again and again", self._queue)
        self._receiving.start()
        self._holding.start()

    def drain(self) -> None:
        """Take the messages that wait now, without waiting for more; instead of ``start``."""
        self._holding.start()
        while messages := self._queue.receive(wait=1):
            self._accept_all(messages)

    def stop(self) -> None:
        """End receiving and give back what is still held, at once."""
        self._stop.set()
        self._wake.set()
        for thread in (self._receiving, self._holding):
            if thread.is_alive():
                thread.join(self._queue.patience)
        self._delete_ended()
        held = self._take_held()
        try:
            self._queue.give_back(held)
        except LakewardError as error:
            logger.info("%s messages reappear by themselves: %s", len(held), error.message)
        self._queue.close()

    def end(self, message: Message) -> None:
        """Have a message deleted, together with others that end at the same time."""
        self.let_go(message)
        with self._lock:
            self._ended.append(message)
        self._wake.set()

    def let_go(self, message: Message) -> None:
        """Hold a message no longer."""
        with self._lock:
            self._held.pop(message.id, None)

    def _receive(self) -> None:
        outage = 0.0
        while not self._stop.is_set():
            if len(self._held) >= _MOST_HELD:
                self._stop.wait(0.2)
                continue
            try:
                messages = self._queue.receive()
            except LakewardError as error:
                outage = min(max(outage * 2, _OUTAGE_FIRST), _OUTAGE_MOST)
                if not self._stop.is_set():
                    logger.warning("%s; trying again in %.0f s", error.message, outage)
                    self._stop.wait(outage)
                continue
            outage = 0.0
            if not self._stop.is_set():
                self._accept_all(messages)

    def _hold(self) -> None:
        """Delete what has ended, and keep what is held invisible.

        A message that cannot be deleted, or whose time cannot be prolonged, comes again, which is harmless.
        """
        due = time.monotonic() + self._queue.hold_seconds / 3
        while not self._stop.is_set():
            self._wake.wait(max(0.0, due - time.monotonic()))
            self._wake.clear()
            self._delete_ended()
            if time.monotonic() >= due:
                due = time.monotonic() + self._queue.hold_seconds / 3
                self._prolong()

    def _prolong(self) -> None:
        with self._lock:
            held = list(self._held.values())
        try:
            self._queue.hold(held)
        except LakewardError as error:
            logger.warning("messages in work may come again before they are done: %s", error.message)

    def _delete_ended(self) -> None:
        with self._lock:
            ended, self._ended = self._ended, []
        try:
            self._queue.delete(ended)
        except LakewardError as error:
            logger.warning("%s messages could not be deleted and will come again: %s", len(ended), error.message)

    def _accept_all(self, messages: Iterable[dict[str, Any]]) -> None:
        for raw in messages:
            if (useless := self._accept(raw)) is not None:
                self.end(useless)

    def _accept(self, raw: dict[str, Any]) -> Message | None:
        """Ask for what a message tells of; give it back where it tells of nothing here."""
        message = Message(self, raw["MessageId"], raw["ReceiptHandle"])
        folders = self._folders(raw["Body"], message.id)
        if not folders:
            return message
        with self._lock:
            known = self._held.get(message.id)
            if known is not None:
                # It became visible while in work: only the newest handle deletes it.
                known.handle = message.handle
                return None
            self._held[message.id] = message
        self._put(Ask("objects landed", folders=frozenset(folders), receipt=message))
        return None

    def _folders(self, body: str, message_id: str) -> set[str]:
        notice = read_notice(body)
        for problem in notice.problems:
            logger.warning("message %s is left out: %s", message_id, problem)
        paths = {one: path_under(self._landing, one) for one in notice.created}
        foreign = [f"s3://{one.bucket}/{one.key}" for one, path in paths.items() if path is None]
        if foreign:
            logger.info("message %s: %s objects are not under landing, first %s", message_id, len(foreign), foreign[0])
        wanted = {parent(path) for path in paths.values() if path is not None and self._accepts.accepts_file(path)}
        if not (wanted or foreign or notice.problems):
            logger.info("message %s tells of no file to read", message_id)
        return wanted

    def _take_held(self) -> list[Message]:
        with self._lock:
            held, self._held = list(self._held.values()), {}
            return held
