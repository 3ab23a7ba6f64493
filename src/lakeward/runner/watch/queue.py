"""An SQS queue with the event notifications of the landing bucket, as a trigger of runs."""

from __future__ import annotations

import logging
import re
import threading
import time
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from lakeward.errors import ConfigurationError, LakewardError, RetriableError
from lakeward.external_errors import answer_in
from lakeward.logs import event
from lakeward.runner.watch.notices import path_under, read_s3_notice
from lakeward.runner.watch.requests import PathFilter, RunRequest, parent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lakeward.runner.watch.notices import S3Notice


logger = logging.getLogger(__name__)

# Messages held at a time; SQS allows 120,000 in flight per queue.
_MOST_HELD = 1000
_OUTAGE_FIRST, _OUTAGE_MOST = 1.0, 60.0
# Number of problems of a message that the log shows.
_PROBLEMS_SHOWN = 3


class Message:
    """A message being processed: invisible to others until it is deleted or released."""

    def __init__(self, poller: QueuePoller, message_id: str, handle: str) -> None:
        self.id = message_id
        self.handle = handle
        self._poller = poller

    def done(self) -> None:
        """Delete the message, as its files are committed."""
        self._poller.end(self)

    def failed(self) -> None:
        """Release the message: it is redelivered, or goes to the dead-letter queue, as the queue is configured."""
        self._poller.let_go(self)


