"""Files of a snapshot set, brought to where a Spark task can open them as files."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.sources.s3 import S3Storage
from lakeward.storage.filesystem import LocalFileSystem, local_path
from lakeward.storage.hadoop import HadoopFileSystem
from lakeward.storage.s3 import is_s3

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from lakeward.diffing.plans.kernel import Files
    from lakeward.storage.filesystem import FileSystem


@dataclass(frozen=True)
class LocalFiles:
    """Files on this machine's disk, or on one that all machines see under the same path: opened in place."""

    folder: str

    def local(self, path: str) -> AbstractContextManager[str]:
        """Give the path itself."""
        return nullcontext(str(local_path(self.folder) / path))


@dataclass(frozen=True)
class S3Files:
    """Objects of a bucket: copied to a temporary file for the time they are needed."""

    storage: S3Storage

    @contextmanager
    def local(self, path: str) -> Iterator[str]:
        """Give the path of a copy."""
        with self.storage.spool(path) as (copy, _):
            yield copy


def files_of(store: FileSystem, folder: str) -> Files | None:
    """Give the way by which tasks open a set's files; None where only Spark itself can read them."""
    if isinstance(store, LocalFileSystem):
        return LocalFiles(folder)
    if is_s3(folder) and isinstance(store, HadoopFileSystem):
        return S3Files(S3Storage(folder, store.s3))
    return None
