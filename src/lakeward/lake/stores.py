"""File systems that snapshots and change sets are written to: the local disk, and whatever Hadoop reaches by a URI."""

from __future__ import annotations

import os
import re
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit
from urllib.request import url2pathname

from lakeward.errors import ConfigurationError
from lakeward.lake.iceberg.catalog import CatalogKind, s3_properties
from lakeward.lake.iceberg.jars import require_s3_classes
from lakeward.lake.store_errors import telling_errors
from lakeward.s3 import S3Location, is_s3, s3_client, s3_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from lakeward.config import Config

# Stores without folders: a rename there is a copy, file by file, and can be seen half done.
_OBJECT_STORES = ("s3", "s3a", "s3n", "gs", "abfs", "abfss", "wasb", "wasbs", "oss")
_GLOB = re.compile(r"([\\{}\[\]*?])")
# Spark's own local file system leaves a hidden checksum file beside every file it writes.
_NO_CHECKSUM_FILES = {"fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem", "fs.file.impl.disable.cache": "true"}


class Store(Protocol):
    """What publishing needs of a file system. Paths are whole: a local path or a URI."""

    can_rename: bool
    options: Mapping[str, str]

    def exists(self, path: str) -> bool:
        """Tell whether there is a file or folder."""

    def read_text(self, path: str) -> str | None:
        """Read a small file; None when there is none."""

    def write_text(self, path: str, text: str) -> None:
        """Write a small file whole; one that was there is replaced in one step."""

    def files(self, folder: str) -> dict[str, int]:
        """Give every file below a folder by its path from there, with its size; nothing where there is no folder."""

    def folders(self, folder: str) -> list[str]:
        """Give the names of the folders directly in a folder."""

    def move(self, source: str, target: str) -> None:
        """Rename a folder to a name that is free."""

    def delete(self, path: str) -> None:
        """Remove a file or a folder with all it holds; nothing happens where there is none."""

    def link(self, places: Mapping[str, str]) -> None:
        """Let files be in second places as well, without their bytes passing through this process if possible."""

    def for_spark(self, path: str) -> str:
        """Give the path as Spark takes it for writing."""

    def point(self, folder: str, name: str, target: str) -> None:
        """Let a name in a folder lead to a folder beside it, where the file system can do that in one step."""


def open_store(spark: SparkSession, config: Config, location: str) -> Store:
    """Give the file system of a location.

    Raises:
        ConfigurationError: Hadoop does not know it, or lacks the jars for it.
    """
    scheme = urlsplit(location).scheme if "://" in location or location.startswith("file:") else ""
    if scheme in ("", "file"):
        return LocalStore()
    if is_s3(location):
        require_s3_classes(spark)
    return HadoopStore(spark, config, scheme)


def local_path(location: str) -> Path:
    """Give a local location as a path; ``file:`` URIs are understood."""
    return Path(url2pathname(urlsplit(location).path)) if location.startswith("file:") else Path(location)


def for_reading(path: str) -> str:
    """Protect characters that Spark would take for a pattern."""
    return _GLOB.sub(r"\\\1", path)


def read_parquet(
    spark: SparkSession, store: Store, folder: str, paths: Iterable[str], schema: StructType | None = None
) -> DataFrame:
    """Read Parquet files of a folder by their paths from there, one at least."""
    reader = spark.read if schema is None else spark.read.schema(schema)
    for name, value in store.options.items():
        reader = reader.option(name, value)
    return reader.parquet(*[for_reading(store.for_spark(f"{folder}/{path}")) for path in sorted(paths)])


