"""Bad rows that were set aside: their list, read from the changelog, and the ops that put them back or drop them.

A repaired row is put back at its own place in the order: it keeps its file, row and sequence, so that later changes
of the same key still win.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from lakeward import schemas as S
from lakeward.documents import Document
from lakeward.errors import ConfigurationError
from lakeward.formats.base import ReadSpec
from lakeward.formats.dms.quarantined import parse_raw, rows_of_file
from lakeward.mirror.kinds import handler_of
from lakeward.mirror.op.changelog import FileRecord, OpRecord, Resolution, is_named, open_rows
from lakeward.mirror.op.effect import OpInput, PreparedOp, capture
from lakeward.mirror.op.erased import is_erased
from lakeward.mirror.op.ledger import bad_row_details, current_progress, progress_of
from lakeward.mirror.op.metadata_columns import source_columns, with_metadata, with_metadata_columns
from lakeward.mirror.op.order_check import require_decided_order
from lakeward.mirror.op.schema import describe_changes, known_columns, require_names
from lakeward.mirror.run import carry_out, finish_interrupted
from lakeward.model import OpKind, Place
from lakeward.spark.marks import in_task
from lakeward.spark.workspace import Workspace
from lakeward.transforms.columns import column

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame

    from lakeward.columns import Column
    from lakeward.mirror.op.context import TableContext
    from lakeward.mirror.op.effect import Bases
    from lakeward.mirror.op.report import OpReport
    from lakeward.model import Progress

# Rows put back by one op: they are parsed on the driver.
BATCH = 1000


@dataclass(frozen=True)
class BadRow(
    Document,
    keys=("id", "op", "generation", "file", "file_time", "row", "reason", "column", "value", "raw"),
):
    """A row that was set aside. Its ``id`` is file and row number.

    ``raw`` is its text; None, as ``value`` is, for a table with a column policy, of which no value is kept.
    """

    op: int
    generation: int
    file: str
    file_time: str
    row: int
    reason: str
    column: str | None
    value: str | None
    raw: str | None

    @property
    def id(self) -> str:
        """The id of the row in commands."""
        return f"{self.file}:{self.row}"


@dataclass(frozen=True)
class QuarantineReport(Document):
    """The result of a retry or drop: rows handled, rows that are still bad and why, and the ops that were run."""

    handled: int = 0
    still_bad: tuple[BadRow, ...] = ()
    ops: tuple[OpReport, ...] = ()

    def __add__(self, other: QuarantineReport) -> QuarantineReport:
        return QuarantineReport(self.handled + other.handled, self.still_bad + other.still_bad, self.ops + other.ops)


def bad_rows(context: TableContext, ids: Collection[str] = (), *, limit: int | None = None) -> Iterator[BadRow]:
    """Yield the bad rows that are neither put back nor dropped, in file and row order."""
    if not context.changelog.exists():
        return
    head = context.changelog.require_head().id
    rows = open_rows(context.changelog.read(head), current_progress(context, head))
    if ids:
        rows = rows.filter(is_named(ids))
    rows = rows.orderBy(S.OP, S.FILE_TIME, S.FILE, S.ROW)
    for row in (rows.limit(limit) if limit is not None else rows).toLocalIterator():
        reason, name, value = bad_row_details(row[S.DETAIL])
        yield BadRow(
            row[S.OP], row[S.GENERATION], row[S.FILE], row[S.FILE_TIME], row[S.ROW], reason, name, value, row[S.RAW]
        )


def retry_rows(context: TableContext, ids: Collection[str], replacements: Mapping[str, str]) -> QuarantineReport:
    """Parse bad rows again under the current settings and put back those that are valid now.

    Without ids all rows are tried. ``replacements`` holds repaired text for some rows.
    """
    finish_interrupted(context)
    report = QuarantineReport()
    for group in _groups(context, {*ids, *replacements}):
        report += _retry(context, group, replacements)
    return report


def drop_rows(context: TableContext, ids: Collection[str]) -> QuarantineReport:
    """Drop bad rows: they stay in the changelog and are no longer listed."""
    finish_interrupted(context)
    report = QuarantineReport()
    for group in _groups(context, ids):
        report += QuarantineReport(len(group), (), (_resolve(context, group, None, "dropped"),))
    return report


def _groups(context: TableContext, ids: Collection[str]) -> Iterator[list[BadRow]]:
    """Yield the chosen rows, read at one snapshot, in groups of one op's size and one generation."""
    rows = bad_rows(context, ids)
    found = 0
    while group := list(islice(rows, BATCH)):
        found += len(group)
        for generation in sorted({row.generation for row in group}):
            yield [row for row in group if row.generation == generation]
    if found < len(ids):
        msg = f"{context.table}: {len(ids) - found} of the named rows are not among its bad rows"
        raise ConfigurationError(msg, hint=f"lakeward quarantine list {context.table}")


def _retry(context: TableContext, rows: Sequence[BadRow], replacements: Mapping[str, str]) -> QuarantineReport:
    progress, _ = _current_state(context)
    number = rows[0].generation
    generation = next(generation for generation in progress.generations if generation.number == number)
    spec = ReadSpec(context.table, _source_columns(context), context.settings, generation.order_by)
    good: list[tuple[BadRow, pa.RecordBatch]] = []
    still_bad: list[BadRow] = []
    for row, batch in _parsed_again(context, rows, replacements, spec):
        if isinstance(batch, str):
            still_bad.append(replace(row, reason=batch, column=None, value=None))
            continue
        kinds = batch.column(S.KIND).to_pylist()
        if S.KIND_BAD in kinds:
            still_bad.append(_with_detail(row, batch.column(S.DETAIL)[kinds.index(S.KIND_BAD)].as_py()))
        else:
            good.append((row, batch))
    if not good:
        return QuarantineReport(0, tuple(still_bad))
    table = pa.Table.from_batches([batch for _, batch in good])
    return QuarantineReport(
        len(good), tuple(still_bad), (_resolve(context, [row for row, _ in good], table, "retried"),)
    )


