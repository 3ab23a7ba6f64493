"""What a published version says of itself: ``_manifest.json`` beside its files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lakeward.datatypes import Column
from lakeward.documents import Record
from lakeward.reading_back import json_object, refusing_damage
from lakeward.snapshots.versions.shapes import Shape
from lakeward.storage.claims import MANIFEST, SUCCESS
from lakeward.storage.sets import SetLayout, file_list, sizes_of

if TYPE_CHECKING:
    from collections.abc import Iterable

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