@telling_errors
class LocalStore:
    """The disk of this machine, or one that all machines see under the same path."""

    can_rename = True
    options: Mapping[str, str] = _NO_CHECKSUM_FILES

    def exists(self, path: str) -> bool:
        """Tell whether there is a file or folder."""
        return local_path(path).exists()

    def read_text(self, path: str) -> str | None:
        """Read a small file; None when there is none."""
        try:
            return local_path(path).read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write_text(self, path: str, text: str) -> None:
        """Write a small file whole, by a draft that takes the place of what was there."""
        file = local_path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_name(f".{file.name}.{os.getpid()}")
        with draft.open("w", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        draft.replace(file)

    def files(self, folder: str) -> dict[str, int]:
        """Give every file below a folder by its path from there, with its size."""
        root, found = local_path(folder), {}
        for place, _, names in os.walk(root, onerror=_unless_gone):
            for name in names:
                file = Path(place, name)
                try:
                    status = file.stat()
                except FileNotFoundError:
                    # Renamed or removed since it was listed, or a link that leads nowhere.
                    continue
                if stat.S_ISREG(status.st_mode):
                    found[file.relative_to(root).as_posix()] = status.st_size
        return found

    def folders(self, folder: str) -> list[str]:
        """Give the names of the folders directly in a folder; links are none."""
        root = local_path(folder)
        found = root.iterdir() if root.is_dir() else ()
        return sorted(one.name for one in found if one.is_dir() and not one.is_symlink())

    def move(self, source: str, target: str) -> None:
        """Rename a folder to a name that is free."""
        local_path(target).parent.mkdir(parents=True, exist_ok=True)
        local_path(source).rename(local_path(target))

    def delete(self, path: str) -> None:
        """Remove a file or a folder with all it holds."""
        found = local_path(path)
        if found.is_dir() and not found.is_symlink():
            shutil.rmtree(found)
        else:
            found.unlink(missing_ok=True)

    def link(self, places: Mapping[str, str]) -> None:
        """Give files second names; where the disk has no such thing, copy them."""
        for source, target in places.items():
            place = local_path(target)
            place.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(local_path(source), place)
            except OSError:
                shutil.copy2(local_path(source), place)

    def for_spark(self, path: str) -> str:
        """Give the path as Spark takes it: the scheme says that it is not the cluster's file system."""
        return f"file://{local_path(path)}"

    def point(self, folder: str, name: str, target: str) -> None:
        """Let a symbolic link lead to a folder beside it."""
        draft = local_path(folder) / f".{name}.{os.getpid()}"
        draft.unlink(missing_ok=True)
        draft.symlink_to(target, target_is_directory=True)
        draft.replace(local_path(folder) / name)


def _unless_gone(error: OSError) -> None:
    """Let a folder that is none, or is gone since it was listed, hold no files; one that cannot be read is an error."""
    if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
        raise error


@telling_errors
class HadoopStore:
    """Any file system that the session's Hadoop knows: HDFS, S3 and stores like it, others by their jars."""

    def __init__(self, spark: SparkSession, config: Config, scheme: str) -> None:
        self.can_rename = scheme not in _OBJECT_STORES
        s3 = s3_properties(config, CatalogKind.HADOOP) if scheme in ("s3", "s3a") else {}
        self.options: Mapping[str, str] = {name.removeprefix("hadoop."): value for name, value in s3.items()}
        # What Spark's tasks need to open files of S3 by themselves.
        self.s3 = config.s3
        self._config = config
        self._jvm: Any = spark._jvm
        self._conf: Any = spark._jsparkSession.sessionState().newHadoopConf()
        for name, value in self.options.items():
            self._conf.set(name, value)

    def exists(self, path: str) -> bool:
        """Tell whether there is a file or folder."""
        return bool(self._system(path).exists(self._path(path)))

    def read_text(self, path: str) -> str | None:
        """Read a small file; None when there is none."""
        if not self.exists(path):
            return None
        stream = self._system(path).open(self._path(path))
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream)).decode("utf-8")
        finally:
            stream.close()

    def write_text(self, path: str, text: str) -> None:
        """Write a small file whole: a store makes it seen at its end, elsewhere a draft is renamed."""
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

    def files(self, folder: str) -> dict[str, int]:
        """Give every file below a folder by its path from there, with its size."""
        if not self.exists(folder):
            return {}
        system = self._system(folder)
        # As files are listed: with the host, also where the path names none.
        root = system.makeQualified(self._path(folder))
        start = len(root.toString().rstrip("/")) + 1
        found = system.listFiles(root, True)
        sizes: dict[str, int] = {}
        while found.hasNext():
            one = found.next()
            sizes[one.getPath().toString()[start:]] = int(one.getLen())
        return sizes

    def folders(self, folder: str) -> list[str]:
        """Give the names of the folders directly in a folder."""
        if not self.exists(folder):
            return []
        found = self._system(folder).listStatus(self._path(folder))
        return sorted(one.getPath().getName() for one in found if one.isDirectory())

    def move(self, source: str, target: str) -> None:
        """Rename a folder to a name that is free."""
        if not self._system(source).rename(self._path(source), self._path(target)):
            msg = f"cannot rename {source} to {target}"
            raise ConfigurationError(msg, hint="check the permissions of the folder")

    def delete(self, path: str) -> None:
        """Remove a file or a folder with all it holds."""
        self._system(path).delete(self._path(path), True)

    def link(self, places: Mapping[str, str]) -> None:
        """Copy files; S3 does it by itself."""
        if any(is_s3(source) for source in places):
            self._copy_in_s3(places)
            return
        for source, target in places.items():
            util, system = self._jvm.org.apache.hadoop.fs.FileUtil, self._system(source)
            util.copy(system, self._path(source), system, self._path(target), False, self._conf)

    def _copy_in_s3(self, places: Mapping[str, str]) -> None:
        client = s3_client(self._config.s3, self._config.s3.keys())
        try:
            for source, target in places.items():
                old, new = S3Location.parse(source, "source"), S3Location.parse(target, "target")
                with s3_errors(target):
                    client.copy({"Bucket": old.bucket, "Key": old.prefix}, new.bucket, new.prefix)
        finally:
            client.close()

    def for_spark(self, path: str) -> str:
        """Give the path as Spark takes it; Hadoop knows S3 by the scheme s3a only."""
        return re.sub("^s3n?:", "s3a:", path)

    def point(self, folder: str, name: str, target: str) -> None:
        """Do nothing: only a local disk has links."""

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.for_spark(path))

    def _system(self, path: str) -> Any:
        return self._path(path).getFileSystem(self._conf)
