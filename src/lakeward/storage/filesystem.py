"""The one interface to files: on disk, in S3, and wherever else Hadoop reaches.

Everything that Lakeward reads or writes as files goes through a :class:`FileSystem`: landing
(:mod:`lakeward.storage.landing`), published folders, snapshot sets, exports, change sets, claims. There are three, and
:func:`open_filesystem` chooses: :class:`LocalFileSystem` here, :class:`~lakeward.storage.s3.S3FileSystem`, and
:class:`~lakeward.storage.hadoop.HadoopFileSystem` for all other schemes. The first two are a :class:`TaskFileSystem`.
"""

from __future__ import annotations

import copy
import errno
import os
import re
import shutil
import stat
import uuid
from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar
from urllib.request import url2pathname

from lakeward.errors import ConfigurationError
from lakeward.model import FileIdentity
from lakeward.redaction import holds_login, redact_address
from lakeward.spark.errors import store_errors
from lakeward.text import split_address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from lakeward.config import Config
    from lakeward.config.services import S3Settings


CHUNK_BYTES = 1 << 20
_GLOB = re.compile(r"([\\{}\[\]*?])")
# Spark's default local file system leaves a hidden checksum file beside every file it writes.
_NO_CHECKSUM_FILES = {"fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem", "fs.file.impl.disable.cache": "true"}
# The beginning of the names of files that Spark writes; Spark 3 ignores the setting and uses "part".
_BASE_NAME = "mapreduce.output.basename"
FileSystemClass = TypeVar("FileSystemClass", bound=type)
_METHODS = (
    "exists", "read_text", "write_text", "files", "folders", "move", "remove", "prune", "link", "point", "pointed",
    "digest", "put",
)  # fmt: skip
_HASH_BYTES = 16


@dataclass(frozen=True)
class StoredFile:
    """A file as a listing sees it; ``path`` is relative to what was listed, with forward slashes."""

    path: str
    size: int
    mtime_us: int
    etag: str | None = None

    @property
    def identity(self) -> FileIdentity:
        """The properties that change when the file's content changes."""
        return FileIdentity(self.size, self.mtime_us, self.etag)


class Entry(NamedTuple):
    """A file or folder directly in a folder."""

    name: str
    is_folder: bool
    is_link: bool = False


