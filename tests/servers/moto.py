"""AWS services without AWS: moto's server. Its Lambda runs nothing, and its Glue accepts stale table versions."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.config import Config

from tests.servers.process import free_ports, running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

REGION = "eu-west-1"
# Moto takes any key; without one boto3 would look for an instance's.
CREDENTIALS = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}


@contextmanager
def moto_at(folder: Path) -> Iterator[str]:
    """Run a server for the time of a ``with`` block and yield its address."""
    [port] = free_ports(1)
    endpoint = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with running(command, folder / "moto.log", works=lambda: _works(endpoint)):
        yield endpoint


def _works(endpoint: str) -> None:
    client = moto_client("sqs", endpoint)
    try:
        client.list_queues()
    finally:
        client.close()


def moto_client(service: str, endpoint: str) -> Any:
    """Return a boto3 client of a service of that server; close it after use."""
    quick = Config(connect_timeout=30, read_timeout=120, retries={"max_attempts": 1})
    return boto3.client(service, endpoint_url=endpoint, region_name=REGION, config=quick, **CREDENTIALS)


@pytest.fixture(scope="session")
def moto_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a moto server that all tests share: use names of your own in it."""
    with moto_at(tmp_path_factory.mktemp("moto")) as endpoint:
        yield endpoint
