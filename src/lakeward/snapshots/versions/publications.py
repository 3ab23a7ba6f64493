"""What was made of a table and is kept for it: published files and tags, recorded with the mirror itself.

One table property per publication, so that two writers never undo each other's record, and so that neither the state
store nor a listing of any folder is needed to know all places that hold a table's rows.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from lakeward.documents import Record, to_compact_json
from lakeward.reading_back import json_object, reading_property

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakeward.lake.iceberg.metadata import TableMetadata
    from lakeward.lake.iceberg.table import IcebergTable

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
        """Tell whether people mean it by a name: its own, or where it is."""
        return name in (self.version, self.location)


def new_id() -> str:
    """Give an id for a publication."""
    return uuid.uuid4().hex[:12]


def list_publications(mirror: TableMetadata) -> list[Publication]:
    """Give every recorded publication of a table, oldest first."""
    found = [_read(name, text) for name, text in mirror.properties(PREFIX).items()]
    return sorted(found, key=lambda one: (one.created, one.id))


def record_publication(mirror: IcebergTable, publication: Publication, *, instead_of: Iterable[str] = ()) -> None:
    """Record a complete publication, and forget those it takes the place of, in one commit."""
    text = to_compact_json(publication)
    gone = {PREFIX + one: None for one in instead_of}
    mirror.set_properties({**gone, PREFIX + publication.id: text})


def forget_publications(mirror: IcebergTable, ids: Iterable[str]) -> None:
    """Remove records; the files or tags are the caller's business."""
    if names := {PREFIX + one: None for one in ids}:
        mirror.set_properties(names)


def _read(name: str, text: str) -> Publication:
    with reading_property(name, of="mirror"):
        return Publication.from_dict(json_object(text))
