"""From a place in landing to the tables that read it; new tables are found on the way."""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import TYPE_CHECKING

from lakeward.logs import event
from lakeward.sources.dms.listing import table_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lakeward.controller.tables import KnownTable
    from lakeward.controller.triggers.asks import Ask
    from lakeward.controller.triggers.lake import Lake

logger = logging.getLogger(__name__)


class Readers:
    """Which of the known tables read a folder; every one reads the folder of transaction files."""

    def __init__(self, tables: Iterable[KnownTable], transactions: str | None) -> None:
        self._by_folder: dict[str, set[str]] = defaultdict(set)
        self._transactions = transactions.strip("/") if transactions else None
        self._all: set[str] = set()
        for one in tables:
            self._all.add(str(one.table))
            self._by_folder[table_folder(one.table, one.settings)].add(str(one.table))

    def of(self, ask: Ask) -> set[str]:
        """Give the tables that an ask concerns."""
        if ask.everything:
            return set(self._all)
        found = set(ask.tables & self._all)
        for folder in ask.folders:
            found |= self.of_folder(folder)
        for tree in ask.trees:
            found |= self.of_folder(tree) | self._below(tree)
        return found

    def of_folder(self, folder: str) -> set[str]:
        """Give the tables that read files which lie directly in a folder."""
        if self._transactions is not None and self._transactions in _upwards(folder):
            return set(self._all)
        return set().union(*(self._by_folder.get(one, ()) for one in _upwards(folder)))

    def _below(self, tree: str) -> set[str]:
        prefix = f"{tree}/"
        if self._transactions is not None and self._transactions.startswith(prefix):
            return set(self._all)
        return set().union(*(names for folder, names in self._by_folder.items() if folder.startswith(prefix)))


class Lookup:
    """Finds the tables that asks concern, among the active ones that are watched."""

    def __init__(self, lake: Lake, names: Iterable[str]) -> None:
        """Take the lake and the ``names`` to watch; none: all."""
        self.active: dict[str, KnownTable] = {}
        self._lake = lake
        self._names = frozenset(names)
        self._unread: set[str] = set()

    def concerned(self, asks: Sequence[Ask]) -> list[set[str]]:
        """Give for each ask the tables that it concerns; ``active`` is then what there is now."""
        known = self._known(asks)
        watched = [one for one in known if one.active and (not self._names or str(one.table) in self._names)]
        self.active = {str(one.table): one for one in watched}
        readers = Readers(watched, self._lake.config.transactions)
        return [readers.of(ask) for ask in asks]

    def _known(self, asks: Sequence[Ask]) -> list[KnownTable]:
        """Give the known tables; look for new ones where something landed that none of them reads."""
        known = self._lake.tables()
        is_full_look = any(ask.everything for ask in asks)
        if is_full_look:
            self._unread.clear()
        readers = Readers(known, self._lake.config.transactions)
        unread = {folder for ask in asks for folder in ask.folders if not readers.of_folder(folder)}
        has_trees = any(ask.trees for ask in asks)
        # Where a table is excluded, files may land for ever: looked for once, and again with the next full look.
        if not (is_full_look or has_trees or unread - self._unread):
            return known
        self._unread |= unread
        new = self._lake.discover().new
        for table in new:
            hint = f"lakeward tables set {table} --primary-key COLUMN --activate"
            told = event("table.found", table=str(table), hint=hint)
            logger.warning("%s is new and inactive until somebody decides on its key: %s", table, hint, extra=told)
        return self._lake.tables() if new else known


def _upwards(folder: str) -> Iterator[str]:
    """Give a folder and all above it, up to landing itself."""
    while folder:
        yield folder
        folder = folder.rpartition("/")[0]
    yield ""
