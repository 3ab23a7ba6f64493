"""A table's metadata as of one moment: schema, properties, branches and snapshots.

Whole objects come from the JVM as one JSON text: a call through py4j costs more than parsing it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakeward.column_policy import POLICY_PROPERTY, with_sources
from lakeward.columns import Column
from lakeward.errors import DataError
from lakeward.schemas import PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


# Lakeward's names of Iceberg's column types.
_FROM_ICEBERG = {
    "boolean": "boolean", "int": "int", "long": "bigint", "float": "float", "double": "double",
    "string": "string", "binary": "binary", "date": "date",
    "timestamptz": "timestamp", "timestamp": "timestamp_ntz",
}  # fmt: skip


def lake_columns(schema: Mapping[str, Any]) -> tuple[Column, ...]:
    """Return the source's columns of an Iceberg schema in JSON, without Lakeward's own columns of a changelog."""
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
# The tag of a table's first, empty snapshot.
EMPTY_TAG = "lakeward-empty"


@dataclass(frozen=True)
class Snapshot:
    """A snapshot of a table; ``committed_ms`` is its time in milliseconds since 1970."""

    id: int
    parent: int | None
    summary: Mapping[str, str]
    committed_ms: int = 0
    schema_id: int | None = None

    @property
    def rows(self) -> int:
        """The number of live rows, from metadata alone: no row is deleted by two position deletes."""
        return int(self.summary.get("total-records", 0)) - int(self.summary.get("total-position-deletes", 0))


def reference_within(prefix: str, name: str) -> str:
    """Return the name in the lake of a branch or tag, where those of the table begin with a prefix."""
    return name if name == EMPTY_TAG else prefix + name


class TableMetadata:
    """The metadata of a table as it was when it was loaded."""

    def __init__(self, java: Any, jvm: Any, *, within: str = "") -> None:
        """Wrap a Java table object; ``jvm`` is the JVM that it is from, ``within`` as for an ``IcebergTable``."""
        self.java = java
        self._within = within
        self._parsers = jvm.org.apache.iceberg
        self._text = jvm.java.lang.String

    def columns(self) -> tuple[Column, ...]:
        """Return the source's columns and their lake types; of a mirror's hashed columns those at the source too."""
        found = lake_columns(json.loads(self._parsers.SchemaParser.toJson(self.java.schema())))
        return with_sources(found, self.property(POLICY_PROPERTY))

    def schemas(self) -> dict[int, Mapping[str, Any]]:
        """Return every schema that the table has had, by id, as Iceberg's JSON."""
        return {schema["schema-id"]: schema for schema in self._whole()["schemas"]}

    def property(self, name: str) -> str | None:
        """Return a property of the table, None where it is not set."""
        value: str | None = self.java.properties().get(name)
        return value

    def properties(self, prefix: str) -> dict[str, str]:
        """Return the table's properties whose names start with a prefix."""
        return {name: value for name, value in self._whole()["properties"].items() if name.startswith(prefix)}

    def references(self) -> list[str]:
        """Return the names of all branches and tags."""
        # The end of a Java iterator reaches Python as an exception, which costs ten milliseconds.
        names: str = self._text.join("\n", self.java.refs().keySet())
        return sorted(self._own(names.split("\n"))) if names else []

    def _own(self, names: Iterable[str]) -> dict[str, str]:
        """Return the references that belong to this view of the table by name, with their names in the lake."""
        prefix = self._within
        own = (name for name in names if name == EMPTY_TAG or name.startswith(prefix))
        return {name if name == EMPTY_TAG else name.removeprefix(prefix): name for name in own}

    def tags(self) -> dict[str, int]:
        """Return the tags with their snapshot ids."""
        return self._references_of("tag")

    def branches(self) -> dict[str, int]:
        """Return the branches with the ids of their heads."""
        return self._references_of("branch")

    def _references_of(self, kind: str) -> dict[str, int]:
        found = {name: value for name, value in self._whole()["refs"].items() if value["type"] == kind}
        return {name: found[named]["snapshot-id"] for name, named in self._own(found).items()}

    def snapshots(self) -> dict[int, Snapshot]:
        """Return every snapshot that the table keeps, by id."""
        return {snapshot["snapshot-id"]: _snapshot(snapshot) for snapshot in self._whole().get("snapshots", ())}

    def _whole(self) -> Any:
        return json.loads(self._parsers.TableMetadataParser.toJson(self.java.operations().current()))

    def snapshot_count(self) -> int:
        """Return the number of snapshots that the table keeps."""
        return int(self.java.snapshots().size())

    def head(self, reference: str = MAIN) -> Snapshot | None:
        """Return the snapshot of a branch or tag, None where there is no such reference."""
        found = self.java.snapshot(reference_within(self._within, reference))
        return self._snapshot(found) if found is not None else None

    def lineage(self, snapshot_id: int) -> Iterator[Snapshot]:
        """Yield the snapshot and its ancestors, newest first, as far as they are kept."""
        current = self.java.snapshot(snapshot_id)
        while current is not None:
            found = self._snapshot(current)
            yield found
            current = self.java.snapshot(found.parent) if found.parent is not None else None

    def stamp_at(self, name: str, snapshot_id: int) -> str | None:
        """Return the newest value of a stamp among a snapshot and its ancestors."""
        return next(
            (snapshot.summary[name] for snapshot in self.lineage(snapshot_id) if name in snapshot.summary), None
        )

    def _snapshot(self, found: Any) -> Snapshot:
        return _snapshot(json.loads(self._parsers.SnapshotParser.toJson(found)))


def _snapshot(data: Mapping[str, Any]) -> Snapshot:
    parent, schema = data.get("parent-snapshot-id"), data.get("schema-id")
    return Snapshot(data["snapshot-id"], parent, data["summary"], data["timestamp-ms"], schema)


def each_of(closeable: Any) -> Iterator[Any]:
    """Yield the elements of Iceberg's closeable iterables, such as manifests and scans, and close them at the end."""
    try:
        found = closeable.iterator()
        while found.hasNext():
            yield found.next()
    finally:
        closeable.close()
