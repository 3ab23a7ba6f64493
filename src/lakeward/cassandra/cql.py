"""CQL names and types, as commands accept them and as ``system_schema`` holds them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NoReturn

from lakeward.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
        """Parse ``[CLUSTER/]KEYSPACE.TABLE``; names with special characters are quoted as in CQL.

        Raises:
            ConfigurationError: it is not such an address.
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
    """Return a name as CQL takes it: in quotes, so that case and reserved words do not matter."""
    return '"' + name.replace('"', '""') + '"'


def unquote(inside: str | None, bare: str | None) -> str:
    """Return a name from its quoted or its bare form."""
    return inside.replace('""', '"') if inside is not None else str(bare)


NATIVE = frozenset(
    {
        *("tinyint", "smallint", "int", "bigint", "counter", "varint", "decimal", "float", "double", "boolean"),
        *("text", "ascii", "blob", "inet", "uuid", "timeuuid", "date", "time", "timestamp", "duration"),
    }
)
COLLECTIONS = {"list": 1, "set": 1, "map": 2}
UDT = "udt"
# Types with parameters in angle brackets. Cassandra accepts these words as names of user-defined types as well.
_WITH_PARAMETERS = frozenset({*COLLECTIONS, "tuple", "vector", "frozen"})

_TOKEN = re.compile(r"""\s*(?:"((?:[^"]|"")+)"|'([^']*)'|([A-Za-z0-9_]+)|([<>,]))""")
_BARE_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")


@dataclass(frozen=True)
class CqlType:
    """A native type, or one with parameters. The ``name`` of every user-defined type is ``udt``.

    ``frozen`` is set only for collections, tuples and user-defined types; it is true for all that are nested in another
    type, and for every tuple, whether or not the text contains it.
    """

    name: str
    parameters: tuple[CqlType, ...] = ()
    frozen: bool = False
    udt: str | None = None
    fields: tuple[str, ...] = ()
    dimension: int | None = None

    @property
    def cql(self) -> str:
        """The type as CQL and ``system_schema`` write it."""
        if self.name == UDT:
            text = _type_name(str(self.udt))
        elif self.name == "vector":
            text = f"vector<{self.parameters[0].cql}, {self.dimension}>"
        elif self.parameters:
            text = f"{self.name}<{', '.join(parameter.cql for parameter in self.parameters)}>"
        else:
            text = self.name
        return f"frozen<{text}>" if self.frozen else text

    @property
    def is_collection(self) -> bool:
        """Whether this is a list, a set or a map."""
        return self.name in COLLECTIONS

    @property
    def is_multi_cell(self) -> bool:
        """Whether Cassandra stores the parts of a value separately, each with its own write time."""
        return not self.frozen and (self.is_collection or self.name == UDT)

    @property
    def is_counter(self) -> bool:
        """Whether this is a counter, which can be added to but not set."""
        return self.name == "counter"

    def holds(self, names: frozenset[str]) -> bool:
        """Whether this type is, or has anywhere inside, one of ``names``."""
        return self.name in names or any(parameter.holds(names) for parameter in self.parameters)


def parse_cql_type(text: str, udts: Mapping[str, Sequence[tuple[str, str]]]) -> CqlType:
    """Parse a type as ``system_schema`` writes it.

    Args:
        text: the type.
        udts: fields of the keyspace's user-defined types: names and types of each.

    Raises:
        ConfigurationError: the text is not a type, or an unknown one, such as a Java class of the server.
    """
    reader = _TypeParser(text, udts)
    found = reader.type()
    reader.expect_end()
    return found


class _TypeParser:
    """A parser of one type."""

    def __init__(self, text: str, udts: Mapping[str, Sequence[tuple[str, str]]]) -> None:
        self.text, self.udts, self.position = text, udts, 0

    def type(self, *, nested: bool = False) -> CqlType:
        name, is_quoted = self._name()
        is_own = is_quoted or (name in _WITH_PARAMETERS and name in self.udts and not self._has_next("<"))
        if name == "frozen" and not is_own:
            self._expect("<")
            inner = self.type(nested=nested)
            self._expect(">")
            return _frozen(inner)
        found = self._user_type(name) if is_own else self._known(name)
        return _frozen(found) if nested else found

    def expect_end(self) -> None:
        if self.text[self.position :].strip():
            self._refuse("unexpected text at its end")

    def _known(self, name: str) -> CqlType:
        if name == "varchar":
            return CqlType("text")
        if name in NATIVE:
            return CqlType(name)
        if name in COLLECTIONS:
            return CqlType(name, self._parameters(COLLECTIONS[name]))
        if name == "tuple":
            return CqlType(name, self._parameters(None), frozen=True)
        if name == "vector":
            return self._vector()
        return self._user_type(name)

    def _parameters(self, count: int | None) -> tuple[CqlType, ...]:
        self._expect("<")
        found = [self.type(nested=True)]
        while self._accept(","):
            found.append(self.type(nested=True))
        self._expect(">")
        if count is not None and len(found) != count:
            self._refuse(f"{len(found)} types instead of {count}")
        return tuple(found)

    def _vector(self) -> CqlType:
        self._expect("<")
        element = self.type(nested=True)
        self._expect(",")
        dimension, _ = self._name()
        self._expect(">")
        if not dimension.isdigit():
            self._refuse(f"{dimension!r} is not a dimension")
        return CqlType("vector", (element,), dimension=int(dimension))

    def _user_type(self, name: str) -> CqlType:
        fields = self.udts.get(name)
        if fields is None:
            self._refuse(f"there is no type {name!r}")
        inner = tuple(_frozen(parse_cql_type(text, self.udts)) for _, text in fields)
        return CqlType(UDT, inner, udt=name, fields=tuple(field for field, _ in fields))

    def _name(self) -> tuple[str, bool]:
        found = _TOKEN.match(self.text, self.position)
        if found is None or found.group(4):
            self._refuse("the name of a type is missing")
        self.position = found.end()
        inside, java_class, bare = found.group(1, 2, 3)
        if java_class is not None:
            self._refuse("it is a Java class of the server, not a CQL type")
        return (inside.replace('""', '"'), True) if inside is not None else (bare, False)

    def _has_next(self, sign: str) -> bool:
        found = _TOKEN.match(self.text, self.position)
        return found is not None and found.group(4) == sign

    def _accept(self, sign: str) -> bool:
        if not self._has_next(sign):
            return False
        self.position = self.text.index(sign, self.position) + 1
        return True

    def _expect(self, sign: str) -> None:
        if not self._accept(sign):
            self._refuse(f"{sign!r} is missing")

    def _refuse(self, what: str) -> NoReturn:
        msg = f"cannot read the type {self.text!r}: {what}"
        raise ConfigurationError(msg)


def _frozen(cql_type: CqlType) -> CqlType:
    """Return a type as frozen; vectors and plain types are returned as they are."""
    return replace(cql_type, frozen=True) if cql_type.is_multi_cell else cql_type


def _type_name(name: str) -> str:
    return name if _BARE_NAME.match(name) and name not in NATIVE | _WITH_PARAMETERS else quoted(name)
