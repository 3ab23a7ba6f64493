"""The demo with Cassandra as a project in a folder: configuration, server and exports."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from lakeward.arguments import FLAG, PATH, takes
from lakeward.cassandra.connection import require_driver
from lakeward.demo.cassandra.node_files import ServerPorts
from lakeward.demo.cassandra.server import LocalCassandra, free_ports
from lakeward.demo.project import MARK, make_room
from lakeward.errors import ConfigurationError

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
_LAKE_CATALOG = re.compile(r"lake/catalog\.db(-wal|-shm|-journal)?")
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
        # The server keeps whatever it needs below its nodes' folders, which nobody else uses.
        return _SERVER_FILE.fullmatch(rest) is not None
    if top == EXPORTS:
        return _EXPORTED.fullmatch(path.rpartition("/")[2]) is not None
    return path in _CONTENT or _LAKE_CATALOG.fullmatch(path) is not None


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
