"""Reset a table: read everything in its landing folder again, and publish what comes of it in one step.

The former state stays what readers see until then, and tagged afterwards. A reset that fails changes nothing, and so
does one that is killed: it is begun again. It is refused where landing no longer holds what the table was made from.
"""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakeward import schemas as S
from lakeward.delete_guard import Removal
from lakeward.documents import Document
from lakeward.errors import (
    ChangedFileError,
    ConfigurationError,
    ConflictError,
    DataError,
    DeleteShareError,
    VanishedError,
)
from lakeward.formats.base import FileSummary
from lakeward.formats.dms.listing import classify_as_set
from lakeward.iceberg.attempt import drop_abandoned
from lakeward.mirror.op.arrivals import placed
from lakeward.mirror.op.changelog import FileRecord, OpRecord
from lakeward.mirror.op.choose import Scan, list_landing
from lakeward.mirror.op.context import RunOptions
from lakeward.mirror.op.effect import ApplyPlan, Effect, PreparedOp, Strategy, capture
from lakeward.mirror.op.erased import REWRITTEN_REASON, unfinished_erasure
from lakeward.mirror.op.isolation import isolated
from lakeward.mirror.op.ledger import progress_of
from lakeward.mirror.op.loads import undecided_loads
from lakeward.mirror.op.places import is_recorded
from lakeward.mirror.op.steps import Step
from lakeward.mirror.run import TableOps, carry_out, finish_interrupted, require_whole
from lakeward.model import Disposition, FileClass, OpKind, Progress
from lakeward.text import listed
from lakeward.transforms.columns import column
from lakeward.transforms.fold import is_standing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from lakeward.mirror.op.context import TableContext
    from lakeward.mirror.op.effect import Bases
    from lakeward.mirror.op.report import Marked, OpReport
    from lakeward.model import Generation, LandingFile, LedgerEntry

# How many files a plan lists and an error names; beyond that they are only counted.
LISTED, _NAMED = 1000, 5
_NOT_USED = frozenset({Disposition.SUPERSEDED, Disposition.RETURNED, Disposition.FENCED, Disposition.ARRIVED})
_DECISIONS = (OpKind.RETRY, OpKind.REPAIR)


@dataclass(frozen=True)
class ResetPlan(Document):
    """What a reset would do. ``op`` is its number, ``newest_op`` the table's newest op.

    ``rows`` are those of the mirror now. ``files`` are those that would be read, at most 1,000 of ``file_count`` with
    ``size`` bytes together; ``new_files`` of them were never read. ``cut`` is the name time from which change files
    follow the load, in 20 digits, empty where all do. ``left_out`` are load files that are not part of the load, and
    ``fenced`` change files, both as decided before. ``retries`` and ``repairs`` count the ops that put quarantined rows
    back or dropped them, and that repaired rows: a reset does not repeat them. ``erased_keys`` stay erased. ``marked``
    are publications and tags of the former state.
    """

    table: str
    op: int
    newest_op: int
    rows: int
    generation: int
    cut: str
    file_count: int
    new_files: int
    size: int
    files: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    fenced: tuple[str, ...] = ()
    retries: int = 0
    repairs: int = 0
    erased_keys: int = 0
    marked: tuple[Marked, ...] = ()


@dataclass(frozen=True)
class TableReset(Document):
    """The result of a reset: its ops, the first of which is the reset itself, and the rows of the mirror."""

    plan: ResetPlan
    ops: tuple[OpReport, ...]
    rows: int
    seconds: float = 0.0


@dataclass
class _Some:
    """The number of some files, and the first of them."""

    count: int = 0
    paths: list[str] = field(default_factory=list)

    def add(self, path: str) -> None:
        self.count += 1
        if len(self.paths) < LISTED:
            self.paths.append(path)

    def __str__(self) -> str:
        """Return some of the paths, and how many more there are."""
        more = self.count - len(self.paths[:_NAMED])
        return ", ".join(self.paths[:_NAMED]) + (f" and {more:,} more" if more else "")


