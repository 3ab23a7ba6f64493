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
from lakeward.texts import escape_text

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
    null_images: int = 0
    stable: bool = True
    mismatch: bool = False
    problem: str | None = None
    order_by: OrderBy | None = None
    first: Place | None = None
    last: Place | None = None
    newest_commit: int | None = None
    oldest_commit: int | None = None
    timeless: bool = False
    columns: tuple[tuple[str, str], ...] | None = None

    def count_operations(self, inserts: Mask, updates: Mask, deletes: Mask) -> None:
        """Count good rows by what they do, a key change as the one update that it is."""
        self.inserts += int(np.count_nonzero(inserts))
        self.updates += int(np.count_nonzero(updates))
        self.deletes += int(np.count_nonzero(deletes))

    def see_places(self, changes: pa.RecordBatch) -> None:
        """Widen the range of times, and of change records the first and last place."""
        if not changes.num_rows:
            return
        self._see_times(changes.column(schemas.COMMIT_TIME))
        if self.file.file_class is FileClass.LOAD:
            return
        sequences = changes.column(schemas.SEQUENCE)
        extremes = pc.min_max(sequences).as_py()
        low, high = (self._place(changes, sequences, extremes[end], end) for end in ("min", "max"))
        self.first = low if self.first is None else min(self.first, low)
        self.last = high if self.last is None else max(self.last, high)

    def _see_times(self, times: pa.Array) -> None:
        found = pc.min_max(times)
        oldest, newest = (found[end].cast(pa.int64()).as_py() for end in ("min", "max"))
        self.timeless = self.timeless or times.null_count > 0
        if newest is not None and oldest is not None:
            self.newest_commit = newest if self.newest_commit is None else max(self.newest_commit, newest)
            self.oldest_commit = oldest if self.oldest_commit is None else min(self.oldest_commit, oldest)

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
            null_images=self.null_images,
            stable=self.stable,
            mismatch=self.mismatch,
            problem=None if self.problem is None else escape_text(self.problem),
            order_by=self.order_by,
            first=self.first,
            last=self.last,
            newest_commit=self.newest_commit,
            oldest_commit=None if self.timeless else self.oldest_commit,
            columns=self.columns,
        )
