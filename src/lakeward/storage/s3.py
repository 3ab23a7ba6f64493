"""Files in S3, for landing and lake alike: the file system, its client, and the translation of errors."""

from __future__ import annotations

import os
import posixpath
import re
import tempfile
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakeward.errors import BugError, ConfigurationError, RetriableError
from lakeward.external_errors import answer_in, is_without_answer
from lakeward.model import FileIdentity
from lakeward.storage.filesystem import CHUNK_BYTES, Entry, StoredFile, TaskFileSystem, translating_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime
    from hashlib import blake2b

    from pyspark.sql import SparkSession

    from lakeward.config.services import S3Keys, S3Settings

SCHEMES = ("s3://", "s3a://")
# A region that any server accepts; Amazon redirects to the right one.
DEFAULT_REGION = "us-east-1"
_REMEDY = "check s3: in lakeward.yaml and the AWS_* variables, then: lakeward doctor --no-spark"
_CONNECT_SECONDS, _READ_SECONDS, _ATTEMPTS = 10, 60, 5
# The most objects that S3 removes by one request.
_REMOVED_AT_ONCE = 1000
# The property of a copied object that names the content.
_CONTENT = "lakeward-content"
# Spark itself reaches S3 by this class.
S3_CLIENT_CLASS = "software.amazon.awssdk.services.s3.S3Client"

# An https:// endpoint that speaks http, or whose certificate is not trusted: retrying does not help.
_BAD_TLS = ("CERTIFICATE_VERIFY_FAILED", "WRONG_VERSION_NUMBER")
_NO_BUCKET = "NoSuchBucket"
_NO_KEY = {"404", "NoSuchKey", "NotFound"}
_BAD_KEYS = {
    "AuthorizationHeaderMalformed", "ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "SignatureDoesNotMatch",
}  # fmt: skip


@dataclass(frozen=True)
class S3Location:
    """A bucket and a prefix in it, without slashes at its ends."""

    bucket: str
    prefix: str

    @classmethod
    def parse(cls, uri: str, setting: str) -> S3Location:
        """Parse ``s3://bucket/prefix``; nothing in the prefix is an escape."""
        scheme, _, rest = uri.partition("://")
        bucket, _, prefix = rest.partition("/")
        if not bucket:
            msg = f"{setting} {uri!r} names no bucket; expected {scheme}://bucket/prefix"
            raise ConfigurationError(msg)
        return cls(bucket, prefix.strip("/"))

    @property
    def uri(self) -> str:
        """The location as ``s3://bucket/prefix``."""
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")


def is_s3(location: str) -> bool:
    """Whether a location is in S3."""
    return location.startswith(SCHEMES)


def s3_client(settings: S3Settings, keys: S3Keys | None) -> Any:
    """Return a boto3 client that retries after short failures.

    Raises:
        ConfigurationError: boto3 is missing, or the settings do not make a client.
    """
    try:
        import boto3
        from botocore.config import Config as ClientConfig
    except ImportError as error:
        msg = f"S3 needs boto3, which is not installed ({error.name})"
        raise ConfigurationError(msg, hint="pip install 'lakeward[aws]'") from error
    config = ClientConfig(
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_READ_SECONDS,
        retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
        s3={"addressing_style": _addressing(settings)},
    )
    with s3_errors("S3"):
        session = boto3.Session(
            aws_access_key_id=keys.access if keys else None,
            aws_secret_access_key=keys.secret if keys else None,
            aws_session_token=keys.token if keys else None,
        )
        region = settings.region or session.region_name or DEFAULT_REGION
        return session.client("s3", region_name=region, endpoint_url=settings.endpoint, config=config)


def _addressing(settings: S3Settings) -> str:
    if settings.is_path_style:
        return "path"
    # With "auto" the client puts names that cannot be part of a host name into the path.
    return "auto" if settings.path_style == "auto" else "virtual"


@lru_cache(maxsize=8)
def _shared_client(settings: S3Settings, keys: S3Keys | None, _process: int) -> Any:
    """Return the client of this process: creating one costs more than most requests, and none survives a fork."""
    return s3_client(settings, keys)