class QueuePoller:
    """A trigger that turns messages into requests, and keeps messages invisible while their tables are processed.

    A message is deleted when its tables are up to date, never before. One without a new file (a test event, another
    bucket, a removal) is logged and deleted immediately. One that cannot be read is poison: it is logged, counted by
    ``on_poison`` and left to the queue's dead-letter queue, or deleted if there is none.
    """

    def __init__(
        self,
        queue: Queue,
        landing: str,
        put: Callable[[RunRequest], None],
        accepts: PathFilter | None = None,
        *,
        on_poison: Callable[[], None] | None = None,
    ) -> None:
        self._queue = queue
        self._landing = landing
        self._put = put
        self._accepts = accepts or PathFilter()
        self._on_poison = on_poison
        self._held: dict[str, Message] = {}
        self._ended: list[Message] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._receiving = threading.Thread(target=self._receive, name="lakeward-queue", daemon=True)
        self._holding = threading.Thread(target=self._hold, name="lakeward-queue-hold", daemon=True)

    def start(self) -> None:
        """Start to receive messages.

        Raises:
            ConfigurationError: there is no such queue, or no right to read it.
            RetriableError: the service cannot be reached.
        """
        if not self._has_dead_letters:
            logger.info(
                "%s has no dead-letter queue: messages of a failing table are redelivered again and again", self._queue
            )
        self._receiving.start()
        self._holding.start()

    def drain(self) -> None:
        """Accept the messages that wait now, without waiting for more; called instead of ``start``."""
        self._holding.start()
        while messages := self._queue.receive(wait=1):
            self._accept_all(messages)

    def stop(self) -> None:
        """Stop receiving, and release the messages that are still held."""
        self._stop.set()
        self._wake.set()
        for thread in (self._receiving, self._holding):
            if thread.is_alive():
                thread.join(self._queue.patience)
        self._delete_ended()
        held = self._take_held()
        try:
            self._queue.give_back(held)
        except Exception as error:  # the queue releases them itself after a while
            logger.info("%s messages reappear by themselves: %s", len(held), _reason(error))
        self._queue.close()

    def end(self, message: Message) -> None:
        """Schedule the deletion of a message, together with others."""
        self.let_go(message)
        with self._lock:
            self._ended.append(message)
        self._wake.set()

    def let_go(self, message: Message) -> None:
        """Stop holding a message."""
        with self._lock:
            self._held.pop(message.id, None)

    @cached_property
    def _has_dead_letters(self) -> bool:
        return self._queue.has_dead_letters()

    def _receive(self) -> None:
        outage = 0.0
        while not self._stop.is_set():
            if len(self._held) >= _MOST_HELD:
                self._stop.wait(0.2)
                continue
            try:
                messages = self._queue.receive()
            except Exception as error:  # whatever it is, later messages must be received
                outage = min(max(outage * 2, _OUTAGE_FIRST), _OUTAGE_MOST)
                if not self._stop.is_set():
                    logger.warning("%s; trying again in %.0f s", _reason(error), outage)
                    self._stop.wait(outage)
                continue
            outage = 0.0
            if not self._stop.is_set():
                self._accept_all(messages)

    def _hold(self) -> None:
        """Delete finished messages, and keep held ones invisible.

        A message that cannot be deleted, or whose timeout cannot be extended, is redelivered, which is harmless.
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
        except Exception as error:  # the thread must go on holding the others
            logger.warning("messages in progress may be delivered again before they are done: %s", _reason(error))

    def _delete_ended(self) -> None:
        with self._lock:
            ended, self._ended = self._ended, []
        try:
            self._queue.delete(ended)
        except Exception as error:  # the thread must go on holding the others
            logger.warning("%s messages could not be deleted and will reappear: %s", len(ended), _reason(error))

    def _accept_all(self, messages: Iterable[dict[str, Any]]) -> None:
        """Accept messages one by one; an error in one does not affect the next."""
        for raw in messages:
            try:
                if (useless := self._accept(raw)) is not None:
                    self.end(useless)
            except Exception as error:
                problem = f"processing it failed: {_reason(error)}"
                logger.debug("message failed", exc_info=error)
                self._set_aside(Message(self, str(raw.get("MessageId")), str(raw.get("ReceiptHandle"))), problem)

    def _set_aside(self, message: Message, problem: str) -> None:
        """Log and count a message that cannot be read; it is left to the dead-letter queue, or deleted without one."""
        logger.warning(
            "message %s is set aside: %s", message.id, problem, extra=event("watch.poison", message=message.id)
        )
        self.let_go(message)
        if self._on_poison is not None:
            self._on_poison()
        if not self._dead_letters_known():
            self.end(message)

    def _dead_letters_known(self) -> bool:
        """Whether there is a dead-letter queue; True while the queue does not answer, so that nothing is deleted."""
        try:
            return self._has_dead_letters
        except LakewardError:
            return True

    def _accept(self, raw: dict[str, Any]) -> Message | None:
        """Request runs for the files of a message; return the message if it concerns no file here."""
        message = Message(self, raw["MessageId"], raw["ReceiptHandle"])
        notice = read_s3_notice(raw["Body"])
        folders = self._folders(notice, message.id)
        if not folders and notice.problems:
            self._set_aside(message, "; ".join(notice.problems[:_PROBLEMS_SHOWN]))
            return None
        if not folders:
            return message
        with self._lock:
            known = self._held.get(message.id)
            if known is not None:
                # It became visible while it was processed: only the newest handle deletes it.
                known.handle = message.handle
                return None
            self._held[message.id] = message
        self._put(RunRequest("objects landed", folders=frozenset(folders), receipt=message))
        return None

    def _folders(self, notice: S3Notice, message_id: str) -> set[str]:
        paths = {created: path_under(self._landing, created) for created in notice.created}
        foreign = [f"s3://{created.bucket}/{created.key}" for created, path in paths.items() if path is None]
        if foreign:
            logger.info("message %s: %s objects are not under landing, first %s", message_id, len(foreign), foreign[0])
        wanted = {parent(path) for path in paths.values() if path is not None and self._accepts.accepts_file(path)}
        for problem in notice.problems if wanted else ():
            logger.warning("message %s: a record of it is left out: %s", message_id, problem)
        if not (wanted or foreign or notice.problems):
            logger.info("message %s names no file to read", message_id)
        return wanted

    def _take_held(self) -> list[Message]:
        with self._lock:
            held, self._held = list(self._held.values()), {}
            return held


def _reason(error: Exception) -> str:
    return error.message if isinstance(error, LakewardError) else f"{type(error).__name__}: {error}"


# The largest batch of SQS.
_BATCH = 10
_AWS_HOST = re.compile(r"(?:^|\.)sqs\.(?P<region>[a-z0-9-]+)\.amazonaws\.|^(?P<old>[a-z0-9-]+)\.queue\.amazonaws\.")
# Errors that a person must correct; all others are temporary.
_REFUSALS = (
    "AccessDenied",
    "InvalidAddress",
    "InvalidClientTokenId",
    "InvalidSecurity",
    "NonExistentQueue",
    "QueueDoesNotExist",
    "SignatureDoesNotMatch",
    "UnrecognizedClient",
)


class Held(Protocol):
    """A message being processed, with the newest handle from SQS."""

    id: str
    handle: str


class Queue:
    """A queue, reached at the address in its URL.

    ``hold_seconds`` is how long a message stays invisible unless that is extended: after a crash it is redelivered
    then. ``wait_seconds`` is the length of one long poll.
    """

    def __init__(self, url: str, *, hold_seconds: int = 60, wait_seconds: int = 10) -> None:
        self.url = url
        self.hold_seconds = hold_seconds
        self._wait_seconds = wait_seconds
        self._client = _client(url, wait_seconds)

    @property
    def patience(self) -> float:
        """Seconds to wait for a long poll at the end; messages that it still receives are redelivered."""
        return min(self._wait_seconds + 1.0, 3.0)

    def has_dead_letters(self) -> bool:
        """Whether the queue has a dead-letter queue; raises if it does not answer."""
        answer = self._call("get_queue_attributes", AttributeNames=["RedrivePolicy"])
        return bool(answer.get("Attributes", {}).get("RedrivePolicy"))

    def receive(self, *, wait: int | None = None) -> list[dict[str, Any]]:
        """Wait for messages and return up to ten, which are invisible to others for a while."""
        answer = self._call(
            "receive_message",
            MaxNumberOfMessages=_BATCH,
            WaitTimeSeconds=self._wait_seconds if wait is None else wait,
            VisibilityTimeout=self.hold_seconds,
        )
        return list(answer.get("Messages", ()))

    def hold(self, messages: Sequence[Held]) -> None:
        """Extend the time for which messages are invisible."""
        self._call_in_batches("change_message_visibility_batch", messages, VisibilityTimeout=self.hold_seconds)

    def give_back(self, messages: Sequence[Held]) -> None:
        """Make messages visible to others immediately."""
        self._call_in_batches("change_message_visibility_batch", messages, VisibilityTimeout=0)

    def delete(self, messages: Sequence[Held]) -> None:
        """Delete messages."""
        self._call_in_batches("delete_message_batch", messages)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def __str__(self) -> str:
        return self.url

    def _call_in_batches(self, operation: str, messages: Sequence[Held], **parameters: Any) -> None:
        for start in range(0, len(messages), _BATCH):
            entries = [
                {"Id": str(number), "ReceiptHandle": message.handle, **parameters}
                for number, message in enumerate(messages[start : start + _BATCH])
            ]
            if refused := self._call(operation, Entries=entries).get("Failed"):
                first = f"{refused[0].get('Code')} {refused[0].get('Message')}"
                msg = f"queue {self.url}: {len(refused)} messages refused by {operation}: {first}"
                raise RetriableError(msg)

    def _call(self, operation: str, **parameters: Any) -> dict[str, Any]:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            answer: dict[str, Any] = getattr(self._client, operation)(QueueUrl=self.url, **parameters)
        except (BotoCoreError, ClientError) as error:
            raise _explained(self.url, error) from error
        return answer


def _client(url: str, wait_seconds: int) -> Any:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc or not parts.path.strip("/"):
        msg = f"{url!r} is not the URL of a queue; expected https://sqs.REGION.amazonaws.com/ACCOUNT/NAME"
        raise ConfigurationError(msg, hint="aws sqs get-queue-url --queue-name NAME")
    try:
        import boto3
        from botocore.config import Config as ClientConfig
        from botocore.exceptions import BotoCoreError
    except ImportError as error:
        msg = "boto3 is not installed, which watching a queue needs"
        raise ConfigurationError(msg, hint="pip install 'lakeward[aws]'") from error
    match = _AWS_HOST.search(parts.netloc)
    region = (match["region"] or match["old"]) if match else None
    address = f"{parts.scheme}://{parts.netloc}"
    settings = ClientConfig(connect_timeout=5, read_timeout=wait_seconds + 15, retries={"max_attempts": 3})
    try:
        return boto3.Session().client("sqs", endpoint_url=address, region_name=region, config=settings)
    except (BotoCoreError, ValueError) as error:
        raise _explained(url, error) from error


def _explained(url: str, error: Exception) -> LakewardError:
    """Return the error for a failed call: one of configuration, or a temporary one."""
    from botocore.exceptions import NoCredentialsError, NoRegionError, PartialCredentialsError, ProfileNotFound

    msg = f"queue {url}: {error}"
    code = answer_in(error).code
    if any(refusal in code for refusal in _REFUSALS):
        hint = "check the URL, the credentials and the rights (sqs:ReceiveMessage, DeleteMessage, …) in docs/deploy.md"
        return ConfigurationError(msg, hint=hint)
    if isinstance(error, NoCredentialsError | NoRegionError | PartialCredentialsError | ProfileNotFound | ValueError):
        return ConfigurationError(msg, hint="set AWS_PROFILE or the keys and AWS_DEFAULT_REGION in the environment")
    return RetriableError(msg, hint="try again when the service answers")