@dataclass
class _Landing:
    """A table's files in landing, by what the current generation has of them.

    ``read`` would be read by a reset. ``consumed`` counts those that the table is made of, ``changed`` of them have
    other content now. ``older`` are files from before the table was emptied, ``left_out`` files of other loads, and
    ``new_loads`` load files that no run has decided about, or not since they have other content.
    """

    context: TableContext
    before: Progress
    current: Generation
    read: _Some = field(default_factory=_Some)
    new_files: int = 0
    size: int = 0
    consumed: int = 0
    left_out: list[str] = field(default_factory=list)
    fenced: list[LedgerEntry] = field(default_factory=list)
    changed: _Some = field(default_factory=_Some)
    older: _Some = field(default_factory=_Some)
    undecided: _Some = field(default_factory=_Some)
    new_loads: _Some = field(default_factory=_Some)

    def add(self, listed_file: LandingFile, known: LedgerEntry | None) -> None:
        """Add a file with its entry in the ledger."""
        file, is_load = placed(listed_file, known), listed_file.file_class is FileClass.LOAD
        entry = None if known is not None and known.disposition is Disposition.ARRIVED else known
        if entry is not None and entry.disposition is Disposition.FENCED:
            self.fenced.append(entry)
            return
        if entry is None:
            self.new_files += 1
            if is_load:
                self.new_loads.add(file.path)
            elif is_recorded(file) and self.current.is_undecided(file.time):
                self.undecided.add(file.path)
        elif is_load and (entry.generation != self.current.number or not _is_used(entry)):
            self.left_out.append(file.path)
            if self._is_other(file, entry):
                self.new_loads.add(file.path)
            return
        elif entry.generation == self.current.number and _is_used(entry):
            self.consumed += 1
            if self._is_other(file, entry):
                self.changed.add(file.path)
        elif self.current.emptied:
            self.older.add(file.path)
        self.size += file.identity.size
        self.read.add(file.path)

    def _is_other(self, file: LandingFile, entry: LedgerEntry) -> bool:
        return entry.identity != file.identity and not _has_content(self.context, file, entry)


@dataclass(frozen=True)
class _Decision:
    bases: Bases
    before: Progress
    current: Generation
    landing: _Landing
    plan: ResetPlan

    @property
    def again(self) -> Generation | None:
        """The generation that the load is known to begin, None where every change file follows it."""
        return self.current if self.current.cut and not self.current.emptied else None


def plan_reset(context: TableContext) -> ResetPlan:
    """Return what a reset would do; nothing is written.

    Raises:
        LakewardError: the reset would be refused.
    """
    return _decide(context, None).plan


def reset(context: TableContext, newest_op: int | None = None) -> TableReset:
    """Read a table's files again and publish the result in one step; the context holds the table's lease.

    Raises:
        LakewardError: the reset is refused, or the files cannot be applied; the table is as it was.
    """
    started = time.monotonic()
    for table in (context.changelog, context.mirror):
        drop_abandoned(table)
    finish_interrupted(context)
    decision = _decide(context, newest_op)
    with isolated(context, decision.bases, _options(context, decision), decision.again) as view:
        first = carry_out(view.context, _first_op(decision))
        context.reached(Step.RESET_BEGUN)
        table_ops = TableOps(view.context)
        ops = (first, *table_ops)
        context.reached(Step.RESET_READ)
        _require_complete(view.context, decision, table_ops.end.reason)
        rows = view.context.mirror.require_head().rows
        _require_size(context, decision, rows)
        view.publish()
    return TableReset(decision.plan, ops, rows, time.monotonic() - started)


def _first_op(decision: _Decision) -> PreparedOp:
    """Return the op that undoes all others, and keeps files fenced."""
    op = decision.before.op + 1
    record = OpRecord(op, OpKind.RESET, 0, Progress().after_undoing(op, back_to=0), back_to=0)
    plan = ApplyPlan(Strategy.RESTORE, "all files in landing are read again")
    fences = tuple(_fence(entry) for entry in decision.landing.fenced)
    return PreparedOp(record, decision.bases, decision.bases.columns, (), fences, (), None, 0, Effect(plan))


def _fence(entry: LedgerEntry) -> FileRecord:
    summary = FileSummary(entry.path, entry.file_class, entry.time, entry.identity, entry.content_hash, rows=entry.rows)
    return FileRecord(summary, Disposition.FENCED)


def _options(context: TableContext, decision: _Decision) -> RunOptions:
    """Return the decisions that were made when the files were read first.

    Deletes were allowed one by one then; the reset as a whole is guarded.
    """
    entries = context.state.load_parts(context.table, decision.current.number)
    parts = frozenset(entry.path for entry in entries if _is_used(entry))
    return RunOptions(allow_deletes=True, keep_parts=parts, drop_parts=frozenset(decision.landing.left_out))


