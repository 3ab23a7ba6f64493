"""An SQS queue as the watcher uses it: receive, hold, give back, delete, with errors that say what to do."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from lakeward.aws_errors import answer_in
from lakeward.errors import ConfigurationError, LakewardError, RetriableError

if TYPE_CHECKING:
    from collections.abc import Sequence

# SQS takes batches of ten.
_BATCH = 10
_AWS_HOST = re.compile(r"(?:^|\.)sqs\.(?P<region>[a-z0-9-]+)\.amazonaws\.|^(?P<old>[a-z0-9-]+)\.queue\.amazonaws\.")
# What a person must change; everything else may pass.
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
    """A message in work, with the newest handle that SQS gave for it."""

    id: str
    handle: str


class Queue:
    """One queue, reached at the address in its URL.

    ``hold_seconds`` is how long a message stays invisible unless that is prolonged: after a crash it comes again
    by then. ``wait_seconds`` is the length of one long poll.
    """

    def __init__(self, url: str, *, hold_seconds: int = 60, wait_seconds: int = 10) -> None:
        self.url = url
        self.hold_seconds = hold_seconds
        self._wait_seconds = wait_seconds
        self._client = _client(url, wait_seconds)

    @property
    def patience(self) -> float:
        """Seconds that ending waits for a long poll; what it still receives comes again by itself."""
        return min(self._wait_seconds + 1.0, 3.0)

    def has_dead_letters(self) -> bool:
        """Tell whether messages that keep failing end up elsewhere; needs a queue that answers."""
        answer = self._call("get_queue_attributes", AttributeNames=["RedrivePolicy"])
        return bool(answer.get("Attributes", {}).get("RedrivePolicy"))

    def receive(self, *, wait: int | None = None) -> list[dict[str, Any]]:
        """Wait for messages and take up to ten, which nobody else sees for a while."""
        answer = self._call(
            "receive_message",
            MaxNumberOfMessages=_BATCH,
            WaitTimeSeconds=self._wait_seconds if wait is None else wait,
            VisibilityTimeout=self.hold_seconds,
        )
        return list(answer.get("Messages", ()))

    def hold(self, messages: Sequence[Held]) -> None:
        """Keep messages invisible for another while."""
        self._call_in_batches("change_message_visibility_batch", messages, VisibilityTimeout=self.hold_seconds)

    def give_back(self, messages: Sequence[Held]) -> None:
        """Let others see messages at once."""
        self._call_in_batches("change_message_visibility_batch", messages, VisibilityTimeout=0)

    def delete(self, messages: Sequence[Held]) -> None:
        """Delete messages for good."""
        self._call_in_batches("delete_message_batch", messages)

    def close(self) -> None:
        """Let go of the connections."""
        self._client.close()

    def __str__(self) -> str:
        return self.url

    def _call_in_batches(self, operation: str, messages: Sequence[Held], **parameters: Any) -> None:
        for start in range(0, len(messages), _BATCH):
            entries = [
                {"Id": str(number), "ReceiptHandle": one.handle, **parameters}
                for number, one in enumerate(messages[start : start + _BATCH])
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
    """Return the error for a failed call: one that a person must mend, or one that passes by itself."""
    from botocore.exceptions import NoCredentialsError, NoRegionError, PartialCredentialsError, ProfileNotFound

    msg = f"queue {url}: {error}"
    code = answer_in(error).code
    if any(refusal in code for refusal in _REFUSALS):
        hint = "check the URL, the credentials and the rights (sqs:ReceiveMessage, DeleteMessage, …) in docs/deploy.md"
        return ConfigurationError(msg, hint=hint)
    if isinstance(error, NoCredentialsError | NoRegionError | PartialCredentialsError | ProfileNotFound | ValueError):
        return ConfigurationError(msg, hint="set AWS_PROFILE or the keys and AWS_DEFAULT_REGION in the environment")
    return RetriableError(msg, hint="try again when the service answers")
