"""Every version of a table's rows and when it was valid (SCD type 2), computed from load and changelog."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Literal

from pyspark.sql import functions as F

from lakeward import schemas as S
from lakeward.column_policy import dropped
from lakeward.columns import Column
from lakeward.config.policy import rules_of
from lakeward.documents import Document
from lakeward.errors import ConfigurationError
from lakeward.iceberg.attempt import Attempt, drop_abandoned
from lakeward.iceberg.define import create_history, evolve, history_of
from lakeward.mirror.op.ledger import op_record
from lakeward.mirror.op.steps import Step
from lakeward.mirror.run import finish_interrupted
from lakeward.model import HISTORY_SUFFIX, OpKind
from lakeward.spark.workspace import Workspace
from lakeward.text import refusing_damage
from lakeward.transforms.columns import column, columns
from lakeward.transforms.versions import IS_CURRENT, VALID_FROM, VALID_TO, versions
from lakeward.views.history.timeline import (
    closed_keys,
    events_in_time,
    everything,
    of_keys,
    read_timeline,
    related_to,
    require_times,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from lakeward.config import TableSettings
    from lakeward.errors import LakewardError
    from lakeward.iceberg.metadata import TableMetadata
    from lakeward.iceberg.table import IcebergTable
    from lakeward.mirror.op.context import TableContext
    from lakeward.model import TableId
    from lakeward.views.history.keys import RowKey
    from lakeward.views.history.timeline import Restriction, Timeline


# The columns of a version besides the table's own, with their types.
_OWN = {VALID_FROM: "timestamp", VALID_TO: "timestamp", IS_CURRENT: "boolean", S.OPERATION: "string"}


def versions_of(context: TableContext, track: Sequence[str] | None = None, key: RowKey | None = None) -> DataFrame:
    """Return every version of a table's rows, or of the row of one key.

    ``track`` names the columns that make a new version when they change; None: all.

    Raises:
        ConfigurationError: the table has no key or no commit times, or a column is not known.
    """
    timeline = read_timeline(context)
    require_versions(timeline, track)
    context.adapt_plans(wanted=True)
    with Workspace() as workspace:
        if key is None:
            return version_rows(timeline, workspace, track, everything)
        # Rows of other keys that passed values to this one are needed for the computation, and removed afterwards.
        only = related_to(timeline, workspace, key)
        return version_rows(timeline, workspace, track, only).filter(key.matches())


def version_rows(timeline: Timeline, workspace: Workspace, track: Sequence[str] | None, only: Restriction) -> DataFrame:
    """Return the versions of the keys that ``only`` keeps, under the column names that readers see."""
    events = events_in_time(timeline, workspace, only)
    tracked = timeline.source_names if track is None else track
    found = versions(events, keys=timeline.keys, names=timeline.names, track=tracked)
    shown = shown_names(timeline.names)
    return found.select(*columns(timeline.names), *[column(own).alias(name) for own, name in shown.items()])


def in_version_order(found: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Sort versions by key and time."""
    names = [name for name in found.columns if name in (VALID_FROM, VALID_FROM.removeprefix(S.PREFIX))]
    by_key = [key.asc_nulls_first() for key in columns(keys)]
    return found.orderBy(*by_key, column(names[-1]).asc_nulls_first())


def version_columns(timeline: Timeline) -> tuple[Column, ...]:
    """Return the columns of a version: the table's, then its own."""
    own = [Column(name, _OWN[own]) for own, name in shown_names(timeline.names).items()]
    return (*timeline.bases.columns, *own)


def shown_names(names: Collection[str]) -> dict[str, str]:
    """Return the names of a version's own columns: ``valid_from`` …, with the prefix ``_lw_`` if that is taken."""
    taken = {name.lower() for name in names}
    plain = {own: own.removeprefix(S.PREFIX) for own in _OWN}
    return {own: own if name in taken else name for own, name in plain.items()}


def require_versions(timeline: Timeline, track: Sequence[str] | None) -> None:
    """Refuse tables whose rows have no versions that can be computed.

    Raises:
        ConfigurationError: the table has no key or no commit times, or a column is not known.
    """
    table = timeline.context.table
    if not timeline.keys:
        msg = f"{table} has no primary key: it is not known which rows are versions of the same row"
        raise ConfigurationError(msg, hint=f"lakeward changes {table} lists its rows as they came")
    require_times(timeline)
    if unknown := [name for name in track or () if name not in timeline.names]:
        msg = f"{table} has no column {', '.join(unknown)}; its columns: {', '.join(timeline.names)}"
        raise ConfigurationError(msg, hint=f"lakeward tables show {table}")


