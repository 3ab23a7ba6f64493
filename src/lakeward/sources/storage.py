"""Where landing files lie: listing them without holding the listing, telling whether one changed, reading one."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.request import url2pathname

from lakeward.config.s3 import S3Settings
from lakeward.errors import ConfigurationError, DataError
from lakeward.model import FileIdentity
from lakeward.reading_back import split_address
from lakeward.redaction import holds_login, redact_address
from lakeward.storage.s3 import is_s3

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from hashlib import blake2b

    from lakeward.config.access import LinkPolicy

logger = logging.getLogger(__name__)

SUPPORTED = "a local path, file:///… or s3://bucket/prefix"
CHUNK_BYTES = 1 << 20
_HASH_BYTES = 16


@dataclass(frozen=True)
class StoredFile:
    """A file as a listing sees it; ``path`` is relative to the landing root with forward slashes."""

    path: str
    size: int
    mtime_us: int
    etag: str | None = None

    @property
    def identity(self) -> FileIdentity:
        """What tells the file's content from outside."""
        return FileIdentity(self.size, self.mtime_us, self.etag)


class Storage(Protocol):
    """A landing root. Implementations are picklable: they travel into Spark tasks."""

    def walk(self, prefix: str) -> Iterator[StoredFile]:
        """Give every visible file under a folder, folder by folder in name order; nothing if it is missing."""
        ...

    def exists(self, prefix: str) -> bool:
        """Tell whether a folder exists and holds at least one visible entry."""
        ...

    def children(self, prefix: str) -> Iterator[tuple[str, bool]]:
        """Return (path, is folder) of the visible entries directly in a folder, folders in name order."""
        ...

    def identity(self, path: str) -> FileIdentity:
        """Give a file's identity now; raises FileNotFoundError."""
        ...

    def location(self, path: str) -> str:
        """Give the address a person or another tool can open."""
        ...

    def spool(self, path: str) -> AbstractContextManager[tuple[str, str]]:
        """Give a local path with the file's bytes, and their hash; raises FileNotFoundError."""
        ...

    def replace(self, path: str, local_path: str) -> None:
        """Let a file have the content of a local one, in one step for readers."""
        ...


def open_storage(landing_uri: str, s3: S3Settings | None = None, symlinks: LinkPolicy = "refuse") -> Storage:
    """Open the landing root named by a local path or URI; ``s3`` tells how S3 is reached.

    ``symlinks`` is for links in a local landing that leave it.

    Raises:
        ConfigurationError: the URI's scheme is not supported, or it holds a password, or a key of S3 is not set.
    """
    if holds_login(landing_uri):
        msg = f"landing {redact_address(landing_uri)} holds a password: the files of a table are named by it"
        raise ConfigurationError(msg, hint="leave it out; keys of S3 are set under s3: (docs/s3.md)")
    if is_s3(landing_uri):
        from lakeward.sources.s3 import S3Storage

        return S3Storage(landing_uri, s3 or S3Settings())
    if "://" not in landing_uri:
        return LocalStorage(landing_uri, symlinks)
    parts = split_address(landing_uri, "landing")
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return LocalStorage(url2pathname(parts.path), symlinks)
    msg = f"landing {landing_uri!r} is not supported by this version of Lakeward; expected {SUPPORTED}"
    raise ConfigurationError(msg)


def is_hidden(name: str) -> bool:
    """Tell names that mark hidden or temporary files and folders: ``_x``, ``.x``, ``x.tmp``."""
    return name.startswith(("_", ".")) or name.endswith(".tmp")


