"""A landing root in S3. Keys are taken as they are; what a key must be escaped for is the client's business."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from lakeward.errors import RetriableError
from lakeward.model import FileIdentity
from lakeward.sources.storage import CHUNK_BYTES, StoredFile, is_hidden, new_digest
from lakeward.storage.s3 import S3Location, s3_client, s3_errors

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from lakeward.config.s3 import S3Keys, S3Settings

# Entries to ask for where the first visible one tells all.
_FEW = 20


class S3Storage:
    """A bucket, or what lies under a prefix of one.

    Keys that the settings name are read here and travel into Spark tasks with the object; without them each machine
    finds its own by the chain of AWS programs.
    """

    def __init__(self, uri: str, settings: S3Settings) -> None:
        """Name the root; nothing is asked of S3 yet."""
        self._root = S3Location.parse(uri, "landing")
        self._settings = settings
        self._keys = settings.keys()

    def walk(self, prefix: str) -> Iterator[StoredFile]:
        """Give every visible file under a folder in key order, which is folder by folder; nothing if it is missing.

        One flat listing: asking folder by folder would cost a request for each day of nested date folders.
        """
        folder = self._key(prefix.strip("/"), is_folder=True)
        for page in self._pages(folder, ""):
            for found in page.get("Contents", ()):
                names = found["Key"].removeprefix(folder).split("/")
                # A key that ends in a slash is how some tools remember an empty folder.
                if names[-1] and not any(is_hidden(name) for name in names):
                    yield self._stored(found)

    def exists(self, prefix: str) -> bool:
        """Tell whether a folder exists and holds at least one visible entry."""
        return any(True for _ in self._entries(prefix, page_size=_FEW))

    def children(self, prefix: str) -> Iterator[tuple[str, bool]]:
        """Return (path, is folder) of the visible entries directly in a folder, folders in name order."""
        folder = prefix.strip("/")
        for name, is_folder in self._entries(prefix):
            yield (f"{folder}/{name}" if folder else name), is_folder

    def _entries(self, prefix: str, page_size: int | None = None) -> Iterator[tuple[str, bool]]:
        """Give (name, is folder) of the visible entries of one folder, the folders of each page first."""
        folder = self._key(prefix.strip("/"), is_folder=True)
        for page in self._pages(folder, "/", page_size):
            below = [
                (one["Prefix"].removeprefix(folder).removesuffix("/"), True) for one in page.get("CommonPrefixes", ())
            ]
            inside = [(one["Key"].removeprefix(folder), False) for one in page.get("Contents", ())]
            yield from ((name, is_folder) for name, is_folder in below + inside if name and not is_hidden(name))

    def identity(self, path: str) -> FileIdentity:
        """Give a file's identity now; raises FileNotFoundError."""
        with s3_errors(self.location(path)):
            found = self._client.head_object(Bucket=self._root.bucket, Key=self._key(path))
        return FileIdentity(found["ContentLength"], _whole_seconds(found["LastModified"]), found["ETag"].strip('"'))

    def location(self, path: str) -> str:
        """Give the address that the command-line tools of AWS take."""
        return f"s3://{self._root.bucket}/{self._key(path)}"

    @contextmanager
    def spool(self, path: str) -> Iterator[tuple[str, str]]:
        """Give a temporary copy of the file and the hash of its bytes; raises FileNotFoundError."""
        with _temporary(self.location(path)) as copy:
            digest = self._download(path, copy)
            yield copy.name, digest

    def replace(self, path: str, local_path: str) -> None:
        """Let an object have the content of a local file; S3 shows the old or the new one, never a part."""
        with s3_errors(self.location(path)):
            self._client.upload_file(local_path, self._root.bucket, self._key(path))

    def _download(self, path: str, copy: Any) -> str:
        """Copy an object's bytes without holding them, and give their hash."""
        digest, where = new_digest(), self.location(path)
        with s3_errors(where):
            body = self._client.get_object(Bucket=self._root.bucket, Key=self._key(path))["Body"]
            try:
                for chunk in body.iter_chunks(CHUNK_BYTES):
                    digest.update(chunk)
                    with _room(where):
                        _write(copy, chunk)
            finally:
                body.close()
        return digest.hexdigest()

    def _pages(self, folder: str, delimiter: str, page_size: int | None = None) -> Iterator[Any]:
        """Give the listing below a folder page by page."""
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
    """Give this process's client: making one costs more than most requests, and none survives a fork."""
    return s3_client(settings, keys)


def _whole_seconds(moment: datetime) -> int:
    """Give microseconds of a time cut to seconds: some stores give fractions in listings and none elsewhere."""
    return int(moment.timestamp()) * 1_000_000


def _temporary(where: str) -> Any:
    """Open a temporary file without a buffer: what is left in one would be written, and fail, once more at the end."""
    with _room(where):
        return tempfile.NamedTemporaryFile(prefix="lakeward-", buffering=0)


def _write(copy: Any, chunk: bytes) -> None:
    rest = memoryview(chunk)
    while rest:
        rest = rest[copy.write(rest) :]


@contextmanager
def _room(where: str) -> Iterator[None]:
    """Say of a copy that cannot be written that it is not the landing file's fault."""
    try:
        yield
    except OSError as error:
        msg = f"{where} cannot be copied to {tempfile.gettempdir()}: {error.strerror}"
        raise RetriableError(msg, hint="make room there, or set TMPDIR to a larger disk") from error
