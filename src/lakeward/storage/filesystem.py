"""File systems that snapshots and change sets are written to: the local disk, and all that Hadoop supports.

The one for Hadoop, which includes S3, is in :mod:`lakeward.storage.hadoop`; :func:`open_filesystem` chooses.
"""

from __future__ import annotations

import copy
import errno
import os
import re
import shutil
import stat
import uuid
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar
from urllib.request import url2pathname

from lakeward.errors import ConfigurationError
from lakeward.redaction import holds_login, redact_address
from lakeward.spark.errors import store_errors
from lakeward.storage.s3 import is_s3
from lakeward.text import split_address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from lakeward.config import Config


_GLOB = re.compile(r"([\\{}\[\]*?])")
# Spark's default local file system leaves a hidden checksum file beside every file it writes.
_NO_CHECKSUM_FILES = {"fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem", "fs.file.impl.disable.cache": "true"}
# The beginning of the names of files that Spark writes; Spark 3 ignores the setting and uses "part".
_BASE_NAME = "mapreduce.output.basename"
FileSystemClass = TypeVar("FileSystemClass", bound=type)
_METHODS = ("exists", "read_text", "write_text", "files", "folders", "move", "remove", "prune", "link", "point")


class FileSystem(Protocol):
    """The file operations that publishing needs. Paths are absolute local paths or URIs.

    There is no method to remove a folder with all its content: files are removed by their names, so that those of
    others stay. ``signature`` is the beginning of the names of files that a signed file system writes, else empty.
    """

    can_rename: bool
    options: Mapping[str, str]
    signature: str

    def signed(self, writer: str) -> Self:
        """Return the file system for one writer, whose id is in the names of all files that Spark writes."""

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder."""

    def read_text(self, path: str) -> str | None:
        """Read a small file; None when there is none."""

    def write_text(self, path: str, text: str) -> None:
        """Write a small file in one step; an existing one is replaced."""

    def files(self, folder: str) -> dict[str, int]:
        """Return every file below a folder by its relative path, with its size; none where there is no folder."""

    def folders(self, folder: str) -> list[str]:
        """Return the names of the folders directly in a folder."""

    def move(self, source: str, target: str) -> None:
        """Rename a folder or file to a name that is free."""

    def remove(self, folder: str, paths: Iterable[str]) -> None:
        """Remove files by their paths from a folder, and the folders below it that become empty.

        Paths that do not exist, or are folders, are ignored.
        """

    def prune(self, folder: str) -> None:
        """Remove the empty folders at and below a folder, and nothing else."""

    def link(self, places: Mapping[str, str]) -> None:
        """Link or copy files (source to target), without their bytes passing through this process if possible."""

    def for_spark(self, path: str) -> str:
        """Return the path as Spark needs it."""

    def point(self, folder: str, name: str, target: str) -> None:
        """Make a name in a folder a link to a folder beside it, where the file system can do that in one step."""


def open_filesystem(spark: SparkSession, config: Config, location: str) -> FileSystem:
    """Return the file system of a location.

    Raises:
        ConfigurationError: Hadoop does not support it, or lacks the jars for it, or the location holds a password.
    """
    if holds_login(location):
        msg = f"{redact_address(location)} holds a password: manifests and tables would name the place by it"
        raise ConfigurationError(msg, hint="leave it out; keys of S3 are set under s3: (docs/s3.md)")
    scheme = (
        split_address(location, f"the location {location!r}").scheme
        if "://" in location or location.startswith("file:")
        else ""
    )
    if scheme in ("", "file"):
        return LocalFileSystem()
    from lakeward.storage.hadoop import HadoopFileSystem, require_s3_classes

    if is_s3(location):
        require_s3_classes(spark)
    return HadoopFileSystem(spark, config, scheme)


def local_path(location: str) -> Path:
    """Return a local location as a path; ``file:`` URIs are understood."""
    if not location.startswith("file:"):
        return Path(location)
    return Path(url2pathname(split_address(location, f"the location {location!r}").path))


def for_reading(path: str) -> str:
    """Return a path with the characters escaped that Spark would treat as a pattern."""
    return _GLOB.sub(r"\\\1", path)


def read_parquet(
    spark: SparkSession, store: FileSystem, folder: str, paths: Iterable[str], schema: StructType | None = None
) -> DataFrame:
    """Read at least one Parquet file of a folder, by their relative paths."""
    reader = spark.read if schema is None else spark.read.schema(schema)
    for name, value in store.options.items():
        reader = reader.option(name, value)
    return reader.parquet(*[for_reading(store.for_spark(f"{folder}/{path}")) for path in sorted(paths)])


def translating_errors(system: FileSystemClass) -> FileSystemClass:
    """Return a file system's class whose methods translate errors; their first argument is a path."""
    for name in _METHODS:
        setattr(system, name, _translated(getattr(system, name)))
    return system


