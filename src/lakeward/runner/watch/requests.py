"""Requests for runs, the tables that they concern, and the landing files that a user names."""

from __future__ import annotations

import logging
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.request import url2pathname

from lakeward.errors import ConfigurationError
from lakeward.formats.dms.listing import table_folder
from lakeward.logs import event
from lakeward.runner.watch.notices import S3Object, path_under
from lakeward.storage.landing import is_hidden
from lakeward.storage.s3 import S3Location, is_s3
from lakeward.text import split_address

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lakeward.config import Config
    from lakeward.mirror.op.context import RunOptions
    from lakeward.runner.tables import KnownTable
    from lakeward.runner.watch.watcher import Lake
    from lakeward.state.base import StateStore
    from lakeward.storage.landing import Landing


class MessageReceipt(Protocol):
    """A message that must not be lost: deleted once its tables are up to date, otherwise redelivered."""

    def done(self) -> None:
        """Delete the message, as all its files are committed."""
        ...

    def failed(self) -> None:
        """Release the message for redelivery."""
        ...


@dataclass(frozen=True)
class RunRequest:
    """A request for a run.

    ``folders`` are landing folders in which files landed, ``trees`` are new folders with anything below them.
    ``tables`` are names, ``everything`` means all of them. Which files landed does not matter: a run lists the folders
    itself, which makes repeated and unordered notifications harmless.
    """

    reason: str
    folders: frozenset[str] = frozenset()
    trees: frozenset[str] = frozenset()
    tables: frozenset[str] = frozenset()
    everything: bool = False
    receipt: MessageReceipt | None = None


logger = logging.getLogger(__name__)


class Readers:
    """The tables that read a folder; all of them read the folder of transaction files."""

    def __init__(self, tables: Iterable[KnownTable], transactions: str | None) -> None:
        self._by_folder: dict[str, set[str]] = defaultdict(set)
        self._transactions = transactions.strip("/") if transactions else None
        self._all: set[str] = set()
        for table in tables:
            self._all.add(str(table.table))
            self._by_folder[table_folder(table.table, table.settings)].add(str(table.table))

    def of(self, request: RunRequest) -> set[str]:
        """Return the tables that a request concerns."""
        if request.everything:
            return set(self._all)
        found = set(request.tables & self._all)
        for folder in request.folders:
            found |= self.of_folder(folder)
        for tree in request.trees:
            found |= self.of_folder(tree) | self._below(tree)
        return found

    def of_folder(self, folder: str) -> set[str]:
        """Return the tables that read files directly in a folder."""
        if self._transactions is not None and self._transactions in _upwards(folder):
            return set(self._all)
        return set().union(*(self._by_folder.get(upward, ()) for upward in _upwards(folder)))

    def _below(self, tree: str) -> set[str]:
        prefix = f"{tree}/"
        if self._transactions is not None and self._transactions.startswith(prefix):
            return set(self._all)
        return set().union(*(names for folder, names in self._by_folder.items() if folder.startswith(prefix)))


class Lookup:
    """A search for the tables that requests concern, among the active tables that are watched."""

    def __init__(self, lake: Lake, names: Iterable[str]) -> None:
        """Set the lake and the ``names`` of the tables to watch; none: all."""
        self.active: dict[str, KnownTable] = {}
        self._lake = lake
        self._names = frozenset(names)
        self._unread: set[str] = set()

    def concerned(self, requests: Sequence[RunRequest]) -> list[set[str]]:
        """Return for each request the tables that it concerns, and update ``active``."""
        known = self._known(requests)
        watched = [table for table in known if table.active and (not self._names or str(table.table) in self._names)]
        self.active = {str(table.table): table for table in watched}
        readers = Readers(watched, self._lake.config.transactions)
        return [readers.of(request) for request in requests]

    def _known(self, requests: Sequence[RunRequest]) -> list[KnownTable]:
        """Return the known tables; search for new ones if a file landed that none of them reads."""
        known = self._lake.tables()
        is_full_look = any(request.everything for request in requests)
        if is_full_look:
            self._unread.clear()
        readers = Readers(known, self._lake.config.transactions)
        unread = {folder for request in requests for folder in request.folders if not readers.of_folder(folder)}
        has_trees = any(request.trees for request in requests)
        # Files of an excluded table may keep landing: searched once, and again with the next rescan.
        if not (is_full_look or has_trees or unread - self._unread):
            return known
        self._unread |= unread
        new = self._lake.discover().new
        for table in new:
            hint = f"lakeward tables set {table} --primary-key COLUMN --activate"
            fields = event("table.found", table=str(table), hint=hint)
            logger.warning("%s is new and inactive until its key is set: %s", table, hint, extra=fields)
        return self._lake.tables() if new else known


