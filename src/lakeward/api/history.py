"""What happened to a table's rows: ``lake.history``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakeward.arguments import MAPPING, NONE, OPTIONAL_TEXT, TEXT, TEXTS, WHOLE, takes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame

    from lakeward.controller.tables import KnownTable
    from lakeward.controller.workbench import Workbench
    from lakeward.pipeline.context import TableContext
    from lakeward.snapshots.history.row_history import RowHistory
    from lakeward.snapshots.history.row_keys import RowKey
    from lakeward.snapshots.history.scd2_table import HistoryReport


class History:
    """The history of rows, versions with their times, and the feed of changes."""

    def __init__(
        self,
        bench: Callable[[], Workbench],
        table: Callable[[str], KnownTable],
        tables: Callable[[], Sequence[KnownTable]],
    ) -> None:
        self._bench = bench
        self._table = table
        self._tables = tables

    @takes(name=TEXT, key=MAPPING, limit=WHOLE)
    def row(self, name: str, key: Mapping[str, Any], *, limit: int = 1000) -> RowHistory:
        """Tell every change of one row in order, down to the row as it is now.

        Args:
            name: the table as ``schema.table``.
            key: a value for each key column: of its type, or a text that is read as such; None is NULL.
            limit: the newest so many changes are told.
        """
        from lakeward.snapshots.history.row_history import history_of_row

        context = self._context(name)
        return history_of_row(context, self._key(context, key), limit=limit)

    @takes(name=TEXT, track=TEXTS | NONE, key=MAPPING | NONE)
    def scd2(self, name: str, *, track: Sequence[str] | None = None, key: Mapping[str, Any] | None = None) -> DataFrame:
        """Give every version of a table's rows with ``valid_from``, ``valid_to``, ``is_current`` and ``operation``.

        Args:
            name: the table as ``schema.table``.
            track: columns that make a new version when they change; None: all.
            key: restricts the answer to one row.
        """
        from lakeward.snapshots.history.scd2 import versions_of

        context = self._context(name)
        return versions_of(context, track, self._key(context, key) if key is not None else None)

    @takes(name=TEXT, track=TEXTS | NONE)
    def keep_scd2(self, name: str, *, track: Sequence[str] | None = None) -> HistoryReport:
        """Keep a table's versions in the lake as ``<schema>_history.<table>``: make that table, or bring it up to date.

        Args:
            name: the table as ``schema.table``.
            track: columns that make a new version; None: as it was set before, ``["*"]``: all.
        """
        from lakeward.snapshots.history.scd2_table import refresh_history

        with self._bench().leased(self._table(name)) as context:
            return refresh_history(context, track)

    def refresh_scd2(self) -> list[HistoryReport]:
        """Bring every history that the lake keeps up to date; one that fails is reported and stops no other."""
        from lakeward.errors import LakewardError
        from lakeward.snapshots.history.scd2_table import failed_refresh, has_history

        bench, reports = self._bench(), []
        for known in self._tables():
            if has_history(bench.context(known)):
                try:
                    reports.append(self.keep_scd2(str(known.table)))
                except LakewardError as error:
                    reports.append(failed_refresh(known.table, error))
        return reports

    @takes(name=TEXT, since=OPTIONAL_TEXT, until=OPTIONAL_TEXT)
    def changes(self, name: str, *, since: str | None = None, until: str | None = None) -> DataFrame:
        """Give the changes after a moment up to another, for jobs that follow a table.

        Args:
            name: the table as ``schema.table``.
            since: the moment after which changes count, such as ``op:41``; None: from the beginning.
            until: the last moment that counts; None: now.
        """
        from lakeward.snapshots.history.changes import changes_between

        return changes_between(self._context(name), since, until)

    @takes(name=TEXT)
    def position(self, name: str) -> int:
        """Give the number of a table's newest op: where a job stands that has taken in everything up to now."""
        from lakeward.snapshots.history.story import read_story

        return read_story(self._context(name)).progress.op

    def _context(self, name: str) -> TableContext:
        return self._bench().context(self._table(name))

    def _key(self, context: TableContext, given: Mapping[str, Any]) -> RowKey:
        from lakeward.snapshots.history.row_keys import row_key
        from lakeward.snapshots.history.story import read_story

        story = read_story(context)
        return row_key(context.table, story.bases.columns, story.keys, given)