class FileSystem(ABC):
    """A file system. Paths are absolute local paths or URIs, the same ones for all methods.

    There is no method to remove a folder with all its content: files are removed by their names, so that those of
    others stay. ``can_rename`` is whether there are folders, which are renamed in one step: elsewhere a folder is only
    what the keys of some objects begin with. ``can_point`` is whether :meth:`point` makes links. ``signature`` is the
    beginning of the names of files that a signed file system writes, else empty.

    What fails is a :class:`~lakeward.errors.LakewardError`, except for :meth:`walk` and the methods of
    :class:`TaskFileSystem`: their callers know best what an ``OSError`` of the disk means.
    """

    can_rename: bool = True
    can_point: bool = False
    signature: str = ""

    def signed(self, writer: str) -> Self:
        """Return the file system for one writer, whose id is in the names of all files that Spark writes."""
        made = copy.copy(self)
        made.signature = f"part-w{writer}"
        return made

    @property
    def options(self) -> Mapping[str, str]:
        """The options by which Spark reads and writes here."""
        own = self._spark_options()
        return {**own, _BASE_NAME: self.signature} if self.signature else own

    def _spark_options(self) -> Mapping[str, str]:
        """Return the options for any writer."""
        return {}

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Whether there is a file or folder."""

    @abstractmethod
    def read_text(self, path: str) -> str | None:
        """Read a small file; None when there is none.

        A file that is not UTF-8 was not written by this program; callers refuse its text.
        """

    @abstractmethod
    def write_text(self, path: str, text: str) -> None:
        """Write a small file in one step; an existing one is replaced."""

    @abstractmethod
    def walk(self, folder: str) -> Iterator[StoredFile]:
        """Yield every file below a folder, in any order; none if it is missing. Links to folders are not followed."""

    def files(self, folder: str) -> dict[str, int]:
        """Return every file below a folder by its relative path, with its size; none where there is no folder.

        What is itself a file is listed under the empty path.
        """
        return {file.path: file.size for file in self.walk(folder)}

    @abstractmethod
    def folders(self, folder: str) -> list[str]:
        """Return the names of the folders directly in a folder, without links."""

    @abstractmethod
    def move(self, source: str, target: str) -> None:
        """Rename a folder or file to a name that is free; only where ``can_rename``."""

    @abstractmethod
    def remove(self, folder: str, paths: Iterable[str]) -> None:
        """Remove files by their paths from a folder, and the folders below it that become empty.

        Paths that do not exist, or are folders, are ignored.
        """

    @abstractmethod
    def prune(self, folder: str) -> None:
        """Remove the empty folders at and below a folder, and nothing else."""

    @abstractmethod
    def link(self, places: Mapping[str, str]) -> None:
        """Link or copy files (source to target), without their bytes passing through this process if possible."""

    @abstractmethod
    def for_spark(self, path: str) -> str:
        """Return the path as Spark needs it."""

    @abstractmethod
    def put(self, source: str, target: str) -> None:
        """Make the content of one file that of another name, too, in one step: readers see the former or the new.

        :meth:`digest` then returns the same for both.
        """

    @abstractmethod
    def digest(self, path: str) -> str | None:
        """Return a text that no file with another content has; None where there is no file."""

    def point(self, folder: str, name: str, target: str, is_own: Callable[[str], bool]) -> None:  # noqa: B027
        """Make a name in a folder a link to another folder (a relative path), where ``can_point``, in one step.

        ``is_own`` says of the target of a present link whether the link may be replaced.
        """

    def pointed(self, folder: str, name: str) -> str | None:
        """Return the folder that a name is a link to, as it was given; None where it is no link."""
        return None


class TaskFileSystem(FileSystem):
    """A file system that Spark's tasks use themselves: it is picklable and needs no JVM."""

    @abstractmethod
    def entries(self, folder: str) -> Iterator[Entry]:
        """Yield what is directly in a folder, folders in name order; nothing if it is missing."""

    @abstractmethod
    def identity(self, path: str) -> FileIdentity:
        """Return a file's identity now; raises FileNotFoundError."""

    @abstractmethod
    def fetch(self, path: str, digest: blake2b | None = None) -> AbstractContextManager[str]:
        """Return a context with a local path of the file's bytes, which also update ``digest``.

        Raises:
            FileNotFoundError: there is no such file.
        """

    @abstractmethod
    def new_file(self, path: str) -> AbstractContextManager[str]:
        """Return a context with a local path to write; the file exists once the block has ended without an error."""

    @abstractmethod
    def replace(self, path: str, source: str) -> None:
        """Replace a file's content by that of a local file; readers see the old or the new content."""

    def resolved(self, path: str) -> str:
        """Return the path that links lead to."""
        return path


def open_filesystem(spark: SparkSession, config: Config, location: str) -> FileSystem:
    """Return the file system of a location that Spark reads or writes, too.

    Raises:
        ConfigurationError: Hadoop does not support it, or lacks the jars for it, or the location holds a password.
    """
    if holds_login(location):
        msg = f"{redact_address(location)} holds a password: manifests and tables would name the place by it"
        raise ConfigurationError(msg, hint="leave it out; keys of S3 are set under s3: (docs/s3.md)")
    scheme = _scheme(location)
    if scheme in ("", "file"):
        return LocalFileSystem()
    from lakeward.storage.hadoop import HadoopFileSystem
    from lakeward.storage.s3 import S3FileSystem, is_s3, require_s3_classes

    if not is_s3(location):
        return HadoopFileSystem(spark, scheme)
    require_s3_classes(spark)
    return S3FileSystem(config.s3, normalizes=True)


def task_filesystem(s3: S3Settings, location: str) -> TaskFileSystem | None:
    """Return the file system by which tasks open files at a location; None where only Spark itself can."""
    from lakeward.storage.s3 import S3FileSystem, is_s3

    if is_s3(location):
        return S3FileSystem(s3)
    return LocalFileSystem() if _scheme(location) in ("", "file") else None


