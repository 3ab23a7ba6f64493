"""One table of DynamoDB: its client, its creation, and calls whose faults say what to do."""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from typing import TYPE_CHECKING, Any

from lakeward.aws_errors import answer_in
from lakeward.errors import ConfigurationError, RetriableError
from lakeward.state.dynamodb.clock import ServerClock
from lakeward.state.dynamodb.faults import ConditionFailedError, MissingTableError, explain, is_conflict

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.state.dynamodb.address import DynamoAddress

_KEYS = {"pk": "HASH", "sk": "RANGE"}
_VERSION = 1
_TRIES = 8
_LONGEST_PAUSE_SECONDS = 2.0
_CREATION_SECONDS = 120

logger = logging.getLogger(__name__)


class DynamoConnection:
    """Calls on one table, which is created when it is missing, also again when someone deletes it."""

    def __init__(self, address: DynamoAddress) -> None:
        self.address = address
        self.clock = ServerClock()
        self._lock = threading.Lock()
        self._opened: int | None = None
        self._client = self._connect()
        try:
            self._ensure_open()
        except BaseException:
            # Who cannot open a store has nothing to close.
            self._client.close()
            raise

    def call(self, operation: str, **parameters: Any) -> dict[str, Any]:
        """Call the client's method of that name on the open table.

        Raises:
            ConditionFailedError: a condition of the write does not hold.
            RetriableError: throttled, unreachable, or the table is gone (and is created anew by the next call).
            ConfigurationError: refused.
        """
        self._ensure_open()
        try:
            return self._send(operation, parameters)
        except MissingTableError as error:
            self._opened = None
            msg = f"the table of the state store {self.address} is gone"
            raise RetriableError(msg, hint="try again: it is created anew") from error

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
            # A session of its own: the default one is not safe for threads.
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
                # After a fork the connections are the parent's, which goes on using them.
                self._client = self._connect()
            if self._opened != os.getpid():
                self._require_table()
                self._require_version()
                self._opened = os.getpid()

    def _send(self, operation: str, parameters: dict[str, Any]) -> dict[str, Any]:
        """Call, and call again as long as transactions of others are in the way."""
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

    def _explained(self, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except Exception as error:
            explained = explain(error, self.address)
            if explained is None:
                raise
            raise explained from error

    def _require_table(self) -> None:
        """Look at the table, or create it and wait until it can be used."""
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
                raise ConfigurationError(msg, hint=_creation(self.address)) from error
            # Another process creates it at the same moment.
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
            told = f"its version is {found['version']['N']}, this one knows up to {_VERSION}"
            msg = f"{self.address} was written by a newer Lakeward: {told}"
            raise ConfigurationError(msg, hint="upgrade lakeward, or name another store under state: in lakeward.yaml")

    def _mark_version(self, item: dict[str, Any]) -> None:
        condition = {"ConditionExpression": "attribute_not_exists(pk)"}
        try:
            self._send("put_item", {"TableName": self.address.table, "Item": item, **condition})
        except ConditionFailedError:
            self._require_version()


def pause(attempt: int) -> None:
    """Wait a random time that grows with the number of attempts."""
    time.sleep(random.uniform(0, min(_LONGEST_PAUSE_SECONDS, 0.05 * 2**attempt)))


def _creation(address: DynamoAddress) -> str:
    return (
        f"aws dynamodb create-table --table-name {address.table} --billing-mode PAY_PER_REQUEST "
        "--attribute-definitions AttributeName=pk,AttributeType=S AttributeName=sk,AttributeType=S "
        "--key-schema AttributeName=pk,KeyType=HASH AttributeName=sk,KeyType=RANGE"
    )
