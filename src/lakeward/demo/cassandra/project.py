"""The demo with Cassandra as a project in a folder: configuration, server and exports."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from lakeward.arguments import FLAG, PATH, takes
from lakeward.cassandra.connection import connected, require_driver
from lakeward.demo.cassandra import shop
from lakeward.demo.cassandra.server import LocalCassandra, ServerPorts, free_ports
from lakeward.demo.project import LAKE_CATALOG, MARK, make_room
from lakeward.documents import Document
from lakeward.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.cassandra.connection import ClusterAddress
    from lakeward.cassandra.export import ExportReport
    from lakeward.cassandra_client import CassandraClient


CLUSTER, EXPORTS = "local", "exports"
COMMAND = "lakeward demo cassandra"
_CONFIGURATION_FILE, _SERVER = "lakeward.yaml", "server"
_HOST = "127.0.0.1"
_PORTS_FILE = "ports.yaml"
_CONFIGURATION = f"""{MARK} `{COMMAND} --force` replaces this project.
clusters:
  {CLUSTER}:
    hosts: [{_HOST}]
    port: {{port}}
"""
_SERVER_FILE = re.compile(r"(?:ports\.yaml|ca\.pem|node\.p12|node\d+/.+|[^/]+\.log)")
_EXPORTED = re.compile(
    r"_SUCCESS|_manifest\.json|_schema\.json|_lakeward-writing-[0-9a-f]{12}\.json|part-w[0-9a-f]{12}-.+"
)
# What a demo leaves in its folder.
_CONTENT = (
    _CONFIGURATION_FILE,
    _SERVER,
    EXPORTS,
    "lake",
    "landing",
    "lakeward.db",
    "lakeward.db-wal",
    "lakeward.db-shm",
)


@takes(folder=PATH, force=FLAG)
def write_cassandra_demo(folder: str | Path, *, force: bool = False) -> Path:
    """Write the configuration of a demo with a server at free ports, and return the configuration file.

    Raises:
        ConfigurationError: the driver is not installed; the folder is not empty, or with ``force`` holds a project that
            is not a demo.
    """
    require_driver()
    folder = Path(folder)
    make_room(folder, _CONTENT, _is_own, force=force, command=COMMAND)
    (folder / _SERVER).mkdir(parents=True, exist_ok=True)
    cql, storage = free_ports((_HOST,), 2)
    (folder / _SERVER / _PORTS_FILE).write_text(yaml.safe_dump({"cql": cql, "storage": storage}), encoding="utf-8")
    file = folder / _CONFIGURATION_FILE
    file.write_text(_CONFIGURATION.format(port=cql), encoding="utf-8")
    return file


def _is_own(path: str) -> bool:
    """Whether the demo or its server wrote a file, by its path from the project's folder."""
    top, _, rest = path.partition("/")
    if top == _SERVER:
        # Everything below the nodes' folders belongs to the server.
        return _SERVER_FILE.fullmatch(rest) is not None
    if top == EXPORTS:
        return _EXPORTED.fullmatch(path.rpartition("/")[2]) is not None
    return path in _CONTENT or LAKE_CATALOG.fullmatch(path) is not None