def _scheme(location: str) -> str:
    if "://" not in location and not location.startswith("file:"):
        return ""
    return split_address(location, f"the location {location!r}").scheme


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
class LocalFileSystem(TaskFileSystem):
    """The disk of this machine, or one that all machines mount at the same path."""

    can_point = True

    def _spark_options(self) -> Mapping[str, str]:
        return _NO_CHECKSUM_FILES

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder."""
        return local_path(path).exists()

    def read_text(self, path: str) -> str | None:
        """Read a small file; None when there is none."""
        try:
            return local_path(path).read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write_text(self, path: str, text: str) -> None:
        """Write a small file in one step: a draft is renamed to it."""
        with self.new_file(path) as draft, Path(draft).open("x", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())

    def walk(self, folder: str) -> Iterator[StoredFile]:
        """Yield every file below a folder."""
        root = local_path(folder)
        for place, _, names in os.walk(root, onerror=_unless_gone):
            for name in names:
                file = Path(place, name)
                try:
                    status = file.stat()
                except FileNotFoundError:
                    # Renamed or removed since it was listed, or a broken link.
                    continue
                if stat.S_ISREG(status.st_mode):
                    yield StoredFile(file.relative_to(root).as_posix(), status.st_size, _microseconds(status))

    def files(self, folder: str) -> dict[str, int]:
        """Return every file below a folder by its relative path, with its size."""
        itself = local_path(folder)
        return {"": itself.stat().st_size} if itself.is_file() else super().files(folder)

    def folders(self, folder: str) -> list[str]:
        """Return the names of the folders directly in a folder, without links."""
        return [entry.name for entry in self.entries(folder) if entry.is_folder and not entry.is_link]

    def entries(self, folder: str) -> Iterator[Entry]:
        """Yield what is directly in a folder, in name order."""
        try:
            with os.scandir(local_path(folder)) as entries:
                found = sorted(Entry(entry.name, _is_folder(entry), entry.is_symlink()) for entry in entries)
        except (FileNotFoundError, NotADirectoryError):
            return
        yield from found

    def identity(self, path: str) -> FileIdentity:
        """Return a file's identity now; raises FileNotFoundError."""
        status = local_path(path).stat()
        return FileIdentity(status.st_size, _microseconds(status))

    @contextmanager
    def fetch(self, path: str, digest: blake2b | None = None) -> Iterator[str]:
        """Yield the file's own path."""
        local = local_path(path)
        with local.open("rb") as file:
            while digest is not None and (chunk := file.read(CHUNK_BYTES)):
                digest.update(chunk)
        yield str(local)

    @contextmanager
    def new_file(self, path: str) -> Iterator[str]:
        """Yield the path of a draft beside the file, and rename it at the end."""
        file = local_path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_name(_draft_name(file.name))
        try:
            yield str(draft)
            draft.replace(file)
        finally:
            draft.unlink(missing_ok=True)

    def replace(self, path: str, source: str) -> None:
        """Replace a file's content by that of a local file, which is copied beside it and then renamed."""
        mode = stat.S_IMODE(local_path(path).stat().st_mode)
        with self.new_file(path) as draft:
            shutil.copyfile(source, draft)
            Path(draft).chmod(mode)

    def resolved(self, path: str) -> str:
        """Return the path that links lead to."""
        return os.path.realpath(local_path(path))

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

    def put(self, source: str, target: str) -> None:
        """Link or copy a file under a hidden name beside the other, and rename it."""
        place = local_path(target)
        # Always the same name: what a killed process left is replaced by the next one.
        draft = place.with_name(f".{place.name}.draft")
        draft.unlink(missing_ok=True)
        self.link({source: str(draft)})
        draft.replace(place)
        # Nothing is renamed where both are links to the same file.
        draft.unlink(missing_ok=True)

    def digest(self, path: str) -> str | None:
        """Return a hash of a file's bytes."""
        digest = blake2b(digest_size=_HASH_BYTES)
        try:
            with self.fetch(path, digest):
                return digest.hexdigest()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def point(self, folder: str, name: str, target: str, is_own: Callable[[str], bool]) -> None:
        """Make a symbolic link to a folder; another link is replaced only if it is an own one by its target."""
        place = local_path(folder) / name
        present = self.pointed(folder, name)
        if os.path.lexists(place) and (present is None or not is_own(present)):
            msg = f"{place} exists and is not a link that Lakeward made: it is not replaced"
            raise ConfigurationError(msg, hint="move it elsewhere, or publish to another folder")
        place.parent.mkdir(parents=True, exist_ok=True)
        draft = place.with_name(_draft_name(name))
        draft.symlink_to(target, target_is_directory=True)
        draft.replace(place)

    def pointed(self, folder: str, name: str) -> str | None:
        """Return the target of a symbolic link."""
        place = local_path(folder) / name
        return str(place.readlink()) if place.is_symlink() else None


def _microseconds(status: os.stat_result) -> int:
    """Return the time of the last modification."""
    return status.st_mtime_ns // 1000


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a folder; a symbolic link to itself is not one, and fails when it is read."""
    try:
        return entry.is_dir()
    except OSError:
        return False


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
