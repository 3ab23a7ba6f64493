"""File systems that Hadoop reaches: HDFS, S3 and stores like it."""

from __future__ import annotations

import copy
import re
from typing import TYPE_CHECKING, Any, Self

from lakeward.errors import ConfigurationError, RetriableError
from lakeward.spark.jvm import has_class
from lakeward.storage.filesystem import signature_of, signed_options, translating_errors
from lakeward.storage.s3 import S3Location, hadoop_s3_settings, is_s3, s3_client, s3_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import SparkSession

    from lakeward.config import Config

S3_CLIENT_CLASS = "software.amazon.awssdk.services.s3.S3Client"
# Stores without folders: a rename there copies file by file, and readers may see a part of it.
_OBJECT_STORES = ("s3", "s3a", "s3n", "gs", "abfs", "abfss", "wasb", "wasbs", "oss")
# The most objects that S3 removes by one request.
_REMOVED_AT_ONCE = 1000


def require_s3_classes(spark: SparkSession) -> None:
    """Refuse a running application that was started without the jars for S3: they cannot be added later."""
    if not has_class(spark, S3_CLIENT_CLASS):
        msg = "the running Spark application was started without the jars for S3"
        hint = "let Lakeward start Spark with the lake or a publish: to: on S3, or start it with hadoop-aws and awssdk"
        raise ConfigurationError(msg, hint=hint)


@translating_errors
class HadoopFileSystem:
    """Any file system that the session's Hadoop supports: HDFS, S3 and stores like it, others by their jars."""

    signature = ""

    def __init__(self, spark: SparkSession, config: Config, scheme: str) -> None:
        self.can_rename = scheme not in _OBJECT_STORES
        s3 = hadoop_s3_settings(config.s3) if scheme in ("s3", "s3a") else {}
        self.options: Mapping[str, str] = s3
        # Spark's tasks need these settings to open files of S3 themselves.
        self.s3 = config.s3
        self._config = config
        self._jvm: Any = spark._jvm
        self._conf: Any = spark._jsparkSession.sessionState().newHadoopConf()
        for name, value in self.options.items():
            self._conf.set(name, value)

    def signed(self, writer: str) -> Self:
        """Return the file system for one writer."""
        made = copy.copy(self)
        made.signature, made.options = signature_of(writer), signed_options(self.options, writer)
        return made

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

    def files(self, folder: str) -> dict[str, int]:
        """Return every file below a folder by its relative path, with its size."""
        if not self.exists(folder):
            return {}
        system = self._system(folder)
        # In the form of listed files: with the host, also where the path names none.
        root = system.makeQualified(self._path(folder))
        start = len(root.toString().rstrip("/")) + 1
        found = system.listFiles(root, True)
        sizes: dict[str, int] = {}
        while found.hasNext():
            status = found.next()
            sizes[status.getPath().toString()[start:]] = int(status.getLen())
        return sizes

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
        wanted = list(paths)
        if is_s3(folder):
            self._remove_from_s3(folder, wanted)
            return
        system, parents = self._system(folder), set()
        for path in wanted:
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

    def _remove_from_s3(self, folder: str, paths: list[str]) -> None:
        """Remove objects, many by one request; Hadoop would need several requests for each."""
        place, client = S3Location.parse(folder, "folder"), s3_client(self._config.s3, self._config.s3.keys())
        try:
            for start in range(0, len(paths), _REMOVED_AT_ONCE):
                some = paths[start : start + _REMOVED_AT_ONCE]
                keys = [{"Key": f"{place.prefix}/{path}".removeprefix("/")} for path in some]
                with s3_errors(folder):
                    answer = client.delete_objects(Bucket=place.bucket, Delete={"Objects": keys, "Quiet": True})
                for failure in answer.get("Errors", ()):
                    msg = f"s3://{place.bucket}/{failure.get('Key')} cannot be removed: {failure.get('Code')}"
                    kind = ConfigurationError if failure.get("Code") == "AccessDenied" else RetriableError
                    raise kind(msg, hint="check that s3:DeleteObject is allowed, and try again")
        finally:
            client.close()

    def link(self, places: Mapping[str, str]) -> None:
        """Copy files; those in S3 without downloading them."""
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
        """Return the path for Spark; Hadoop supports S3 only under the scheme s3a."""
        return re.sub("^s3n?:", "s3a:", path)

    def point(self, folder: str, name: str, target: str) -> None:
        """Do nothing: only a local disk has links."""

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.for_spark(path))

    def _system(self, path: str) -> Any:
        return self._path(path).getFileSystem(self._conf)
