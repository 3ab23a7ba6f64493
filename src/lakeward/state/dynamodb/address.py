"""``dynamodb://table?region=eu-west-1&endpoint=http://…``, taken apart."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl

from lakeward.errors import ConfigurationError
from lakeward.reading_back import split_address
from lakeward.redaction import redact_address

_OPTIONS = ("region", "endpoint")
_TABLE_NAME = re.compile(r"[A-Za-z0-9_.-]{3,255}")


@dataclass(frozen=True)
class DynamoAddress:
    """A table; without a region the one of the AWS configuration counts."""

    table: str
    region: str | None = None
    endpoint: str | None = None

    @classmethod
    def parse(cls, uri: str) -> DynamoAddress:
        """Read the URI.

        Raises:
            ConfigurationError: no table, a name that DynamoDB does not allow, or an unknown option.
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
        return f"endpoint {redact_address(address.endpoint)!r} is no address; expected http://… or https://…"
    return None
