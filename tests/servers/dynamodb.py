"""A real DynamoDB without AWS: DynamoDB Local in memory. It checks conditions and transactions, but no keys."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pyspark
import pytest
from botocore.config import Config

from lakeward.errors import ConfigurationError
from lakeward.session.launching import require_java
from tests.servers.jars import fetched_once
from tests.servers.process import free_ports, running
from tests.servers.shared import shared_server

if TYPE_CHECKING:
    from collections.abc import Iterator

REGION = "eu-west-1"
# Any will do, but it requires some.
KEYS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}
_COORDINATE = "com.amazonaws:DynamoDBLocal:2.6.1"
_MAIN = "com.amazonaws.services.dynamodbv2.local.main.ServerRunner"


@contextmanager
def dynamodb_at(folder: Path) -> Iterator[str]:
    """Run a server for the time of a ``with`` block and yield its address."""
    try:
        require_java()
        fetched = fetched_once(_COORDINATE)
    except ConfigurationError as missing:
        pytest.skip(missing.message)
    [port] = free_ports(1)
    endpoint = f"http://127.0.0.1:{port}"
    # The resolver leaves out slf4j, which Spark has.
    slf4j = next((Path(pyspark.__file__).parent / "jars").glob("slf4j-api-*.jar"))
    command = [
        "java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{fetched}/*{os.pathsep}{slf4j}", _MAIN,
        "-inMemory", "-disableTelemetry", "-port", str(port),
    ]  # fmt: skip
    with running(command, folder / "dynamodb.log", works=lambda: _works(endpoint)):
        yield endpoint


def _works(endpoint: str) -> None:
    client = dynamodb_client(endpoint)
    try:
        client.list_tables()
    finally:
        client.close()


def dynamodb_client(endpoint: str) -> Any:
    """Return a client of that server; close it after use."""
    quick = Config(connect_timeout=30, read_timeout=120, retries={"max_attempts": 1})
    keys = {name.lower(): value for name, value in KEYS.items()}
    return boto3.client("dynamodb", endpoint_url=endpoint, region_name=REGION, config=quick, **keys)


@contextmanager
def served(folder: Path) -> Iterator[dict[str, Any]]:
    """Run the server that all processes of the tests share."""
    with dynamodb_at(folder) as endpoint:
        yield {"endpoint": endpoint}


@pytest.fixture(scope="session")
def dynamodb_endpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Address of a server that all tests share: use names of your own in it."""
    endpoint: str = shared_server(__name__, tmp_path_factory)["endpoint"]
    return endpoint


@pytest.fixture
def dynamodb_uri(
    dynamodb_endpoint: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """The address of a table that is not there yet, and is deleted after the test."""
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    table = f"test-{abs(hash(request.node.nodeid)):x}"
    yield f"dynamodb://{table}?region={REGION}&endpoint={dynamodb_endpoint}"
    client = dynamodb_client(dynamodb_endpoint)
    if table in client.list_tables()["TableNames"]:
        client.delete_table(TableName=table)
    client.close()
