"""A real S3 server with keys that count, and its Iceberg REST catalog: SeaweedFS in one process."""

from __future__ import annotations

import json
import sysconfig
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.error import HTTPError
from urllib.request import urlopen

import boto3
import pytest
from botocore.config import Config

from tests.servers.process import free_ports, running, stop
from tests.servers.shared import shared_server

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from types import TracebackType

ACCESS_KEY, SECRET_KEY = "owner-of-buckets", "a-secret-of-the-tests"
# This user may list and read, and write nothing.
READER_KEY, READER_SECRET = "reader-of-buckets", "another-secret-of-the-tests"
REGION = "eu-west-1"
# Every bucket takes a volume. Left alone, the server allows as many as the free disk holds when they are full: too few
# for a bucket per test on a small disk, and the test that comes last then fails.
_VOLUMES = 10_000
# Each is a separate lake to the Iceberg REST catalog.
TABLE_BUCKETS = tuple(f"tables-{number}" for number in range(32))


def _user(name: str, access: str, secret: str, *actions: str) -> dict[str, Any]:
    return {"name": name, "credentials": [{"accessKey": access, "secretKey": secret}], "actions": list(actions)}


_IDENTITIES = [
    _user("owner", ACCESS_KEY, SECRET_KEY, "Admin", "Read", "Write", "List", "Tagging"),
    _user("reader", READER_KEY, READER_SECRET, "Read", "List"),
]


@dataclass
class S3Server:
    """One server on its own ports, which stay the same when it is killed and started again."""

    folder: Path
    ports: list[int] = field(default_factory=lambda: free_ports(7))
    _process: subprocess.Popen[bytes] | None = None
    _stack: ExitStack = field(default_factory=ExitStack)

    @property
    def endpoint(self) -> str:
        """Address of the S3 service."""
        return f"http://127.0.0.1:{self.ports[3]}"

    @property
    def catalog(self) -> str:
        """Address of the Iceberg REST catalog."""
        return f"http://127.0.0.1:{self.ports[4]}"

    def client(self, access_key: str = ACCESS_KEY, secret_key: str = SECRET_KEY) -> Any:
        """Return a boto3 client; close it after use."""
        quick = Config(
            connect_timeout=30, read_timeout=120, retries={"max_attempts": 1}, s3={"addressing_style": "path"}
        )
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id=access_key,
            aws_secret_access_key=secret_key,
            config=quick,
        )

    def start(self) -> None:
        """Start the process and wait until it stores an object and its catalog answers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        keys = self.folder / "keys.json"
        keys.write_text(json.dumps({"identities": _IDENTITIES}))
        (self.folder / "data").mkdir(exist_ok=True)
        server = running(self._command(keys), self.folder / "seaweedfs.log", works=self._works, cwd=self.folder)
        self._process = self._stack.enter_context(server)

    def kill(self) -> None:
        """End the process without a warning; its data stay."""
        assert self._process is not None
        stop(self._process, kill=True)

    def _command(self, keys: Path) -> list[str]:
        master, volume, filer, s3, iceberg, admin, webdav = self.ports
        return [
            str(Path(sysconfig.get_path("scripts"), "weed")), "mini",
            "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={self.folder / 'data'}",
            f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}", f"-s3.port={s3}",
            f"-s3.port.iceberg={iceberg}", f"-admin.port={admin}", f"-webdav.port={webdav}", "-s3.port.lance=0",
            f"-filer.localSocket={self.folder / 'f.sock'}", f"-s3.localSocket={self.folder / 's.sock'}",
            f"-s3.config={keys}", "-s3.autoCreateBucket=false", f"-tableBucket={','.join(TABLE_BUCKETS)}",
            "-webdav=false", "-admin.ui=false", "-master.telemetry=false", f"-volume.max={_VOLUMES}",
        ]  # fmt: skip

    def _works(self) -> None:
        client = self.client()
        try:
            if "probe" not in [bucket["Name"] for bucket in client.list_buckets()["Buckets"]]:
                client.create_bucket(Bucket="probe")
            client.put_object(Bucket="probe", Key="probe", Body=b"probe")
        finally:
            client.close()
        self._ask_catalog()

    def _ask_catalog(self) -> None:
        """Wait for an answer of the catalog, which starts by itself; a refusal is one."""
        try:
            urlopen(f"{self.catalog}/v1/config", timeout=30).close()
        except HTTPError as refusal:
            refusal.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


@contextmanager
def served(folder: Path) -> Iterator[dict[str, Any]]:
    """Run the server that all processes of the tests share."""
    with S3Server(folder) as server:
        yield {"folder": str(folder), "ports": server.ports}


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> S3Server:
    """A server that all tests share: use buckets of your own in it, and do not stop it."""
    found = shared_server(__name__, tmp_path_factory)
    return S3Server(Path(found["folder"]), found["ports"])
