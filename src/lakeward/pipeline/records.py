"""Control rows of the changelog: what an op did, and what became of each file. The ledger is derived from them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakeward import schemas as S
from lakeward.documents import Record, to_compact_json
from lakeward.model import Disposition, FileClass, LedgerEntry, OpKind, Progress
from lakeward.pipeline.erased import Erasure
from lakeward.reading_back import json_object, refusing_damage
from lakeward.sources.base import FileSummary

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import DataFrame, SparkSession


REBUILD = "drop the table's changelog and mirror and run again: both are then built anew from the landing files"


@dataclass(frozen=True)
class LoadDecision(Record, required=("changed", "kept", "dropped")):
    """Why a load was taken as it was: kept in the control row, so that the choice can be checked later.

    ``evidence`` names what the cut came from: ``first load`` (every change file follows it), ``load times`` (times
    inside the load's rows), ``landing times`` (modification times, declared as trusted), ``user`` (``--cut``),
    ``observed`` (no change file was there) or ``same load`` (a part that came later). ``cut`` is in 20 digits,
    ``before`` and ``after`` count the change files known on either side of it. ``changed`` are parts with new content,
    ``kept`` parts taken over unchanged and ``dropped`` parts of the load before that this one does not have.
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


@dataclass(frozen=True)
class OpRecord(Record):
    """An op as its control row tells it, with the progress that holds once it is logged.

    ``starts`` marks the first op of its generation, ``late`` one that reaches back before changes already applied.
    ``partial`` and ``moves`` say what its changes need when folded. ``back_to`` is the op whose
    state holds again, where this one takes back every op after it. ``erasure`` tells what an erase op erases.
    ``keys`` and ``reason`` say how many keys a repair puts right, and why. ``decision`` says why a load was taken.
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
    """What became of one file in an op; ``generation`` is the file's own where it is not the op's."""

    summary: FileSummary
    disposition: Disposition
    generation: int | None = None

    @property
    def was_read(self) -> bool:
        """Tell files that the op read from those it only took note of.

        These are copies, files that were fenced, and load files that are not part of the load.
        """
        left_over = self.disposition is Disposition.SUPERSEDED and self.summary.file_class is FileClass.LOAD
        return not (left_over or self.disposition.is_note or self.disposition is Disposition.FENCED)

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
        """Give the ledger's view of this record."""
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


@dataclass(frozen=True)
class Resolution:
    """A bad row that was put back or dropped."""

    file: str
    row: int
    outcome: str


def control_rows(
    spark: SparkSession, record: OpRecord, files: Iterable[FileRecord], resolutions: Sequence[Resolution] = ()
) -> DataFrame:
    """Give an op's control rows as a frame with the record fields."""
    rows: list[dict[str, Any]] = [{S.KIND: S.KIND_CONTROL, S.DETAIL: record.to_json()}]
    rows += [
        {S.KIND: S.KIND_FILE, S.FILE: one.summary.path, S.FILE_TIME: one.summary.time, S.DETAIL: one.to_json()}
        for one in files
    ]
    rows += [
        {S.KIND: S.KIND_CONTROL, S.FILE: one.file, S.ROW: one.row, S.DETAIL: json.dumps({"resolved": one.outcome})}
        for one in resolutions
    ]
    # One literal that Spark unfolds: a frame made from Python rows would cost a serialised task per core.
    text = F.lit(json.dumps(rows, ensure_ascii=False))
    return spark.range(0, 1, 1, 1).select(F.inline(F.from_json(text, T.ArrayType(S.record_struct(())))))