def _parsed_again(
    context: TableContext, rows: Sequence[BadRow], replacements: Mapping[str, str], spec: ReadSpec
) -> Iterator[tuple[BadRow, pa.RecordBatch | str]]:
    """Yield each row with its records, or with the reason why it cannot be read again.

    A row is read from its replacement, from the text that was kept, or else from its landing file.
    """
    textless = [row for row in rows if row.id not in replacements and row.raw is None]
    from_files = dict(_read_again(context, textless, spec)) if textless else {}
    for row in rows:
        text = replacements.get(row.id, row.raw)
        if text is None:
            yield row, from_files[row.id]
        else:
            yield row, parse_raw(text, row.file, row.file_time, row.row, spec, load=not row.file_time)


def _read_again(
    context: TableContext, rows: Sequence[BadRow], spec: ReadSpec
) -> Iterator[tuple[str, pa.RecordBatch | str]]:
    """Yield the ids of rows with their records from landing, or why there are none: each file is read once."""
    log = context.changelog.read(context.changelog.require_head().id)
    own = log.filter((column(S.KIND) == S.KIND_FILE) & column(S.FILE).isin(*{row.file for row in rows}))
    records = {(row[0], row[1]): FileRecord.from_json(row[2]) for row in own.select(S.OP, S.FILE, S.DETAIL).collect()}
    for op, path in sorted({(row.op, row.file) for row in rows}):
        numbers = [row.row for row in rows if (row.op, row.file) == (op, path)]
        found = rows_of_file(context.storage, records[op, path].summary, numbers, spec)
        yield from ((f"{path}:{number}", batch) for number, batch in found.items())


def _with_detail(row: BadRow, detail: str) -> BadRow:
    reason, name, value = bad_row_details(detail)
    return replace(row, reason=reason, column=name, value=value)


def _source_columns(context: TableContext) -> tuple[Column, ...]:
    settings = context.settings
    mirror = source_columns(context.mirror.columns(), settings)
    columns = known_columns(context.table, mirror, settings)
    require_names(context.table, columns, settings, mirror)
    return columns


def _resolve(context: TableContext, rows: Sequence[BadRow], changes: pa.Table | None, outcome: str) -> OpReport:
    """Log the rows' resolution, with their changes if they were repaired, and apply it as one op."""
    progress, bases = _current_state(context)
    partial = changes is not None and any(changes.column(S.UNCHANGED).to_pylist())
    moves = changes is not None and any(step == S.STEP_MOVED_HERE for step in changes.column(S.STEP).to_pylist())
    record = OpRecord(
        op=progress.op + 1,
        kind=OpKind.RETRY,
        generation=rows[0].generation,
        progress=_reached(progress, rows[0].generation, changes),
        late=True,
        partial=partial,
        moves=moves,
    )
    before, source = context.mirror.columns(), _source_columns(context)
    columns = with_metadata_columns(source, before, context.settings)
    evolution = describe_changes(before, columns, context.settings.renames)
    with Workspace() as workspace:
        frame, count = None, 0
        if changes is not None:
            repaired = _frame(context, changes, source)
            frame = workspace.keep(with_metadata(repaired, columns, context.settings, F.lit(record.op)))
            count = changes.num_rows
        if frame is not None and bases.erased is not None:
            # The key of a row may be known only now that the row is repaired.
            frame = frame.filter(~is_erased(frame, context.settings.primary_key, bases.erased))
            count = frame.count()
        op_input = OpInput(record, bases, columns, frame, count)
        require_decided_order(context, op_input, ())
        effect = handler_of(record.kind).compute_effect(context, workspace, op_input)
        prepared = PreparedOp(record, bases, columns, evolution, (), (), frame, op_input.rows, effect)
        return carry_out(context, prepared, [Resolution(row.file, row.row, outcome) for row in rows])


def _reached(progress: Progress, generation: int, changes: pa.Table | None) -> Progress:
    """Return the progress once repaired rows are logged: files that precede them are late from then on."""
    following = replace(progress, op=progress.op + 1)
    if changes is None or progress.generation is None or generation != progress.generation.number:
        return following
    fields = (changes.column(name).to_pylist() for name in (S.SEQUENCE, S.FILE_TIME, S.FILE, S.ROW, S.STEP))
    # A load row has no sequence: it precedes every change.
    places = [Place(*values) for values in zip(*fields, strict=True) if values[0] is not None]
    last = max([*places, *([progress.last_place] if progress.last_place else [])], default=None)
    commits = [pc.max(changes.column(S.COMMIT_TIME)).cast(pa.int64()).as_py(), progress.newest_commit]
    newest = max((commit for commit in commits if commit is not None), default=None)
    moved = newest if S.STEP_MOVED_HERE in changes.column(S.STEP).to_pylist() else progress.moved_until
    return replace(following, last_place=last, newest_commit=newest, moved_until=moved)


def _current_state(context: TableContext) -> tuple[Progress, Bases]:
    bases = capture(context)
    return progress_of(context, bases), bases


def _frame(context: TableContext, table: pa.Table, columns: Sequence[Column]) -> DataFrame:
    """Return an Arrow table as a frame, in a way that Spark 3.5 supports too."""
    batches = table.to_batches()
    numbers = context.spark.range(0, 1, 1, 1)
    return numbers.mapInArrow(in_task(lambda _: batches), S.record_struct(columns))
