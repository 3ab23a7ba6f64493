"""Every version of a table's rows and when it was valid (SCD type 2), computed from load and changelog."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Literal

from pyspark.sql import functions as F

from lakeward import schemas as S
from lakeward.columns import Column
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
    read_story,
    related_to,
    require_times,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pyspark.sql import Column as Column_from_sql
    from pyspark.sql import DataFrame

    from lakeward.errors import LakewardError
    from lakeward.iceberg.metadata import TableMetadata
    from lakeward.iceberg.table import IcebergTable
    from lakeward.mirror.op.context import TableContext
    from lakeward.model import TableId
    from lakeward.views.history.keys import RowKey
    from lakeward.views.history.timeline import Restriction, Story


# What a version has besides the table's columns, and the type of each.
_OWN = {VALID_FROM: "timestamp", VALID_TO: "timestamp", IS_CURRENT: "boolean", S.OPERATION: "string"}


def versions_of(context: TableContext, track: Sequence[str] | None = None, key: RowKey | None = None) -> DataFrame:
    """Return every version of a table's rows, or of the row of one key.

    ``track`` names the columns that make a new version when they change; None: all.

    Raises:
        ConfigurationError: the table has no key or no commit times, or a column is not known.
    """
    story = read_story(context)
    require_versions(story, track)
    context.adapt_plans(wanted=True)
    with Workspace() as workspace:
        if key is None:
            return version_rows(story, workspace, track, everything)
        # Rows of other keys that lent their values to this one are needed, and leave again.
        only = related_to(story, workspace, key)
        return version_rows(story, workspace, track, only).filter(key.matches())


def version_rows(story: Story, workspace: Workspace, track: Sequence[str] | None, only: Restriction) -> DataFrame:
    """Return the versions of the keys that ``only`` lets through, under the names that readers see."""
    events = events_in_time(story, workspace, only)
    tracked = story.names if track is None else track
    found = versions(events, keys=story.keys, names=story.names, track=tracked)
    shown = shown_names(story.names)
    return found.select(*columns(story.names), *[column(own).alias(name) for own, name in shown.items()])


def in_version_order(found: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Sort versions by key and time."""
    names = [name for name in found.columns if name in (VALID_FROM, VALID_FROM.removeprefix(S.PREFIX))]
    by_key = [one.asc_nulls_first() for one in columns(keys)]
    return found.orderBy(*by_key, column(names[-1]).asc_nulls_first())


def version_columns(story: Story) -> tuple[Column, ...]:
    """Return the columns of a version: the table's, then its own."""
    own = [Column(name, _OWN[own]) for own, name in shown_names(story.names).items()]
    return (*story.bases.columns, *own)


def shown_names(names: Collection[str]) -> dict[str, str]:
    """Name a version's own columns: ``valid_from`` and so on, behind ``_lw_`` where the table has such a column."""
    taken = {name.lower() for name in names}
    plain = {own: own.removeprefix(S.PREFIX) for own in _OWN}
    return {own: own if name in taken else name for own, name in plain.items()}


def require_versions(story: Story, track: Sequence[str] | None) -> None:
    """Refuse tables whose rows have no versions that could be told."""
    table = story.context.table
    if not story.keys:
        msg = f"{table} has no primary key: nothing tells which rows are versions of one another"
        raise ConfigurationError(msg, hint=f"lakeward changes {table} lists its rows as they came")
    require_times(story)
    if unknown := [name for name in track or () if name not in story.names]:
        msg = f"{table} has no column {', '.join(unknown)}; its columns: {', '.join(story.names)}"
        raise ConfigurationError(msg, hint=f"lakeward tables show {table}")


# The versions of a table's rows kept as an Iceberg table, brought up to date by the keys that changed.
# Its newest commit is stamped with the op it stands at. A refresh computes the keys anew that any op since has
# touched, and those of ops that were undone or stand again, and replaces all their versions in one published step. A
# load begins or completes a generation, which concerns every key: the whole table is then computed anew.


