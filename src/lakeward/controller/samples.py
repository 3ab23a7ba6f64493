"""The few files of a table that its settings are held against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.model import FileClass
from lakeward.sources.dms.listing import UnknownFile, list_folder, table_folder

if TYPE_CHECKING:
    from lakeward.controller.tables import KnownTable
    from lakeward.model import LandingFile
    from lakeward.sources.storage import Storage


@dataclass(frozen=True)
class Sample:
    """A table's load parts, and of its files those to look at: the smallest of each kind and the newest change.

    ``unknown`` is how many files no rule knows, ``first_unknown`` one of them.
    """

    loads: tuple[LandingFile, ...] = ()
    looked_at: tuple[LandingFile, ...] = ()
    unknown: int = 0
    first_unknown: str = ""

    @property
    def load_bytes(self) -> int:
        """Size of the load."""
        return sum(part.identity.size for part in self.loads)


def take_sample(storage: Storage, known: KnownTable) -> Sample:
    """Walk the table's folder once, holding no more than its load parts.

    Small files are chosen because a file is fetched whole, and one without rows may be without columns too.
    """
    loads: list[LandingFile] = []
    smallest: LandingFile | None = None
    newest: LandingFile | None = None
    unknown, first_unknown = 0, ""
    for file in list_folder(storage, table_folder(known.table, known.settings), known.settings):
        if isinstance(file, UnknownFile):
            unknown, first_unknown = unknown + 1, first_unknown or file.path
        elif file.file_class is FileClass.LOAD:
            loads.append(file)
        elif file.identity.size:
            smallest = file if smallest is None or file.identity.size < smallest.identity.size else smallest
            newest = file if newest is None or file.order > newest.order else newest
    filled = [part for part in loads if part.identity.size]
    first = min(filled, key=lambda part: (part.identity.size, part.path)) if filled else None
    chosen = dict.fromkeys(file for file in (first, smallest, newest) if file is not None)
    parts = tuple(sorted(loads, key=lambda part: part.order))
    return Sample(parts, tuple(chosen), unknown, first_unknown)
