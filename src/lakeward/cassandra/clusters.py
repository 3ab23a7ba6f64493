"""Find the cluster of a command, by its name in the configuration or by its address, and its password."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from ipaddress import IPv6Address
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, parse_qsl

from pydantic import ValidationError

from lakeward.cassandra.connection import ClusterAddress
from lakeward.cassandra.cql import TableAddress
from lakeward.config.base import from_environment
from lakeward.config.loading import explain
from lakeward.config.services import SECRET_MARK, ClusterSettings
from lakeward.errors import ConfigurationError
from lakeward.redaction import redact_address

if TYPE_CHECKING:
    from lakeward.cassandra.budget import RateLimits
    from lakeward.cassandra.cql import TableName
    from lakeward.config import Config

SCHEME = "cassandra://"
# Where the password of an address comes from: addresses end up in shell histories and process lists.
PASSWORD_VARIABLE = "CASSANDRA_PASSWORD"
_FORM = "cassandra://HOST[,HOST…][:PORT][?datacenter=…&username=…&ca=FILE&consistency=…] or keyspaces://REGION[?…]"
_PLAIN = (
    "datacenter", "username", "consistency", "page_size", "connections", "max_in_flight", "max_requests_per_second",
    "timeout",
)  # fmt: skip
_FILES = ("ca", "certificate", "key")
_TLS = (*_FILES, "check_host_name", "server_name")
# Not urllib's urlsplit: whether it accepts several hosts in brackets differs between releases of Python.
_ADDRESS = re.compile(
    r"(?P<scheme>cassandra|keyspaces)://(?P<netloc>[^/?#]+)(?P<path>/*)(\?(?P<query>[^#]*))?(?P<fragment>)"
)
# A host with its port; an IPv6 address is in brackets, since it contains colons.
_HOST = re.compile(r"(\[(?P<address>[^\[\]]*)\]|(?P<name>[^:\[\]]*))(:(?P<port>[^:\[\]]*))?")


@dataclass(frozen=True)
class LiveTable:
    """A table and the address of its cluster."""

    address: ClusterAddress
    name: TableName

    def __str__(self) -> str:
        return f"{self.address.name}/{self.name}"

    def ledger(self, address: str | None) -> TableName | None:
        """Return the ledger table named by an address; None where none is named.

        Raises:
            ConfigurationError: it is a table of another cluster.
        """
        if address is None:
            return None
        found = TableAddress.parse(address)
        if found.cluster not in (None, self.address.name):
            msg = f"--ledger {address} is in another cluster; it must be in the cluster of {self}"
            raise ConfigurationError(msg, hint=f"--ledger {found.name}")
        return found.name


def find_cluster(config: Config, table: TableAddress | None, option: str | None) -> ClusterAddress:
    """Return the cluster of a table: the one its address names, else ``--cluster``, else the only one configured.

    Raises:
        ConfigurationError: there is no such cluster, or more than one to choose from; the message lists them.
    """
    named = table.cluster if table is not None and table.cluster else option
    if named is None:
        if len(config.clusters) != 1:
            msg = f"no cluster is named, and {_configured(config)}"
            raise ConfigurationError(msg, hint=f"--cluster NAME, or --cluster {SCHEME}127.0.0.1:9042")
        named = next(iter(config.clusters))
    if "://" in named:
        return parse_cluster(named)
    if named not in config.clusters:
        msg = f"there is no cluster {redact_address(named)!r}: {_configured(config)}"
        raise ConfigurationError(msg, hint=f"add it to clusters: in lakeward.yaml, or --cluster {SCHEME}HOST:PORT")
    settings = _with_paths(config, config.clusters[named])
    return ClusterAddress(named, settings, password_of(named, settings))


def parse_cluster(text: str) -> ClusterAddress:
    """Parse a complete address: ``cassandra://host:port``, or ``keyspaces://region``.

    The password for ``?username=…`` comes from the variable CASSANDRA_PASSWORD.

    Raises:
        ConfigurationError: it is not such an address, or contains a password.
    """
    split = _split(text)
    if split.scheme == "keyspaces":
        place: dict[str, object] = {"keyspaces": split.netloc}
    else:
        hosts, port = _hosts_and_port(split.netloc)
        place = {"hosts": hosts, **port}
    settings = _validated(text, {**place, **_choices(split.query)})
    return ClusterAddress(f"{split.scheme}://{split.netloc}", settings, password_of(text, settings))


def _split(text: str) -> SplitResult:
    found = _ADDRESS.fullmatch(text)
    if found is None:
        msg = f"{redact_address(text)!r} is not the address of a cluster; expected {_FORM}"
        raise ConfigurationError(msg)
    split = SplitResult(**found.groupdict(default=""))
    if "@" in split.netloc:
        msg = "the address of a cluster must not contain a login: it would stay in the shell's history"
        hint = f"{split.scheme}://…?username=NAME, and the password in {PASSWORD_VARIABLE}"
        raise ConfigurationError(msg, hint=hint)
    return split


def limits_for(address: ClusterAddress, limits: RateLimits) -> RateLimits:
    """Return a job's limits, with the request limit of the cluster's settings where the job has none."""
    if limits.requests_per_second is not None or address.settings.max_requests_per_second is None:
        return limits
    return replace(limits, requests_per_second=address.settings.max_requests_per_second)


def _configured(config: Config) -> str:
    names = ", ".join(config.clusters)
    return f"the configured clusters are {names}" if names else "none is configured"


def _with_paths(config: Config, settings: ClusterSettings) -> ClusterSettings:
    """Return settings whose paths of certificates are resolved against the configuration file."""
    if settings.tls is None:
        return settings
    found = {name: getattr(settings.tls, name) for name in _FILES}
    paths = {name: config.resolve(path) for name, path in found.items() if path is not None}
    return settings.model_copy(update={"tls": settings.tls.model_copy(update=paths)})


def _hosts_and_port(place: str) -> tuple[list[str], dict[str, str]]:
    """Split ``a,b:9043``, ``a:9043,b:9043`` or ``[::1],[::2]:9043`` into hosts and port.

    Raises:
        ConfigurationError: a part is not a host, or the hosts have different ports.
    """
    found = [_host_and_port(part) for part in place.split(",")]
    ports = list(dict.fromkeys(port for _, port in found if port is not None))
    if len(ports) > 1:
        msg = f"all nodes of a cluster have the same port, but {place!r} names {', '.join(ports)}"
        raise ConfigurationError(msg)
    return [host for host, _ in found], {"port": ports[0]} if ports else {}


def _host_and_port(part: str) -> tuple[str, str | None]:
    found = _HOST.fullmatch(part)
    host = (found["address"] or found["name"]) if found else None
    if not found or not host or (found["address"] is not None and not _is_ipv6(host)):
        known = "NAME, NAME:PORT, or an IPv6 address such as [::1] or [::1]:PORT"
        msg = f"{part!r} is not a host of a cluster; expected {known}"
        raise ConfigurationError(msg)
    return host, found["port"]


def _is_ipv6(text: str) -> bool:
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return True


def _choices(query: str) -> dict[str, object]:
    chosen: dict[str, object] = {}
    tls: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name == "tls":
            chosen.setdefault("tls", tls)
        elif name in _TLS:
            tls[name] = str(Path(value).resolve()) if name in _FILES else value
            chosen["tls"] = tls
        elif name in _PLAIN:
            chosen[name] = value
        else:
            msg = f"the address of a cluster has no option {name!r}; it takes {', '.join((*_PLAIN, 'tls', *_TLS))}"
            raise ConfigurationError(msg)
    if "username" in chosen:
        chosen["password"] = f"env:{PASSWORD_VARIABLE}"
    return chosen


def _validated(text: str, data: dict[str, object]) -> ClusterSettings:
    try:
        return ClusterSettings.model_validate(data)
    except ValidationError as error:
        raise ConfigurationError(explain(error, text)) from None


_EXTRA = "pip install 'lakeward[aws]'"


def password_of(name: str, settings: ClusterSettings) -> str | None:
    """Return the password that a cluster's settings point to; None if it needs none.

    Raises:
        ConfigurationError: it is not there.
    """
    if settings.password is None:
        return None
    if settings.password.startswith(SECRET_MARK):
        return _secret(name, settings.password.removeprefix(SECRET_MARK))
    return from_environment(settings.password, f"the password of cluster {name}")


def _secret(cluster: str, secret: str) -> str:
    """Return the password in a secret, whose text is the password or a JSON object with a ``password``."""
    try:
        import boto3
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError as error:
        msg = f"the password of cluster {cluster} is in AWS Secrets Manager; the package for it is not installed"
        raise ConfigurationError(msg, hint=_EXTRA) from error
    try:
        # An ARN contains its region.
        region = secret.split(":")[3] if secret.startswith("arn:") else None
        client = boto3.client("secretsmanager", region_name=region)
        try:
            found = client.get_secret_value(SecretId=secret).get("SecretString")
        finally:
            client.close()
    except (BotoCoreError, ClientError) as error:
        msg = f"the password of cluster {cluster} cannot be read from AWS Secrets Manager ({secret}): {error}"
        raise ConfigurationError(msg, hint=f"aws secretsmanager get-secret-value --secret-id {secret}") from error
    password = _password_in(found or "")
    if not password:
        msg = f"the secret {secret} holds no password for cluster {cluster}"
        raise ConfigurationError(msg, hint='its text is the password, or a JSON object: {"password": "…"}')
    return password


def _password_in(text: str) -> str:
    if not text.startswith("{"):
        return text
    try:
        document = json.loads(text)
    except ValueError:
        # A password may begin with a brace.
        return text
    return str(document.get("password") or "")
