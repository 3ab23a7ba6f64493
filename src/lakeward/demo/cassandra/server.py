"""Apache Cassandra on this machine: nodes at 127.0.0.1, 127.0.0.2 …, all in one folder, gone with a ``with`` block."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self

import yaml

from lakeward.cassandra.connection import ClusterAddress, connected
from lakeward.config.services import ClusterSettings, TlsSettings
from lakeward.errors import ConfigurationError, LakewardError, RetriableError
from lakeward.session.jars import Jar, read_pins, resolve_program
from lakeward.session.launching import java_program, require_java

# What a node of a local cluster finds in its folder: configuration, logging and a certificate.


# Of a key that protects nothing: it is created for each local cluster and removed with it.
_STORE_PASSWORD = "lakeward"
_LOGBACK = """<configuration>
  <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%-5level %date{HH:mm:ss.SSS} [%thread] %logger{0} - %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="OUT"/></root>
</configuration>
"""
_WITH_LOGIN = {
    "authenticator": {"class_name": "org.apache.cassandra.auth.PasswordAuthenticator"},
    "authorizer": {"class_name": "org.apache.cassandra.auth.CassandraAuthorizer"},
    "role_manager": {"class_name": "org.apache.cassandra.auth.CassandraRoleManager"},
    # Permissions that are granted or revoked take effect immediately.
    "permissions_validity": "0ms",
    "roles_validity": "0ms",
    "credentials_validity": "0ms",
}


@dataclass(frozen=True)
class ServerOptions:
    """The kind of a cluster.

    ``names`` are those its certificate holds, as keytool takes them: ip:127.0.0.1. ``java`` are further options
    of Java.
    """

    nodes: int = 1
    login: bool = False
    tls: bool = False
    names: tuple[str, ...] = ("dns:localhost", "ip:127.0.0.1", "ip:127.0.0.2", "ip:127.0.0.3")
    partitioner: str = "Murmur3Partitioner"
    heap: str = "384m"
    java: tuple[str, ...] = ()
    settings: tuple[tuple[str, object], ...] = ()


@dataclass(frozen=True)
class ServerPorts:
    """The ports that all nodes of a cluster listen on, each at its own address."""

    cql: int
    storage: int


def write_node_files(folder: Path, host: str, seed: str, ports: ServerPorts, options: ServerOptions) -> Path:
    """Write a node's configuration below its folder; give that configuration's folder."""
    conf = folder / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    (conf / "logback.xml").write_text(_LOGBACK, encoding="utf-8")
    settings = {
        "cluster_name": "lakeward",
        "num_tokens": 16,
        "partitioner": f"org.apache.cassandra.dht.{options.partitioner}",
        "commitlog_sync": "periodic",
        "commitlog_sync_period": "10000ms",
        "commitlog_segment_size": "16MiB",
        "seed_provider": [
            {"class_name": "org.apache.cassandra.locator.SimpleSeedProvider", "parameters": [{"seeds": seed}]}
        ],
        "listen_address": host,
        "rpc_address": host,
        "native_transport_port": ports.cql,
        "storage_port": ports.storage,
        "endpoint_snitch": "SimpleSnitch",
        "auto_snapshot": False,
        "auto_bootstrap": False,
        **(_WITH_LOGIN if options.login else {}),
        **(_with_tls(folder.parent) if options.tls else {}),
        **dict(options.settings),
    }
    (conf / "cassandra.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    return conf


def certificate(folder: Path) -> Path:
    """Return the file of the certificate that clients of a cluster with TLS must trust."""
    return folder / "ca.pem"


def make_certificate(folder: Path, options: ServerOptions) -> None:
    """Make the cluster's key and certificate, unless it has them.

    Raises:
        ConfigurationError: Java's keytool is missing or fails.
    """
    if certificate(folder).exists():
        return
    store = ["-alias", "node", "-keystore", str(_key_store(folder)), "-storepass", _STORE_PASSWORD]
    names = f"san={','.join(options.names)}"
    _keytool(
        "-genkeypair", *store, "-keypass", _STORE_PASSWORD, "-keyalg", "RSA", "-keysize", "2048", "-validity", "365",
        "-dname", "CN=localhost", "-storetype", "PKCS12", "-ext", "bc:c=ca:true", "-ext", names,
    )  # fmt: skip
    _keytool("-exportcert", "-rfc", *store, "-file", str(certificate(folder)))


def _keytool(*arguments: str) -> None:
    program = Path(java_program() or "java").with_name("keytool")
    try:
        outcome = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=120, check=False)
    except OSError as error:
        msg = f"{program} cannot be started: {error}"
        raise ConfigurationError(msg, hint="install a whole Java 17 (openjdk-17-jre-headless)") from error
    if outcome.returncode != 0:
        msg = f"{program} failed: {(outcome.stdout + outcome.stderr).strip()}"
        raise ConfigurationError(msg)


def _with_tls(cluster: Path) -> dict[str, object]:
    keys = {
        "enabled": True,
        "optional": False,
        "keystore": str(_key_store(cluster)),
        "keystore_password": _STORE_PASSWORD,
        "store_type": "PKCS12",
        "require_client_auth": False,
    }
    return {"client_encryption_options": keys}


def _key_store(folder: Path) -> Path:
    return folder / "node.p12"


# The jars of Apache Cassandra, pinned by size and checksum and fetched once, as those of Spark are.


@cache
def cassandra_jars() -> tuple[Jar, ...]:
    """Return the jars of a server."""
    return read_pins("lakeward.demo.cassandra", "cassandra-jars.txt")


def resolve_cassandra() -> list[Path]:
    """Return the paths of all jars of a server, fetching what the cache lacks.

    Raises:
        ConfigurationError: a jar is missing or damaged and cannot be fetched.
    """
    return resolve_program(cassandra_jars())


def main() -> None:
    """Fetch them: for the set-up, so that no test waits for the network."""
    try:
        for resolved in resolve_cassandra():
            print(resolved)
    except ConfigurationError as refused:
        sys.exit(str(refused))


if __name__ == "__main__":
    main()

# The login of a fresh cluster with password authentication.
USER = PASSWORD = "cassandra"
START_SECONDS = 120
_NEWEST_JAVA = 23
_POLL_SECONDS = 0.1
# Below the ports that the system assigns to clients.
_PORTS = range(12_000, 22_000)
_OPENED = (
    "java.io", "java.lang", "java.lang.module", "java.lang.reflect", "java.nio", "java.util", "jdk.internal.loader",
    "jdk.internal.math", "jdk.internal.module", "jdk.internal.ref", "jdk.internal.reflect", "jdk.internal.util.jar",
    "sun.nio.ch",
)  # fmt: skip
_EXPORTED = (
    "java.base/jdk.internal.misc", "java.base/java.lang.ref", "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.management/com.sun.jmx.remote.security", "java.rmi/sun.rmi.registry", "java.rmi/sun.rmi.server",
    "java.sql/java.sql", "jdk.unsupported/sun.misc",
)  # fmt: skip


class LocalCassandra:
    """A separate cluster; use it as a context manager. Nodes are numbered from 1, as their addresses are."""

    def __init__(self, folder: Path, options: ServerOptions | None = None, *, ports: ServerPorts | None = None) -> None:
        """Keep files in ``folder``; ports that are free are chosen where ``ports`` has none."""
        self.folder, self.options = folder, options or ServerOptions()
        self.hosts = tuple(f"127.0.0.{number}" for number in range(1, self.options.nodes + 1))
        self._ports = ports
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def port(self) -> int:
        """The port of all nodes; it stays the same while the object lives."""
        if self._ports is None:
            self._ports = ServerPorts(*free_ports(self.hosts, 2))
        return self._ports.cql

    @property
    def address(self) -> ClusterAddress:
        """The cluster as commands reach it, as its first user where it has logins."""
        return self.address_for(USER, PASSWORD) if self.options.login else self.address_for(None, None)

    def address_for(self, username: str | None, password: str | None) -> ClusterAddress:
        """Return the cluster as a certain user reaches it."""
        settings = ClusterSettings(
            hosts=self.hosts,
            port=self.port,
            username=username,
            password="env:CASSANDRA_PASSWORD" if username else None,
            tls=TlsSettings(ca=str(certificate(self.folder))) if self.options.tls else None,
        )
        return ClusterAddress("local", settings, password)

    def start(self) -> None:
        """Start all nodes and wait until each of them has joined the others and answers.

        Raises:
            ConfigurationError: Java or the jars are missing.
            RetriableError: a node ended or did not answer in time; the message holds the end of its log.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        _require_fitting_java()
        if self.options.tls:
            make_certificate(self.folder, self.options)
        self.start_node(1)
        for number in range(2, self.options.nodes + 1):
            self._launch(number)
        for number in range(2, self.options.nodes + 1):
            self._await_port(number)
        self._await_answers()

    def start_node(self, number: int) -> None:
        """Start one node, also again after it was killed, and wait until it takes connections."""
        self._launch(number)
        self._await_port(number)

    def kill_node(self, number: int) -> None:
        """End a node as a power cut would; its data stay."""
        process = self._processes.pop(number)
        process.kill()
        process.wait()

    def stop(self) -> None:
        """End all nodes together; their data stay, and what was not yet flushed is in the commit log."""
        for number in [*self._processes]:
            self.kill_node(number)

    @property
    def process_ids(self) -> tuple[int, ...]:
        """The processes of the nodes that run."""
        return tuple(process.pid for process in self._processes.values())

    def log(self, number: int) -> Path:
        """Return the file that a node writes its log to."""
        return self._node(number) / "cassandra.log"

    def _node(self, number: int) -> Path:
        return self.folder / f"node{number}"

    def _launch(self, number: int) -> None:
        folder, host, port = self._node(number), self.hosts[number - 1], self.port
        assert self._ports is not None
        if _answers(host, port):
            msg = f"another process listens on {host}:{port}"
            raise ConfigurationError(msg)
        conf = write_node_files(folder, host, self.hosts[0], self._ports, self.options)
        command = _command(conf, folder / "data", self.options)
        with self.log(number).open("ab") as output:
            self._processes[number] = subprocess.Popen(
                command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    def _await_port(self, number: int) -> None:
        limit = time.monotonic() + START_SECONDS
        while not _answers(self.hosts[number - 1], self.port):
            process = self._processes[number]
            if process.poll() is not None:
                raise self._failed(number, f"ended with {process.returncode}")
            if time.monotonic() > limit:
                raise self._failed(number, f"accepts no connections after {START_SECONDS} seconds")
            time.sleep(_POLL_SECONDS)

    def _await_answers(self) -> None:
        """Wait for logins, which are made after the port is open, and until every node lists all others."""
        limit = time.monotonic() + START_SECONDS
        while True:
            try:
                if all(self._peers(host) == self.options.nodes - 1 for host in self.hosts):
                    return
                problem = "not all nodes know each other"
            except LakewardError as error:
                problem = error.message
            if time.monotonic() > limit:
                raise self._failed(1, f"is not ready after {START_SECONDS} seconds: {problem}")
            time.sleep(_POLL_SECONDS)

    def _peers(self, host: str) -> int:
        address = self.address
        alone = ClusterAddress(address.name, address.settings.model_copy(update={"hosts": (host,)}), address.password)
        with connected(alone) as session:
            return len(session.execute("SELECT peer FROM system.peers").all())

    def _failed(self, number: int, problem: str) -> RetriableError:
        tail = self.log(number).read_text(encoding="utf-8", errors="replace")[-2000:]
        msg = f"node {number} of the local Cassandra {problem}; the end of {self.log(number)}:\n{tail}"
        return RetriableError(msg)


def _require_fitting_java() -> None:
    version = require_java()
    if version > _NEWEST_JAVA:
        msg = f"Cassandra 5.0 does not run on Java {version}; it needs Java 17 to {_NEWEST_JAVA}"
        raise ConfigurationError(msg, hint="install openjdk-17-jre-headless and set JAVA_HOME to it")


def _command(conf: Path, data: Path, options: ServerOptions) -> list[str]:
    jars = resolve_cassandra()
    agent = next(jar for jar in jars if jar.name.startswith("jamm-"))
    return [
        java_program() or "java",
        f"-Xms{options.heap}", f"-Xmx{options.heap}", "-Xss512k", "-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError",
        *options.java, "-XX:-UsePerfData", "-Djdk.attach.allowAttachSelf=true", "-Djava.security.manager=allow",
        *[f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED],
        "--add-opens=jdk.management/com.sun.management.internal=ALL-UNNAMED",
        *[f"--add-exports={package}=ALL-UNNAMED" for package in _EXPORTED],
        f"-javaagent:{agent}",
        f"-Dcassandra.config={(conf / 'cassandra.yaml').absolute().as_uri()}",
        f"-Dcassandra.storagedir={data.absolute()}",
        "-Dcassandra.skip_wait_for_gossip_to_settle=0", "-Dcassandra.ring_delay_ms=1000",
        "-Dcassandra.superuser_setup_delay_ms=0", "-Djava.net.preferIPv4Stack=true",
        # Without it the daemon closes its output after the start.
        "-Dcassandra-foreground=yes", "-Dio.netty.tryReflectionSetAccessible=true",
        "-cp", os.pathsep.join([str(conf.absolute()), *[str(jar) for jar in jars]]),
        "org.apache.cassandra.service.CassandraDaemon",
    ]  # fmt: skip


def _answers(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False


def free_ports(hosts: tuple[str, ...], count: int) -> list[int]:
    """Find ports that are free at all of the addresses."""
    shuffled = (port for port in random.sample(_PORTS, len(_PORTS)) if all(_is_free(host, port) for host in hosts))
    return [next(shuffled) for _ in range(count)]


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as listener:
        try:
            listener.bind((host, port))
        except OSError:
            return False
    return True
