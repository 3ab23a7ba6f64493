"""What a node of a local cluster finds in its folder: configuration, logging and a certificate."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import yaml

from lakeward.errors import ConfigurationError
from lakeward.lake.iceberg.java import java_program

# Of a key that protects nothing: it is made anew for each local cluster and goes with it.
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
    # What is granted or taken away counts at once.
    "permissions_validity": "0ms",
    "roles_validity": "0ms",
    "credentials_validity": "0ms",
}


@dataclass(frozen=True)
class ServerOptions:
    """What kind of cluster it is.

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
    """Give the file of the certificate that clients of a cluster with TLS must trust."""
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
