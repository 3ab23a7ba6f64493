"""``lake.history``: the history of a table's rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakeward.arguments import COUNT, FLAG, MAPPING, NONE, OPTIONAL_TEXT, TEXT, TEXTS, takes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

    from lakeward.api.opened import OpenedLake
    from lakeward.mirror.op.context import TableContext
    from lakeward.views.history.keys import RowKey
    from lakeward.views.history.rows import RowHistory
    from lakeward.views.history.scd2 import HistoryReport


class History:
    """The history of rows, versions with their times, and the feed of changes."""

    def __init__(self, lake: OpenedLake) -> None:
        self._lake = lake

    @takes(name=TEXT, key=MAPPING, limit=COUNT)
    def row(self, name: str, key: Mapping[str, Any], *, limit: int = 1000) -> RowHistory:
        """Return every change of one row in order, down to the row as it is now.

        Args:
            name: the table as ``schema.table``.
            key: a value for each key column: of its type, or a text that is parsed as such; None is NULL.
            limit: how many changes are returned, the newest ones.
        """
        from lakeward.views.history.rows import history_of_row

        context = self._lake.context(name)
        return history_of_row(context, self._key(context, key), limit=limit)

    @takes(name=TEXT, track=TEXTS | NONE, key=MAPPING | NONE, ordered=FLAG)
    def scd2(
        self,
        name: str,
        *,
        track: Sequence[str] | None = None,
        key: Mapping[str, Any] | None = None,
        ordered: bool = False,
    ) -> DataFrame:
        """Return every version of a table's rows with ``valid_from``, ``valid_to``, ``is_current`` and ``operation``.

        Args:
            name: the table as ``schema.table``.
            track: columns that make a new version when they change; None: all.
            key: restricts the answer to one row.
            ordered: sort by key and time.
        """
        from lakeward.views.history.scd2 import in_version_order, versions_of

        context = self._lake.context(name)
        found = versions_of(context, track, self._key(context, key) if key is not None else None)
        return in_version_order(found, self._lake.table(name).settings.primary_key) if ordered else found

    @takes(name=TEXT, track=TEXTS | NONE)
    def keep_scd2(self, name: str, *, track: Sequence[str] | None = None) -> HistoryReport:
        """Keep a table's versions in the lake as ``<schema>_history.<table>``: make that table, or bring it up to date.

        Args:
            name: the table as ``schema.table``.
            track: columns that make a new version; None: as it was set before, ``["*"]``: all.
        """
        from lakeward.views.history.scd2 import refresh_history

        with self._lake.leased(name) as context:
            return refresh_history(context, track)

    def refresh_scd2(self) -> list[HistoryReport]:
        """Bring every history that the lake keeps up to date; a failed one is reported and does not stop the others."""
        from lakeward.errors import LakewardError
        from lakeward.views.history.scd2 import failed_refresh, has_history

        reports = []
        for known in self._lake.tables():
            if has_history(self._lake.context(str(known.table))):
                try:
                    reports.append(self.keep_scd2(str(known.table)))
                except LakewardError as error:
                    reports.append(failed_refresh(known.table, error))
        return reports

    @takes(name=TEXT, since=OPTIONAL_TEXT, until=OPTIONAL_TEXT, ordered=FLAG)
    def changes(
        self, name: str, *, since: str | None = None, until: str | None = None, ordered: bool = False
    ) -> DataFrame:
        """Return the changes after a moment up to another, for jobs that follow a table.

        Args:
            name: the table as ``schema.table``.
            since: the moment after which changes count, such as ``op:41``; None: from the beginning.
            until: the last moment that counts; None: now.
            ordered: sort in the order in which the changes happened.
        """
        from lakeward.views.history.feed import changes_between, in_feed_order

        found = changes_between(self._lake.context(name), since, until)
        return in_feed_order(found) if ordered else found

    @takes(name=TEXT)
    def position(self, name: str) -> int:
        """Return the number of a table's newest op: the position of a job that has processed everything so far."""
        from lakeward.views.history.timeline import read_timeline

        return read_timeline(self._lake.context(name)).progress.op

    def _key(self, context: TableContext, values: Mapping[str, Any]) -> RowKey:
        from lakeward.views.history.keys import row_key
        from lakeward.views.history.timeline import read_timeline

        timeline = read_timeline(context)
        return row_key(context.table, timeline.bases.columns, timeline.keys, values)