# --- what is there --------------------------------------------------------------------------------------------------


def _decide(context: TableContext, newest_op: int | None) -> _Decision:
    """Return what is to be read again.

    Raises:
        ConfigurationError: nothing was read, or something must be decided or finished first.
        ConflictError: the table has changed since the plan was shown.
        VanishedError: landing lacks files of the table, or holds others in their place.
    """
    bases = capture(context)
    require_whole(context, bases, "a reset")
    before = progress_of(context, bases)
    if newest_op is not None and newest_op != before.op:
        msg = f"{context.table} is at op {before.op}; it was at op {newest_op} when this reset was shown"
        raise ConflictError(msg, hint="look again: the same command with --dry-run")
    current = _require_decided(context, before)
    assert bases.changelog is not None  # require_whole
    assert bases.mirror is not None
    log = context.changelog.read(bases.changelog.id)
    landing = _landing(context, before, current)
    _require_same_files(log, landing)
    decided = _decisions(log, before)
    plan = ResetPlan(
        table=str(context.table),
        op=before.op + 1,
        newest_op=before.op,
        rows=bases.mirror.rows,
        generation=current.number,
        cut=current.cut if not current.emptied else "",
        file_count=landing.read.count,
        new_files=landing.new_files,
        size=landing.size,
        files=tuple(landing.read.paths),
        left_out=tuple(landing.left_out),
        fenced=tuple(entry.path for entry in landing.fenced),
        retries=decided.get(OpKind.RETRY, 0),
        repairs=decided.get(OpKind.REPAIR, 0),
        erased_keys=len(bases.erased.times) if bases.erased else 0,
    )
    return _Decision(bases, before, current, landing, plan)


def _require_decided(context: TableContext, before: Progress) -> Generation:
    """Return the current generation of a table about which nothing is open."""
    current, name = before.generation, context.table
    if current is None:
        msg = f"{name} is empty: no file counts as read, so there is nothing to begin again"
        raise ConfigurationError(msg, hint=f"lakeward run {name}")
    _require_no_lake(context, current)
    if unfinished_erasure(context.changelog.find_metadata()) is not None:
        msg = f"{name}: an erasure is not finished"
        raise ConfigurationError(msg, hint=f"lakeward erase {name} --resume")
    if warning := undecided_loads(context, current):
        msg = f"{name}: it must be decided first what the load files mean: {warning}"
        raise ConfigurationError(msg)
    if current.emptied and context.config.transactions:
        msg = (
            f"{name} was emptied in generation {current.number}, and transaction files from before that are still in "
            "landing: a reset would apply them again"
        )
        raise ConfigurationError(msg, hint="reload the table at the source")
    return current


def _require_no_lake(context: TableContext, current: Generation) -> None:
    """Refuse a table that would begin with the lake of another system: what was decided about it is not repeated."""
    name = shlex.quote(str(context.table))
    if current.adopted:
        msg = f"{context.table}: it began with a lake that another system wrote, and a reset reads only landing"
        hint = (
            f"to adopt the lake again, and decide on it again: lakeward undo {name} --to-op 0, then lakeward run {name}"
        )
        raise ConfigurationError(msg, hint=hint)
    if context.settings.adopt is not None:
        msg = f"{context.table}: adopt is set, and the table has had a load or truncate since it began with that lake"
        hint = f"lakeward tables set {name} --unset adopt, so that the lake is not adopted once more"
        raise ConfigurationError(msg, hint=hint)


def _landing(context: TableContext, before: Progress, current: Generation) -> _Landing:
    """List the table's files in landing, page by page."""
    found = _Landing(context, before, current)
    for page in list_landing(context, Scan()):
        known = context.state.lookup(context.table, [file.path for file in page])
        for file in page:
            found.add(file, known.get(file.path))
    return found


def _is_used(entry: LedgerEntry) -> bool:
    return entry.disposition not in _NOT_USED


def _has_content(context: TableContext, file: LandingFile, entry: LedgerEntry) -> bool:
    try:
        with context.storage.spool(file.path) as (_, content_hash):
            return content_hash == entry.content_hash
    except FileNotFoundError:
        return False


