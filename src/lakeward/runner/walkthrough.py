"""Import of the tables of a DMS walkthrough deployment from its DynamoDB table.

Where landing still holds a table's load files, only settings are imported, and the landing files are read again. Where
they are gone, the lake that the deployment wrote takes their place, if it is named; the deployment's progress
(``LastIncrementalFile``) then says which change files it contains.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from lakeward.config.tables import AdoptSettings
from lakeward.documents import Document
from lakeward.errors import ConfigurationError, DataError, LakewardError, RetriableError
from lakeward.external_errors import answer_in, is_without_answer
from lakeward.formats.dms.listing import table_folder
from lakeward.model import TableId
from lakeward.runner.tables import KnownTable, landed_tables, settings_for
from lakeward.runner.takeover import TakeoverPlan, find_lake, fingerprint_of, landed_files, plan_takeover
from lakeward.runner.validation import SettingsCheck
from lakeward.text import split_address

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lakeward.config import Config, TableSettings
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
    folder = folder_of(_text(item, "path"), _text(item, "bucket") if "bucket" in item else None, landing)
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


def folder_of(path: str, bucket: str | None, landing: str) -> list[str]:
    """Return a table's folder under landing, by a path that begins with its bucket.

    If landing is on S3 the path must be in it; otherwise landing is treated as a copy of the whole bucket.

    Raises:
        DataError: the path is elsewhere.
    """
    parts = [part for part in path.split("/") if part]
    home = [part for part in _landing_parts(landing) if part]
    if home and parts[: len(home)] == home:
        return parts[len(home) :]
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


_NO_FILE = "0.parquet"
_NEVER = "1900-01-01 00:00:00"


@dataclass(frozen=True)
class FormerProgress:
    """How far the deployment got with a table: whether it loaded it, and the newest change file below its folder."""

    loaded: bool
    last_file: str


def read_progress(item: Mapping[str, Mapping[str, Any]]) -> FormerProgress:
    """Return the progress of an item.

    Raises:
        DataError: an attribute is missing, or the newest file is not one of the table's folder.
    """
    folder, newest = _text(item, "path").rstrip("/"), _text(item, "LastIncrementalFile")
    # The controller begins with the path of the folder and 0.parquet.
    below = _NO_FILE if newest == f"{folder}{_NO_FILE}" else newest.removeprefix(f"{folder}/")
    if below == newest or not below:
        msg = f"LastIncrementalFile is {newest!r}; expected a file in the folder {folder}/"
        raise DataError(msg)
    return FormerProgress(_text(item, "LastFullLoadDate") != _NEVER, below)


class ImportOutcome(StrEnum):
    """The outcome of an item: imported, left because the table is already set, or skipped as unreadable.

    ``NO_ITEM``: a folder in landing is a table, and the deployment has no item for it.
    """

    IMPORTED = "imported"
    LEFT = "left"
    SKIPPED = "skipped"
    NO_ITEM = "no item"


@dataclass(frozen=True)
class ImportedTable(Document):
    """An item and its outcome. ``path`` is that of the item; ``reason`` is why it differs from the deployment.

    ``plan`` is what the table's first run would read, None for a table that is not imported.
    """

    path: str
    outcome: ImportOutcome
    table: str | None = None
    active: bool | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    reason: str | None = None
    plan: TakeoverPlan | None = None


def take_over(
    items: Iterable[Item],
    config: Config,
    storage: Landing,
    state: StateStore,
    *,
    lake: str | None = None,
    dry_run: bool = False,
) -> Iterator[ImportedTable]:
    """Register the tables of items one by one; those already declared, active or set are left alone.

    ``lake`` is the folder of the deployment's lake. Tables in landing that have no item are named at the end.
    """
    taking = _Taking(config, storage, state, config.resolve(lake) if lake is not None else None, dry_run=dry_run)
    for item in items:
        yield taking.take(item)
    for found in landed_tables(config, storage, taking.seen.keys()):
        if isinstance(found, TableId) and found not in taking.seen and found not in taking.declared:
            yield ImportedTable("", ImportOutcome.NO_ITEM, str(found), reason="the deployment has no item for it")


class _Taking:
    """The import of a deployment's items."""

    def __init__(self, config: Config, storage: Landing, state: StateStore, lake: str | None, *, dry_run: bool) -> None:
        self.config, self.storage, self.state, self.lake, self.dry_run = config, storage, state, lake, dry_run
        self.declared = config.declared()
        self.seen: dict[TableId, str] = {}
        self._lakes: dict[str, TableId] = {}

    def take(self, item: Item) -> ImportedTable:
        """Import an item and return the outcome."""
        path = str(item.get("path", {}).get("S", ""))
        try:
            found = read_item(item, self.config.landing)
            _require_first(found.table, path, self.seen)
            if left := _why_left(found.table, self.declared, self.state):
                return ImportedTable(path, ImportOutcome.LEFT, str(found.table), reason=left)
            return self._taken(path, item, found)
        except LakewardError as error:
            return ImportedTable(path, ImportOutcome.SKIPPED, reason=error.message)

    def _taken(self, path: str, item: Item, found: WalkthroughTable) -> ImportedTable:
        settings = settings_for(self.config, found.table, found.settings)
        landed = landed_files(self.storage, found.table, settings)
        folder = table_folder(found.table, settings)
        reasons = [] if landed.are_there else [f"landing holds no file of it in {folder}"]
        if landed.loads and self._decided(found.table):
            # The table was loaded again since it was imported with a lake.
            found = replace(found, settings={**found.settings, "adopt": None})
        if not landed.loads:
            adopt, problem = self._adopted(item, found, settings)
            found = replace(found, settings={**found.settings, **({"adopt": adopt} if adopt else {})})
            reasons += [problem] if problem else []
            settings = settings_for(self.config, found.table, found.settings)
        plan = None
        try:
            plan = plan_takeover(self.config, self.storage, found.table, settings, landed)
            reasons += [plan.problem] if plan.problem else []
        except LakewardError as error:
            reasons.append(error.message)
        if found.active and not reasons and (misfit := _why_inactive(found, self.config, self.storage)):
            reasons.append(misfit)
        active = found.active and not reasons
        if not self.dry_run:
            self.state.set_table(found.table, active=active, settings=found.settings)
        reason = "; ".join(reasons) or None
        return ImportedTable(path, ImportOutcome.IMPORTED, str(found.table), active, found.settings, reason, plan)

    def _adopted(
        self, item: Item, found: WalkthroughTable, settings: TableSettings
    ) -> tuple[dict[str, Any] | None, str | None]:
        """Return the setting that adopts the lake of a table without load files, or why there is nothing to adopt."""
        progress = read_progress(item)
        if self.lake is None:
            gone = "its load files are gone from landing, and the lake that was made of them is not named (--lake)"
            return None, gone if progress.loaded else None
        lake = find_lake(self.config, self.lake, found.table, settings)
        if lake is None:
            gone = f"its load files are gone from landing, and the lake {self.lake} has no folder of it"
            return None, gone if progress.loaded else None
        if (other := self._lakes.setdefault(lake, found.table)) != found.table:
            msg = f"its lake {lake} is that of {other} as well: the deployment has mixed their rows"
            raise DataError(msg)
        adopting = AdoptSettings(lake=lake, last_file=progress.last_file)
        listing = fingerprint_of(self.config, self.storage, settings.model_copy(update={"adopt": adopting}))
        chosen = {"lake": lake, "last_file": progress.last_file, "listing": listing}
        problem = "the deployment never loaded it, and took only inserts of its first changes"
        return {**self._decided(found.table), **chosen}, None if progress.loaded else problem

    def _decided(self, table: TableId) -> dict[str, Any]:
        """Return what was decided about the lake of a table since it was imported before."""
        registered = self.state.find_table(table)
        return dict(registered.settings.get("adopt") or {}) if registered is not None else {}


def _why_inactive(found: WalkthroughTable, config: Config, storage: Landing) -> str | None:
    """Return why an active table is imported as inactive: its settings do not fit its files."""
    settings = settings_for(config, found.table, found.settings)
    known = KnownTable(found.table, settings, active=True, declared=False)
    # Rows that a lake holds twice are searched for here: nothing else would show them before the first run.
    check = SettingsCheck(known, config, storage, check_data=settings.adopt is not None)
    errors = [finding for finding in check.findings() if finding.is_error]
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
    if registered is not None and registered.settings.get("adopt") and not state.has_files(table):
        return None  # it was imported and has not run since: the deployment may have gone on
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
