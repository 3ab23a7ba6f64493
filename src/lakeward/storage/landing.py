"""Landing: its rules on top of a file system. Hidden names, links that lead out of it, and hashes of contents."""

from __future__ import annotations

import hashlib
import logging
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import url2pathname

from lakeward.config.services import S3Settings
from lakeward.errors import ConfigurationError, DataError
from lakeward.redaction import holds_login, redact_address
from lakeward.storage.filesystem import LocalFileSystem, StoredFile, TaskFileSystem
from lakeward.storage.s3 import S3FileSystem, S3Location, is_s3
from lakeward.text import split_address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from hashlib import blake2b

    from lakeward.config import Config, TableSettings
    from lakeward.config.services import LinkPolicy
    from lakeward.model import FileIdentity


logger = logging.getLogger(__name__)

SUPPORTED = "a local path, file:///… or s3://bucket/prefix"
_HASH_BYTES = 16


def open_landing(landing_uri: str, s3: S3Settings | None = None, symlinks: LinkPolicy = "refuse") -> Landing:
    """Return the landing root at a local path or URI; ``s3`` has the settings of S3.

    ``symlinks`` decides about links that lead out of a local landing.

    Raises:
        ConfigurationError: the URI's scheme is not supported, or it holds a password, or a key of S3 is not set.
    """
    if holds_login(landing_uri):
        msg = f"landing {redact_address(landing_uri)} holds a password: the files of a table are named by it"
        raise ConfigurationError(msg, hint="leave it out; keys of S3 are set under s3: (docs/s3.md)")
    if is_s3(landing_uri):
        return Landing(S3Location.parse(landing_uri, "landing").uri, symlinks, S3FileSystem(s3 or S3Settings()))
    if "://" not in landing_uri:
        return Landing(landing_uri, symlinks)
    parts = split_address(landing_uri, "landing")
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return Landing(url2pathname(parts.path), symlinks)
    msg = f"landing {landing_uri!r} is not supported by this version of Lakeward; expected {SUPPORTED}"
    raise ConfigurationError(msg)


def is_hidden(name: str) -> bool:
    """Whether a name marks a hidden or temporary file or folder: ``_x``, ``.x``, ``x.tmp``."""
    return name.startswith(("_", ".")) or name.endswith(".tmp")


def is_hidden_in_lake(name: str) -> bool:
    """Whether a name in a lake is hidden: never that of a partition, whose value may be any text."""
    return is_hidden(name) and "=" not in name


