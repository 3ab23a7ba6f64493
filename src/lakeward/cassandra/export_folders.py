"""The folder of a table's exports and of the change sets between them: what is complete there, in order."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakeward.diffing.inputs.addresses import absolute
from lakeward.diffing.inputs.folders import INCREMENTAL, Listing
from lakeward.errors import RefusedInputError
from lakeward.lake.folders import MANIFEST, SUCCESS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.cassandra.names import TableName
    from lakeward.lake.stores import Store

SNAPSHOTS = "snapshot"


def table_folder(to: str, name: TableName) -> str:
    """Give the folder of a table's exports and change sets below a folder of exports."""
    return f"{absolute(to)}/{name.keyspace}/{name.table}"


@dataclass(frozen=True)
class KnownExport:
    """A complete export: ``name`` is its path below ``snapshot/``, which sorts by time."""

    name: str
    folder: str
    id: str


@dataclass(frozen=True)
class KnownChangeSet:
    """A complete change set, and whether there is anything in it."""

    folder: str
    is_empty: bool


class ExportFolder:
    """``<to>/<keyspace>/<table>``: exports below ``snapshot/``, change sets below ``incremental/``.

    Nothing is remembered: what other processes add is seen with the next question.
    """

    def __init__(self, store: Store, folder: str) -> None:
        self.store, self.folder = store, folder

    def exports(self) -> list[str]:
        """Give the names of the complete exports, the oldest first."""
        return self._complete(SNAPSHOTS)

    def export(self, name: str) -> KnownExport:
        """Say what is known of an export.

        Raises:
            RefusedInputError: its manifest is damaged.
        """
        folder = f"{self.folder}/{SNAPSHOTS}/{name}"
        return KnownExport(name, folder, str(self._manifest(folder)["id"]))

    def name_of(self, identity: Mapping[str, Any]) -> str | None:
        """Give the name of the export that a recorded state speaks of; None where it is not in this folder."""
        name = str(identity.get("location", "")).rpartition(f"/{SNAPSHOTS}/")[2]
        folder = f"{self.folder}/{SNAPSHOTS}/{name}"
        if not name or not self.store.exists(f"{folder}/{SUCCESS}"):
            return None
        return name if self._manifest(folder)["id"] == identity.get("id") else None

    def change_set(self, past_id: str, current: KnownExport) -> KnownChangeSet | None:
        """Find a change set that leads from one export to another."""
        # It was made when both were there: older ones need not be opened.
        for name in reversed([one for one in self._complete(INCREMENTAL) if one >= current.name]):
            folder = f"{self.folder}/{INCREMENTAL}/{name}"
            manifest = self._manifest(folder)
            if (manifest["past"].get("id"), manifest["current"].get("id")) == (past_id, current.id):
                counts = manifest["counts"]
                return KnownChangeSet(folder, not any(counts[word] for word in ("inserted", "changed", "deleted")))
        return None

    def remove_before(self, name: str) -> list[str]:
        """Remove exports older than one, and the change sets made before it; give the folders that are gone."""
        old = [f"{self.folder}/{SNAPSHOTS}/{one}" for one in self._complete(SNAPSHOTS) if one < name]
        old += [f"{self.folder}/{INCREMENTAL}/{one}" for one in self._complete(INCREMENTAL) if one < name]
        for folder in old:
            # Without its mark it is no export any more, however the rest ends.
            self.store.delete(f"{folder}/{SUCCESS}")
            self.store.delete(folder)
            self._remove_empty_above(folder)
        return old

    def _remove_empty_above(self, folder: str) -> None:
        parent = folder.rpartition("/")[0]
        while "=" in parent.rpartition("/")[2] and not self.store.files(parent) and not self.store.folders(parent):
            self.store.delete(parent)
            parent = parent.rpartition("/")[0]

    def _complete(self, kind: str) -> list[str]:
        location = f"{self.folder}/{kind}"
        return sorted(one for one in Listing(location, self.store.files(location)).complete if one)

    def _manifest(self, folder: str) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(self.store.read_text(f"{folder}/{MANIFEST}") or "")
            # Touched here, so that what is missing is told here.
            _ = found["id"] if found.get("kind") != "change-set" else (found["past"], found["current"], found["counts"])
        except (ValueError, KeyError) as error:
            msg = f"{folder}: its {MANIFEST} is damaged or missing: {error!r}"
            raise RefusedInputError(msg, hint="remove that folder, or bring its files back") from error
        return found
