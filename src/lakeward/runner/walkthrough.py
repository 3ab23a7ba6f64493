"""Import of the tables of a DMS walkthrough deployment from its DynamoDB table.

Only settings are imported. The progress of that deployment (``LastFullLoadDate``, ``LastIncrementalFile``) is ignored:
the landing files are read again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from lakeward.documents import Document
from lakeward.errors import ConfigurationError, DataError, LakewardError, RetriableError
from lakeward.external_errors import answer_in, is_without_answer
from lakeward.model import TableId
from lakeward.runner.tables import KnownTable, settings_for
from lakeward.runner.validation import SettingsCheck
from lakeward.text import split_address

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lakeward.config import Config
    from lakeward.state.base import StateStore
    from lakeward.storage.landing import Landing


Item = dict[str, dict[str, Any]]
_UNSET = ("", "null")
_ACTIVE = {"true": True, "false": False, "null": False}


@dataclass(frozen=True)
class WalkthroughTable:
    """A table of the deployment with its settings as Lakeward names them."""

    table: TableId
    active: bool
    settings: dict[str, Any] = field(default_factory=dict)


def read_item(item: Mapping[str, Mapping[str, Any]], landing: str) -> WalkthroughTable:
    """Return the table of an item; nothing is guessed.

    Raises:
        DataError: an attribute is missing, or does not have the form that the walkthrough writes.
        ConfigurationError: its schema or table name cannot be used.
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
    """Return the table's folder under landing.

    The walkthrough writes the bucket before the path. If landing is on S3 the item must be in it; otherwise landing is
    treated as a copy of the whole bucket.
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
    """Return the bucket and folders of a landing on S3, and nothing for any other."""
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


class ImportOutcome(StrEnum):
    """The outcome of an item: imported, left because the table is already set, or skipped as unreadable."""

    IMPORTED = "imported"
    LEFT = "left"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class ImportedTable(Document):
    """An item and its outcome. ``path`` is that of the item; ``reason`` is why it differs from the deployment."""

    path: str
    outcome: ImportOutcome
    table: str | None = None
    active: bool | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    reason: str | None = None


def take_over(
    items: Iterable[Item], config: Config, storage: Landing, state: StateStore, *, dry_run: bool = False
) -> Iterator[ImportedTable]:
    """Register the tables of items one by one; those already declared, active or set are left alone."""
    declared = config.declared()
    seen: dict[TableId, str] = {}
    for item in items:
        path = str(item.get("path", {}).get("S", ""))
        try:
            found = read_item(item, config.landing)
            _require_first(found.table, path, seen)
            left = _why_left(found.table, declared, state)
            inactive = None if left else _why_inactive(found, config, storage)
        except LakewardError as error:
            yield ImportedTable(path, ImportOutcome.SKIPPED, reason=error.message)
            continue
        if left:
            yield ImportedTable(path, ImportOutcome.LEFT, str(found.table), reason=left)
            continue
        active = found.active and inactive is None
        if not dry_run:
            state.set_table(found.table, active=active, settings=found.settings)
        yield ImportedTable(path, ImportOutcome.IMPORTED, str(found.table), active, found.settings, inactive)


def _why_inactive(found: WalkthroughTable, config: Config, storage: Landing) -> str | None:
    """Return why an active table is imported as inactive: its settings do not fit its files."""
    settings = settings_for(config, found.table, found.settings)
    if not found.active:
        return None
    known = KnownTable(found.table, settings, active=True, declared=False)
    errors = [
        finding for finding in SettingsCheck(known, config, storage, check_data=False).findings() if finding.is_error
    ]
    return "; ".join(f"{error.setting}: {error.message}" for error in errors) or None


def _require_first(table: TableId, path: str, seen: dict[TableId, str]) -> None:
    """Raise for a second item of the same schema and table: only a person can choose between them."""
    if table in seen:
        msg = f"it is the table {table}, as {seen[table]!r} is; declare one of them under another name with its path:"
        raise DataError(msg)
    seen[table] = path


def _why_left(table: TableId, declared: Mapping[TableId, object], state: StateStore) -> str | None:
    if table in declared:
        return "it is declared in the configuration file"
    registered = state.find_table(table)
    if registered is not None and (registered.active or registered.settings):
        return "it is registered already, and active or with settings of its own"
    return None


def scan_items(table: str, *, region: str | None = None, endpoint: str | None = None) -> Iterator[Item]:
    """Yield every item of a DynamoDB table with its typed values; a consistent read, page by page.

    Raises:
        ConfigurationError: boto3, region, credentials, the right to read or the table are missing.
        RetriableError: the service does not answer.
    """
    try:
        import boto3
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError as error:
        msg = f"reading DynamoDB needs boto3, which is not installed ({error.name})"
        raise ConfigurationError(msg, hint="pip install 'lakeward[aws]'") from error
    try:
        client: Any = boto3.client("dynamodb", region_name=region, endpoint_url=endpoint)
        try:
            for page in client.get_paginator("scan").paginate(TableName=table, ConsistentRead=True):
                yield from page["Items"]
        finally:
            client.close()
    except (BotoCoreError, ClientError, ValueError) as error:
        raise _translated(error, table) from error


def _translated(error: Exception, table: str) -> LakewardError:
    """Return the error for a table that cannot be read: a temporary one, or one of configuration."""
    answer = answer_in(error)
    if answer.code == "ResourceNotFoundException":
        msg = f"there is no DynamoDB table {table!r} in this region and account"
        return ConfigurationError(msg, hint="check the table's name and --region")
    msg = f"the DynamoDB table {table!r} cannot be read: {error}"
    if answer.is_passing or is_without_answer(error):
        return RetriableError(msg, hint="try again")
    hint = "set AWS_REGION (or --region) and credentials that may dynamodb:Scan the table"
    return ConfigurationError(msg, hint=hint)
