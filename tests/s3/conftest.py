"""A bucket for every test, and the settings that reach it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lakeward.config.services import S3Settings
from tests.s3.bucket import Bucket
from tests.s3.scene import S3Scene, rest_lake
from tests.servers.s3 import ACCESS_KEY, SECRET_KEY, TABLE_BUCKETS, S3Server
from tests.servers.shared import worker_number

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Tables of two tests shall not meet in one catalog, nor those of two processes.
_PROCESSES = 4
_TABLE_BUCKETS = iter(TABLE_BUCKETS[worker_number() % _PROCESSES :: _PROCESSES])
KEYS = {"access_key": "env:TEST_S3_KEY", "secret_key": "env:TEST_S3_SECRET"}


@pytest.fixture
def s3_settings(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The ``s3:`` block for the shared server."""
    return settings_of(s3_server, monkeypatch)


def settings_of(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv("TEST_S3_KEY", ACCESS_KEY)
    monkeypatch.setenv("TEST_S3_SECRET", SECRET_KEY)
    monkeypatch.setenv("TEST_CATALOG_CREDENTIAL", f"{ACCESS_KEY}:{SECRET_KEY}")
    return {"endpoint": server.endpoint, **KEYS}


@pytest.fixture
def bucket(s3_server: S3Server, s3_settings: dict[str, Any]) -> Iterator[Bucket]:
    """An empty bucket of the shared server."""
    with Bucket.create(s3_server, f"test-{uuid.uuid4().hex[:12]}", S3Settings(**s3_settings)) as made:
        yield made


@pytest.fixture
def s3_scene(tmp_path: Path, spark: SparkSession, bucket: Bucket) -> Iterator[S3Scene]:
    """A small pipeline with landing and lake in S3, and a SQLite catalog."""
    stage = S3Scene(tmp_path, spark, bucket)
    yield stage
    stage.close()


@pytest.fixture
def rest_scene(tmp_path: Path, spark: SparkSession, bucket: Bucket, s3_server: S3Server) -> Iterator[S3Scene]:
    """A small pipeline with landing in S3 and the lake in a table bucket of the server's Iceberg REST catalog."""
    stage = S3Scene(tmp_path, spark, bucket, **rest_lake(s3_server, next(_TABLE_BUCKETS)))
    yield stage
    stage.close()
