"""Names of keyspaces, tables and columns, as commands take them and as CQL writes them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lakeward.errors import ConfigurationError

# A part of an address: quoted as in CQL, or bare. Bare names keep their case: they are looked up as they are.
_PART = r'(?:"((?:[^"]|"")+)"|([^".\s/]+))'
_ADDRESS = re.compile(rf"(?:(?P<cluster>[^/\".\s]+)/)?{_PART}\.{_PART}\Z")


@dataclass(frozen=True, order=True)
class TableName:
    """A table of a cluster, by the names that ``system_schema`` has."""

    keyspace: str
    table: str

    @property
    def cql(self) -> str:
        """The name as CQL takes it."""
        return f"{quoted(self.keyspace)}.{quoted(self.table)}"

    def __str__(self) -> str:
        return f"{self.keyspace}.{self.table}"


@dataclass(frozen=True)
class TableAddress:
    """A table, and the cluster it is in where the address names one."""

    cluster: str | None
    name: TableName

    @classmethod
    def parse(cls, text: str) -> TableAddress:
        """Read ``[CLUSTER/]KEYSPACE.TABLE``; names with other characters than usual are quoted as in CQL.

        Raises:
            ConfigurationError: it is no such address.
        """
        found = _ADDRESS.match(text)
        if found is None:
            msg = f"{text!r} does not name a table; expected KEYSPACE.TABLE or CLUSTER/KEYSPACE.TABLE"
            raise ConfigurationError(msg, hint='quote names as in CQL: \'prod/"Sales"."Orders 2026"\'')
        cluster, *parts = found.groups()
        keyspace, table = (unquote(parts[at], parts[at + 1]) for at in (0, 2))
        return cls(cluster, TableName(keyspace, table))

    def __str__(self) -> str:
        return f"{self.cluster}/{self.name}" if self.cluster else str(self.name)


def quoted(name: str) -> str:
    """Give a name as CQL takes it: in quotes, so that case and reserved words do not matter."""
    return '"' + name.replace('"', '""') + '"'


def unquote(inside: str | None, bare: str | None) -> str:
    """Give a name from what stood in quotes, or without."""
    return inside.replace('""', '"') if inside is not None else str(bare)