class LocalStorage:
    """A landing root in the local file system.

    Whoever writes files to landing decides what the mirrors hold, and shall not decide by a link that they hold any
    other file of this machine: links that leave landing are refused, unless ``symlinks`` is ``allow``.
    """

    def __init__(self, root: str | Path, symlinks: LinkPolicy = "refuse") -> None:
        self.root = str(Path(root).absolute())
        self.symlinks = symlinks

    def walk(self, prefix: str) -> Iterator[StoredFile]:
        """Give every visible file under a folder, folder by folder in name order; nothing if it is missing.

        Raises:
            DataError: a symbolic link leaves landing.
        """
        folder = prefix.strip("/")
        self._require_inside(folder)
        return self._walk(folder, ())

    def _walk(self, folder: str, links: tuple[str, ...]) -> Iterator[StoredFile]:
        """Walk depth first; ``links`` are the symbolic links' targets on the way, so that a loop of links ends."""
        for name, is_folder, is_link in self._entries(folder):
            path = f"{folder}/{name}" if folder else name
            if is_link:
                self._require_inside(path)
            if not is_folder:
                stored = self._stat(path)
                if stored is not None:
                    yield stored
                continue
            if not is_link:
                yield from self._walk(path, links)
                continue
            target = os.path.realpath(self._local(path))
            above = os.path.realpath(self._local(folder))
            if target not in links and target != above and not above.startswith(target + os.sep):
                yield from self._walk(path, (*links, target))

    def _entries(self, folder: str) -> list[tuple[str, bool, bool]]:
        """Give (name, is folder, is link) of the visible entries of one folder, in name order."""
        try:
            with os.scandir(self._local(folder)) as entries:
                return sorted((e.name, _is_folder(e), e.is_symlink()) for e in entries if not is_hidden(e.name))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _stat(self, path: str) -> StoredFile | None:
        """Give a file as the listing sees it, None when it vanished since the folder was read."""
        try:
            identity = self.identity(path)
        except FileNotFoundError:
            return None
        return StoredFile(path, identity.size, identity.mtime_us)

    def exists(self, prefix: str) -> bool:
        """Tell whether a folder exists and holds at least one visible entry."""
        try:
            with os.scandir(self._local(prefix)) as entries:
                return any(not is_hidden(entry.name) for entry in entries)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def children(self, prefix: str) -> Iterator[tuple[str, bool]]:
        """Return (path, is folder) of the visible entries directly in a folder, in name order."""
        folder = prefix.strip("/")
        if not self._is_inside(folder):
            logger.warning("%s is a symbolic link that leaves landing: no table is looked for there", folder)
            return
        for name, is_folder, _ in self._entries(folder):
            yield (f"{folder}/{name}" if folder else name), is_folder

    def identity(self, path: str) -> FileIdentity:
        """Give a file's identity now; raises FileNotFoundError."""
        self._require_inside(path)
        status = Path(self._local(path)).stat()
        return FileIdentity(status.st_size, status.st_mtime_ns // 1000)

    def location(self, path: str) -> str:
        """Give the absolute path."""
        return self._local(path)

    @contextmanager
    def spool(self, path: str) -> Iterator[tuple[str, str]]:
        """Give the file's own path, and the hash of its bytes; raises FileNotFoundError."""
        self._require_inside(path)
        local = self._local(path)
        yield local, content_hash(local)

    def replace(self, path: str, local_path: str) -> None:
        """Let a file have the content of a local one: a hidden copy beside it takes its place."""
        self._require_inside(path)
        target = Path(self._local(path))
        draft = target.with_name(f".{target.name}.{uuid.uuid4().hex[:12]}")
        try:
            shutil.copyfile(local_path, draft)
            shutil.copymode(target, draft)
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)

    def _is_inside(self, path: str) -> bool:
        """Whether a path, its links followed, is below the landing root; the root itself may be a link."""
        if self.symlinks == "allow":
            return True
        real, root = os.path.realpath(self._local(path)), os.path.realpath(self.root)
        return Path(real).is_relative_to(root)

    def _require_inside(self, path: str) -> None:
        if not self._is_inside(path):
            found = os.path.realpath(self._local(path))
            msg = f"{path} leads by a symbolic link to {found}, which is outside the landing folder {self.root}"
            raise DataError(msg, hint="put the files themselves into landing, or set landing_symlinks: allow")

    def _local(self, path: str) -> str:
        relative = path.strip("/")
        if ".." in relative.split("/"):
            msg = f"{path!r} leads out of the landing folder {self.root}; expected a path below it"
            raise ConfigurationError(msg)
        return str(Path(self.root, relative))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a folder; a symbolic link that leads to itself is none, and fails where it is read."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def content_hash(local_path: str) -> str:
    """Hash a file's bytes without holding them."""
    digest = new_digest()
    with Path(local_path).open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def new_digest() -> blake2b:
    """Begin the hash that tells a file's content."""
    return hashlib.blake2b(digest_size=_HASH_BYTES)
