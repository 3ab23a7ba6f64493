"""The columns and keys of a table, as ``system_schema`` and the manifests of exports hold them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self

from lakeward.cassandra.cql import CqlType, TableName, parse_cql_type, quoted
from lakeward.cassandra.retry import call_again
from lakeward.cassandra.values import widens
from lakeward.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class ColumnKind(StrEnum):
    """The kind of a column, as ``system_schema`` names it."""

    PARTITION_KEY = "partition_key"
    CLUSTERING = "clustering"
    STATIC = "static"
    REGULAR = "regular"

    @property
    def is_key(self) -> bool:
        """Whether the column belongs to the primary key."""
        return self in (ColumnKind.PARTITION_KEY, ColumnKind.CLUSTERING)


_ORDER = list(ColumnKind)


@dataclass(frozen=True)
class CqlColumn:
    """A column of a table; ``position`` is its place in the partition key or among the clustering columns."""

    name: str
    type: CqlType
    kind: ColumnKind
    position: int
    descending: bool = False

    @property
    def cql(self) -> str:
        """The name as CQL takes it."""
        return quoted(self.name)


@dataclass(frozen=True)
class TableSchema:
    """A table: its columns, keys first and in order, then static and regular ones, by name."""

    name: TableName
    columns: tuple[CqlColumn, ...]
    udts: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict, hash=False)

    @property
    def partition_key(self) -> tuple[CqlColumn, ...]:
        """The columns of the partition key."""
        return self._of(ColumnKind.PARTITION_KEY)

    @property
    def clustering(self) -> tuple[CqlColumn, ...]:
        """The columns that order and identify the rows of a partition."""
        return self._of(ColumnKind.CLUSTERING)

    @property
    def statics(self) -> tuple[CqlColumn, ...]:
        """The columns with one value per partition."""
        return self._of(ColumnKind.STATIC)

    @property
    def regulars(self) -> tuple[CqlColumn, ...]:
        """The columns with a value per row."""
        return self._of(ColumnKind.REGULAR)

    @property
    def values(self) -> tuple[CqlColumn, ...]:
        """The static and the regular columns."""
        return tuple(column for column in self.columns if not column.kind.is_key)

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The names of partition key and clustering columns."""
        return tuple(column.name for column in self.columns if column.kind.is_key)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all columns."""
        return tuple(column.name for column in self.columns)

    @property
    def has_counters(self) -> bool:
        """Whether this is a table of counters."""
        return any(column.type.is_counter for column in self.columns)

    def column(self, name: str) -> CqlColumn:
        """Return a column by its name.

        Raises:
            KeyError: there is none of that name.
        """
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as manifests hold it."""
        return {
            "keyspace": self.name.keyspace,
            "table": self.name.table,
            "columns": [
                {
                    "name": column.name,
                    "type": column.type.cql,
                    "kind": str(column.kind),
                    "position": column.position,
                    "descending": column.descending,
                }
                for column in self.columns
            ],
            "udts": {name: [list(field) for field in fields] for name, fields in self.udts.items()},
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """Return the schema that :meth:`to_dict` wrote."""
        udts = {name: tuple((field, text) for field, text in fields) for name, fields in document["udts"].items()}
        columns = tuple(
            CqlColumn(
                column["name"],
                parse_cql_type(column["type"], udts),
                ColumnKind(column["kind"]),
                column["position"],
                column["descending"],
            )
            for column in document["columns"]
        )
        return cls(TableName(document["keyspace"], document["table"]), columns, udts)

    def create_statements(self, target: TableName) -> list[str]:
        """Return the statements that create the same table elsewhere, after the types that it needs."""
        types = [
            f"CREATE TYPE IF NOT EXISTS {quoted(target.keyspace)}.{quoted(name)} ("
            + ", ".join(f"{quoted(field)} {text}" for field, text in self.udts[name])
            + ")"
            for name in self.used_types()
        ]
        return [*types, f"CREATE TABLE IF NOT EXISTS {target.cql} ({self._definitions()}){self._clustering_order()}"]

    def _of(self, kind: ColumnKind) -> tuple[CqlColumn, ...]:
        return tuple(column for column in self.columns if column.kind == kind)

    def _definitions(self) -> str:
        lines = [
            f"{column.cql} {column.type.cql}{' STATIC' if column.kind == ColumnKind.STATIC else ''}"
            for column in self.columns
        ]
        partition = ", ".join(column.cql for column in self.partition_key)
        key = ", ".join([f"({partition})", *(column.cql for column in self.clustering)])
        return ", ".join([*lines, f"PRIMARY KEY ({key})"])

    def _clustering_order(self) -> str:
        if not any(column.descending for column in self.clustering):
            return ""
        orders = ", ".join(f"{column.cql} {'DESC' if column.descending else 'ASC'}" for column in self.clustering)
        return f" WITH CLUSTERING ORDER BY ({orders})"

    def used_types(self) -> list[str]:
        """Return the user-defined types of the columns, each after those that it contains."""
        found: dict[str, None] = {}

        def add(cql_type: CqlType) -> None:
            for inner in cql_type.parameters:
                add(inner)
            if cql_type.udt is not None:
                found.setdefault(cql_type.udt)

        for column in self.columns:
            add(column.type)
        return list(found)


def read_table_schema(session: Any, name: TableName, columns: Sequence[str] = ()) -> TableSchema:
    """Read the schema of a table, or of a materialised view, from the cluster.

    Args:
        session: of the cluster.
        name: the table.
        columns: those that matter besides the key, none meaning all; others are left out if their types are not known.

    Raises:
        ConfigurationError: there is no such keyspace or table, or a column has a type that is not one of CQL's.
    """
    found = _rows(
        session,
        "SELECT column_name, type, kind, position, clustering_order FROM system_schema.columns "
        "WHERE keyspace_name = %s AND table_name = %s",
        name.keyspace,
        name.table,
    )
    if not found:
        raise _absent(session, name)
    types = _rows(
        session,
        "SELECT type_name, field_names, field_types FROM system_schema.types WHERE keyspace_name = %s",
        name.keyspace,
    )
    udts = {udt: tuple(zip(names, texts, strict=True)) for udt, names, texts in types}
    known = [
        CqlColumn(column, cql, ColumnKind(kind), position, order == "desc")
        for column, text, kind, position, order in found
        if (cql := _known_type(f"{name}.{column}", text, udts, ColumnKind(kind), not columns or column in columns))
    ]
    known.sort(key=lambda column: (_ORDER.index(column.kind), column.position, column.name))
    table = TableSchema(name, tuple(known), udts)
    return replace(table, udts={udt: udts[udt] for udt in table.used_types()})


def _known_type(
    where: str, text: str, udts: Mapping[str, Sequence[tuple[str, str]]], kind: ColumnKind, is_wanted: bool
) -> CqlType | None:
    """Return the type of a column; None where it is unknown and not requested."""
    try:
        return parse_cql_type(text, udts)
    except ConfigurationError as error:
        if not kind.is_key and not is_wanted:
            return None
        msg = f"the column {where}: {error.message}"
        hint = "tables with such a key cannot be copied" if kind.is_key else "an export can leave it out: --columns …"
        raise ConfigurationError(msg, hint=hint) from error


def _absent(session: Any, name: TableName) -> ConfigurationError:
    keyspaces = [row[0] for row in _rows(session, "SELECT keyspace_name FROM system_schema.keyspaces")]
    if name.keyspace not in keyspaces:
        near = get_close_matches(name.keyspace, keyspaces)
        return ConfigurationError(f"the cluster has no keyspace {name.keyspace!r}", hint=_did_you_mean(near))
    asked = "SELECT {0}_name FROM system_schema.{0}s WHERE keyspace_name = %s"
    tables = [row[0] for kind in ("table", "view") for row in _rows(session, asked.format(kind), name.keyspace)]
    near = [str(TableName(name.keyspace, near_table)) for near_table in get_close_matches(name.table, tables)]
    return ConfigurationError(f"the keyspace {name.keyspace!r} has no table {name.table!r}", hint=_did_you_mean(near))


def _rows(session: Any, query: str, *values: str) -> list[Any]:
    return call_again(lambda: list(session.execute(query, values)), what="reading the schema")


def _did_you_mean(near: Sequence[str]) -> str | None:
    return " or ".join(near) or None


def differences(source: TableSchema, target: TableSchema, columns: Sequence[str] | None = None) -> list[str]:
    """Return the reasons why rows of one table do not fit another; empty if they fit.

    They fit if the key has the same columns and every other column exists, of the same kind, with a type that holds all
    its values. Further columns of the target and another clustering order do not matter.

    Args:
        source: where the rows are from.
        target: where they are to go.
        columns: those that the rows have besides the key; default all.
    """
    found = [
        f"the {what} is ({', '.join(theirs)}), but that of the rows is ({', '.join(ours)})"
        for what, ours, theirs in (
            ("partition key", _names(source.partition_key), _names(target.partition_key)),
            ("clustering", _names(source.clustering), _names(target.clustering)),
        )
        if ours != theirs
    ]
    there = {column.name: column for column in target.columns}
    for column in source.columns:
        if column.kind.is_key or columns is None or column.name in columns:
            found += _difference(column, there.get(column.name))
    return found


def _names(columns: Sequence[CqlColumn]) -> list[str]:
    return [column.name for column in columns]


def _difference(column: CqlColumn, there: CqlColumn | None) -> list[str]:
    if there is None:
        return [f"the column {column.name!r} ({column.type.cql}) is missing"]
    if column.kind != there.kind and not (column.kind.is_key or there.kind.is_key):
        return [f"the column {column.name!r} is {there.kind}, but that of the rows is {column.kind}"]
    if not widens(column.type, there.type):
        return [f"the column {column.name!r} is {there.type.cql}, which does not hold every {column.type.cql}"]
    return []
