"""What a published version says of itself: ``_manifest.json`` beside its files."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from lakeward.datatypes import Column
from lakeward.reading_back import json_object, refusing_damage
from lakeward.snapshots.versions.shapes import Shape
from lakeward.storage.claims import MANIFEST, SUCCESS
from lakeward.storage.sets import SetLayout

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["MANIFEST", "SUCCESS", "Lineage", "Manifest", "read_manifest"]


@dataclass(frozen=True)
class Lineage:
    """What a version was made from: the lake's table, the newest op in it, and the snapshots that were read.

    ``checkpoint`` is the mirror's snapshot that the changes were laid upon; None where it was the load or nothing.
    """

    mirror_uuid: str
    generation: int
    op: int
    changelog_snapshot: int
    mirror_snapshot: int
    checkpoint: int | None = None


@dataclass(frozen=True)
class Manifest:
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
        data = asdict(self)
        data["schema"] = [{"name": one.name, "type": one.lake_type} for one in self.columns]
        data["files"] = [{"path": path, "size": size} for path, size in sorted(self.files.items())]
        del data["columns"], data["set"]
        if self.set is not None:
            data["set"] = self.set.to_document()
        return json.dumps(data, ensure_ascii=False, indent=2) + "\n"


def read_manifest(text: str, folder: str) -> Manifest:
    """Read what :meth:`Manifest.to_json` wrote.

    Raises:
        DataError: the text is no manifest, or not a whole one.
    """
    remedy = "lakeward snapshot list   (and refresh to make it anew)"
    with refusing_damage(f"{folder}: its {MANIFEST}", hint=remedy):
        data = json_object(text)
        data["columns"] = tuple(Column(one["name"], one["type"]) for one in data.pop("schema"))
        data["files"] = {one["path"]: one["size"] for one in data["files"]}
        data["set"] = SetLayout.from_document(data["set"]) if "set" in data else None
        return Manifest(
            **{**data, "lineage": Lineage(**data["lineage"]), "primary_key": tuple(data["primary_key"])},
        )