def hadoop_s3_settings(settings: S3Settings, keys: S3Keys | None) -> dict[str, str]:
    """Return the settings of Hadoop for S3."""
    found = {
        "path.style.access": str(settings.is_path_style).lower(),
        "endpoint": settings.endpoint,
        "endpoint.region": settings.region or (DEFAULT_REGION if settings.endpoint else None),
        "access.key": keys.access if keys else None,
        "secret.key": keys.secret if keys else None,
        "session.token": keys.token if keys else None,
    }
    return {f"fs.s3a.{name}": value for name, value in found.items() if value is not None}


def require_s3_classes(spark: SparkSession) -> None:
    """Refuse a running application that was started without the jars for S3: they cannot be added later."""
    from lakeward.spark.jvm import has_class

    if not has_class(spark, S3_CLIENT_CLASS):
        msg = "the running Spark application was started without the jars for S3"
        hint = "let Lakeward start Spark with the lake or a publish: to: on S3, or start it with hadoop-aws and awssdk"
        raise ConfigurationError(msg, hint=hint)


@contextmanager
def s3_errors(where: str) -> Iterator[None]:
    """Translate errors of a client into errors of Lakeward; ``where`` is the requested address.

    Raises:
        ConfigurationError: no keys, wrong keys, no permission, no such bucket, or invalid settings.
        RetriableError: not reachable, too slow, interrupted, or asked to retry.
        FileNotFoundError: there is no such object.
    """
    from botocore.exceptions import BotoCoreError, ClientError
    from urllib3.exceptions import HTTPError

    try:
        yield
    except ClientError as error:
        raise _of_answer(error, where) from error
    except BotoCoreError as error:
        raise _of_client(error, where) from error
    except (HTTPError, ConnectionError, TimeoutError) as error:
        # The connection was lost while an object was being read.
        raise _passing(where, str(error)) from error


def _of_answer(error: Exception, where: str) -> Exception:
    answer = answer_in(error)
    if answer.is_passing:
        return _passing(where, str(answer))
    if answer.code in _NO_KEY:
        return FileNotFoundError(f"{where} does not exist")
    if answer.code == _NO_BUCKET:
        msg = f"{where}: there is no bucket {where.partition('://')[2].partition('/')[0]!r}"
        return ConfigurationError(msg, hint="correct the bucket's name in lakeward.yaml, or create it")
    reason = "the keys are refused" if answer.code in _BAD_KEYS else "S3 refuses it"
    return ConfigurationError(f"{where}: {reason}: {answer}".rstrip(), hint=_REMEDY)


def _of_client(error: Any, where: str) -> Exception:
    from botocore import exceptions as found

    cut_off = isinstance(error, found.IncompleteReadError | found.FlexibleChecksumError)
    if (cut_off or is_without_answer(error)) and not any(sign in str(error) for sign in _BAD_TLS):
        return _passing(where, str(error))
    return ConfigurationError(f"{where}: {error}", hint=_REMEDY)


def _passing(where: str, reason: str) -> RetriableError:
    return RetriableError(f"{where}: S3 does not answer as it should: {reason}", hint="run again")


