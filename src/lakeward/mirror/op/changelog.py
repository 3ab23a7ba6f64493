"""The changelog: records of ops and files, the commit that logs an op, and the bad rows that wait for a decision.

An op's changes, bad rows and control rows become one commit, or none of them does. Control rows record what an op did
and what became of each file; the ledger is derived from them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakeward import schemas as S
from lakeward.documents import Record, to_compact_json
from lakeward.formats.base import FileSummary
from lakeward.formats.file_order import shown_place
from lakeward.iceberg.attempt import Attempt
from lakeward.iceberg.define import BAD_ROWS_STAMP, LOGGED_STAMP, empty_snapshot
from lakeward.mirror.op.erased import Erasure
from lakeward.mirror.op.fold import ONE_TASK
from lakeward.mirror.op.steps import Step
from lakeward.model import Disposition, FileClass, LedgerEntry, OpKind, Progress
from lakeward.text import json_object, refusing_damage
from lakeward.transforms.columns import column, columns
from lakeward.transforms.fold import is_standing

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

    from lakeward.mirror.op.context import TableContext
    from lakeward.mirror.op.effect import PreparedOp


# Files that an op recorded, never having read them.
UNREAD = (Disposition.FENCED, Disposition.ARRIVED, Disposition.CONTAINED)
REBUILD = "drop the table's changelog and mirror and run again: both are then rebuilt from the landing files"


@dataclass(frozen=True)
class LoadDecision(Record, required=("changed", "kept", "dropped")):
    """The interpretation of a load: kept in the control row, so that the choice can be checked later.

    ``evidence`` names what the cut came from: ``first load`` (every change file follows it), ``load times`` (times
    inside the load's rows), ``landing times`` (modification times, declared as trusted), ``user`` (``--cut``),
    ``observed`` (no change file was there), ``same load`` (a part that came later), ``last file`` (the newest one that
    an adopted lake contains) or ``reset`` (as it was known before a reset). ``cut`` is a place in the order of files,
    20 digits unless ``files.order`` decides; ``before`` and ``after`` count the change files known on either side of
    it. ``changed`` are parts with new content, ``kept`` parts that are unchanged and ``dropped`` parts of the load
    before that this load lacks.
    """

    evidence: str
    cut: str = ""
    before: int = 0
    after: int = 0
    changed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    load_from: int | None = None
    load_to: int | None = None

    @property
    def shown_cut(self) -> str:
        """The cut in a form for people, empty where every change file follows the load."""
        return shown_place(self.cut) if self.cut else ""


@dataclass(frozen=True)
class OpRecord(Record):
    """The control row of an op, with the progress that holds once it is logged.

    ``starts`` marks the first op of its generation, ``late`` an op with changes that precede others already applied.
    ``partial``: some changes lack columns; ``moves``: some change a key. ``back_to`` is the op whose state an undo or
    void restores. ``erasure`` holds the keys of an erase op. ``keys`` and ``reason`` are how many keys a repair
    corrects, and why; ops that record files which an erasure rewrote have a reason as well. ``decision`` explains how a
    load was interpreted.
    """

    op: int
    kind: OpKind
    generation: int
    progress: Progress
    starts: bool = False
    late: bool = False
    partial: bool = False
    moves: bool = False
    back_to: int | None = None
    erasure: Erasure | None = None
    keys: int | None = None
    reason: str = ""
    decision: LoadDecision | None = None

    def to_json(self) -> str:
        """Write as JSON for the control row's detail column."""
        return to_compact_json(self)

    @classmethod
    def from_json(cls, text: str) -> OpRecord:
        """Read what :meth:`to_json` wrote.

        Raises:
            DataError: the control row is damaged.
        """
        with refusing_damage("a control row of the changelog", hint=REBUILD):
            return cls.from_dict(json_object(text))


@dataclass(frozen=True)
class FileRecord(
    Record,
    keys=("disposition", "summary", "generation"),
    renamed={"summary": "file"},
    if_set=("generation",),
    ignores_unknown=True,
):
    """The outcome of one file in an op; ``generation`` is the file's own where it is not the op's."""

    summary: FileSummary
    disposition: Disposition
    generation: int | None = None

    @property
    def was_read(self) -> bool:
        """Whether the op read the file, and did not only record it.

        Only recorded are copies, fenced files, load files that are not part of the load, arrivals, and change files
        that an adopted lake contains.
        """
        left_over = self.disposition is Disposition.SUPERSEDED and self.summary.file_class is FileClass.LOAD
        return not (left_over or self.disposition.is_note or self.disposition in UNREAD)

    def to_json(self) -> str:
        """Write as JSON for the file row's detail column."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> FileRecord:
        """Read what :meth:`to_json` wrote.

        Raises:
            DataError: the control row is damaged.
        """
        with refusing_damage("a control row of the changelog", hint=REBUILD):
            return cls.from_dict(json_object(text))

    def ledger_entry(self, op: int, generation: int) -> LedgerEntry:
        """Return the ledger's view of this record."""
        found = self.summary
        return LedgerEntry(
            path=found.path,
            identity=found.identity,
            content_hash=found.content_hash,
            rows=found.rows,
            disposition=self.disposition,
            generation=generation if self.generation is None else self.generation,
            op=op,
            file_class=found.file_class,
            time=found.time,
        )


def arrived(file: FileSummary) -> FileRecord:
    """Return the record of a change file's number; it is of no generation until it is read."""
    return FileRecord(file, Disposition.ARRIVED, generation=0)


@dataclass(frozen=True)
class Resolution:
    """A bad row that was put back or dropped."""

    file: str
    row: int
    outcome: str


def control_rows(
    spark: SparkSession, record: OpRecord, files: Iterable[FileRecord], resolutions: Sequence[Resolution] = ()
) -> DataFrame:
    """Return an op's control rows as a frame with the record fields."""
    rows: list[dict[str, Any]] = [{S.KIND: S.KIND_CONTROL, S.DETAIL: record.to_json()}]
    rows += [
        {S.KIND: S.KIND_FILE, S.FILE: file.summary.path, S.FILE_TIME: file.summary.time, S.DETAIL: file.to_json()}
        for file in files
    ]
    rows += [
        {
            S.KIND: S.KIND_CONTROL,
            S.FILE: resolution.file,
            S.ROW: resolution.row,
            S.DETAIL: json.dumps({"resolved": resolution.outcome}),
        }
        for resolution in resolutions
    ]
    # One literal that Spark expands: a frame made from Python rows would cost a serialised task per core.
    text = F.lit(json.dumps(rows, ensure_ascii=False))
    return spark.range(0, 1, 1, 1).select(F.inline(F.from_json(text, T.ArrayType(S.record_struct(())))))


# Keeps the op's number out of the code that Spark generates, which would otherwise be compiled again for every op.
# Numbers become part of that code; text does not, unless constants are folded first.
_SAME_CODE_FOR_EVERY_OP = {
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.ConstantFolding"
}


def log_op(context: TableContext, prepared: PreparedOp, resolutions: Sequence[Resolution] = ()) -> int:
    """Commit an op to the changelog on top of the snapshot it was prepared for; return the new snapshot's id.

    Without such a snapshot the changelog is new, and the state store has no ledger of the table.

    Raises:
        ConflictError: the changelog has changed since, or the lease was lost. Nothing was logged.
    """
    record, rows, files = prepared.record, prepared.rows, prepared.files
    base = prepared.bases.changelog.id if prepared.bases.changelog else None
    bad_rows = _open_after(context, prepared, resolutions)
    control = control_rows(context.spark, record, files, resolutions)
    entry = control if rows is None else rows.unionByName(control, allowMissingColumns=True)
    if prepared.row_count <= ONE_TASK:
        entry = entry.coalesce(1)
    numbers = [
        F.lit(str(record.op)).cast("long").alias(S.OP),
        F.lit(str(record.generation)).cast("int").alias(S.GENERATION),
    ]
    start = empty_snapshot(context.changelog) if base is None else base
    with Attempt(context.changelog, op=record.op, base=start) as attempt:
        context.reached(Step.LOG_BRANCH)
        expected = prepared.row_count + 1 + len(files) + len(resolutions)
        stamps = {LOGGED_STAMP: str(record.op), BAD_ROWS_STAMP: str(bad_rows)}
        with context.spark_settings(_SAME_CODE_FOR_EVERY_OP):
            attempt.append(entry.select(*numbers, *columns(entry.columns)), stamps, expected=expected)
        context.reached(Step.LOG_APPEND)
        snapshot = attempt.publish(before=context.permission.require).id
        context.reached(Step.LOG_PUBLISH)
    context.reached(Step.LOG_DROP)
    if record.back_to is not None:
        # The cache holds files of ops that are undone now; only the changelog has the state before.
        context.state.forget_ledger(context.table)
    else:
        entries = [file.ledger_entry(record.op, record.generation) for file in files]
        context.state.extend_ledger(
            context.table, after=base, snapshot_id=snapshot, progress=record.progress, entries=entries
        )
    context.reached(Step.LOG_LEDGER)
    return snapshot


def changes_of(log: DataFrame, op: int) -> DataFrame:
    """Return the changes that one op logged."""
    return log.filter((column(S.KIND) == S.KIND_CHANGE) & (column(S.OP) == op)).drop(S.OP, S.GENERATION)


def changes_before(log: DataFrame, record: OpRecord) -> DataFrame:
    """Return the changes of an op's generation that earlier ops logged and that are not undone."""
    own = (column(S.KIND) == S.KIND_CHANGE) & (column(S.GENERATION) == record.generation)
    earlier = (column(S.OP) < record.op) & is_standing(record.progress.undone)
    return log.filter(own & earlier).drop(S.OP, S.GENERATION)


def open_rows(log: DataFrame, progress: Progress) -> DataFrame:
    """Return the bad rows that wait for a decision: not undone at a progress, and not resolved since."""
    standing = is_standing(progress.undone)
    bad = log.filter((column(S.KIND) == S.KIND_BAD) & standing)
    decided = f"{S.PREFIX}decided"
    resolved = log.filter((column(S.KIND) == S.KIND_CONTROL) & column(S.FILE).isNotNull() & standing)
    last = resolved.groupBy(S.FILE, S.ROW).agg(F.max(S.OP).alias(decided))
    # A reload reads files again: a decision on a row does not apply to the same row when it is read again.
    is_open = column(decided).isNull() | (column(decided) < column(S.OP))
    return bad.join(last, on=[S.FILE, S.ROW], how="left").filter(is_open).drop(decided)


def is_named(ids: Collection[str]) -> SparkColumn:
    """Return the condition for rows with one of the ids that commands use: file and row number."""
    return F.concat(column(S.FILE), F.lit(":"), column(S.ROW)).isin(*ids)


def _open_after(context: TableContext, prepared: PreparedOp, resolutions: Sequence[Resolution]) -> int:
    """Return how many bad rows wait once an op is logged; only ops that remove some have to search for them.

    Every op stamps the number into its commit, so that it is known without reading the changelog.
    """
    added = sum(summary.bad for summary in prepared.summaries)
    base, record = prepared.bases.changelog, prepared.record
    if base is None or (record.back_to is None and not resolutions):
        return prepared.bases.bad_rows + added
    rows = open_rows(context.changelog.read(base.id), record.progress)
    if resolutions:
        rows = rows.filter(~is_named({f"{resolution.file}:{resolution.row}" for resolution in resolutions}))
    return rows.count() + added