@takes(folder=PATH)
def cassandra_demo_server(folder: str | Path) -> LocalCassandra:
    """Return the demo's server, with the ports and data that it had before; it is not started.

    Raises:
        ConfigurationError: there is no such project.
    """
    folder = Path(folder)
    try:
        ports = yaml.safe_load((folder / _SERVER / _PORTS_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        msg = f"{folder} holds no demo with Cassandra"
        raise ConfigurationError(msg, hint=f"{COMMAND} {folder}") from None
    return LocalCassandra(folder / _SERVER, ports=ServerPorts(ports["cql"], ports["storage"]))


# What the demo does: export, copy, change, export, compare, apply, and see that both tables are equal.


_MINUTE_SECONDS = 60


@dataclass(frozen=True)
class DemoStep(Document):
    """A step of the demo: its name, its outcome, and whether the outcome is the expected one."""

    name: str
    outcome: str
    ok: bool
    seconds: float


@dataclass(frozen=True)
class DemoSample(Document):
    """A row of the copy that changed, as it was and as it is."""

    row: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class CassandraDemoReport(
    Document,
    keys=("ok", "steps", "samples", "change_set", "waited"),
    renamed={"samples": "rows"},
    write={"waited": lambda seconds: round(seconds, 3)},
):
    """The results that the demo shows."""

    steps: tuple[DemoStep, ...]
    samples: tuple[DemoSample, ...]
    change_set: str | None
    waited: float

    @property
    def ok(self) -> bool:
        """Whether every step had the expected outcome."""
        return all(step.ok for step in self.steps)


class CassandraDemo:
    """Plays the demo on a running server."""

    def __init__(
        self, client: CassandraClient, address: ClusterAddress, folder: Path, report: Callable[[str], None]
    ) -> None:
        """Work through a client in a folder; ``report`` is called with lines about the progress."""
        self._client, self._address, self._report = client, address, report
        self._exports = str((folder / EXPORTS).absolute())
        self._steps: list[DemoStep] = []
        self._begun = 0.0
        self._waited = 0.0

    def play(self) -> CassandraDemoReport:
        """Run all steps and return the report."""
        with connected(self._address) as session:
            self._begin("filling a table")
            shop.create(session)
            shop.fill(session)
            loaded = shop.read_all(session, shop.SOURCE)
            self._end("fill", f"{len(loaded):,} rows of {shop.SOURCE}", ok=len(loaded) == shop.ROWS)
            first = self._export()
            self._import(first)
            copied = shop.read_all(session, shop.COPY)
            before = shop.samples(session, shop.COPY)
            self._begin("changing the table")
            changes = shop.change(session)
            self._end("change", changes.story, ok=shop.read_all(session, shop.SOURCE) != copied == loaded)
            self._await_next_minute(first)
            change_set = self._diff(first, self._export(), changes)
            self._apply(change_set, changes)
            after = shop.samples(session, shop.COPY)
            self._prove(session)
        samples = tuple(DemoSample(row, before[row], after[row]) for row in before)
        return CassandraDemoReport(tuple(self._steps), samples, change_set, self._waited)

    def _export(self) -> ExportReport:
        self._begin(f"exporting {shop.SOURCE}")
        found = self._client.export(str(shop.SOURCE), to=self._exports)
        outcome = f"{found.rows:,} rows, static values of customers included, to {found.folder}"
        self._end("export", outcome, ok=found.rows > 0)
        return found

    def _import(self, first: ExportReport) -> None:
        self._begin(f"copying it to {shop.COPY}")
        done = self._client.import_(first.folder, into=str(shop.COPY), create_table=True)
        outcome = f"{done.upserted:,} rows to {shop.COPY}, {done.units:,.0f} write units"
        self._end("import", outcome, ok=done.upserted == first.rows and not done.rejected)

    def _diff(self, first: ExportReport, second: ExportReport, changes: shop.Changes) -> str:
        self._begin("comparing the two exports")
        found = self._client.diff(first.folder, second.folder)
        summary = found.summary
        counts = (summary.inserted, summary.changed, summary.deleted)
        outcome = f"{summary.inserted:,} inserted, {summary.changed:,} changed, {summary.deleted:,} deleted"
        self._end("diff", outcome, ok=counts == (changes.inserted, changes.changed, changes.deleted))
        return str(found.change_set)

    def _apply(self, change_set: str, changes: shop.Changes) -> None:
        self._begin(f"applying what changed to {shop.COPY}")
        done = self._client.apply(change_set, into=str(shop.COPY))
        outcome = f"{done.upserted:,} rows written, {done.deleted:,} deleted, {done.units:,.0f} write units"
        counts = (done.upserted, done.deleted, done.rejected)
        self._end("apply", outcome, ok=counts == (changes.inserted + changes.changed, changes.deleted, 0))

    def _prove(self, session: Any) -> None:
        """Read both tables without any of the code that copied them, and compare them value by value."""
        self._begin("reading both tables")
        source, copy = (shop.read_all(session, table) for table in (shop.SOURCE, shop.COPY))
        different = sum(source.get(key) != copy.get(key) for key in source.keys() | copy.keys())
        outcome = f"{len(source):,} rows of {shop.SOURCE}, {len(copy):,} of {shop.COPY}, {different:,} different"
        self._end("prove", outcome, ok=source == copy and len(source) > 0)

    def _await_next_minute(self, first: ExportReport) -> None:
        """Wait for the next minute: exports are named by the minute in which they start."""
        passed = (datetime.now(UTC) - first.started.replace(second=0, microsecond=0)).total_seconds()
        self._waited = max(_MINUTE_SECONDS - passed, 0.0)
        if self._waited:
            self._report(f"there is one export per minute: waiting {self._waited:.0f} s for the next")
            time.sleep(self._waited)

    def _begin(self, what: str) -> None:
        self._begun = time.monotonic()
        self._report(what)

    def _end(self, name: str, outcome: str, *, ok: bool) -> None:
        self._steps.append(DemoStep(name, outcome, ok, round(time.monotonic() - self._begun, 3)))
