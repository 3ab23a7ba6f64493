"""Landing roots, local or in S3: list files one by one, detect changed files, read and replace files."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import tempfile
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.request import url2pathname

from lakeward.config.services import S3Settings
from lakeward.errors import ConfigurationError, DataError, RetriableError
from lakeward.model import FileIdentity
from lakeward.redaction import holds_login, redact_address
from lakeward.storage.s3 import S3Location, is_s3, s3_client, s3_errors
from lakeward.text import split_address

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from datetime import datetime
    from hashlib import blake2b

    from lakeward.config.services import LinkPolicy, S3Keys


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
        """The properties that change when the file's content changes."""
        return FileIdentity(self.size, self.mtime_us, self.etag)


class Storage(Protocol):
    """A landing root. Implementations are picklable: they travel into Spark tasks."""

    def walk(self, prefix: str) -> Iterator[StoredFile]:
        """Yield every visible file under a folder, folder by folder in name order; none if it is missing."""
        ...

    def exists(self, prefix: str) -> bool:
        """Whether a folder exists and holds at least one visible entry."""
        ...

    def children(self, prefix: str) -> Iterator[tuple[str, bool]]:
        """Yield (path, is folder) of the visible entries directly in a folder, folders in name order."""
        ...

    def identity(self, path: str) -> FileIdentity:
        """Return a file's identity now; raises FileNotFoundError."""
        ...

    def location(self, path: str) -> str:
        """Return the address that a person or another tool can open."""
        ...

    def spool(self, path: str) -> AbstractContextManager[tuple[str, str]]:
        """Return a context with a local path of the file's bytes, and their hash; raises FileNotFoundError."""
        ...

    def replace(self, path: str, local_path: str) -> None:
        """Replace a file's content by that of a local file; readers see the old or the new content."""
        ...


def open_storage(landing_uri: str, s3: S3Settings | None = None, symlinks: LinkPolicy = "refuse") -> Storage:
    """Return the landing root at a local path or URI; ``s3`` has the settings of S3.

    ``symlinks`` decides about links that lead out of a local landing.

    Raises:
        ConfigurationError: the URI's scheme is not supported, or it holds a password, or a key of S3 is not set.
    """
    if holds_login(landing_uri):
        msg = f"landing {redact_address(landing_uri)} holds a password: the files of a table are named by it"
        raise ConfigurationError(msg, hint="leave it out; keys of S3 are set under s3: (docs/s3.md)")
    if is_s3(landing_uri):
        return S3Storage(landing_uri, s3 or S3Settings())
    if "://" not in landing_uri:
        return LocalStorage(landing_uri, symlinks)
    parts = split_address(landing_uri, "landing")
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return LocalStorage(url2pathname(parts.path), symlinks)
    msg = f"landing {landing_uri!r} is not supported by this version of Lakeward; expected {SUPPORTED}"
    raise ConfigurationError(msg)


def is_hidden(name: str) -> bool:
    """Whether a name marks a hidden or temporary file or folder: ``_x``, ``.x``, ``x.tmp``."""
    return name.startswith(("_", ".")) or name.endswith(".tmp")


