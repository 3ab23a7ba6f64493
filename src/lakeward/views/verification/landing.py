"""The landing files of a table in a verification: read again for recomputing it, and audited as a whole.

The files that the table's ops consumed are known from the changelog's control rows. That list stays in Spark: each
task reads its files again and compares their content with what was recorded. A file that is gone, has different
content or is read differently today is reported.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from lakeward import schemas as S
from lakeward.formats.base import FileSummary
from lakeward.formats.dms.transactions import read_any
from lakeward.formats.dms.values import build_batch, record_schema
from lakeward.mirror.op.changelog import FileRecord
from lakeward.mirror.op.choose import Scan, list_landing
from lakeward.mirror.op.cut import LOAD_TIMES, load_times
from lakeward.mirror.op.ledger import load_decisions
from lakeward.mirror.op.loads import is_part
from lakeward.mirror.op.places import has_own_order
from lakeward.mirror.op.reading import read_work, task_count
from lakeward.model import Disposition, FileClass, LandingFile, time_digits
from lakeward.spark.marks import in_task
from lakeward.transforms.columns import column
from lakeward.transforms.fold import is_standing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import DataFrame

    from lakeward.columns import Column
    from lakeward.mirror.op.as_of import PointInTime
    from lakeward.mirror.op.context import TableContext
    from lakeward.mirror.op.effect import Bases
    from lakeward.model import Generation, LedgerEntry, Progress
    from lakeward.spark.workspace import Workspace
    from lakeward.storage.landing import Landing
    from lakeward.views.verification.recompute import PastSpecs


_PROBLEMS_SHOWN = 3
_COUNTED = ("rows", "inserts", "updates", "deletes", "moves", "bad", "partial")


@dataclass(frozen=True)
class FilesRead:
    """All records of a table's consumed files with their op; ``problem`` is why they cannot be relied on."""

    records: DataFrame
    rows: int
    problem: str | None = None


@dataclass(frozen=True)
class _Reading:
    """The input of a task that reads files again. It is pickled."""

    storage: Landing
    specs: PastSpecs
    columns: tuple[Column, ...]
    has_erasures: bool
    only_check: bool = False


def consumed_files(at: PointInTime, log: DataFrame) -> DataFrame:
    """Return op and record of every file that was consumed and counts at a moment."""
    is_counted = (
        (column(S.KIND) == S.KIND_FILE)
        & (column(S.GENERATION) == at.generation.number)
        & (column(S.OP) <= at.progress.op)
        & is_standing(at.progress.undone)
    )
    disposition = F.get_json_object(column(S.DETAIL), "$.disposition")
    return log.filter(is_counted & (disposition == Disposition.CONSUMED.value)).select(S.OP, S.DETAIL)


def read_files(
    at: PointInTime, workspace: Workspace, log: DataFrame, specs: PastSpecs, columns: tuple[Column, ...]
) -> FilesRead:
    """Read every consumed file again, after checking that none is gone or has another size where there are many."""
    files = consumed_files(at, log)
    size, rows = (F.get_json_object(column(S.DETAIL), f"$.file.{name}") for name in ("identity.size", "rows"))
    count, total_size, total_rows = files.agg(
        F.count(F.lit(1)),
        F.coalesce(F.sum(size.cast("long")), F.lit(0)),
        F.coalesce(F.sum(rows.cast("long")), F.lit(0)),
    ).collect()[0]
    tasks = task_count(total_size, count)
    spread = files.repartition(tasks) if tasks > 1 else files.coalesce(1)
    reading = _Reading(at.context.storage, specs, columns, at.bases.erased is not None)
    if tasks > 1:
        checked = _read(spread, replace(reading, only_check=True))
        if problem := _problem(checked, count):
            return FilesRead(checked, total_rows, problem)
    records = workspace.keep(_read(spread, reading))
    return FilesRead(records, total_rows, _problem(records, count))


def _read(files: DataFrame, reading: _Reading) -> DataFrame:
    struct = StructType([S.OP_FIELDS[0], *S.record_struct(reading.columns).fields])

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for op, detail in zip(*(values.to_pylist() for values in batch.columns), strict=True):
                yield from _read_again(op, FileRecord.from_json(detail).summary, reading)

    return files.mapInArrow(in_task(read), struct)