class Landing:
    """A landing root; paths are relative to it. It is picklable: it travels into Spark tasks.

    Those who can write to landing must not be able to copy any other file of this machine into a mirror: links that
    lead out of landing are refused, unless ``symlinks`` is ``allow``.
    """

    def __init__(self, root: str | Path, symlinks: LinkPolicy = "refuse", system: TaskFileSystem | None = None) -> None:
        """Set the root, by default on the local disk."""
        self.system = system or LocalFileSystem()
        self.root = str(root) if system else str(Path(root).absolute())
        self.symlinks = symlinks

    @property
    def is_local(self) -> bool:
        """Whether the root is a folder of the local disk."""
        return isinstance(self.system, LocalFileSystem)

    def walk(self, prefix: str, hidden: Callable[[str], bool] = is_hidden) -> Iterator[StoredFile]:
        """Yield every visible file under a folder, folder by folder in name order; none if it is missing.

        ``hidden`` decides by the names of files and folders which ones are passed over.

        Raises:
            DataError: a symbolic link leads out of landing.
        """
        folder = prefix.strip("/")
        self._require_inside(folder)
        return self._walk(folder, (), hidden) if self.is_local else self._walk_flat(folder, hidden)

    def _walk_flat(self, folder: str, hidden: Callable[[str], bool]) -> Iterator[StoredFile]:
        """Yield files in the order of their keys, from one listing: to pass names over is cheaper than more of them."""
        for file in self.system.walk(self.location(folder)):
            if not any(map(hidden, file.path.split("/"))):
                yield StoredFile(_below(folder, file.path), file.size, file.mtime_us, file.etag)

    def _walk(self, folder: str, links: tuple[str, ...], hidden: Callable[[str], bool]) -> Iterator[StoredFile]:
        """Yield files depth first; ``links`` are the targets of the links followed so far, so that loops end."""
        for name, is_folder, is_link in self.system.entries(self.location(folder)):
            if hidden(name):
                continue
            path = _below(folder, name)
            if is_link:
                self._require_inside(path)
            if not is_folder:
                stored = self._stat(path)
                if stored is not None:
                    yield stored
                continue
            if not is_link:
                yield from self._walk(path, links, hidden)
                continue
            target, above = (self.system.resolved(self.location(each)) for each in (path, folder))
            if target not in links and target != above and not above.startswith(target + os.sep):
                yield from self._walk(path, (*links, target), hidden)

    def _stat(self, path: str) -> StoredFile | None:
        """Return a file for the listing; None when it was removed since the folder was read."""
        try:
            identity = self.identity(path)
        except FileNotFoundError:
            return None
        return StoredFile(path, identity.size, identity.mtime_us, identity.etag)

    def exists(self, prefix: str) -> bool:
        """Whether a folder exists and holds at least one visible entry."""
        entries = self.system.entries(self.location(prefix.strip("/")))
        return any(not is_hidden(entry.name) for entry in entries)

    def children(self, prefix: str) -> Iterator[tuple[str, bool]]:
        """Yield (path, is folder) of the visible entries directly in a folder, folders in name order."""
        folder = prefix.strip("/")
        if not self._is_inside(folder):
            logger.warning("%s is a symbolic link that leads out of landing: no table is searched there", folder)
            return
        for name, is_folder, _ in self.system.entries(self.location(folder)):
            if not is_hidden(name):
                yield _below(folder, name), is_folder

    def identity(self, path: str) -> FileIdentity:
        """Return a file's identity now; raises FileNotFoundError."""
        self._require_inside(path)
        return self.system.identity(self.location(path))

    @contextmanager
    def spool(self, path: str) -> Iterator[tuple[str, str]]:
        """Yield a local path of the file's bytes, and their hash; raises FileNotFoundError."""
        self._require_inside(path)
        digest = new_digest()
        with self.system.fetch(self.location(path), digest) as local_path:
            yield local_path, digest.hexdigest()

    def replace(self, path: str, local_path: str) -> None:
        """Replace a file's content by that of a local file; readers see the old or the new content."""
        self._require_inside(path)
        self.system.replace(self.location(path), local_path)

    def below_lake(self, path: str) -> str | None:
        """Return the path of an adopted lake's file below that lake, None for a file of landing."""
        return None

    def location(self, path: str) -> str:
        """Return the address that a person or another tool can open: an absolute path, or ``s3://bucket/key``."""
        if not self.is_local:
            return f"{self.root}/{path}" if path else self.root
        relative = path.strip("/")
        if ".." in relative.split("/"):
            msg = f"{path!r} leads out of the landing folder {self.root}; expected a path below it"
            raise ConfigurationError(msg)
        return str(Path(self.root, relative))

    def _is_inside(self, path: str) -> bool:
        """Whether a path is below the landing root after its links are resolved; the root itself may be a link."""
        if self.symlinks == "allow":
            return True
        return Path(self.system.resolved(self.location(path))).is_relative_to(self.system.resolved(self.root))

    def _require_inside(self, path: str) -> None:
        if not self._is_inside(path):
            found = self.system.resolved(self.location(path))
            msg = f"{path} leads by a symbolic link to {found}, which is outside the landing folder {self.root}"
            raise DataError(msg, hint="put the files themselves into landing, or set landing_symlinks: allow")


class LandingWithLake(Landing):
    """A landing beside a lake that another system wrote, whose files have absolute paths and are only read."""

    def __init__(self, landing: Landing, lake: Landing) -> None:
        """Use a landing, and the folder of the lake as another one."""
        super().__init__(landing.root, landing.symlinks, None if landing.is_local else landing.system)
        self.lake = lake

    def below_lake(self, path: str) -> str | None:
        """Return the path of an adopted lake's file below that lake, None for a file of landing."""
        root = f"{self.lake.root}/"
        return path.removeprefix(root) if path.startswith(root) else None

    def identity(self, path: str) -> FileIdentity:
        """Return a file's identity now; raises FileNotFoundError."""
        below = self.below_lake(path)
        return super().identity(path) if below is None else self.lake.identity(below)

    @contextmanager
    def spool(self, path: str) -> Iterator[tuple[str, str]]:
        """Yield a local path of the file's bytes, and their hash; raises FileNotFoundError."""
        below = self.below_lake(path)
        with super().spool(path) if below is None else self.lake.spool(below) as found:
            yield found

    def replace(self, path: str, local_path: str) -> None:
        """Replace a file's content, unless it is one of the lake.

        Raises:
            DataError: the file belongs to the lake, of which Lakeward changes nothing.
        """
        if self.below_lake(path) is not None:
            msg = f"{path} belongs to a lake that another system wrote: it is only read"
            raise DataError(msg, hint="change it with the tools of that system")
        super().replace(path, local_path)

    def location(self, path: str) -> str:
        """Return the address that a person or another tool can open."""
        return path if self.below_lake(path) is not None else super().location(path)


def with_lake(config: Config, landing: Landing, settings: TableSettings) -> Landing:
    """Return the storage of a table's files: landing, and beside it the lake that is, or was, adopted."""
    if settings.adopt is None:
        return landing
    lake = open_landing(config.resolve(settings.adopt.lake), config.s3, config.landing_symlinks)
    return LandingWithLake(landing, lake)


def _below(folder: str, path: str) -> str:
    return f"{folder}/{path}" if folder else path


def content_hash(local_path: str) -> str:
    """Return the hash of a file's bytes, read in chunks."""
    digest = new_digest()
    with LocalFileSystem().fetch(local_path, digest):
        return digest.hexdigest()


def new_digest() -> blake2b:
    """Return an empty hash of file contents."""
    return hashlib.blake2b(digest_size=_HASH_BYTES)