# The history table: the versions of a table's rows kept in Iceberg and refreshed by the keys that changed.
# Its newest commit is stamped with the op that it includes. A refresh recomputes every key that a later op touched, or
# an op that was undone or restored since, and replaces all their versions in one published step. A load starts or
# completes a generation, which affects every key: then the whole table is recomputed.


HISTORY_STAMP = "lakeward.history-op"
TRACK_STAMP = "lakeward.history-track"
# The changelog that the history was computed from: a changelog that was recreated counts its ops from 1 again.
_SOURCE_STAMP = "lakeward.history-source"
# Ops with effects that are not recorded as change rows: loads, truncations and erasures.
_WHOLE = {OpKind.LOAD: "a load", OpKind.TRUNCATE: "a truncation", OpKind.ERASE: "an erasure"}
# Lets Spark broadcast the keys to every task that deletes.
_BROADCAST = {"spark.sql.autoBroadcastJoinThreshold": str(1 << 30)}


Action = Literal["built", "refreshed", "current", "failed"]


@dataclass(frozen=True)
class HistoryReport(Document):
    """The result of a refresh of a history.

    ``action`` is ``built`` (computed as a whole), ``refreshed`` (the ``keys`` that changed), ``current`` or ``failed``;
    ``reason`` is why it was built or failed. ``versions`` were written; ``rows`` are all that the history has now.
    """

    table: str
    history: str
    action: Action
    op: int | None = None
    track: tuple[str, ...] | None = None
    keys: int | None = None
    versions: int = 0
    rows: int | None = None
    snapshot: int | None = None
    reason: str | None = None


@dataclass(frozen=True)
class _Kept:
    """The state of a history table: its snapshot, the op it includes, the tracked columns, the source changelog."""

    snapshot: int
    op: int
    track: tuple[str, ...] | None
    source: str | None
    rows: int


def has_history(context: TableContext) -> bool:
    """Whether a history is kept for a table."""
    return history_of(context.spark, context.table).exists()


def failed_refresh(table: TableId, error: LakewardError) -> HistoryReport:
    """Return the report for a history that could not be refreshed and stays as it was."""
    return HistoryReport(str(table), f"{table.schema}{HISTORY_SUFFIX}.{table.name}", "failed", reason=str(error))


def refresh_history(context: TableContext, track: Sequence[str] | None = None) -> HistoryReport:
    """Bring a table's history up to date, creating it if needed. The caller holds the table's lease.

    ``track`` names the columns that make a new version; None keeps what was set, ``*`` alone means all columns.

    Raises:
        ConfigurationError: the table has no key or no commit times, or a column is not known.
    """
    finish_interrupted(context)
    timeline, history = read_timeline(context), history_of(context.spark, context.table)
    before = _kept(drop_abandoned(history))
    wanted = _wanted_track(context.settings, track, before)
    require_versions(timeline, wanted)
    context.adapt_plans(wanted=True)
    why = _why_whole(timeline, before, wanted)
    if before is not None and why is None and before.op == timeline.progress.op:
        return _report(timeline, history, before, "current")
    _define(timeline, history)
    context.reached(Step.SCD2_TABLES)
    with Workspace() as workspace:
        if before is None or why is not None:
            return _build(timeline, workspace, history, wanted, why or "there was no history")
        return _refresh(timeline, workspace, history, before)


def _kept(metadata: TableMetadata | None) -> _Kept | None:
    head = metadata.head() if metadata else None
    if metadata is None or head is None or HISTORY_STAMP not in head.summary:
        return None
    with refusing_damage("the stamp of the kept history", hint="drop the history and build it again: scd2 --table"):
        op, track = int(head.summary[HISTORY_STAMP]), json.loads(head.summary[TRACK_STAMP])
        tracked = None if track is None else tuple(str(name) for name in track)
    return _Kept(
        head.id,
        op,
        tracked,
        head.summary.get(_SOURCE_STAMP),
        head.rows,
    )


def _wanted_track(settings: TableSettings, track: Sequence[str] | None, before: _Kept | None) -> tuple[str, ...] | None:
    if track is None:
        kept = before.track if before and before.track else None
        if kept is None:
            return None
        # Columns may have been renamed since, or dropped by a rule.
        gone, named = dropped(rules_of(settings)), [settings.renames.get(name, name) for name in kept]
        return tuple(name for name in named if name not in gone) or None
    return None if tuple(track) == ("*",) else tuple(track)


def _why_whole(timeline: Timeline, before: _Kept | None, track: tuple[str, ...] | None) -> str | None:
    """Return why a history must be rebuilt as a whole; None where it can be refreshed key by key."""
    if before is None:
        return None
    if before.track != track:
        return "other columns are tracked"
    if before.source != _source(timeline) or before.op > timeline.progress.op:
        return "the changelog was recreated"
    if before.op == timeline.progress.op:
        return None
    kind = F.get_json_object(column(S.DETAIL), "$.kind")
    control = timeline.log.filter((column(S.KIND) == S.KIND_CONTROL) & column(S.FILE).isNull())
    found = {row[0] for row in control.filter(_is_new(timeline, before.op)).select(kind).distinct().collect()}
    return next((f"there was {what}" for op_kind, what in _WHOLE.items() if op_kind.value in found), None)


