"""Addresses of sides as users write them, and the sides themselves."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakeward.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from lakeward.iceberg.table import IcebergTable
    from lakeward.storage.filesystem import FileSystem, TaskFileSystem
    from lakeward.storage.sets import SetLayout


_LAKE = re.compile(r"(?P<kind>iceberg|mirror):(?P<table>[^@]+)(?:@(?P<at>.+))?")
_SNAPSHOT = re.compile(r"snapshot:(\d+)", re.ASCII)
_EXAMPLES = "iceberg:sales.product@snapshot:123, iceberg:sales.product@tag:NAME, iceberg:sales.product@2026-11-15T00:00"
LATEST, PREVIOUS = "latest", "previous"
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:?\d{2}(:?\d{2}(\.\d+)?)?Z?", re.ASCII)


class AddressKind(StrEnum):
    """The source of the rows of a side."""

    FILES = "files"
    ICEBERG = "iceberg"
    MIRROR = "mirror"


@dataclass(frozen=True)
class Address:
    """The ``location`` of files, or a ``table`` of the lake with what follows the ``@``.

    ``chosen`` is the word that selects one of the snapshots below ``location``: ``latest``, ``previous``, a day, a
    time.
    """

    kind: AddressKind
    location: str = ""
    chosen: str | None = None
    table: str = ""
    at: str | None = None

    @property
    def needs_lake(self) -> bool:
        """Whether a configuration of the lake is needed."""
        return self.kind is not AddressKind.FILES


def parse_address(text: str, root: str | None = None) -> Address:
    """Parse an address; ``root`` is the folder of snapshots for an address that is just ``latest`` or a date.

    Raises:
        ConfigurationError: it is not an address.
    """
    if match := _LAKE.fullmatch(text):
        return _lake_address(text, match)
    if not text.strip():
        msg = "a side is empty; expected a path, or iceberg:…, or mirror:…"
        raise ConfigurationError(msg)
    if is_choice(text) and root is not None:
        return Address(AddressKind.FILES, absolute(root), text)
    parent, _, last = text.rstrip("/").rpartition("/")
    if is_choice(last) and (parent or text.startswith("/")):
        return Address(AddressKind.FILES, absolute(parent or "/"), last)
    return Address(AddressKind.FILES, absolute(text))


def is_choice(word: str) -> bool:
    """Whether a word selects a snapshot, and is not the name of a folder."""
    return word in (LATEST, PREVIOUS) or is_moment(word)


def is_moment(word: str) -> bool:
    """Whether a word is a day or a time."""
    return is_day(word) or _TIME.fullmatch(word) is not None


def is_day(word: str) -> bool:
    """Whether a word is a day."""
    return _DAY.fullmatch(word) is not None


def span_of(word: str) -> tuple[datetime, datetime]:
    """Return the first moment of a day, minute or second in UTC and the first one after it."""
    try:
        start = datetime.fromisoformat(word.removesuffix("Z")).replace(tzinfo=UTC)
    except ValueError as error:
        msg = f"{word!r} is not a date; expected 2026-11-15 or 2026-11-15T10:30 (UTC)"
        raise ConfigurationError(msg) from error
    if _DAY.fullmatch(word):
        return start, start + timedelta(days=1)
    is_minute = len(word.removesuffix("Z").split("T")[1].replace(":", "")) == len("1030")
    return start, start + timedelta(minutes=1 if is_minute else 0, seconds=0 if is_minute else 1)


def absolute(location: str) -> str:
    """Return a local path as an absolute one, as Spark needs it; URIs stay as they are.

    Raises:
        ConfigurationError: it is empty, which would mean the working directory.
    """
    if not location.strip():
        msg = "the address is empty"
        raise ConfigurationError(msg, hint="name a path or a URI; . is the working directory")
    if "://" in location or location.startswith("file:"):
        return location.rstrip("/")
    return str(Path(location).expanduser().absolute())


def _lake_address(text: str, match: re.Match[str]) -> Address:
    kind, table, at = AddressKind(match["kind"]), match["table"], match["at"]
    if table.count(".") != 1 or not all(table.split(".")):
        msg = f"{text!r} names no table; expected schema.table, as in {_EXAMPLES}"
        raise ConfigurationError(msg)
    if kind is AddressKind.MIRROR and at is None:
        msg = f"{text!r} names no moment"
        raise ConfigurationError(msg, hint=f"mirror:{table}@2020-11-14, or iceberg:{table} for the mirror as it is now")
    return Address(kind, table=table, at=at)


def snapshot_number(at: str) -> int | None:
    """Return the snapshot id in ``snapshot:123``."""
    found = _SNAPSHOT.fullmatch(at)
    return int(found[1]) if found else None


@dataclass(frozen=True)
class FoundSet:
    """The files of a snapshot set; their paths are relative to ``folder``."""

    store: FileSystem
    folder: str
    layout: SetLayout


@dataclass(frozen=True)
class IcebergState:
    """A table of the lake at one of its snapshots; ``files`` is how tasks open its files, where they can."""

    table: IcebergTable
    snapshot_id: int
    files: TaskFileSystem | None = None


@dataclass(frozen=True)
class Side:
    """One of the two sides of a comparison: its rows, and what is known of them without reading them.

    ``label`` is the address that the user wrote. ``rows`` and ``checksum`` come from the manifest, where there is one.
    ``identity`` describes the side as the parent of a change set: ``kind``, ``location``, ``created``, ``rows``,
    ``checksum`` and other properties that identify it, as far as known.
    """

    label: str
    frame: DataFrame
    primary_key: tuple[str, ...] = ()
    set: FoundSet | None = None
    iceberg: IcebergState | None = None
    rows: int | None = None
    checksum: str | None = None
    format: str | None = None
    identity: Mapping[str, Any] = field(default_factory=dict)

    def bytes_per_row(self) -> float | None:
        """Return how many bytes a row takes in the side's files; None where it is not known."""
        size = self.identity.get("bytes")
        return int(size) / self.rows if size is not None and self.rows else None
