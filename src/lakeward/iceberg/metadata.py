"""A table's metadata as of one moment: schema, properties, branches and snapshots. Reading it again loads nothing.

Whole objects come from the JVM as one JSON text: each call across the bridge costs more than parsing it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakeward.columns import Column
from lakeward.errors import DataError
from lakeward.schemas import PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


# Iceberg's column types in Lakeward's words.


_FROM_ICEBERG = {
    "boolean": "boolean", "int": "int", "long": "bigint", "float": "float", "double": "double",
    "string": "string", "binary": "binary", "date": "date",
    "timestamptz": "timestamp", "timestamp": "timestamp_ntz",
}  # fmt: skip


def lake_columns(schema: Mapping[str, Any]) -> tuple[Column, ...]:
    """Read the source's columns from an Iceberg schema as JSON; a changelog has Lakeward's own besides."""
    fields = [field for field in schema["fields"] if not field["name"].startswith(PREFIX)]
    return tuple(Column(field["name"], _lake_type(field["name"], field["type"])) for field in fields)


def _lake_type(name: str, iceberg_type: Any) -> str:
    if isinstance(iceberg_type, str):
        if iceberg_type.startswith("decimal"):
            return iceberg_type.replace(" ", "")
        if iceberg_type in _FROM_ICEBERG:
            return _FROM_ICEBERG[iceberg_type]
    msg = f"column {name!r} has type {iceberg_type}, which Lakeward did not write"
    raise DataError(msg)


MAIN = "main"


@dataclass(frozen=True)
class Snapshot:
    """A table snapshot as far as Lakeward reads it; ``committed_ms`` is when it was made, ``schema_id`` its schema."""

    id: int
    parent: int | None
    summary: Mapping[str, str]
    committed_ms: int = 0
    schema_id: int | None = None

    @property
    def rows(self) -> int:
        """Live rows, from metadata alone: position deletes never point at a row twice."""
        return int(self.summary.get("total-records", 0)) - int(self.summary.get("total-position-deletes", 0))


class TableMetadata:
    """Iceberg's Java table object, as it was when it was loaded."""

    def __init__(self, java: Any, jvm: Any) -> None:
        """Wrap a loaded table; ``jvm`` is the bridge it came over."""
        self.java = java
        self._parsers = jvm.org.apache.iceberg
        self._text = jvm.java.lang.String

    def columns(self) -> tuple[Column, ...]:
        """The source's columns and their lake types."""
        return lake_columns(json.loads(self._parsers.SchemaParser.toJson(self.java.schema())))

    def schemas(self) -> dict[int, Mapping[str, Any]]:
        """Every schema that the table has had, by id, as Iceberg's JSON."""
        return {one["schema-id"]: one for one in self._whole()["schemas"]}

    def property(self, name: str) -> str | None:
        """One of the table's properties."""
        value: str | None = self.java.properties().get(name)
        return value

    def properties(self, prefix: str) -> dict[str, str]:
        """The table's properties whose names start with a prefix."""
        return {name: value for name, value in self._whole()["properties"].items() if name.startswith(prefix)}

    def references(self) -> list[str]:
        """Names of all branches and tags."""
        # The end of a Java iterator reaches Python as an exception, which takes ten milliseconds to be understood.
        names: str = self._text.join("\n", self.java.refs().keySet())
        return sorted(names.split("\n")) if names else []

    def tags(self) -> dict[str, int]:
        """Tags and the snapshots they stand at."""
        return self._references_of("tag")

    def branches(self) -> dict[str, int]:
        """Branches and the snapshots they stand at."""
        return self._references_of("branch")

    def _references_of(self, kind: str) -> dict[str, int]:
        return {name: value["snapshot-id"] for name, value in self._whole()["refs"].items() if value["type"] == kind}

    def snapshots(self) -> dict[int, Snapshot]:
        """Every snapshot that the table keeps, on all branches."""
        return {one["snapshot-id"]: _snapshot(one) for one in self._whole().get("snapshots", ())}

    def _whole(self) -> Any:
        return json.loads(self._parsers.TableMetadataParser.toJson(self.java.operations().current()))

    def snapshot_count(self) -> int:
        """How many snapshots the table keeps, on all branches."""
        return int(self.java.snapshots().size())

    def head(self, reference: str = MAIN) -> Snapshot | None:
        """The snapshot that a branch or tag stands at, None when there is none."""
        found = self.java.snapshot(reference)
        return self._snapshot(found) if found is not None else None

    def lineage(self, snapshot_id: int) -> Iterator[Snapshot]:
        """The snapshot and its ancestors, newest first, as far as they are kept."""
        current = self.java.snapshot(snapshot_id)
        while current is not None:
            found = self._snapshot(current)
            yield found
            current = self.java.snapshot(found.parent) if found.parent is not None else None

    def stamp_at(self, name: str, snapshot_id: int) -> str | None:
        """The newest value of a summary property in a snapshot's ancestry."""
        return next((one.summary[name] for one in self.lineage(snapshot_id) if name in one.summary), None)

    def _snapshot(self, found: Any) -> Snapshot:
        return _snapshot(json.loads(self._parsers.SnapshotParser.toJson(found)))


def _snapshot(data: Mapping[str, Any]) -> Snapshot:
    parent, schema = data.get("parent-snapshot-id"), data.get("schema-id")
    return Snapshot(data["snapshot-id"], parent, data["summary"], data["timestamp-ms"], schema)


def each_of(closeable: Any) -> Iterator[Any]:
    """Yield one by one what Iceberg hands out of manifests and scans, and close it at the end."""
    try:
        found = closeable.iterator()
        while found.hasNext():
            yield found.next()
    finally:
        closeable.close()