def _problem(records: DataFrame, count: int) -> str | None:
    troubled = records.filter(column(S.KIND) == S.KIND_FILE).select(S.FILE, S.DETAIL)
    found = troubled.limit(_PROBLEMS_SHOWN).collect()
    if not found:
        return None
    shown = "; ".join(f"{row[0]} {row[1]}" for row in found)
    number = troubled.count() if len(found) == _PROBLEMS_SHOWN else len(found)
    return f"{number:,} of {count:,} consumed files cannot be read as they were: {shown}"


def _read_again(op: int, recorded: FileSummary, reading: _Reading) -> Iterator[pa.RecordBatch]:
    """Yield a file's records, and a file record with the problem where there is one."""
    try:
        identity = reading.storage.identity(recorded.path)
    except FileNotFoundError:
        yield _trouble(op, recorded, "is gone", reading)
        return
    spec = reading.specs.at(op)
    if identity.size != recorded.identity.size:
        trouble = f"has {identity.size:,} bytes now, and had {recorded.identity.size:,} when op {op} consumed it"
        yield _trouble(op, recorded, trouble, reading)
    elif spec is None:
        yield _trouble(op, recorded, f"was read under columns that are no longer known, by op {op}", reading)
    elif not reading.only_check:
        location = reading.storage.location(recorded.path)
        file = LandingFile(recorded.path, location, recorded.file_class, recorded.time, identity)
        yield from _checked(op, recorded, read_any(reading.storage, file, spec), reading)