# --- what must not differ -------------------------------------------------------------------------------------------


def _require_same_files(log: DataFrame, landing: _Landing) -> None:
    """Refuse a reset where landing is not what the table was made from.

    Raises:
        VanishedError: files are gone, or came back after the table was emptied.
        ConfigurationError: files are there that no rule reads now.
        ChangedFileError: files have other content now.
    """
    context, before, current = landing.context, landing.before, landing.current
    used, name = _used_files(log, before, current), context.table
    expected = used.count()
    if landing.consumed < expected and (gone := _gone(context, used, expected - landing.consumed)).paths:
        what = f"of {expected:,} files that the table was made from"
        msg = f"{name}: {what}, {gone.count:,} can no longer be found in landing: {gone}"
        raise VanishedError(msg, hint="restore them: what the table holds cannot be made without them")
    if landing.consumed < expected and (unread := _unread(context, used)).count:
        msg = f"{name}: files that the table was made from fit no rule that reads files now: {unread}"
        hint = f"set files back: lakeward tables set {shlex.quote(str(name))} --set files=…"
        raise ConfigurationError(msg, hint=hint)
    if landing.consumed != expected:
        msg = f"{name}: {landing.consumed:,} files of the table are in landing, expected {expected:,}"
        raise ConflictError(msg, hint="landing is changing; run the same command again")
    if landing.changed.count:
        msg = f"{name}: files that the table was made from have other content now: {landing.changed}"
        raise ChangedFileError(msg, hint=f"put the originals back; a new load is taken by: lakeward run {name}")
    if accepted := _replaced_contents(log, before, current):
        msg = (
            f"{name}: files had other content when they were read than now, which was accepted and ignored: "
            f"{listed(accepted, most=_NAMED)}; a reset would read it"
        )
        raise ChangedFileError(msg, hint="put the originals back")
    _require_own_generation(context, current, landing)


def _require_own_generation(context: TableContext, current: Generation, landing: _Landing) -> None:
    if landing.new_loads.count:
        # Where nothing counts as read, every load file would be a part of the first load, whatever a run makes of it;
        # one that was left out would stay so, whatever it holds now.
        msg = (
            f"{context.table}: load files are in landing that are new, or have other content since they were left out, "
            f"and no run has decided about them: {landing.new_loads}"
        )
        raise ConfigurationError(msg, hint=f"run the table first: lakeward run {shlex.quote(str(context.table))}")
    if landing.undecided.count:
        msg = (
            f"{context.table}: it is not decided whether these change files precede the load of generation "
            f"{current.number} or follow it: {landing.undecided}"
        )
        raise ConfigurationError(msg, hint=f"lakeward run {context.table}   (it prints the --cut command)")
    if landing.older.count:
        msg = f"{context.table}: files from before the table was emptied are in landing again: {landing.older}"
        raise VanishedError(msg, hint="move them out of landing")


def _file_rows(log: DataFrame, before: Progress) -> DataFrame:
    """Return path, op, disposition, content and generation of every standing record of a file."""
    disposition, content, own = (
        F.get_json_object(column(S.DETAIL), path) for path in ("$.disposition", "$.file.content_hash", "$.generation")
    )
    files = log.filter((column(S.KIND) == S.KIND_FILE) & is_standing(before.undone))
    return files.select(
        column(S.FILE),
        column(S.OP),
        disposition.alias("disposition"),
        content.alias("content"),
        F.coalesce(own.cast("int"), column(S.GENERATION)).alias("generation"),
    )


def _used_files(log: DataFrame, before: Progress, current: Generation) -> DataFrame:
    """Return the paths of the files that the current generation is made of, as the ledger has them."""
    newest = F.max_by(F.struct("disposition", "generation"), column(S.OP)).alias("newest")
    last = _file_rows(log, before).groupBy(S.FILE).agg(newest)
    unused = [disposition.value for disposition in _NOT_USED]
    is_used = (F.col("newest.generation") == current.number) & ~F.col("newest.disposition").isin(*unused)
    return last.filter(is_used).select(S.FILE)


