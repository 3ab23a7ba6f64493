"""Why a cluster cannot be connected to, in words and with what to check."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.cassandra import keyspaces
from lakeward.cassandra.retrying import errors_of, is_refusal, told
from lakeward.errors import ConfigurationError, LakewardError, RetriableError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from lakeward.cassandra.connecting import ClusterAddress


_WRONG_NAME = ("Hostname mismatch", "IP address mismatch")
_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"


def explained(error: Exception, address: ClusterAddress, datacenters: Collection[str]) -> LakewardError:
    """Give the error to raise for one of the driver's; ``datacenters`` are those it saw before it failed."""
    from cassandra import UnresolvableContactPoints

    if isinstance(error, LakewardError):
        return error
    causes = [*_causes(error)]
    if refused := next((one for one in causes if is_refusal(one)), None):
        return _refused_login(address, refused)
    if broken := next((one for one in causes if "[SSL" in str(one)), None):
        return _failed_tls(address, broken)
    if isinstance(error, UnresolvableContactPoints):
        msg = f"no address is known for the hosts of {address.name}: {_places(address)}"
        return ConfigurationError(msg, hint="correct hosts: of the cluster, or this machine's name resolution")
    wanted = address.settings.datacenter
    if wanted is not None and datacenters and wanted not in datacenters:
        return no_such_datacenter(address, datacenters)
    return _unreachable(error, address)


def no_such_datacenter(address: ClusterAddress, known: Collection[str]) -> ConfigurationError:
    """Give the error for a data centre that the cluster does not have."""
    msg = f"{address.name} has no data centre {address.settings.datacenter!r}; it has {', '.join(sorted(known))}"
    return ConfigurationError(msg, hint="correct datacenter: of the cluster, or leave it out")


def _refused_login(address: ClusterAddress, error: BaseException) -> ConfigurationError:
    if address.settings.username is None and address.settings.keyspaces is None:
        msg = f"{address.name} wants a login, and none is configured"
        hint = "username: and password: env:NAME of the cluster, or ?username=… and CASSANDRA_PASSWORD"
        return ConfigurationError(msg, hint=hint)
    who = f"user {address.settings.username!r}" if address.settings.username else "these AWS credentials"
    msg = f"{address.name} refuses the login of {who}: {_reason(error, address)}"
    return ConfigurationError(msg, hint="check the user's name, and the password that password: points at")


def _failed_tls(address: ClusterAddress, error: BaseException) -> ConfigurationError:
    # The driver hands on only the words of what OpenSSL said.
    text = _reason(error, address)
    if any(words in text for words in _WRONG_NAME):
        msg = f"the certificate of {address.name} is that of another host: {text}"
        hint = (
            "name hosts: as the certificate does, or the one name that all nodes share as tls: {server_name: NAME}; "
            "tls: {check_host_name: false} takes any"
        )
        return ConfigurationError(msg, hint=hint)
    if _UNTRUSTED in text:
        msg = f"the certificate of {address.name} is not trusted: {text}"
        return ConfigurationError(msg, hint="tls: {ca: FILE} with the certificate that signed it")
    msg = f"{address.name} cannot be spoken to with TLS: {text}"
    return ConfigurationError(msg, hint="check whether the cluster encrypts this port at all, and tls: of the cluster")


def _unreachable(error: Exception, address: ClusterAddress) -> RetriableError:
    msg = f"no node of {address.name} answers at {_places(address)}: {_reason(error, address)}"
    encrypted = address.settings.tls is not None or address.settings.keyspaces is not None
    also = "whether it wants TLS (tls: {})" if not encrypted else "the certificates"
    return RetriableError(msg, hint=f"check hosts and port, whether the cluster is up, the firewall, and {also}")


def _places(address: ClusterAddress) -> str:
    hosts, port = keyspaces.hosts_and_port(address.settings)
    return ", ".join(f"{host}:{port}" for host in hosts)


def _reason(error: BaseException, address: ClusterAddress) -> str:
    """Say the driver's reason, in which no server could have put the password back."""
    each = [*dict.fromkeys(told(one) for one in errors_of(error))]
    text = "; ".join(each) or told(error)
    return text.replace(address.password, "…") if address.password else text


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Go through an error, those of each node, and what led to them."""
    if error is None:
        return
    yield error
    for one in errors_of(error):
        yield from _causes(one)
    yield from _causes(error.__cause__ or error.__context__)
