"""The numbers of change files whose names do not order them: by the listing in which each was first seen, then by name.

A number is recorded in a control row before the file is read, and a file keeps it: nothing that happens to files or
their modification times later, and no undo, changes an order that was recorded.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lakeward.formats.base import FileSummary
from lakeward.formats.file_order import NOT_RECORDED, place_by_name, place_by_number
from lakeward.mirror.op.changelog import arrived
from lakeward.mirror.op.ledger import last_arrival

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakeward.mirror.op.changelog import FileRecord
    from lakeward.mirror.op.context import TableContext
    from lakeward.model import LandingFile, LedgerEntry

# How many files receive their numbers in one op; the others follow in the next one.
MOST_AT_ONCE = 10_000


@dataclass
class Arrivals:
    """The change files of a listing that have no number yet: the first by name, and no more than are recorded."""

    files: list[LandingFile] = field(default_factory=list)

    def add(self, file: LandingFile) -> None:
        """Include a file."""
        self.files.append(file)
        if len(self.files) >= 2 * MOST_AT_ONCE:
            self.files = _first(self.files)

    def numbered(self, context: TableContext) -> list[LandingFile]:
        """Return the files with the numbers that follow those recorded before."""
        if not self.files:
            return []
        start = last_arrival(context) + 1
        files = enumerate(_first(self.files), start)
        return [replace(file, time=place_by_number(number)) for number, file in files]


def _first(files: Iterable[LandingFile]) -> list[LandingFile]:
    return heapq.nsmallest(MOST_AT_ONCE, files, key=lambda file: (place_by_name(file.path), file.path))


def placed(file: LandingFile, entry: LedgerEntry | None) -> LandingFile:
    """Return a listed file with the number that the ledger has, where its place is a number."""
    return replace(file, time=entry.time) if file.time == NOT_RECORDED and entry is not None else file


def arrival_notes(files: Iterable[LandingFile]) -> tuple[FileRecord, ...]:
    """Return the records of the numbers of files."""
    return tuple(arrived(FileSummary(file.path, file.file_class, file.time, file.identity, "")) for file in files)