def _is_new(timeline: Timeline, op: int) -> SparkColumn:
    """Return the condition for rows of ops after ``op``, and of ops that were undone or restored since."""
    then, now = set(op_record(timeline.log, op).progress.undone), set(timeline.progress.undone)
    conditions = [column(S.OP).between(first, last) for first, last in then ^ now]
    return reduce(lambda left, right: left | right, conditions, column(S.OP) > op)


def _define(timeline: Timeline, history: IcebergTable) -> None:
    """Create the history table, or add the columns that the mirror got since."""
    settings, wanted = timeline.context.settings, version_columns(timeline)
    metadata = history.find_metadata()
    if metadata is None or metadata.head() is None:
        create_history(history, wanted, format_version=settings.format_version)
        return
    present = set(history.spark.table(history.identifier).columns)
    own = set(shown_names(timeline.names).values())
    if not own <= present:
        msg = f"{history.identifier}: the table now has a column named like one of its history's: {own - present}"
        drop = f'lakeward sql --allow-writes "DROP TABLE {history.identifier}"'
        hint = f"{drop}, then lakeward scd2 {timeline.context.table} --table"
        raise ConfigurationError(msg, hint=hint)
    evolve(history, timeline.bases.columns, renames=settings.renames)


def _build(
    timeline: Timeline, workspace: Workspace, history: IcebergTable, track: tuple[str, ...] | None, why: str
) -> HistoryReport:
    rows = workspace.keep(version_rows(timeline, workspace, track, everything))
    count, context = rows.count(), timeline.context
    with Attempt(history, op=timeline.progress.op, base=history.require_head().id) as attempt:
        context.reached(Step.SCD2_BRANCH)
        attempt.overwrite(rows, _stamps(timeline, track), expected=count)
        context.reached(Step.SCD2_APPEND)
        published = attempt.publish(before=context.permission.require)
        context.reached(Step.SCD2_PUBLISH)
    now = _Kept(published.id, timeline.progress.op, track, None, published.rows)
    return _report(timeline, history, now, "built", versions=count, reason=why)


def _refresh(timeline: Timeline, workspace: Workspace, history: IcebergTable, before: _Kept) -> HistoryReport:
    """Replace the versions of every key that changed since."""
    touched = workspace.keep(closed_keys(timeline, workspace, _touched(timeline, before.op)))
    rows = workspace.keep(version_rows(timeline, workspace, before.track, of_keys(timeline, touched)))
    keys, count, context = touched.count(), rows.count(), timeline.context
    stamps = _stamps(timeline, before.track)
    with Attempt(history, op=timeline.progress.op, base=before.snapshot) as attempt:
        context.reached(Step.SCD2_BRANCH)
        if keys:
            with context.spark_settings(_BROADCAST if keys <= context.settings.broadcast_keys else {}):
                attempt.delete_keys(touched, timeline.keys)
        context.reached(Step.SCD2_DELETE)
        if count:
            attempt.append(rows, stamps, expected=count)
        else:
            attempt.stamp(stamps)
        context.reached(Step.SCD2_APPEND)
        published = attempt.publish(before=context.permission.require)
        context.reached(Step.SCD2_PUBLISH)
    now = _Kept(published.id, timeline.progress.op, before.track, None, published.rows)
    return _report(timeline, history, now, "refreshed", keys=keys, versions=count)


def _touched(timeline: Timeline, op: int) -> DataFrame:
    changes = timeline.log.filter((column(S.KIND) == S.KIND_CHANGE) & _is_new(timeline, op))
    return changes.select(*columns(timeline.keys)).distinct()


def _stamps(timeline: Timeline, track: tuple[str, ...] | None) -> dict[str, str]:
    return {
        HISTORY_STAMP: str(timeline.progress.op),
        TRACK_STAMP: json.dumps(track, ensure_ascii=False),
        _SOURCE_STAMP: _source(timeline),
    }


def _source(timeline: Timeline) -> str:
    return str(timeline.context.changelog.metadata().java.uuid().toString())


def _report(
    timeline: Timeline,
    history: IcebergTable,
    now: _Kept,
    action: Action,
    *,
    keys: int | None = None,
    versions: int = 0,
    reason: str | None = None,
) -> HistoryReport:
    name = f"{history.namespace}.{history.name}"
    return HistoryReport(
        str(timeline.context.table), name, action, now.op, now.track, keys, versions, now.rows, now.snapshot, reason
    )
