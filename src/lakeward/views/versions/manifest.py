"""What a published version says of itself: ``_manifest.json`` beside its files."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from lakeward.columns import Column
from lakeward.documents import Record, to_compact_json
from lakeward.storage.claims import MANIFEST, SUCCESS
from lakeward.storage.sets import SetLayout, file_list, sizes_of
from lakeward.text import json_object, reading_property, refusing_damage
from lakeward.views.versions.layouts import Shape

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakeward.iceberg.metadata import TableMetadata
    from lakeward.iceberg.table import IcebergTable


__all__ = ["MANIFEST", "SUCCESS", "Lineage", "Manifest", "read_manifest"]


@dataclass(frozen=True)
class Lineage(Record):
    """What a version was made from: the lake's table, the newest op in it, and the snapshots that were read.

    ``checkpoint`` is the mirror's snapshot that the changes were laid upon; None where it was the load or nothing.
    """

    mirror_uuid: str
    generation: int
    op: int
    changelog_snapshot: int
    mirror_snapshot: int
    checkpoint: int | None = None


def _column_list(columns: Iterable[Column]) -> list[dict[str, str]]:
    return [{"name": column.name, "type": column.lake_type} for column in columns]


def _columns(listed: Iterable[Mapping[str, Any]]) -> tuple[Column, ...]:
    return tuple(Column(column["name"], column["type"]) for column in listed)


@dataclass(frozen=True)
class Manifest(
    Record,
    keys=(
        "id", "table", "version", "as_of", "rows", "content_hash", "primary_key", "format", "layout", "date_column",
        "folder_column", "timezone", "lineage", "created", "lakeward", "files", "parts", "checksum_version", "columns",
        "set",
    ),
    renamed={"columns": "schema"},
    if_set=("set",),
    required=("files",),
    write={"columns": _column_list, "files": file_list},
    read={"columns": _columns, "files": sizes_of, "set": SetLayout.from_dict},
):  # fmt: skip
    """A version: where it comes from, what it holds, and every file of it with its size.

    ``folder_column`` names the date folders of the dated layout and is no column of the table where it was made from
    a timestamp. ``parts`` gives the checksum of each date, where later versions are made from this one. ``set``
    says how the rows lie in buckets of the key, which flat Parquet files of tables with a key do.
    ``checksum_version`` is that of ``content_hash`` and ``parts``; manifests from before it was written have the first.
    """

    id: str
    table: str
    version: str
    as_of: str
    rows: int
    content_hash: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    format: str
    layout: str
    date_column: str
    folder_column: str
    timezone: str
    lineage: Lineage
    created: str
    lakeward: str
    files: Mapping[str, int] = field(default_factory=dict)
    parts: Mapping[str, str] = field(default_factory=dict)
    set: SetLayout | None = None
    checksum_version: int = 1

    @property
    def shape(self) -> Shape:
        """How the rows lie in the files."""
        return Shape(self.format, self.layout, self.date_column, self.timezone)

    def to_json(self) -> str:
        """Write as JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=2) + "\n"


def read_manifest(text: str, folder: str) -> Manifest:
    """Read what :meth:`Manifest.to_json` wrote.

    Raises:
        DataError: the text is no manifest, or not a whole one.
    """
    remedy = "lakeward snapshot list   (and refresh to make it anew)"
    with refusing_damage(f"{folder}: its {MANIFEST}", hint=remedy):
        return Manifest.from_dict(json_object(text))


# What was made of a table and is kept for it: published files and tags, recorded with the mirror itself.
# One table property per publication, so that two writers never undo each other's record, and so that neither the
# state store nor a listing of any folder is needed to know all places that hold a table's rows.


PREFIX = "lakeward.publication."


class PublicationKind(StrEnum):
    """What a publication is."""

    FILES = "files"
    CURRENT = "current"
    TAG = "tag"


@dataclass(frozen=True)
class Publication(Record):
    """One version of a table, complete.

    ``moment`` is what ``--as-of`` was given, in a form that can be asked again; ``version`` its name in folders and
    lists. ``location`` is a folder's URI, or a tag's name. ``op`` is the newest op that was taken into account,
    ``changelog`` and ``mirror`` the snapshots that were read. ``layout``, ``date_column`` and ``format`` are empty for
    a tag.
    """

    id: str
    kind: PublicationKind
    version: str
    moment: str
    location: str
    generation: int
    op: int
    rows: int
    content_hash: str
    created: str
    changelog: int
    format: str = ""
    layout: str = ""
    date_column: str = ""
    registered: str = ""

    def is_called(self, name: str) -> bool:
        """Return whether people mean it by a name: its own, or where it is."""
        return name in (self.version, self.location)


def new_id() -> str:
    """Return an id for a publication."""
    return uuid.uuid4().hex[:12]


def list_publications(mirror: TableMetadata) -> list[Publication]:
    """Return every recorded publication of a table, oldest first."""
    found = [_read(name, text) for name, text in mirror.properties(PREFIX).items()]
    return sorted(found, key=lambda one: (one.created, one.id))


def record_publication(mirror: IcebergTable, publication: Publication, *, instead_of: Iterable[str] = ()) -> None:
    """Record a complete publication, and forget those it takes the place of, in one commit."""
    text = to_compact_json(publication)
    gone = {PREFIX + one: None for one in instead_of}
    mirror.set_properties({**gone, PREFIX + publication.id: text})


def forget_publications(mirror: IcebergTable, ids: Iterable[str]) -> None:
    """Remove records; the files or tags are the caller's business."""
    if names := {PREFIX + identifier: None for identifier in ids}:
        mirror.set_properties(names)


def _read(name: str, text: str) -> Publication:
    with reading_property(name, of="mirror"):
        return Publication.from_dict(json_object(text))