HISTORY_STAMP = "lakeward.history-op"
TRACK_STAMP = "lakeward.history-track"
# The changelog that the history was computed from: one that was made anew counts its ops from the beginning.
_SOURCE_STAMP = "lakeward.history-source"
# Ops that change what no change row tells: loads and their ends, and rows that are gone for good.
_WHOLE = (OpKind.LOAD, OpKind.TRUNCATE, OpKind.ERASE)
# Spark sends keys up to this number to every task that deletes.
_BROADCAST = {"spark.sql.autoBroadcastJoinThreshold": str(1 << 30)}


Action = Literal["built", "refreshed", "current", "failed"]


@dataclass(frozen=True)
class HistoryReport:
    """What a refresh of a history did.

    ``action`` is ``built`` (computed as a whole), ``refreshed`` (the ``keys`` that changed), ``current`` or ``failed``;
    ``reason`` says why it was built or failed. ``versions`` were written; ``rows`` are all that the history has now.
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
    """What a history says of itself: its snapshot, the op it stands at, tracked columns, the changelog it came from."""

    snapshot: int
    op: int
    track: tuple[str, ...] | None
    source: str | None
    rows: int


def has_history(context: TableContext) -> bool:
    """Return whether a history is kept for a table."""
    return history_of(context.spark, context.table).exists()


def failed_refresh(table: TableId, error: LakewardError) -> HistoryReport:
    """Report that a history could not be brought up to date; it stays as it was."""
    return HistoryReport(str(table), f"{table.schema}{HISTORY_SUFFIX}.{table.name}", "failed", reason=str(error))


def refresh_history(context: TableContext, track: Sequence[str] | None = None) -> HistoryReport:
    """Bring a table's history up to date, making it where there is none. The caller holds the table's lease.

    ``track`` names the columns that make a new version; None keeps what was set, ``*`` alone stands for all columns.

    Raises:
        ConfigurationError: the table has no key or no commit times, or a column is not known.
    """
    finish_interrupted(context)
    story, history = read_story(context), history_of(context.spark, context.table)
    before = _kept(drop_abandoned(history))
    wanted = _wanted_track(track, before)
    require_versions(story, wanted)
    context.adapt_plans(wanted=True)
    why = _why_whole(story, before, wanted)
    if before is not None and why is None and before.op == story.progress.op:
        return _report(story, history, before, "current")
    _define(story, history)
    context.reached(Step.SCD2_TABLES)
    with Workspace() as workspace:
        if before is None or why is not None:
            return _build(story, workspace, history, wanted, why or "there was no history")
        return _refresh(story, workspace, history, before)


def _kept(metadata: TableMetadata | None) -> _Kept | None:
    head = metadata.head() if metadata else None
    if metadata is None or head is None or HISTORY_STAMP not in head.summary:
        return None
    with refusing_damage("the stamp of the kept history", hint="drop the kept history and make it anew: scd2 --table"):
        op, track = int(head.summary[HISTORY_STAMP]), json.loads(head.summary[TRACK_STAMP])
        tracked = None if track is None else tuple(str(name) for name in track)
    return _Kept(
        head.id,
        op,
        tracked,
        head.summary.get(_SOURCE_STAMP),
        head.rows,
    )


def _wanted_track(track: Sequence[str] | None, before: _Kept | None) -> tuple[str, ...] | None:
    if track is None:
        return before.track if before else None
    return None if tuple(track) == ("*",) else tuple(track)


def _why_whole(story: Story, before: _Kept | None, track: tuple[str, ...] | None) -> str | None:
    """Return why a kept history cannot be corrected key by key; None where it can."""
    if before is None:
        return None
    if before.track != track:
        return "other columns are tracked"
    if before.source != _source(story) or before.op > story.progress.op:
        return "the changelog is another one"
    if before.op == story.progress.op:
        return None
    kind = F.get_json_object(column(S.DETAIL), "$.kind")
    control = story.log.filter((column(S.KIND) == S.KIND_CONTROL) & column(S.FILE).isNull())
    found = {row[0] for row in control.filter(_is_new(story, before.op)).select(kind).distinct().collect()}
    return next((f"there was a {one.value}" for one in _WHOLE if one.value in found), None)


def _is_new(story: Story, op: int) -> Column_from_sql:
    """Tell rows of ops after ``op``, of those undone since and of those that stand again."""
    then, now = set(op_record(story.log, op).progress.undone), set(story.progress.undone)
    conditions = [column(S.OP).between(first, last) for first, last in then ^ now]
    return reduce(lambda one, other: one | other, conditions, column(S.OP) > op)


def _define(story: Story, history: IcebergTable) -> None:
    """Create the history, or give it the columns that the mirror has got since."""
    settings, wanted = story.context.settings, version_columns(story)
    metadata = history.look()
    if metadata is None or metadata.head() is None:
        create_history(history, wanted, format_version=settings.format_version)
        return
    present = set(history.spark.table(history.identifier).columns)
    own = set(shown_names(story.names).values())
    if not own <= present:
        msg = f"{history.identifier}: the table now has a column named like one of its history's: {own - present}"
        hint = (
            f'lakeward sql --allow-writes "DROP TABLE {history.identifier}", then lakeward scd2 {story.context.table} '
            f"--table"
        )
        raise ConfigurationError(msg, hint=hint)
    evolve(history, story.bases.columns, renames=settings.renames)


def _build(
    story: Story, workspace: Workspace, history: IcebergTable, track: tuple[str, ...] | None, why: str
) -> HistoryReport:
    rows = workspace.keep(version_rows(story, workspace, track, everything))
    count, context = rows.count(), story.context
    with Attempt(history, op=story.progress.op, base=history.require_head().id) as attempt:
        context.reached(Step.SCD2_BRANCH)
        attempt.overwrite(rows, _stamps(story, track), expected=count)
        context.reached(Step.SCD2_APPEND)
        published = attempt.publish(before=context.permission.require)
        context.reached(Step.SCD2_PUBLISH)
    now = _Kept(published.id, story.progress.op, track, None, published.rows)
    return _report(story, history, now, "built", versions=count, reason=why)


def _refresh(story: Story, workspace: Workspace, history: IcebergTable, before: _Kept) -> HistoryReport:
    """Replace the versions of every key that something happened to since."""
    touched = workspace.keep(closed_keys(story, workspace, _touched(story, before.op)))
    rows = workspace.keep(version_rows(story, workspace, before.track, of_keys(story, touched)))
    keys, count, context = touched.count(), rows.count(), story.context
    stamps = _stamps(story, before.track)
    with Attempt(history, op=story.progress.op, base=before.snapshot) as attempt:
        context.reached(Step.SCD2_BRANCH)
        if keys:
            with context.spark_settings(_BROADCAST if keys <= context.settings.broadcast_keys else {}):
                attempt.delete_keys(touched, story.keys)
        context.reached(Step.SCD2_DELETE)
        if count:
            attempt.append(rows, stamps, expected=count)
        else:
            attempt.stamp(stamps)
        context.reached(Step.SCD2_APPEND)
        published = attempt.publish(before=context.permission.require)
        context.reached(Step.SCD2_PUBLISH)
    now = _Kept(published.id, story.progress.op, before.track, None, published.rows)
    return _report(story, history, now, "refreshed", keys=keys, versions=count)


def _touched(story: Story, op: int) -> DataFrame:
    changes = story.log.filter((column(S.KIND) == S.KIND_CHANGE) & _is_new(story, op))
    return changes.select(*columns(story.keys)).distinct()


def _stamps(story: Story, track: tuple[str, ...] | None) -> dict[str, str]:
    return {
        HISTORY_STAMP: str(story.progress.op),
        TRACK_STAMP: json.dumps(track, ensure_ascii=False),
        _SOURCE_STAMP: _source(story),
    }


def _source(story: Story) -> str:
    return str(story.context.changelog.metadata().java.uuid().toString())


def _report(
    story: Story,
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
        str(story.context.table), name, action, now.op, now.track, keys, versions, now.rows, now.snapshot, reason
    )