class LocalStorage:
    """A landing root in the local file system.

    Those who can write to landing must not be able to copy any other file of this machine into a mirror: links that
    lead out of landing are refused, unless ``symlinks`` is ``allow``.
    """

    def __init__(self, root: str | Path, symlinks: LinkPolicy = "refuse") -> None:
        self.root = str(Path(root).absolute())
        self.symlinks = symlinks

    def walk(self, prefix: str) -> Iterator[StoredFile]:
        """Yield every visible file under a folder, folder by folder in name order; none if it is missing.

        Raises:
            DataError: a symbolic link leads out of landing.
        """
        folder = prefix.strip("/")
        self._require_inside(folder)
        return self._walk(folder, ())

    def _walk(self, folder: str, links: tuple[str, ...]) -> Iterator[StoredFile]:
        """Yield files depth first; ``links`` are the targets of the links followed so far, so that loops end."""
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
        """Return (name, is folder, is link) of the visible entries of one folder, in name order."""
        try:
            with os.scandir(self._local(folder)) as entries:
                return sorted((e.name, _is_folder(e), e.is_symlink()) for e in entries if not is_hidden(e.name))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _stat(self, path: str) -> StoredFile | None:
        """Return a file for the listing; None when it was removed since the folder was read."""
        try:
            identity = self.identity(path)
        except FileNotFoundError:
            return None
        return StoredFile(path, identity.size, identity.mtime_us)

    def exists(self, prefix: str) -> bool:
        """Whether a folder exists and holds at least one visible entry."""
        try:
            with os.scandir(self._local(prefix)) as entries:
                return any(not is_hidden(entry.name) for entry in entries)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def children(self, prefix: str) -> Iterator[tuple[str, bool]]:
        """Yield (path, is folder) of the visible entries directly in a folder, in name order."""
        folder = prefix.strip("/")
        if not self._is_inside(folder):
            logger.warning("%s is a symbolic link that leads out of landing: no table is searched there", folder)
            return
        for name, is_folder, _ in self._entries(folder):
            yield (f"{folder}/{name}" if folder else name), is_folder

    def identity(self, path: str) -> FileIdentity:
        """Return a file's identity now; raises FileNotFoundError."""
        self._require_inside(path)
        status = Path(self._local(path)).stat()
        return FileIdentity(status.st_size, status.st_mtime_ns // 1000)

    def location(self, path: str) -> str:
        """Return the absolute path."""
        return self._local(path)

    @contextmanager
    def spool(self, path: str) -> Iterator[tuple[str, str]]:
        """Yield the file's own path, and the hash of its bytes; raises FileNotFoundError."""
        self._require_inside(path)
        local = self._local(path)
        yield local, content_hash(local)

    def replace(self, path: str, local_path: str) -> None:
        """Replace a file's content by that of a local file, which is copied beside it and then renamed."""
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
        """Whether a path is below the landing root after its links are resolved; the root itself may be a link."""
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
    """Whether an entry is a folder; a symbolic link to itself is not one, and fails when it is read."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def content_hash(local_path: str) -> str:
    """Return the hash of a file's bytes, read in chunks."""
    digest = new_digest()
    with Path(local_path).open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def new_digest() -> blake2b:
    """Return an empty hash of file contents."""
    return hashlib.blake2b(digest_size=_HASH_BYTES)


# Entries to request where one visible entry is enough.
_FEW = 20


class S3Storage:
    """A landing root in S3: a bucket, or a prefix of one.

    Access keys that the settings name are read here and sent to Spark tasks with the object; without them each machine
    finds its keys by the default chain of AWS.
    """

    def __init__(self, uri: str, settings: S3Settings) -> None:
        """Set the root; no request is made yet."""
        self._root = S3Location.parse(uri, "landing")
        self._settings = settings
        self._keys = settings.keys()

    def walk(self, prefix: str) -> Iterator[StoredFile]:
        """Yield every visible file under a folder in key order, which is folder by folder; none if it is missing.

        This is one flat listing: listing each folder would cost a request for each day of nested date folders.
        """
        folder = self._key(prefix.strip("/"), is_folder=True)
        for page in self._pages(folder, ""):
            for found in page.get("Contents", ()):
                names = found["Key"].removeprefix(folder).split("/")
                # Some tools create a key that ends in a slash for an empty folder.
                if names[-1] and not any(is_hidden(name) for name in names):
                    yield self._stored(found)

    def exists(self, prefix: str) -> bool:
        """Whether a folder exists and holds at least one visible entry."""
        return any(True for _ in self._entries(prefix, page_size=_FEW))

    def children(self, prefix: str) -> Iterator[tuple[str, bool]]:
        """Yield (path, is folder) of the visible entries directly in a folder, folders in name order."""
        folder = prefix.strip("/")
        for name, is_folder in self._entries(prefix):
            yield (f"{folder}/{name}" if folder else name), is_folder

    def _entries(self, prefix: str, page_size: int | None = None) -> Iterator[tuple[str, bool]]:
        """Yield (name, is folder) of the visible entries of one folder, the folders of each page first."""
        folder = self._key(prefix.strip("/"), is_folder=True)
        for page in self._pages(folder, "/", page_size):
            below = [
                (entry["Prefix"].removeprefix(folder).removesuffix("/"), True)
                for entry in page.get("CommonPrefixes", ())
            ]
            inside = [(entry["Key"].removeprefix(folder), False) for entry in page.get("Contents", ())]
            yield from ((name, is_folder) for name, is_folder in below + inside if name and not is_hidden(name))

    def identity(self, path: str) -> FileIdentity:
        """Return a file's identity now; raises FileNotFoundError."""
        with s3_errors(self.location(path)):
            found = self._client.head_object(Bucket=self._root.bucket, Key=self._key(path))
        return FileIdentity(found["ContentLength"], _whole_seconds(found["LastModified"]), found["ETag"].strip('"'))

    def location(self, path: str) -> str:
        """Return the address that the command-line tools of AWS take."""
        return f"s3://{self._root.bucket}/{self._key(path)}"

    @contextmanager
    def spool(self, path: str) -> Iterator[tuple[str, str]]:
        """Yield a temporary copy of the file and the hash of its bytes; raises FileNotFoundError."""
        with _temporary(self.location(path)) as copy:
            digest = self._download(path, copy)
            yield copy.name, digest

    def replace(self, path: str, local_path: str) -> None:
        """Replace an object's content by that of a local file; S3 shows the old or the new content, never a part."""
        with s3_errors(self.location(path)):
            self._client.upload_file(local_path, self._root.bucket, self._key(path))

    def _download(self, path: str, copy: Any) -> str:
        """Copy an object's bytes in chunks, and return their hash."""
        digest, where = new_digest(), self.location(path)
        with s3_errors(where):
            body = self._client.get_object(Bucket=self._root.bucket, Key=self._key(path))["Body"]
            try:
                for chunk in body.iter_chunks(CHUNK_BYTES):
                    digest.update(chunk)
                    with _local_write_errors(where):
                        _write(copy, chunk)
            finally:
                body.close()
        return digest.hexdigest()

    def _pages(self, folder: str, delimiter: str, page_size: int | None = None) -> Iterator[Any]:
        """Yield the listing below a folder page by page."""
        where = f"s3://{self._root.bucket}/{folder}"
        listing = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._root.bucket, Prefix=folder, Delimiter=delimiter, PaginationConfig={"PageSize": page_size}
        )
        pages = iter(listing)
        while True:
            with s3_errors(where):
                page = next(pages, None)
            if page is None:
                return
            yield page

    def _stored(self, found: Any) -> StoredFile:
        path = found["Key"].removeprefix(f"{self._root.prefix}/" if self._root.prefix else "")
        return StoredFile(path, found["Size"], _whole_seconds(found["LastModified"]), found["ETag"].strip('"'))

    def _key(self, path: str, *, is_folder: bool = False) -> str:
        key = "/".join(part for part in (self._root.prefix, path) if part)
        return f"{key}/" if is_folder and key else key

    @property
    def _client(self) -> Any:
        return _shared_client(self._settings, self._keys, os.getpid())


@lru_cache(maxsize=8)
def _shared_client(settings: S3Settings, keys: S3Keys | None, _process: int) -> Any:
    """Return the client of this process: creating one costs more than most requests, and none survives a fork."""
    return s3_client(settings, keys)


def _whole_seconds(moment: datetime) -> int:
    """Return a time in microseconds, cut to seconds: some stores return fractions in listings only."""
    return int(moment.timestamp()) * 1_000_000


def _temporary(where: str) -> Any:
    """Open a temporary file without a buffer: closing it would try again to write what failed before."""
    with _local_write_errors(where):
        return tempfile.NamedTemporaryFile(prefix="lakeward-", buffering=0)


def _write(copy: Any, chunk: bytes) -> None:
    rest = memoryview(chunk)
    while rest:
        rest = rest[copy.write(rest) :]


@contextmanager
def _local_write_errors(where: str) -> Iterator[None]:
    """Turn an error of writing the copy into one that names the local disk, not the landing file."""
    try:
        yield
    except OSError as error:
        msg = f"{where} cannot be copied to {tempfile.gettempdir()}: {error.strerror}"
        raise RetriableError(msg, hint="make room there, or set TMPDIR to a larger disk") from error
