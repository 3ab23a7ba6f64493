"""One DynamoDB table: its address, client and creation, a clock shared by hosts, and what errors mean."""

from __future__ import annotations

import logging
import os
import random
import re
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from lakeward.errors import ConfigurationError, LakewardError, RetriableError
from lakeward.external_errors import answer_in, is_without_answer
from lakeward.redaction import redact_address
from lakeward.text import split_address

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.external_errors import Answer


_RESOLUTION = timedelta(seconds=1)
_SENT_AT = "lakeward_sent_at"


class ServerClock:
    """The host's clock, corrected by the ``Date`` of DynamoDB's responses where it is provably wrong.

    A date has whole seconds and a response takes time: a host that is off by less than that keeps its own time, and
    one that is off by more is corrected to within a second. Hosts thus agree on when a lease ends to within a second.
    """

    def __init__(self) -> None:
        self._offset = timedelta(0)

    def now(self) -> datetime:
        """Return the current time, against which leases expire."""
        return datetime.now(UTC) + self._offset

    def watch(self, client: Any) -> None:
        """Observe every response that the client receives."""
        client.meta.events.register("before-call.dynamodb", self._before_call)
        client.meta.events.register("after-call.dynamodb", self._after_call)

    def observe(self, date: str | None, sent: datetime, received: datetime) -> None:
        """Update the clock estimate from a response: its date was true at some moment between sending and receiving."""
        if date is None:
            return
        server_time = parsedate_to_datetime(date)
        low, high = server_time - received, server_time + _RESOLUTION - sent
        self._offset = min(max(timedelta(0), low), high)

    def _before_call(self, context: dict[str, Any], **_rest: object) -> None:
        context[_SENT_AT] = datetime.now(UTC)

    def _after_call(self, http_response: Any, context: dict[str, Any], **_rest: object) -> None:
        self.observe(http_response.headers.get("date"), context[_SENT_AT], datetime.now(UTC))


_MISSING_TABLE = "ResourceNotFoundException"
_FAILED_CONDITION = "ConditionalCheckFailed"
_REFUSED = {
    "AccessDeniedException",
    "ExpiredTokenException",
    "IncompleteSignatureException",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "MissingAuthenticationTokenException",
    "NotAuthorized",
    "OptInRequired",
    "UnrecognizedClientException",
}


class ConditionFailedError(Exception):
    """The condition of a write no longer holds; the caller reads again."""


class MissingTableError(Exception):
    """The table is gone."""


def is_conflict(error: BaseException | None) -> bool:
    """Whether two transactions conflicted on an item, so that the same call may succeed a moment later."""
    code = answer_in(error).code
    if code == "TransactionCanceledException":
        return _FAILED_CONDITION not in _reasons(error) and "TransactionConflict" in _reasons(error)
    return code in ("TransactionConflictException", "TransactionInProgressException")


def explain(error: BaseException, address: DynamoAddress) -> Exception | None:
    """Return the error to raise instead; None for what only a bug can cause."""
    answer = answer_in(error)
    code = answer.code
    if code == f"{_FAILED_CONDITION}Exception" or _FAILED_CONDITION in _reasons(error):
        return ConditionFailedError()
    if code == _MISSING_TABLE:
        return MissingTableError()
    if code:
        return _explain_response(error, answer, address)
    return _explain_no_response(error, address)


def _reasons(error: BaseException | None) -> list[str]:
    """Return why each action of a cancelled transaction was refused."""
    response: dict[str, Any] = getattr(error, "response", None) or {}
    return [str(reason.get("Code")) for reason in response.get("CancellationReasons", [])]


def _explain_response(error: BaseException, answer: Answer, address: DynamoAddress) -> LakewardError | None:
    if answer.code in _REFUSED:
        msg = f"the state store {address} refuses: {error}"
        return ConfigurationError(msg, hint="check the AWS credentials and the allowed actions (docs/state.md)")
    if answer.is_passing:
        msg = f"the state store {address} cannot serve the call at the moment: {error}"
        return RetriableError(msg, hint="try again; if it is throttled often, raise the limits of the table")
    return None


