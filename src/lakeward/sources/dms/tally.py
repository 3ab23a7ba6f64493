"""Counting what a file turned out to hold, for its summary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeward import schemas
from lakeward.model import FileClass, LandingFile, OrderBy, Place
from lakeward.sources.base import FileSummary

if TYPE_CHECKING:
    from lakeward.sources.dms.cells import Mask


@dataclass
class Tally:
    """Counters of one file, filled while its rows go by."""

    file: LandingFile
    content_hash: str = ""
    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    moves: int = 0
    bad: int = 0
    partial: int = 0
    stable: bool = True
    mismatch: bool = False
    problem: str | None = None
    order_by: OrderBy | None = None
    first: Place | None = None
    last: Place | None = None
    newest_commit: int | None = None
    columns: tuple[tuple[str, str], ...] | None = None

    def count_operations(self, inserts: Mask, updates: Mask, deletes: Mask) -> None:
        """Count good rows by what they do, a key change as the one update that it is."""
        self.inserts += int(np.count_nonzero(inserts))
        self.updates += int(np.count_nonzero(updates))
        self.deletes += int(np.count_nonzero(deletes))

    def see_places(self, changes: pa.RecordBatch) -> None:
        """Widen first and last by the places of change records."""
        if self.file.file_class is FileClass.LOAD or not changes.num_rows:
            return
        sequences = changes.column(schemas.SEQUENCE)
        extremes = pc.min_max(sequences).as_py()
        low, high = (self._place(changes, sequences, extremes[end], end) for end in ("min", "max"))
        self.first = low if self.first is None else min(self.first, low)
        self.last = high if self.last is None else max(self.last, high)
        newest = pc.max(changes.column(schemas.COMMIT_TIME)).cast(pa.int64()).as_py()
        if newest is not None:
            self.newest_commit = newest if self.newest_commit is None else max(self.newest_commit, newest)

    def _place(self, changes: pa.RecordBatch, sequences: pa.Array, sequence: str, end: str) -> Place:
        """Give the first or last place among the records of one sequence."""
        among = pc.equal(sequences, sequence)
        rows, steps = (changes.column(name).filter(among) for name in (schemas.ROW, schemas.STEP))
        row = pc.min_max(rows)[end]
        step = pc.min_max(steps.filter(pc.equal(rows, row)))[end]
        return Place(sequence, self.file.time, self.file.path, row.as_py(), step.as_py())

    def summary(self) -> FileSummary:
        """Give the counts as the file's summary."""
        return FileSummary(
            path=self.file.path,
            file_class=self.file.file_class,
            time=self.file.time,
            identity=self.file.identity,
            content_hash=self.content_hash,
            rows=self.inserts + self.updates + self.deletes + self.bad,
            inserts=self.inserts,
            updates=self.updates,
            deletes=self.deletes,
            moves=self.moves,
            bad=self.bad,
            partial=self.partial,
            stable=self.stable,
            mismatch=self.mismatch,
            problem=self.problem,
            order_by=self.order_by,
            first=self.first,
            last=self.last,
            newest_commit=self.newest_commit,
            columns=self.columns,
        )
