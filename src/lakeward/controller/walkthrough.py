"""Tables of a DMS walkthrough deployment: what an item of its DynamoDB table says in Lakeward's words.

Settings only. How far that deployment came (``LastFullLoadDate``, ``LastIncrementalFile``) means nothing here: the
landing files are read anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lakeward.errors import DataError
from lakeward.model import TableId
from lakeward.reading_back import split_address

if TYPE_CHECKING:
    from collections.abc import Mapping

Item = dict[str, dict[str, Any]]
_UNSET = ("", "null")
_ACTIVE = {"true": True, "false": False, "null": False}


@dataclass(frozen=True)
class WalkthroughTable:
    """A table as the deployment has it, in Lakeward's words."""

    table: TableId
    active: bool
    settings: dict[str, Any] = field(default_factory=dict)


def read_item(item: Mapping[str, Mapping[str, Any]], landing: str) -> WalkthroughTable:
    """Read one item; nothing in it is guessed.

    Raises:
        DataError: it lacks an attribute, or one does not have the form that the walkthrough gives it.
        ConfigurationError: its names cannot be a table's.
    """
    folder = _folder(item, landing)
    if len(folder) < 2:
        msg = f"path {_text(item, 'path')!r} does not end in schema/table"
        raise DataError(msg)
    table = TableId(folder[-2], folder[-1])
    table.require_usable()
    settings: dict[str, Any] = {"path": "/".join(folder)} if len(folder) > 2 else {}
    for attribute, setting in (("PrimaryKey", "primary_key"), ("PartitionKey", "partition_by")):
        if names := _names(item, attribute):
            settings[setting] = names
    flag = _text(item, "ActiveFlag")
    if flag not in _ACTIVE:
        msg = f"ActiveFlag is {flag!r}; expected the text 'true' or 'false'"
        raise DataError(msg)
    return WalkthroughTable(table, _ACTIVE[flag], settings)


def _folder(item: Mapping[str, Mapping[str, Any]], landing: str) -> list[str]:
    """Give the table's folder under landing.

    The walkthrough writes the bucket before the path. Where landing is on S3 the item must lie in it; elsewhere
    landing is taken for a copy of the whole bucket.
    """
    parts = [part for part in _text(item, "path").split("/") if part]
    home = [part for part in _landing_parts(landing) if part]
    if home and parts[: len(home)] == home:
        return parts[len(home) :]
    bucket = _text(item, "bucket") if "bucket" in item else None
    if home and (bucket is not None or len(parts) > 2):
        msg = f"path {'/'.join(parts)!r} does not lie in landing {landing}"
        raise DataError(msg)
    return parts[1:] if parts and parts[0] == bucket else parts


def _landing_parts(landing: str) -> list[str]:
    """Give bucket and folders of a landing on S3, nothing for any other."""
    address = split_address(landing, "landing")
    return [address.netloc, *address.path.split("/")] if address.scheme in ("s3", "s3a", "s3n") else []


def _names(item: Mapping[str, Mapping[str, Any]], attribute: str) -> list[str]:
    text = _text(item, attribute)
    if text in _UNSET:
        return []
    names = [name.strip() for name in text.split(",")]
    if not all(names) or len(set(names)) < len(names):
        msg = f"{attribute} is {text!r}; expected column names, separated by commas, each once"
        raise DataError(msg)
    return names


def _text(item: Mapping[str, Mapping[str, Any]], attribute: str) -> str:
    value = item.get(attribute)
    if value is None or not isinstance(value.get("S"), str):
        found = "is missing" if value is None else f"is {dict(value)}"
        msg = f"attribute {attribute} {found}; expected a text"
        raise DataError(msg)
    text: str = value["S"]
    return text.strip()
