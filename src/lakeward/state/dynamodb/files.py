"""The files of one version of a table's ledger, each an item; whether the version counts is told by its head."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.model import FileClass
from lakeward.state import codec
from lakeward.state.dynamodb.values import Item, path_digest, table_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from lakeward.model import LedgerEntry, TableId
    from lakeward.state.dynamodb.rows import Rows

_FILE, _PART = "file#", "part#"
_WITH_PREFIX = "begins_with(#sk, :prefix)"


class VersionFiles:
    """Files of one version."""

    def __init__(self, rows: Rows, table: TableId, version: str) -> None:
        self._rows = rows
        self._table = table
        self._pk = f"files#{table_text(table)}#{version}"

    def write(self, entries: Iterable[LedgerEntry]) -> None:
        """Add entries; of two with one path the later stands."""
        self._rows.put_many(item for entry in entries for item in self._items(entry))

    def lookup(self, paths: Collection[str]) -> dict[str, LedgerEntry]:
        """Entries of those paths that are there."""
        keys = ((self._pk, _FILE + path_digest(path)) for path in paths)
        return {item["path"]: codec.file_entry(item) for item in self._rows.get_many(keys)}

    def load_parts(self, generation: int) -> list[LedgerEntry]:
        """Load parts of a generation, by path."""
        named = [item["path"] for item in self._rows.query(self._pk, _WITH_PREFIX, prefix=_PART)]
        parts = [
            entry
            for entry in self.lookup(named).values()
            if entry.file_class is FileClass.LOAD and entry.generation == generation
        ]
        return sorted(parts, key=lambda entry: entry.path)

    def count(self) -> int:
        """Number of files."""
        return self._rows.count(self._pk, _WITH_PREFIX, prefix=_FILE)

    def has_any(self, generation: int | None) -> bool:
        """Whether there is a file, in one generation if it is given."""
        if generation is None:
            found = self._rows.query(self._pk, _WITH_PREFIX, limit=1, prefix=_FILE)
        else:
            wanted = "#generation = :generation"
            found = self._rows.query(self._pk, _WITH_PREFIX, only=wanted, prefix=_FILE, generation=generation)
        return next(found, None) is not None

    def delete(self) -> None:
        """Delete all files of the version."""
        self._rows.delete_many((item["pk"], item["sk"]) for item in self._rows.query(self._pk))

    def _items(self, entry: LedgerEntry) -> Iterator[Item]:
        """The entry's item; a load part is named once more, to be found among any number of change files."""
        digest = path_digest(entry.path)
        yield {"pk": self._pk, "sk": _FILE + digest, **codec.file_row(self._table, entry)}
        if entry.file_class is FileClass.LOAD:
            yield {"pk": self._pk, "sk": _PART + digest, "path": entry.path}
