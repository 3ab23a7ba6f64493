"""Every version of a table's rows and when it was valid (SCD type 2), computed from load and changelog."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward import schemas as S
from lakeward.datatypes import Column
from lakeward.errors import ConfigurationError
from lakeward.pipeline.workspace import Workspace
from lakeward.snapshots.history.story import events_in_time, everything, read_story, related_to, require_times
from lakeward.transforms.columns import column, columns
from lakeward.transforms.versions import IS_CURRENT, VALID_FROM, VALID_TO, versions

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pyspark.sql import DataFrame

    from lakeward.pipeline.context import TableContext
    from lakeward.snapshots.history.row_keys import RowKey
    from lakeward.snapshots.history.story import Restriction, Story

# What a version has besides the table's columns, and the type of each.
_OWN = {VALID_FROM: "timestamp", VALID_TO: "timestamp", IS_CURRENT: "boolean", S.OPERATION: "string"}


def versions_of(context: TableContext, track: Sequence[str] | None = None, key: RowKey | None = None) -> DataFrame:
    """Give every version of a table's rows, or of the row of one key.

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
    """Give the versions of the keys that ``only`` lets through, under the names that readers see."""
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
    """Give the columns of a version: the table's, then its own."""
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