def _gone(context: TableContext, used: DataFrame, missing: int) -> _Some:
    """Return the first of the files that are no longer in landing; ``missing`` are expected to be gone."""
    gone = _Some()
    for row in used.orderBy(column(S.FILE).asc_nulls_first()).toLocalIterator():
        try:
            context.storage.identity(row[0])
        except FileNotFoundError:
            gone.add(row[0])
            if gone.count == min(missing, _NAMED):
                break
    return _Some(missing, gone.paths) if gone.paths else gone


def _unread(context: TableContext, used: DataFrame) -> _Some:
    """Return the files that are not listed because no naming rule of the table reads them now."""
    unread, below = _Some(), f"{context.folder}/"
    for row in used.orderBy(column(S.FILE).asc_nulls_first()).toLocalIterator():
        path = row[0]
        if path.startswith(below):
            is_read = classify_as_set(path.removeprefix(below), context.settings) is not None
        else:
            is_read = context.config.transactions is not None
        if not is_read:
            unread.add(path)
    return unread


def _replaced_contents(log: DataFrame, before: Progress, current: Generation) -> list[str]:
    """Return some files of the current generation that are recorded with more than one content.

    What an erasure made of a file does not count: it lacks rows that would not be read anyway.
    """
    own = _file_rows(log, before).filter(F.col("generation") == current.number)
    used = own.filter(~F.col("disposition").isin(*(disposition.value for disposition in _NOT_USED)))
    if ops := _rewriting_ops(log):
        rewritten = used.filter(column(S.OP).isin(*ops)).select(S.FILE, "content").distinct()
        used = used.join(rewritten, on=[S.FILE, "content"], how="left_anti")
    contents = used.groupBy(S.FILE).agg(F.count_distinct("content").alias("contents")).filter("contents > 1")
    return [row[0] for row in contents.orderBy(column(S.FILE).asc_nulls_first()).limit(_NAMED).collect()]


def _rewriting_ops(log: DataFrame) -> list[int]:
    """Return the ops that recorded files which an erasure rewrote."""
    own = (column(S.KIND) == S.KIND_CONTROL) & column(S.FILE).isNull()
    reason = F.get_json_object(column(S.DETAIL), "$.reason")
    return [row[0] for row in log.filter(own & (reason == REWRITTEN_REASON)).select(S.OP).collect()]


def _decisions(log: DataFrame, before: Progress) -> Mapping[str, int]:
    """Count the ops by which people corrected single rows."""
    own = (column(S.KIND) == S.KIND_CONTROL) & column(S.FILE).isNull() & is_standing(before.undone)
    kind = F.get_json_object(column(S.DETAIL), "$.kind")
    rows = log.filter(own & kind.isin(*(wanted.value for wanted in _DECISIONS))).groupBy(kind.alias("kind")).count()
    return {row[0]: row[1] for row in rows.collect()}


def _require_complete(context: TableContext, decision: _Decision, waits: str | None) -> None:
    """Refuse to publish before every file that the table was made from was read again.

    Raises:
        DataError: some were not.
    """
    log = context.changelog.read(context.changelog.require_head().id)
    used = _used_files(log, decision.before, decision.current)
    again = log.filter((column(S.KIND) == S.KIND_FILE) & (column(S.OP) > decision.before.op)).select(S.FILE)
    lacking = used.join(again, on=S.FILE, how="left_anti")
    paths = [row[0] for row in lacking.orderBy(column(S.FILE).asc_nulls_first()).limit(_NAMED + 1).collect()]
    if not paths:
        return
    msg = (
        f"{context.table}: files that the table was made from could not be read again{f' ({waits})' if waits else ''}: "
        f"{listed(paths, most=_NAMED)}; nothing was changed"
    )
    raise DataError(msg, hint=f"lakeward tables reset {context.table}, once landing is at rest")


def _require_size(context: TableContext, decision: _Decision, rows: int) -> None:
    """Refuse a result that lacks too many of the table's rows."""
    removal = Removal(decision.plan.rows - rows, decision.plan.rows, context.settings.max_delete_share)
    if removal.is_refused or removal.removes_all:
        msg = (
            f"{context.table}: after the reset the table would have {rows:,} rows in place of {decision.plan.rows:,}, "
            f"{removal.share:.0%} fewer; allowed are {removal.max_share:.0%} (max_delete_share), and never all of "
            "them; nothing was changed"
        )
        hint = f"lakeward verify {context.table} shows what differs; raise max_delete_share if that is right"
        raise DeleteShareError(msg, hint=hint)