def _checked(
    op: int, recorded: FileSummary, batches: Iterable[pa.RecordBatch], reading: _Reading
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if batch.column(S.KIND)[0].as_py() != S.KIND_FILE:
            yield _conformed(op, batch, reading)
            continue
        found = FileSummary.from_json(batch.column(S.DETAIL)[0].as_py())
        if trouble := _difference(recorded, found, has_erasures=reading.has_erasures):
            yield _trouble(op, recorded, trouble, reading)


def _difference(recorded: FileSummary, found: FileSummary, *, has_erasures: bool) -> str | None:
    """Return how a file differs from what was recorded when it was consumed, None where it does not."""
    if not found.stable:
        return "changed while it was read"
    if found.content_hash != recorded.content_hash:
        return "has other content than when it was consumed"
    if found.problem or found.mismatch:
        return f"cannot be read under today's settings: {found.problem or 'its columns do not fit'}"
    # Rows of keys that were erased before the file came are counted separately, not by operation.
    then = {"rows": recorded.rows + recorded.erased} if has_erasures else _counts(recorded)
    now = {name: _counts(found)[name] for name in then}
    if now != then:
        shown = ", ".join(f"{now[name]:,} {name} for {then[name]:,}" for name in then if now[name] != then[name])
        return f"reads differently under today's settings: {shown}"
    return None


def _counts(summary: FileSummary) -> dict[str, int]:
    """Return a file's counts; rows that were ignored count as bad, as they are under another ``without_key``."""
    counts = {name: getattr(summary, name) for name in _COUNTED}
    return {**counts, "rows": summary.rows + summary.ignored, "bad": summary.bad + summary.ignored}


def _conformed(op: int, batch: pa.RecordBatch, reading: _Reading) -> pa.RecordBatch:
    """Return records that were read under earlier columns with the table's present columns."""
    schema = _schema(reading)
    arrays = {
        field.name: batch.column(field.name).cast(field.type) for field in schema if field.name in batch.schema.names
    }
    return build_batch(schema, batch.num_rows, {S.OP: op, **arrays})


def _trouble(op: int, recorded: FileSummary, trouble: str, reading: _Reading) -> pa.RecordBatch:
    fields = {S.OP: op, S.KIND: S.KIND_FILE, S.FILE: recorded.path, S.DETAIL: trouble}
    return build_batch(_schema(reading), 1, fields)


def _schema(reading: _Reading) -> pa.Schema:
    return pa.schema([pa.field(S.OP, pa.int64(), nullable=False), *record_schema(reading.columns)])


# The audit of landing: every file in it is consumed, superseded for a recorded reason, or reported.
# A verification does not rely on earlier decisions. Which change files follow the current load is derived again from
# the content of the files, without regard to what was decided when the load was taken.


_SHOWN = 3


@dataclass
class LandingAudit:
    """The result of an audit of landing. ``findings`` are faults, ``notes`` are for information."""

    findings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def audit_landing(context: TableContext, workspace: Workspace, bases: Bases, progress: Progress) -> LandingAudit:
    """List a table's landing files and compare how each was used with what its content shows."""
    audit, current = LandingAudit(), progress.generation
    if current is None:
        return audit
    cut = _cut_by_content(context, workspace, bases, current)
    counts: Counter[str] = Counter()
    examples: dict[str, list[str]] = {}
    for file, entry in _known_files(context):
        verdict = _verdict(context, file, entry, current, cut)
        counts[verdict] += 1
        if len(shown := examples.setdefault(verdict, [])) < _SHOWN:
            shown.append(file.path)
    for verdict in sorted(counts.keys() - {_FINE}):
        names = ", ".join(examples[verdict])
        text = f"{counts[verdict]:,} landing files {verdict}: {names}{' …' if counts[verdict] > _SHOWN else ''}"
        (audit.notes if verdict == _WAITING else audit.findings).append(text)
    if not current.emptied and current.number > 1:
        audit.notes.append(_how_decided(context, bases, progress, current, cut))
    return audit


_FINE, _WAITING = "fine", "wait for a run"
_CHANGED = "have other content than when they were consumed"
_LOST = "follow the current load by their name, but are not applied to it"
_REPLAYED = "precede the current load by their name, but are applied to it"


def _known_files(context: TableContext) -> Iterator[tuple[LandingFile, LedgerEntry | None]]:
    """Yield every landing file with its ledger entry, None where it has none."""
    for page in list_landing(context, Scan()):
        known = context.state.lookup(context.table, [file.path for file in page])
        yield from ((file, known.get(file.path)) for file in page)


def _verdict(
    context: TableContext, file: LandingFile, entry: LedgerEntry | None, current: Generation, cut: str | None
) -> str:
    if entry is None or entry.disposition is Disposition.ARRIVED:
        return _WAITING
    if entry.disposition in (Disposition.FENCED, Disposition.CONTAINED):
        return _FINE
    if entry.identity != file.identity:
        with context.storage.spool(file.path) as (_, content_hash):
            if content_hash != entry.content_hash:
                return _WAITING if file.file_class is FileClass.LOAD else _CHANGED
    if cut is None or file.file_class is FileClass.LOAD:
        return _FINE
    if file.time >= cut and entry.generation < current.number:
        return _LOST
    return _REPLAYED if file.time < cut and entry.generation == current.number else _FINE


def _cut_by_content(context: TableContext, workspace: Workspace, bases: Bases, current: Generation) -> str | None:
    """Return the cut that the load's rows prove.

    Returns None where the load is the first, its rows have no time, or ``files.order`` orders files, not their times.
    """
    if current.number == 1 or context.settings.timestamp_column is None or has_own_order(context):
        return None
    entries = {entry.path: entry for entry in context.state.load_parts(context.table, current.number)}
    pages = list_landing(context, Scan())
    parts = [
        file
        for page in pages
        for file in page
        if file.path in entries and is_part(entries[file.path]) and file.file_class is FileClass.LOAD
    ]
    if not parts:
        return None
    columns, _, summaries = read_work(context, workspace, current, parts, bases.columns, op=0, erased=None)
    times = load_times(context, columns, [summary for summary in summaries if summary.stable])
    if times is None:
        return None
    # A single time may be the start of the task: then it is proof of the cut only where nothing else decided.
    first = time_digits(times[0])
    return first if current.timed_by_row or times[0] < times[1] or first == current.cut else None


def _how_decided(context: TableContext, bases: Bases, progress: Progress, current: Generation, cut: str | None) -> str:
    """Return a note on the evidence for the current generation's cut, and whether the files confirm it."""
    assert bases.changelog is not None  # the table has run
    decision = load_decisions(context.changelog.read(bases.changelog.id), progress).get(current.number)
    if decision is None:
        return f"generation {current.number}: an earlier version of Lakeward took its load and recorded no reason"
    proven = ", which their content proves again" if decision.evidence == LOAD_TIMES and cut == decision.cut else ""
    return (
        f"generation {current.number}: change files named from {decision.shown_cut} on follow its load, by "
        f"{decision.evidence}{proven}"
    )
