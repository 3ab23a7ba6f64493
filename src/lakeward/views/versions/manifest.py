"""The manifest of a published version, ``_manifest.json``, and the records of all publications of a table."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from lakeward.columns import Column
from lakeward.documents import Record, to_compact_json
from lakeward.mirror.op.checkpoints import MomentKind
from lakeward.storage.claims import MANIFEST
from lakeward.storage.sets import SetLayout, file_list, sizes_of
from lakeward.text import json_object, reading_property, refusing_damage
from lakeward.views.versions.layouts import FileShape

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakeward.iceberg.metadata import TableMetadata
    from lakeward.iceberg.table import IcebergTable


@dataclass(frozen=True)
class Lineage(Record):
    """The origin of a version: the mirror, the newest op that it includes, and the snapshots that were read.

    ``checkpoint`` is the mirror's snapshot that changes were applied to, None where that was the load or nothing.
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
        "set", "partition_by", "chosen", "header", "single_file", "digest",
    ),
    renamed={"columns": "schema"},
    if_set=("set", "partition_by", "chosen", "header", "single_file", "digest"),
    required=("files",),
    write={"columns": _column_list, "files": file_list},
    read={"columns": _columns, "files": sizes_of, "set": SetLayout.from_dict},
):  # fmt: skip
    """A version: its origin, its content, and every file of it with its size.

    ``folder_column`` names the date folders of the dated layout; where it is derived from a timestamp, it is not a
    column of the table. ``parts`` holds the checksum of each date, for versions that later ones build on. ``set``
    describes how rows are bucketed by key, as flat Parquet files of tables with a key are. ``checksum_version`` applies
    to ``content_hash`` and ``parts``; manifests without it have version 1.

    Copies of the current state only: ``partition_by`` names the columns of their folders, ``chosen`` the columns that
    were chosen (all are in ``columns``); ``header`` is False for CSV without one; ``single_file`` is the name under
    which readers find the one file, and ``digest`` identifies its content.
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
    partition_by: tuple[str, ...] | None = None
    chosen: tuple[str, ...] | None = None
    header: bool | None = None
    single_file: str | None = None
    digest: str | None = None

    @property
    def shape(self) -> FileShape:
        """The format and layout of the files."""
        return FileShape(
            self.format,
            self.layout,
            self.date_column,
            self.timezone,
            self.partition_by or (),
            self.chosen or (),
            self.single_file or "",
            self.header is not False,
        )

    @property
    def folder_columns(self) -> tuple[str, ...]:
        """The columns whose values are in the names of folders."""
        return (self.folder_column,) if self.folder_column else self.partition_by or ()

    def to_json(self) -> str:
        """Return the manifest as JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=2) + "\n"


def read_manifest(text: str, folder: str) -> Manifest:
    """Read what :meth:`Manifest.to_json` wrote.

    Raises:
        DataError: the text is not a complete manifest.
    """
    remedy = "lakeward snapshot list   (and refresh to rebuild it)"
    with refusing_damage(f"{folder}: its {MANIFEST}", hint=remedy):
        return Manifest.from_dict(json_object(text))


# The publications of a table, files and tags, are recorded with the mirror itself: one table property for each, so
# that two writers never overwrite each other's record, and so that neither the state store nor a listing of folders is
# needed to know all places that hold a table's rows.


PREFIX = "lakeward.publication."


class PublicationKind(StrEnum):
    """The kind of a publication."""

    FILES = "files"
    CURRENT = "current"
    TAG = "tag"


@dataclass(frozen=True)
class Publication(Record, if_set=("period",)):
    """One version of a table, complete.

    ``moment`` is the value of ``--as-of`` in a form that does not depend on settings; ``version`` its name in folders
    and lists. ``location`` is a folder's URI, or a tag's name. ``op`` is the newest op that is included,
    ``changelog`` the snapshot of the changelog that was read. ``layout``, ``date_column`` and ``format`` are empty for
    a tag. ``period`` is the day or hour of a version that a schedule made.
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
    period: str | None = None

    @property
    def is_of_point(self) -> bool:
        """Whether it was made for a point: the end of a transaction file."""
        return self.moment.startswith(f"{MomentKind.FILE}:")

    def is_called(self, name: str) -> bool:
        """Whether a name denotes this publication: its version, its day or hour, or its location."""
        return name in (self.version, self.period, self.location)


def new_id() -> str:
    """Return a new id for a publication."""
    return uuid.uuid4().hex[:12]


def list_publications(mirror: TableMetadata) -> list[Publication]:
    """Return every recorded publication of a table, oldest first."""
    found = [_read(name, text) for name, text in mirror.properties(PREFIX).items()]
    return sorted(found, key=lambda publication: (publication.created, publication.id))


def record_publication(mirror: IcebergTable, publication: Publication, *, instead_of: Iterable[str] = ()) -> None:
    """Record a complete publication and forget those that it replaces, in one commit."""
    text = to_compact_json(publication)
    gone = {PREFIX + publication_id: None for publication_id in instead_of}
    mirror.set_properties({**gone, PREFIX + publication.id: text})


def forget_publications(mirror: IcebergTable, ids: Iterable[str]) -> None:
    """Remove records; the caller removes the files or tags."""
    if names := {PREFIX + publication_id: None for publication_id in ids}:
        mirror.set_properties(names)


def _read(name: str, text: str) -> Publication:
    with reading_property(name, of="mirror"):
        return Publication.from_dict(json_object(text))