def _translated(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def called(system: object, path: Any, *rest: Any) -> Any:
        with store_errors(path if isinstance(path, str) else str(next(iter(path), ""))):
            return method(system, path, *rest)

    return called


@translating_errors
class LocalFileSystem:
    """The disk of this machine, or one that all machines mount at the same path."""

    can_rename = True
    options: Mapping[str, str] = _NO_CHECKSUM_FILES
    signature = ""

    def signed(self, writer: str) -> Self:
        """Return the file system for one writer."""
        made = copy.copy(self)
        made.signature, made.options = signature_of(writer), signed_options(self.options, writer)
        return made

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder."""
        return local_path(path).exists()

    def read_text(self, path: str) -> str | None:
        """Read a small file; None when there is none."""
        try:
            # A file that is not UTF-8 was not written by this program; callers refuse its text.
            return local_path(path).read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write_text(self, path: str, text: str) -> None:
        """Write a small file in one step: a draft is renamed to it."""
        file = local_path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_name(_draft_name(file.name))
        try:
            with draft.open("x", encoding="utf-8") as out:
                out.write(text)
                out.flush()
                os.fsync(out.fileno())
            draft.replace(file)
        finally:
            draft.unlink(missing_ok=True)

    def files(self, folder: str) -> dict[str, int]:
        """Return every file below a folder by its relative path, with its size."""
        root, found = local_path(folder), {}
        for place, _, names in os.walk(root, onerror=_unless_gone):
            for name in names:
                file = Path(place, name)
                try:
                    status = file.stat()
                except FileNotFoundError:
                    # Renamed or removed since it was listed, or a broken link.
                    continue
                if stat.S_ISREG(status.st_mode):
                    found[file.relative_to(root).as_posix()] = status.st_size
        return found

    def folders(self, folder: str) -> list[str]:
        """Return the names of the folders directly in a folder, without links."""
        root = local_path(folder)
        found = root.iterdir() if root.is_dir() else ()
        return sorted(entry.name for entry in found if entry.is_dir() and not entry.is_symlink())

    def move(self, source: str, target: str) -> None:
        """Rename a folder or file to a name that is free."""
        local_path(target).parent.mkdir(parents=True, exist_ok=True)
        local_path(source).rename(local_path(target))

    def remove(self, folder: str, paths: Iterable[str]) -> None:
        """Remove files by their paths from a folder, and the folders below it that become empty."""
        root, parents = local_path(folder), set()
        for path in paths:
            file = root / path
            if file.is_symlink() or not file.is_dir():
                file.unlink(missing_ok=True)
            parents |= {parent for parent in file.parents if root in parent.parents}
        # The innermost come first: their parents may be empty then.
        for parent in sorted(parents, key=lambda folder: -len(folder.parts)):
            _remove_if_empty(parent)

    def prune(self, folder: str) -> None:
        """Remove the empty folders at and below a folder, and nothing else."""
        for place, _, _ in os.walk(local_path(folder), topdown=False, onerror=_unless_gone):
            _remove_if_empty(Path(place))

    def link(self, places: Mapping[str, str]) -> None:
        """Make hard links to files, or copies where the disk has no hard links."""
        for source, target in places.items():
            place = local_path(target)
            place.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(local_path(source), place)
            except FileExistsError:
                # A copy would replace the file.
                raise
            except OSError:
                shutil.copy2(local_path(source), place)

    def for_spark(self, path: str) -> str:
        """Return the path for Spark, with the scheme of local files: the default may be the cluster's file system."""
        return f"file://{local_path(path)}"

    def point(self, folder: str, name: str, target: str) -> None:
        """Make a symbolic link to a folder beside it."""
        place = local_path(folder) / name
        if os.path.lexists(place) and not (place.is_symlink() and len(place.readlink().parts) == 1):
            msg = f"{place} exists and is not a link to a folder beside it: it is not replaced"
            raise ConfigurationError(msg, hint="move it elsewhere, or publish to another folder")
        draft = place.with_name(_draft_name(name))
        draft.symlink_to(target, target_is_directory=True)
        draft.replace(place)


def signature_of(writer: str) -> str:
    """Return the beginning of the names of files that a writer makes by Spark."""
    return f"part-w{writer}"


def signed_options(options: Mapping[str, str], writer: str) -> dict[str, str]:
    """Return options by which Spark uses such names."""
    return {**options, _BASE_NAME: signature_of(writer)}


def _draft_name(name: str) -> str:
    """Return a unique hidden name."""
    return f".{name}.{uuid.uuid4().hex[:12]}"


def _remove_if_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError as error:
        # Not empty, already removed, or a link.
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.ENOTDIR):
            raise


def _unless_gone(error: OSError) -> None:
    """Raise an error of a folder that cannot be read; ignore one that was removed or is not a folder."""
    if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
        raise error
