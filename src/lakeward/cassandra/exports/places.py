"""Where tasks put what they have read: each file appears whole or not at all."""

from __future__ import annotations

import os
import tempfile
import uuid
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pyarrow import NativeFile, OSFile

from lakeward.errors import ConfigurationError
from lakeward.lake.hadoop_store import HadoopStore
from lakeward.lake.stores import LocalStore, local_path
from lakeward.s3 import S3Location, is_s3, s3_client, s3_errors

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from lakeward.config.s3 import S3Keys, S3Settings
    from lakeward.lake.stores import Store


class Place(Protocol):
    """A folder that tasks write into; it travels to them."""

    @property
    def folder(self) -> str:
        """Where it is."""

    def new_file(self, name: str) -> AbstractContextManager[NativeFile]:
        """Give a stream to write a file by; the file is there once the block ended well."""


def place_of(store: Store, folder: str) -> Place:
    """Give the way by which tasks write into a folder.

    Raises:
        ConfigurationError: only Spark itself can write there.
    """
    if isinstance(store, LocalStore):
        return LocalPlace(str(local_path(folder)))
    if is_s3(folder) and isinstance(store, HadoopStore):
        return S3Place(folder, store.s3, store.s3.keys())
    _arrow_system(folder)
    return ArrowPlace(folder)


@dataclass(frozen=True)
class LocalPlace:
    """The disk of this machine, or one that all machines see under the same path."""

    folder: str

    @contextmanager
    def new_file(self, name: str) -> Iterator[NativeFile]:
        """Write a draft, which then takes its name."""
        target = Path(self.folder) / name
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{name}.{uuid.uuid4().hex[:8]}")
        try:
            with OSFile(str(draft), "wb") as stream:
                yield stream
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)


@dataclass(frozen=True)
class S3Place:
    """A prefix in a bucket. Keys that the settings name travel along; without them each machine finds its own."""

    folder: str
    settings: S3Settings
    keys: S3Keys | None = field(default=None, repr=False)

    @contextmanager
    def new_file(self, name: str) -> Iterator[NativeFile]:
        """Write a temporary file, which is then sent."""
        target = S3Location.parse(f"{self.folder}/{name}", "--to")
        handle, draft = tempfile.mkstemp(prefix="lakeward-", suffix=".draft")
        os.close(handle)
        try:
            with OSFile(draft, "wb") as stream:
                yield stream
            with closing(s3_client(self.settings, self.keys)) as client, s3_errors(f"{self.folder}/{name}"):
                client.upload_file(draft, target.bucket, target.prefix)
        finally:
            Path(draft).unlink(missing_ok=True)


@dataclass(frozen=True)
class ArrowPlace:
    """Any other file system that Arrow can open by its address, such as HDFS or Google's store."""

    folder: str

    @contextmanager
    def new_file(self, name: str) -> Iterator[NativeFile]:
        """Write a draft, which then takes its name."""
        system, folder = _arrow_system(self.folder)
        system.create_dir(folder, recursive=True)
        draft = f"{folder}/.{name}.{uuid.uuid4().hex[:8]}"
        try:
            with system.open_output_stream(draft) as stream:
                yield stream
            system.move(draft, f"{folder}/{name}")
        except BaseException:
            from pyarrow.fs import FileType

            if system.get_file_info(draft).type is not FileType.NotFound:
                system.delete_file(draft)
            raise


def _arrow_system(folder: str) -> tuple[Any, str]:
    import pyarrow as pa
    from pyarrow.fs import FileSystem

    try:
        system, path = FileSystem.from_uri(folder)
    except (pa.ArrowException, OSError, ValueError) as error:
        msg = f"tasks cannot write to {folder}: {error}"
        raise ConfigurationError(
            msg, hint="export to a local or shared path or to s3://…, and copy from there"
        ) from error
    return system, str(path)