@translating_errors
class S3FileSystem(TaskFileSystem):
    """Objects in S3, reached by boto3. A folder is whatever the keys of some objects begin with.

    Keys are used as they are. With ``normalizes``, a path means the key that Spark makes of it, which has neither empty
    parts nor ``.`` and ``..``: whatever Spark reads or writes too is then the same object for both.

    Access keys that the settings name are read here and sent to Spark tasks with the object; without them each machine
    finds its keys by the default chain of AWS.
    """

    can_rename = False

    def __init__(self, settings: S3Settings, *, normalizes: bool = False) -> None:
        """Read the keys; no request is made yet."""
        self._settings, self._keys, self._normalizes = settings, settings.keys(), normalizes

    def _spark_options(self) -> Mapping[str, str]:
        return hadoop_s3_settings(self._settings, self._keys)

    def exists(self, path: str) -> bool:
        """Whether there is an object, or a folder: one that an empty object marks is a folder, too."""
        bucket, key = self._place(path)
        if key and self._find(path) is not None:
            return True
        with s3_errors(path):
            found = self._client.list_objects_v2(Bucket=bucket, Prefix=self._folder_key(path), MaxKeys=1)
        return not key or bool(found.get("Contents"))

    def read_text(self, path: str) -> str | None:
        """Read a small object; None when there is none."""
        bucket, key = self._place(path)
        try:
            with s3_errors(path), closing(self._client.get_object(Bucket=bucket, Key=key)["Body"]) as body:
                return bytes(body.read()).decode("utf-8", "replace")
        except FileNotFoundError:
            return None

    def write_text(self, path: str, text: str) -> None:
        """Write a small object by one request: S3 shows it when it is complete."""
        bucket, key = self._place(path)
        with s3_errors(path):
            self._client.put_object(Bucket=bucket, Key=key, Body=text.encode("utf-8"))

    def walk(self, folder: str) -> Iterator[StoredFile]:
        """Yield every object below a folder, in the order of keys; empty ones that mark folders are left out.

        This is one flat listing: listing each folder would cost a request for each day of nested date folders.
        """
        start = len(self._folder_key(folder))
        for found in self._listed(folder):
            if not found["Key"].endswith("/"):
                moment = _whole_seconds(found["LastModified"])
                yield StoredFile(found["Key"][start:], found["Size"], moment, found["ETag"].strip('"'))

    def files(self, folder: str) -> dict[str, int]:
        """Return every object below a folder with its size; what is itself an object is listed under the empty path."""
        if found := super().files(folder):
            return found
        itself = self._find(folder) if self._place(folder)[1] else None
        return {} if itself is None else {"": itself.size}

    def folders(self, folder: str) -> list[str]:
        """Return the names of the folders directly in a folder."""
        return sorted(entry.name for entry in self.entries(folder) if entry.is_folder)

    def entries(self, folder: str) -> Iterator[Entry]:
        """Yield what is directly in a folder, the folders of each page of the listing first."""
        start = len(self._folder_key(folder))
        for page in self._pages(folder, "/"):
            below = [Entry(found["Prefix"][start:].removesuffix("/"), True) for found in page.get("CommonPrefixes", ())]
            inside = [Entry(found["Key"][start:], False) for found in page.get("Contents", ())]
            # The key of an object that marks an empty folder ends in a slash: it has no name.
            yield from (entry for entry in below + inside if entry.name)

    def identity(self, path: str) -> FileIdentity:
        """Return an object's identity now; raises FileNotFoundError."""
        bucket, key = self._place(path)
        with s3_errors(path):
            found = self._client.head_object(Bucket=bucket, Key=key)
        return FileIdentity(found["ContentLength"], _whole_seconds(found["LastModified"]), found["ETag"].strip('"'))

    def _find(self, path: str) -> FileIdentity | None:
        try:
            return self.identity(path)
        except FileNotFoundError:
            return None

    @contextmanager
    def fetch(self, path: str, digest: blake2b | None = None) -> Iterator[str]:
        """Yield the path of a temporary copy; raises FileNotFoundError."""
        with _temporary(path) as copy:
            self._download(path, copy, digest)
            yield copy.name

    def _download(self, path: str, copy: Any, digest: blake2b | None) -> None:
        """Copy an object's bytes in chunks."""
        bucket, key = self._place(path)
        with s3_errors(path), closing(self._client.get_object(Bucket=bucket, Key=key)["Body"]) as body:
            for chunk in body.iter_chunks(CHUNK_BYTES):
                if digest is not None:
                    digest.update(chunk)
                with _local_write_errors(path):
                    _write(copy, chunk)

    @contextmanager
    def new_file(self, path: str) -> Iterator[str]:
        """Yield the path of a temporary file, and upload it at the end."""
        handle, draft = tempfile.mkstemp(prefix="lakeward-", suffix=".draft")
        os.close(handle)
        try:
            yield draft
            self.replace(path, draft)
        finally:
            Path(draft).unlink(missing_ok=True)

    def replace(self, path: str, source: str) -> None:
        """Replace an object's content by that of a local file; S3 shows the old or the new content, never a part."""
        bucket, key = self._place(path)
        with s3_errors(path):
            self._client.upload_file(source, bucket, key)

    def move(self, source: str, target: str) -> None:
        """Refuse: S3 has no rename, and readers would see a part of what is copied and removed object by object."""
        msg = f"{source} cannot be renamed to {target}: folders in S3 are published in place"
        raise BugError(msg)

    def remove(self, folder: str, paths: Iterable[str]) -> None:
        """Remove objects, many by one request."""
        places = [self._place(f"{folder}/{path}") for path in paths]
        for start in range(0, len(places), _REMOVED_AT_ONCE):
            some = places[start : start + _REMOVED_AT_ONCE]
            self._remove(some[0][0], [key for _, key in some], folder)

    def _remove(self, bucket: str, keys: list[str], where: str) -> None:
        with s3_errors(where):
            objects = [{"Key": key} for key in keys]
            answer = self._client.delete_objects(Bucket=bucket, Delete={"Objects": objects, "Quiet": True})
        for failure in answer.get("Errors", ()):
            msg = f"s3://{bucket}/{failure.get('Key')} cannot be removed: {failure.get('Code')}"
            kind = ConfigurationError if failure.get("Code") == "AccessDenied" else RetriableError
            raise kind(msg, hint="check that s3:DeleteObject is allowed, and try again")

    def prune(self, folder: str) -> None:
        """Remove the empty objects by which Spark marks empty folders, at and below a folder, and nothing else."""
        marks, filled = [], set[str]()
        for found in self._listed(folder):
            key = found["Key"]
            if key.endswith("/") and not found["Size"]:
                marks.append(key)
            else:
                filled.update(key[: at + 1] for at, letter in enumerate(key) if letter == "/")
        empty = [mark for mark in marks if mark not in filled]
        for start in range(0, len(empty), _REMOVED_AT_ONCE):
            self._remove(self._place(folder)[0], empty[start : start + _REMOVED_AT_ONCE], folder)

    def link(self, places: Mapping[str, str]) -> None:
        """Copy objects without downloading them."""
        for source, target in places.items():
            (old_bucket, old_key), (bucket, key) = self._place(source), self._place(target)
            with s3_errors(target):
                self._client.copy({"Bucket": old_bucket, "Key": old_key}, bucket, key)

    def put(self, source: str, target: str) -> None:
        """Copy an object without downloading it; S3 shows a copy in parts when it is complete."""
        (old_bucket, old_key), (bucket, key) = self._place(source), self._place(target)
        # The ETag of a copy in parts differs from that of its source.
        extra = {"Metadata": {_CONTENT: self.digest(source) or ""}, "MetadataDirective": "REPLACE"}
        with s3_errors(target):
            self._client.copy({"Bucket": old_bucket, "Key": old_key}, bucket, key, ExtraArgs=extra)

    def digest(self, path: str) -> str | None:
        """Return an object's ETag, or that of the object whose content :meth:`put` copied to it."""
        bucket, key = self._place(path)
        try:
            with s3_errors(path):
                found = self._client.head_object(Bucket=bucket, Key=key)
        except FileNotFoundError:
            return None
        return str(found.get("Metadata", {}).get(_CONTENT) or found["ETag"].strip('"'))

    def for_spark(self, path: str) -> str:
        """Return the path for Spark; Hadoop knows S3 by the scheme s3a only."""
        return re.sub("^s3:", "s3a:", path)

    def _listed(self, folder: str) -> Iterator[Any]:
        """Yield the objects below a folder, with those that mark folders."""
        for page in self._pages(folder, ""):
            yield from page.get("Contents", ())

    def _pages(self, folder: str, delimiter: str) -> Iterator[Any]:
        """Yield the listing below a folder page by page."""
        bucket, prefix = self._place(folder)[0], self._folder_key(folder)
        listing = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=bucket, Prefix=prefix, Delimiter=delimiter
        )
        pages = iter(listing)
        while True:
            with s3_errors(folder):
                page = next(pages, None)
            if page is None:
                return
            yield page

    def _folder_key(self, folder: str) -> str:
        """Return what the keys of a folder's objects begin with."""
        key = self._place(folder)[1]
        return f"{key}/" if key else ""

    def _place(self, path: str) -> tuple[str, str]:
        """Return the bucket and the key of a path."""
        bucket, _, key = path.partition("://")[2].partition("/")
        if self._normalizes:
            key = posixpath.normpath(f"/{key}").lstrip("/")
        return bucket, key

    @property
    def _client(self) -> Any:
        return _shared_client(self._settings, self._keys, os.getpid())


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
    """Turn an error of writing the copy into one that names the local disk, not the object."""
    try:
        yield
    except OSError as error:
        msg = f"{where} cannot be copied to {tempfile.gettempdir()}: {error.strerror}"
        raise RetriableError(msg, hint="make room there, or set TMPDIR to a larger disk") from error
