"""What triggers say: that a run is wanted, of which tables or because of which folders."""

from __future__ import annotations

import logging
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.request import url2pathname

from lakeward.errors import ConfigurationError
from lakeward.formats.dms.listing import table_folder
from lakeward.logs import event
from lakeward.runner.watch.notices import S3Object, path_under
from lakeward.storage.landing import LocalStorage, is_hidden
from lakeward.storage.s3 import S3Location, is_s3
from lakeward.text import split_address

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lakeward.config import Config
    from lakeward.runner.tables import KnownTable
    from lakeward.runner.watch.open import Lake
    from lakeward.storage.landing import Storage


class Receipt(Protocol):
    """A message that must not be lost: ended once its tables are up to date, else left to come again."""

    def done(self) -> None:
        """Everything the message speaks of is committed."""
        ...

    def failed(self) -> None:
        """It is not; let the message come again."""
        ...


@dataclass(frozen=True)
class Ask:
    """A wish for a run.

    ``folders`` are landing folders in which files landed, ``trees`` folders that appeared as a whole, so that
    anything may be below them. ``tables`` are names, ``everything`` means all of them. Which files landed does not
    matter: a run lists for itself, which makes repeated and disordered notices harmless.
    """

    reason: str
    folders: frozenset[str] = frozenset()
    trees: frozenset[str] = frozenset()
    tables: frozenset[str] = frozenset()
    everything: bool = False
    receipt: Receipt | None = None


# From a place in landing to the tables that read it; new tables are found on the way.


logger = logging.getLogger(__name__)


class Readers:
    """Which of the known tables read a folder; every one reads the folder of transaction files."""

    def __init__(self, tables: Iterable[KnownTable], transactions: str | None) -> None:
        self._by_folder: dict[str, set[str]] = defaultdict(set)
        self._transactions = transactions.strip("/") if transactions else None
        self._all: set[str] = set()
        for table in tables:
            self._all.add(str(table.table))
            self._by_folder[table_folder(table.table, table.settings)].add(str(table.table))

    def of(self, ask: Ask) -> set[str]:
        """Return the tables that an ask concerns."""
        if ask.everything:
            return set(self._all)
        found = set(ask.tables & self._all)
        for folder in ask.folders:
            found |= self.of_folder(folder)
        for tree in ask.trees:
            found |= self.of_folder(tree) | self._below(tree)
        return found

    def of_folder(self, folder: str) -> set[str]:
        """Return the tables that read files which lie directly in a folder."""
        if self._transactions is not None and self._transactions in _upwards(folder):
            return set(self._all)
        return set().union(*(self._by_folder.get(upward, ()) for upward in _upwards(folder)))

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
        """Return for each ask the tables that it concerns; ``active`` is then what there is now."""
        known = self._known(asks)
        watched = [one for one in known if one.active and (not self._names or str(one.table) in self._names)]
        self.active = {str(one.table): one for one in watched}
        readers = Readers(watched, self._lake.config.transactions)
        return [readers.of(ask) for ask in asks]

    def _known(self, asks: Sequence[Ask]) -> list[KnownTable]:
        """Return the known tables; look for new ones where something landed that none of them reads."""
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
    """Yield a folder and all above it, up to landing itself."""
    while folder:
        yield folder
        folder = folder.rpartition("/")[0]
    yield ""


# Which landing paths may wake a run.


@dataclass(frozen=True)
class PathFilter:
    """Lets through visible paths with one of the prefixes and one of the suffixes; none given lets all through."""

    prefixes: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = ()

    def accepts_file(self, path: str) -> bool:
        """Return whether a new file, by its path under landing, is worth a run."""
        return (
            _is_visible(path)
            and (not self.prefixes or path.startswith(self.prefixes))
            and (not self.suffixes or path.endswith(self.suffixes))
        )

    def accepts_tree(self, folder: str) -> bool:
        """Return whether a file that would be accepted may lie below a new folder."""
        below = f"{folder}/"
        overlaps = any(below.startswith(prefix) or prefix.startswith(below) for prefix in self.prefixes)
        return _is_visible(folder) and (not self.prefixes or overlaps)


def parent(path: str) -> str:
    """Return the folder of a landing path, empty for landing itself."""
    return path.rpartition("/")[0]


def _is_visible(path: str) -> bool:
    return bool(path) and not any(is_hidden(part) for part in path.split("/"))


# Landing files that a user names: where they are under landing, and which tables read them.


class LandingLake(Protocol):
    """A lake as far as its landing files and tables go."""

    config: Config
    storage: Storage

    def tables(self) -> list[KnownTable]:
        """All tables that are declared or registered."""
        ...

    def table(self, name: str) -> KnownTable:
        """One table by name."""
        ...


def choose_files(
    lake: LandingLake, names: Iterable[str], uris: Iterable[str]
) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the tables and landing paths of a run; files without tables choose the tables they belong to.

    Raises:
        ConfigurationError: a file is not under landing, or belongs to no table that is meant.
    """
    paths = frozenset(landing_path(lake, uri) for uri in uris)
    tables = tuple(names)
    return (_tables_of(lake, paths, tables) if paths else tables), paths


def landing_path(lake: LandingLake, uri: str) -> str:
    """Return a file's path under landing; refuse one that is not there."""
    path = _local_path(lake.storage.root, uri) if isinstance(lake.storage, LocalStorage) else _s3_path(lake, uri)
    if path is None:
        msg = f"{uri} is not a file under landing {lake.config.landing}"
        raise ConfigurationError(msg, hint="give its path under landing, such as sales/product/LOAD00000001.parquet")
    return path


def _local_path(landing: str, uri: str) -> str | None:
    parts, root = split_address(uri, f"--file {uri!r}"), Path(landing)
    local = Path(url2pathname(parts.path) if parts.scheme == "file" else uri)
    for candidate in [local] if local.is_absolute() else [root / local, Path.cwd() / local]:
        if candidate.is_relative_to(root) and candidate.is_file():
            return candidate.relative_to(root).as_posix()
    return None


def _s3_path(lake: LandingLake, uri: str) -> str | None:
    path: str | None = uri
    if is_s3(uri):
        place = S3Location.parse(uri, "--file")
        path = path_under(lake.config.landing, S3Object(place.bucket, place.prefix))
    try:
        if path:
            lake.storage.identity(path)
    except FileNotFoundError:
        return None
    return path or None


def _tables_of(lake: LandingLake, paths: Iterable[str], names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the tables that files belong to; refuse a file that no chosen table would read."""
    known = [lake.table(name) for name in names] if names else [table for table in lake.tables() if table.active]
    readers = Readers(known, lake.config.transactions)
    chosen: set[str] = set()
    for path in paths:
        owners = readers.of_folder(parent(path))
        if not owners:
            msg = f"{path} belongs to no {'named' if names else 'active'} table"
            raise ConfigurationError(msg, hint="lakeward discover, then lakeward tables list")
        chosen.update(owners)
    return tuple(sorted(chosen))
