"""Landing files that a user names: where they are under landing, and which tables read them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.request import url2pathname

from lakeward.controller.triggers.affected import Readers
from lakeward.controller.triggers.filters import parent
from lakeward.controller.triggers.notices import S3Object, path_under
from lakeward.errors import ConfigurationError
from lakeward.reading_back import split_address
from lakeward.sources.storage import LocalStorage
from lakeward.storage.s3 import S3Location, is_s3

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakeward.config import Config
    from lakeward.controller.tables import KnownTable
    from lakeward.sources.storage import Storage


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
    """Give the tables and landing paths of a run; files without tables choose the tables they belong to.

    Raises:
        ConfigurationError: a file is not under landing, or belongs to no table that is meant.
    """
    paths = frozenset(landing_path(lake, uri) for uri in uris)
    tables = tuple(names)
    return (_tables_of(lake, paths, tables) if paths else tables), paths


def landing_path(lake: LandingLake, uri: str) -> str:
    """Give a file's path under landing; refuse one that is not there."""
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
    """Give the tables that files belong to; refuse a file that no chosen table would read."""
    known = [lake.table(name) for name in names] if names else [one for one in lake.tables() if one.active]
    readers = Readers(known, lake.config.transactions)
    chosen: set[str] = set()
    for path in paths:
        owners = readers.of_folder(parent(path))
        if not owners:
            msg = f"{path} belongs to no {'named' if names else 'active'} table"
            raise ConfigurationError(msg, hint="lakeward discover, then lakeward tables list")
        chosen.update(owners)
    return tuple(sorted(chosen))
