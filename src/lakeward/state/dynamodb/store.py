"""The state store in one table of DynamoDB."""

from __future__ import annotations

from lakeward.state.dynamodb.address import DynamoAddress
from lakeward.state.dynamodb.connection import DynamoConnection
from lakeward.state.dynamodb.history import DynamoHistory
from lakeward.state.dynamodb.leases import DynamoLeases
from lakeward.state.dynamodb.ledger import DynamoLedger
from lakeward.state.dynamodb.registry import DynamoRegistry
from lakeward.state.dynamodb.rows import Rows


class DynamoStateStore(DynamoLeases, DynamoLedger, DynamoRegistry, DynamoHistory):
    """A :class:`~lakeward.state.base.StateStore` for any number of hosts; safe for threads."""

    def __init__(self, uri: str) -> None:
        self._connection = DynamoConnection(DynamoAddress.parse(uri))
        self._rows = Rows(self._connection)

    def close(self) -> None:
        """Let go of connections."""
        self._connection.close()
