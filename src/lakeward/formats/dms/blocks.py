"""Blocks of a file's rows with their fields separated and converted, their faults, and the counts of a file."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeward import schemas
from lakeward.formats.base import FileSummary
from lakeward.formats.dms.protection import read_text
from lakeward.formats.dms.values import Cells, RefusedRow, any_true, null_where, parse_commit_times, to_mask
from lakeward.model import FileClass, LandingFile, OrderBy, Place
from lakeward.text import escape_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt

    from lakeward.columns import Column
    from lakeward.config import CsvSettings
    from lakeward.formats.base import ReadSpec
    from lakeward.formats.dms.layout import Layout
    from lakeward.formats.dms.values import Mask


if TYPE_CHECKING:
    Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TextRows:
    """Rows as text: ``texts`` has one string array per field; ``raw`` returns a row's own text.

    With ``empty_is_missing`` an empty before image means that there is none, as in CSV, where DMS leaves those of
    inserts empty whatever the null token is; ``quoted_empty`` has, by field, the rows that are empty within quotes.
    """

    rows: Rows
    texts: Sequence[pa.Array]
    raw: Callable[[int], str]
    bad: tuple[RefusedRow, ...] = ()
    empty_is_missing: bool = True
    quoted_empty: Mapping[int, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Block:
    """Rows with their fields by meaning.

    ``before`` holds the before images of key columns, ``missing`` marks rows that have none (in contrast to NULL), and
    ``images`` returns those of the other columns. ``unchanged`` marks rows whose value for a column is the token for
    "unchanged". With ``images_by_count`` the before images were recognised by the number of fields alone.
    """

    rows: Rows
    raw: Callable[[int], str]
    operation: pa.Array | None = None
    timestamp: Cells | None = None
    sequence: pa.Array | None = None
    transaction: pa.Array | None = None
    columns: dict[str, Cells] = field(default_factory=dict)
    before: dict[str, Cells] = field(default_factory=dict)
    missing: dict[str, Mask] = field(default_factory=dict)
    images: Callable[[], dict[str, Cells]] = dict
    unchanged: dict[str, Mask] = field(default_factory=dict)
    images_by_count: bool = False


def text_block(rows: TextRows, layout: Layout, spec: ReadSpec, *, load: bool, images_by_count: bool) -> Block:
    """Return rows of text as a block, converted by a layout."""
    texts, csv = rows.texts, spec.settings.csv
    columns, unchanged, before, missing = {}, {}, {}, {}
    for column in spec.read_columns:
        if column.name in layout.columns:
            text = given = texts[layout.columns[column.name]]
            if csv.unchanged is not None and not load:
                marked = pc.equal(text, csv.unchanged)
                if any_true(mask := to_mask(marked)):
                    unchanged[column.name] = mask
                    text = null_where(marked, text)
            columns[column.name] = replace(read_text(text, column, spec), source=given)
        if column.name in layout.before and column.name in spec.key and not load:
            image, absent = _image_text(rows, layout, column, csv)
            before[column.name], missing[column.name] = read_text(image, column, spec), absent

    def images() -> dict[str, Cells]:
        others = (
            column for column in spec.read_columns if column.name in layout.before and column.name not in spec.key
        )
        return {other.name: read_text(_image_text(rows, layout, other, csv)[0], other, spec) for other in others}

    return Block(
        rows=rows.rows,
        raw=rows.raw,
        operation=None if layout.operation is None else texts[layout.operation],
        timestamp=None if layout.timestamp is None else parse_moments(texts[layout.timestamp]),
        sequence=None if layout.sequence is None else texts[layout.sequence],
        transaction=None if layout.transaction is None else empty_as_null(texts[layout.transaction]),
        columns=columns,
        before=before,
        missing=missing,
        images=images,
        unchanged=unchanged,
        images_by_count=images_by_count,
    )


def quotes_count(layout: Layout, spec: ReadSpec) -> bool:
    """Whether an empty before image within quotes differs in meaning from one without."""
    texts = any(column.type == "string" and column.name in layout.before for column in spec.read_columns)
    return texts and not _empty_is_value(spec.settings.csv)


def _empty_is_value(csv: CsvSettings) -> bool:
    """Whether the declared null token is not empty, so that an empty field can only be empty text."""
    return bool(csv.null) and "null" in csv.model_fields_set


def _image_text(rows: TextRows, layout: Layout, column: Column, csv: CsvSettings) -> tuple[pa.Array, Mask]:
    """Return a column's before images as text, and which rows have none: an empty field, unless it is empty text."""
    position = layout.before[column.name]
    image = rows.texts[position]
    empty = to_mask(pc.equal(image, ""))
    if not rows.empty_is_missing:
        return image, np.zeros(len(empty), dtype=bool)
    if column.type == "string":
        # Whatever the null token is, DMS leaves the before images of inserts empty.
        inserts = to_mask(pc.equal(rows.texts[layout.operation], "I")) if layout.operation is not None else empty
        quoted = np.zeros(len(empty), dtype=bool)
        quoted[list(rows.quoted_empty.get(position, ()))] = True
        empty = empty & (inserts | ~(quoted | _empty_is_value(csv)))
    return null_where(pa.array(empty), image), empty