def _explain_no_response(error: BaseException, address: DynamoAddress) -> LakewardError | None:
    from botocore import exceptions

    if is_without_answer(error):
        msg = f"the state store {address} does not answer: {error}"
        return RetriableError(msg, hint="check network, region and endpoint, then try again")
    if isinstance(error, exceptions.NoRegionError):
        msg = f"no region is configured for the state store {address}"
        return ConfigurationError(msg, hint=f"state: {address}?region=eu-west-1, or set AWS_REGION")
    if isinstance(error, exceptions.BotoCoreError):
        msg = f"the state store {address} cannot be reached: {error}"
        return ConfigurationError(msg, hint="check the AWS credentials: aws sts get-caller-identity")
    return None


_KEYS = {"pk": "HASH", "sk": "RANGE"}
_VERSION = 1
_TRIES = 8
_LONGEST_PAUSE_SECONDS = 2.0
_CREATION_SECONDS = 120

logger = logging.getLogger(__name__)


class DynamoConnection:
    """Calls on one table, which is created when it is missing or was deleted."""

    def __init__(self, address: DynamoAddress) -> None:
        self.address = address
        self.clock = ServerClock()
        self._lock = threading.Lock()
        self._opened: int | None = None
        self._client = self._connect()
        try:
            self._ensure_open()
        except BaseException:
            # A caller that cannot open the store has nothing to close.
            self._client.close()
            raise

    def call(self, operation: str, **parameters: Any) -> dict[str, Any]:
        """Call the client's method of that name on the open table.

        Raises:
            ConditionFailedError: a condition of the write does not hold.
            RetriableError: throttled, unreachable, or the table is gone (the next call creates it again).
            ConfigurationError: refused.
        """
        self._ensure_open()
        try:
            return self._send(operation, parameters)
        except MissingTableError as error:
            self._opened = None
            msg = f"the table of the state store {self.address} is gone"
            raise RetriableError(msg, hint="try again: it is created again") from error

    def close(self) -> None:
        """Close the client's connections."""
        with self._lock:
            self._client.close()
            self._opened = None

    def _connect(self) -> Any:
        try:
            import boto3
            from botocore.config import Config
        except ModuleNotFoundError as error:
            msg = "state: DynamoDB needs boto3, which is not installed"
            raise ConfigurationError(msg, hint="pip install 'lakeward[aws]'") from error
        config = Config(
            connect_timeout=5,
            read_timeout=10,
            max_pool_connections=32,
            retries={"mode": "standard", "total_max_attempts": 5},
        )

        def create() -> Any:
            # A separate session: the default one is not safe for threads.
            return boto3.session.Session().client(
                "dynamodb", region_name=self.address.region, endpoint_url=self.address.endpoint, config=config
            )

        client = self._explained(create)
        self.clock.watch(client)
        return client

    def _ensure_open(self) -> None:
        if self._opened == os.getpid():
            return
        with self._lock:
            if self._opened not in (None, os.getpid()):
                # After a fork the connections belong to the parent, which keeps using them.
                self._client = self._connect()
            if self._opened != os.getpid():
                self._require_table()
                self._require_version()
                self._opened = os.getpid()

    def _send(self, operation: str, parameters: dict[str, Any]) -> dict[str, Any]:
        """Call, and retry while transactions of other processes conflict with the call."""
        attempt = 0
        while True:
            try:
                answer: dict[str, Any] = self._explained(lambda: getattr(self._client, operation)(**parameters))
            except RetriableError as error:
                attempt += 1
                if attempt == _TRIES or not is_conflict(error.__cause__):
                    raise
            else:
                return answer
            pause(attempt)

    def _explained(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as error:
            explained = explain(error, self.address)
            if explained is None:
                raise
            raise explained from error

    def _require_table(self) -> None:
        """Check the table, or create it and wait until it can be used."""
        try:
            found = self._send("describe_table", {"TableName": self.address.table})["Table"]
        except MissingTableError:
            self._create()
            return
        keys = {key["AttributeName"]: key["KeyType"] for key in found["KeySchema"]}
        if keys != _KEYS:
            msg = f"{self.address} is not a Lakeward state store: its keys are {', '.join(keys)}, expected pk and sk"
            raise ConfigurationError(msg, hint="name a table of its own under state: in lakeward.yaml")
        if found["TableStatus"] != "ACTIVE":
            self._wait_until_active()

    def _create(self) -> None:
        parameters = {
            "TableName": self.address.table,
            "KeySchema": [{"AttributeName": name, "KeyType": kind} for name, kind in _KEYS.items()],
            "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in _KEYS],
            "BillingMode": "PAY_PER_REQUEST",
        }
        try:
            self._client.create_table(**parameters)
            logger.info("created the table of the state store %s", self.address)
        except Exception as error:
            if answer_in(error).code == "AccessDeniedException":
                msg = f"{self.address}: there is no such table, and it may not be created: {error}"
                raise ConfigurationError(msg, hint=_creation_command(self.address)) from error
            # Another process may be creating it at the same moment.
            if answer_in(error).code != "ResourceInUseException":
                raise (explain(error, self.address) or error) from error
        self._wait_until_active()

    def _wait_until_active(self) -> None:
        limit = time.monotonic() + _CREATION_SECONDS
        while time.monotonic() < limit:
            try:
                found = self._send("describe_table", {"TableName": self.address.table})["Table"]
            except MissingTableError:
                found = {}
            if found.get("TableStatus") == "ACTIVE":
                return
            time.sleep(0.5)
        msg = f"the table of the state store {self.address} is not active after {_CREATION_SECONDS} seconds"
        raise RetriableError(msg, hint=f"aws dynamodb describe-table --table-name {self.address.table}")

    def _require_version(self) -> None:
        """Mark a new table with the version of its layout; refuse one that a newer Lakeward wrote."""
        key = {"pk": {"S": "store"}, "sk": {"S": "version"}}
        item = {**key, "version": {"N": str(_VERSION)}}
        found = self._send("get_item", {"TableName": self.address.table, "Key": key, "ConsistentRead": True}).get(
            "Item"
        )
        if found is None:
            self._mark_version(item)
        elif int(found["version"]["N"]) > _VERSION:
            versions = f"its version is {found['version']['N']}, this one knows up to {_VERSION}"
            msg = f"{self.address} was written by a newer Lakeward: {versions}"
            raise ConfigurationError(msg, hint="upgrade lakeward, or name another store under state: in lakeward.yaml")

    def _mark_version(self, item: dict[str, Any]) -> None:
        condition = {"ConditionExpression": "attribute_not_exists(pk)"}
        try:
            self._send("put_item", {"TableName": self.address.table, "Item": item, **condition})
        except ConditionFailedError:
            self._require_version()


def pause(attempt: int) -> None:
    """Sleep for a random time that grows with the number of attempts."""
    time.sleep(random.uniform(0, min(_LONGEST_PAUSE_SECONDS, 0.05 * 2**attempt)))


def _creation_command(address: DynamoAddress) -> str:
    return (
        f"aws dynamodb create-table --table-name {address.table} --billing-mode PAY_PER_REQUEST "
        "--attribute-definitions AttributeName=pk,AttributeType=S AttributeName=sk,AttributeType=S "
        "--key-schema AttributeName=pk,KeyType=HASH AttributeName=sk,KeyType=RANGE"
    )


_OPTIONS = ("region", "endpoint")
_TABLE_NAME = re.compile(r"[A-Za-z0-9_.-]{3,255}")


@dataclass(frozen=True)
class DynamoAddress:
    """The parts of ``dynamodb://table?region=…&endpoint=…``; the default region is that of the AWS configuration."""

    table: str
    region: str | None = None
    endpoint: str | None = None

    @classmethod
    def parse(cls, uri: str) -> DynamoAddress:
        """Read the URI.

        Raises:
            ConfigurationError: the table is missing or its name not allowed, or an option is unknown.
        """
        table, _, query = uri.partition("://")[2].partition("?")
        options = dict(parse_qsl(query, keep_blank_values=True))
        address = cls(table, options.get("region") or None, options.get("endpoint"))
        problem = _problem(address, set(options))
        if problem is not None:
            msg = f"state: {redact_address(uri)}: {problem}"
            raise ConfigurationError(msg, hint="state: dynamodb://table?region=eu-west-1")
        return address

    def __str__(self) -> str:
        return f"dynamodb://{self.table}"


def _problem(address: DynamoAddress, options: set[str]) -> str | None:
    if not address.table:
        return "names no table"
    if not _TABLE_NAME.fullmatch(address.table):
        shown = redact_address(address.table)
        return f"{shown!r} is not a name for a table; expected 3 to 255 of the characters A-Z a-z 0-9 _ . -"
    if unknown := sorted(options - set(_OPTIONS)):
        return f"unknown options {', '.join(unknown)}; known are {', '.join(_OPTIONS)}"
    if address.endpoint is not None and split_address(address.endpoint, "state: endpoint").scheme not in (
        "http",
        "https",
    ):
        return f"endpoint {redact_address(address.endpoint)!r} is not an address; expected http://… or https://…"
    return None
