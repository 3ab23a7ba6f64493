"""The nodes of a cluster by the names that their certificates hold.

The driver uses addresses once it has resolved names, and would check a certificate against the address.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from cassandra.connection import DefaultEndPoint, DefaultEndPointFactory

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cassandra.connection import EndPoint


class NamedEndPoint(DefaultEndPoint):  # type: ignore[misc]
    """A node whose certificate must contain a name."""

    def __init__(self, address: str, port: int, name: str) -> None:
        super().__init__(address, port)
        self.ssl_name = name

    @property
    def ssl_options(self) -> dict[str, str]:
        """The options of an encrypted connection."""
        return {"server_hostname": self.ssl_name}


class NamedEndPoints(DefaultEndPointFactory):  # type: ignore[misc]
    """A factory of nodes: those that are configured by a name keep it."""

    def __init__(self, port: int, names: Mapping[str, str]) -> None:
        super().__init__(port)
        self._names = names

    def create(self, row: Mapping[str, object]) -> EndPoint:
        """Return the node of a row of ``system.peers``."""
        found = super().create(row)
        return self.named(found.address, found.port)

    def named(self, address: str, port: int) -> EndPoint:
        """Return the node of an address."""
        return NamedEndPoint(address, port, self._names.get(address, address))


def names_of(hosts: Iterable[str], port: int) -> dict[str, str]:
    """Return the configured name of each address; names that cannot be resolved are left out."""
    found: dict[str, str] = {}
    for host in hosts:
        try:
            answers = socket.getaddrinfo(host, port, socket.AF_UNSPEC, socket.SOCK_STREAM)
        except socket.gaierror:
            continue
        for *_, place in answers:
            found.setdefault(str(place[0]), host)
    return found