def parse_moments(text: pa.Array) -> Cells:
    """Convert a commit time column of text; an empty field is a missing time."""
    return parse_commit_times(empty_as_null(text))


def empty_as_null(text: pa.Array) -> pa.Array:
    """Return the texts with null for empty ones."""
    return null_where(pc.equal(text, ""), text)


if TYPE_CHECKING:
    Show = Callable[[int], str | None]


# What a row has where it has no fault: it is taken, or ignored.
_TAKEN, _IGNORED = -1, -2


class Faults:
    """The faults of a block's rows; a row is refused for the first one found."""

    def __init__(self, size: int) -> None:
        self._kind = np.full(size, _TAKEN, dtype=np.int32)
        self._kinds: list[tuple[str, str | None, Show]] = []

    def add(self, mask: Mask | None, reason: str, column: str | None, shown: Show) -> None:
        """Add a fault to the marked rows that have none yet."""
        if mask is None or not any_true(mask):
            return
        self._kind[mask & (self._kind == _TAKEN)] = len(self._kinds)
        self._kinds.append((reason, column, shown))

    def ignore(self, mask: Mask) -> None:
        """Leave out the marked rows that have no fault yet; what else is wrong with them does not matter."""
        self._kind[mask & (self._kind == _TAKEN)] = _IGNORED

    @property
    def ignored(self) -> int:
        """How many rows are ignored."""
        return int(np.count_nonzero(self._kind == _IGNORED))

    @property
    def mask(self) -> Mask | None:
        """The rows that are not taken, because of a fault or on purpose; None when there are none."""
        left_out = self._kind != _TAKEN
        return left_out if left_out.any() else None

    def bad_rows(self, block: Block) -> list[RefusedRow]:
        """Return the rows with a fault as bad rows, each with its reason."""
        if not self._kinds:
            return []
        bad = []
        for index in np.flatnonzero(self._kind >= 0).tolist():
            reason, column, shown = self._kinds[self._kind[index]]
            bad.append(RefusedRow(int(block.rows[index]), reason, column, shown(index), block.raw(index)))
        return bad


@dataclass
class Tally:
    """Counters of one file, filled while its rows are read."""

    file: LandingFile
    content_hash: str = ""
    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    moves: int = 0
    bad: int = 0
    ignored: int = 0
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
        """Count good rows by operation, a key change as one update."""
        self.inserts += int(np.count_nonzero(inserts))
        self.updates += int(np.count_nonzero(updates))
        self.deletes += int(np.count_nonzero(deletes))

    def see_places(self, changes: pa.RecordBatch) -> None:
        """Extend the range of commit times and, for changes, the first and last place."""
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
        """Return the first or last place among the records of one sequence."""
        among = pc.equal(sequences, sequence)
        rows, steps = (changes.column(name).filter(among) for name in (schemas.ROW, schemas.STEP))
        row = pc.min_max(rows)[end]
        step = pc.min_max(steps.filter(pc.equal(rows, row)))[end]
        return Place(sequence, self.file.time, self.file.path, row.as_py(), step.as_py())

    def summary(self) -> FileSummary:
        """Return the counts as the file's summary."""
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
            ignored=self.ignored,
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
