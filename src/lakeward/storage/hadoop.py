"""File systems that only Hadoop reaches: HDFS, and object stores other than S3."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from lakeward.errors import ConfigurationError
from lakeward.storage.filesystem import FileSystem, StoredFile, translating_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyspark.sql import SparkSession

# Stores without folders: a rename there copies file by file, and readers may see a part of it.
_OBJECT_STORES = ("s3n", "gs", "abfs", "abfss", "wasb", "wasbs", "oss")


@translating_errors
class HadoopFileSystem(FileSystem):
    """Any file system that the session's Hadoop supports, some by jars of their own."""

    def __init__(self, spark: SparkSession, scheme: str) -> None:
        self.can_rename = scheme not in _OBJECT_STORES
        self._jvm: Any = spark._jvm
        self._conf: Any = spark._jsparkSession.sessionState().newHadoopConf()

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder."""
        return bool(self._system(path).exists(self._path(path)))

    def read_text(self, path: str) -> str | None:
        """Read a small file; None when there is none."""
        if not self.exists(path):
            return None
        stream = self._system(path).open(self._path(path))
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream)).decode("utf-8", "replace")
        finally:
            stream.close()

    def write_text(self, path: str, text: str) -> None:
        """Write a small file in one step: object stores show it when it is complete, elsewhere a draft is renamed."""
        target = path if not self.can_rename else f"{path}.draft"
        stream = self._system(path).create(self._path(target), True)
        try:
            stream.write(bytearray(text.encode("utf-8")))
        finally:
            stream.close()
        if self.can_rename:
            self._replace(target, path)

    def _replace(self, draft: str, path: str) -> None:
        hadoop = self._jvm.org.apache.hadoop.fs
        overwrite = hadoop.Options.Rename.OVERWRITE
        options = self._jvm.java.lang.reflect.Array.newInstance(overwrite.getDeclaringClass(), 1)
        options[0] = overwrite
        context = hadoop.FileContext.getFileContext(self._path(path).toUri(), self._conf)
        context.rename(self._path(draft), self._path(path), options)

    def walk(self, folder: str) -> Iterator[StoredFile]:
        """Yield every file below a folder."""
        if not self.exists(folder):
            return
        system = self._system(folder)
        # In the form of listed files: with the host, also where the path names none.
        root = system.makeQualified(self._path(folder))
        start = len(root.toString().rstrip("/")) + 1
        found = system.listFiles(root, True)
        while found.hasNext():
            status = found.next()
            path = status.getPath().toString()[start:]
            yield StoredFile(path, int(status.getLen()), int(status.getModificationTime()) * 1000)

    def folders(self, folder: str) -> list[str]:
        """Return the names of the folders directly in a folder."""
        if not self.exists(folder):
            return []
        found = self._system(folder).listStatus(self._path(folder))
        return sorted(status.getPath().getName() for status in found if status.isDirectory())

    def move(self, source: str, target: str) -> None:
        """Rename a folder or file to a name that is free."""
        self._system(target).mkdirs(self._path(target).getParent())
        if not self._system(source).rename(self._path(source), self._path(target)):
            msg = f"cannot rename {source} to {target}"
            raise ConfigurationError(msg, hint="check the permissions of the folder")

    def remove(self, folder: str, paths: Iterable[str]) -> None:
        """Remove files by their paths from a folder, and the folders below it that become empty."""
        system, parents = self._system(folder), set()
        for path in paths:
            file = self._path(f"{folder}/{path}")
            if system.exists(file) and system.getFileStatus(file).isFile():
                system.delete(file, False)
            parts = path.split("/")
            parents |= {"/".join([folder, *parts[:end]]) for end in range(1, len(parts))}
        for parent in sorted(parents, key=len, reverse=True):
            self._remove_if_empty(parent)

    def prune(self, folder: str) -> None:
        """Remove the empty folders at and below a folder, and nothing else."""
        for name in self.folders(folder):
            self.prune(f"{folder}/{name}")
        self._remove_if_empty(folder)

    def _remove_if_empty(self, folder: str) -> None:
        system, path = self._system(folder), self._path(folder)
        if system.exists(path) and not system.listStatus(path):
            # Not recursive: Hadoop then refuses a folder that is no longer empty.
            system.delete(path, False)

    def link(self, places: Mapping[str, str]) -> None:
        """Copy files, through this process."""
        for source, target in places.items():
            util, system = self._jvm.org.apache.hadoop.fs.FileUtil, self._system(source)
            util.copy(system, self._path(source), system, self._path(target), False, self._conf)

    def put(self, source: str, target: str) -> None:
        """Copy a file through this process: under a hidden name that is renamed, or where that is one step anyway."""
        folder, _, name = target.rpartition("/")
        draft = f"{folder}/.{name}.draft" if self.can_rename else target
        util, system = self._jvm.org.apache.hadoop.fs.FileUtil, self._system(source)
        util.copy(system, self._path(source), self._system(draft), self._path(draft), False, True, self._conf)
        if self.can_rename:
            self._replace(draft, target)

    def digest(self, path: str) -> str | None:
        """Return a hash of a file's bytes."""
        if not self.exists(path):
            return None
        stream = self._system(path).open(self._path(path))
        try:
            return str(self._jvm.org.apache.commons.codec.digest.DigestUtils.sha256Hex(stream))
        finally:
            stream.close()

    def for_spark(self, path: str) -> str:
        """Return the path for Spark; old addresses of S3 have the scheme s3a there."""
        return re.sub("^s3n:", "s3a:", path)

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.for_spark(path))

    def _system(self, path: str) -> Any:
        return self._path(path).getFileSystem(self._conf)