def _upwards(folder: str) -> Iterator[str]:
    """Yield a folder and all above it, up to landing itself."""
    while folder:
        yield folder
        folder = folder.rpartition("/")[0]
    yield ""


@dataclass(frozen=True)
class PathFilter:
    """A filter for visible landing paths with one of the prefixes and one of the suffixes; none: any."""

    prefixes: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = ()

    def accepts_file(self, path: str) -> bool:
        """Whether a new file, by its path under landing, starts a run."""
        return (
            _is_visible(path)
            and (not self.prefixes or path.startswith(self.prefixes))
            and (not self.suffixes or path.endswith(self.suffixes))
        )

    def accepts_tree(self, folder: str) -> bool:
        """Whether files below a new folder may be accepted."""
        below = f"{folder}/"
        overlaps = any(below.startswith(prefix) or prefix.startswith(below) for prefix in self.prefixes)
        return _is_visible(folder) and (not self.prefixes or overlaps)


def parent(path: str) -> str:
    """Return the folder of a landing path, empty for landing itself."""
    return path.rpartition("/")[0]


def _is_visible(path: str) -> bool:
    return bool(path) and not any(is_hidden(part) for part in path.split("/"))


class LandingLake(Protocol):
    """The part of a lake that concerns landing files and tables."""

    @property
    def config(self) -> Config:
        """The configuration."""
        ...

    @property
    def storage(self) -> Landing:
        """The landing folder."""
        ...

    @property
    def state(self) -> StateStore:
        """The state store."""
        ...

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
        ConfigurationError: a file is not under landing, or belongs to none of the tables.
    """
    paths = frozenset(landing_path(lake, uri) for uri in uris)
    tables = tuple(names)
    return (_tables_of(lake, paths, tables) if paths else tables), paths


def resolve_files(lake: LandingLake, names: Iterable[str], options: RunOptions) -> tuple[tuple[str, ...], RunOptions]:
    """Return the tables of a run, and its options with all files as paths under landing.

    Raises:
        ConfigurationError: a file is not under landing, or belongs to none of the tables: it would match nothing.
    """
    tables, files = choose_files(lake, names, options.files)
    keep, changed = (
        frozenset(landing_path(lake, file) for file in found) for found in (options.keep_parts, options.accept_changed)
    )
    drop = frozenset(_path_or_record(lake, file, tables) for file in options.drop_parts)
    if decided := keep | drop | changed:
        _tables_of(lake, decided, tables)
    return tables, replace(options, files=files, keep_parts=keep, drop_parts=drop, accept_changed=changed)


def _path_or_record(lake: LandingLake, file: str, names: tuple[str, ...]) -> str:
    """Return a file's path under landing, also of a load part that was read and is gone from there."""
    try:
        return landing_path(lake, file)
    except ConfigurationError:
        for table in _chosen(lake, names):
            if lake.state.lookup(table.table, [file]):
                return file
        raise


def landing_path(lake: LandingLake, uri: str) -> str:
    """Return a file's path under landing; raise if it is not there."""
    path = _local_path(lake.storage.root, uri) if lake.storage.is_local else _s3_path(lake, uri)
    if path is None:
        msg = f"{uri} is not a file under landing {lake.config.landing}"
        raise ConfigurationError(msg, hint="name its path under landing, such as sales/product/LOAD00000001.parquet")
    return path


def _local_path(landing: str, uri: str) -> str | None:
    parts, root = split_address(uri, f"file {uri!r}"), Path(landing)
    local = Path(url2pathname(parts.path) if parts.scheme == "file" else uri)
    for candidate in [local] if local.is_absolute() else [root / local, Path.cwd() / local]:
        if candidate.is_relative_to(root) and candidate.is_file():
            return candidate.relative_to(root).as_posix()
    return None


def _s3_path(lake: LandingLake, uri: str) -> str | None:
    path: str | None = uri
    if is_s3(uri):
        place = S3Location.parse(uri, "file")
        path = path_under(lake.config.landing, S3Object(place.bucket, place.prefix))
    try:
        if path:
            lake.storage.identity(path)
    except FileNotFoundError:
        return None
    return path or None


def _tables_of(lake: LandingLake, paths: Iterable[str], names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the tables that files belong to; raise for a file that no chosen table reads."""
    readers = Readers(_chosen(lake, names), lake.config.transactions)
    chosen: set[str] = set()
    for path in paths:
        owners = readers.of_folder(parent(path))
        if not owners:
            msg = f"{path} belongs to no {'named' if names else 'active'} table"
            raise ConfigurationError(msg, hint="lakeward discover, then lakeward tables list")
        chosen.update(owners)
    return tuple(sorted(chosen))


def _chosen(lake: LandingLake, names: tuple[str, ...]) -> list[KnownTable]:
    """Return the named tables, all active ones when none is named."""
    return [lake.table(name) for name in names] if names else [table for table in lake.tables() if table.active]
