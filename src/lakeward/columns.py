"""Columns: their types, the DDL that declares them, which type changes are safe, and which names are allowed.

A type is its canonical text (``int``, ``decimal(10,2)`` …). Declared types that Iceberg does not have keep their own
name while values are checked (a ``smallint`` of 70000 is a bad value) and are stored in the next wider type, see
:func:`lake_type`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


SIMPLE_TYPES = frozenset(
    {
        "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary",
        "date", "time", "timestamp", "timestamp_ntz",
        "utinyint", "usmallint", "uint", "ubigint",
    }
)  # fmt: skip
_ALIASES = {
    "bool": "boolean", "byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint",
    "real": "float", "text": "string", "bytes": "binary", "blob": "binary",
    "datetime": "timestamp_ntz", "timestamp_ltz": "timestamp", "int unsigned": "uint",
    "bigint unsigned": "ubigint", "smallint unsigned": "usmallint", "tinyint unsigned": "utinyint",
}  # fmt: skip
# Iceberg has no 8 and 16 bit integers, no unsigned ones and (for Spark) no time of day.
_STORED_AS = {
    "tinyint": "int", "smallint": "int", "utinyint": "int", "usmallint": "int",
    "uint": "bigint", "ubigint": "decimal(20,0)", "time": "string",
}  # fmt: skip
TIMESTAMPS = frozenset({"timestamp", "timestamp_ntz"})
_DECIMAL = re.compile(r"^(?:decimal|numeric)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)$")
_SIZED_TEXT = re.compile(r"^(?:var)?char\s*\(\s*\d+\s*\)$")
MAX_PRECISION = 38


@dataclass(frozen=True)
class Column:
    """A column of a source table: its name exactly as the source has it, and its type.

    ``source`` is the type at the source where the lake stores hashes of the values, see :mod:`lakeward.column_policy`.
    """

    name: str
    type: str
    source: str | None = None

    @property
    def lake_type(self) -> str:
        """The type the column has in the lake."""
        return lake_type(self.type)


def parse_type(text: str) -> str:
    """Return a type's canonical text.

    Raises:
        ConfigurationError: the type is unknown; the message lists the known ones.
    """
    lowered = " ".join(text.strip().lower().split())
    if lowered in SIMPLE_TYPES:
        return lowered
    if lowered in _ALIASES:
        return _ALIASES[lowered]
    if _SIZED_TEXT.match(lowered):
        return "string"
    if lowered in ("decimal", "numeric"):
        return "decimal(10,0)"
    if match := _DECIMAL.match(lowered):
        precision, scale = int(match[1]), int(match[2] or 0)
        if 1 <= precision <= MAX_PRECISION and scale <= precision:
            return f"decimal({precision},{scale})"
    msg = f"unknown column type {text!r}; known: {', '.join(sorted(SIMPLE_TYPES))}, decimal(p,s), varchar(n)"
    raise ConfigurationError(msg)


def lake_type(column_type: str) -> str:
    """Return the type in which the lake stores values of ``column_type``."""
    return _STORED_AS.get(column_type, column_type)


def decimal_parts(column_type: str) -> tuple[int, int] | None:
    """Return (precision, scale) of a decimal type, None for any other."""
    match = _DECIMAL.match(column_type)
    return (int(match[1]), int(match[2] or 0)) if match else None


def fits_type(found: str, wanted: str) -> bool:
    """Whether values of lake type ``found`` are read as ``wanted`` without loss: it widens, or both are timestamps."""
    return can_widen(found, wanted) or (found in TIMESTAMPS and wanted in TIMESTAMPS)


def can_widen(narrow: str, wide: str) -> bool:
    """Whether every value of lake type ``narrow`` fits ``wide`` and Iceberg can promote the column in place."""
    if narrow == wide or (narrow, wide) in {("int", "bigint"), ("float", "double")}:
        return True
    small, large = decimal_parts(narrow), decimal_parts(wide)
    return bool(small and large and small[1] == large[1] and small[0] <= large[0])


def parse_ddl(ddl: str) -> tuple[Column, ...]:
    """Read ``"id int, `odd name` decimal(10,2)"`` into columns."""
    columns = tuple(_parse_column(part) for part in _split_top_level(ddl))
    if not columns:
        msg = "the schema is empty; expected something like 'id int, name string'"
        raise ConfigurationError(msg)
    names = [column.name for column in columns]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        msg = f"the schema names a column more than once: {', '.join(repeated)}"
        raise ConfigurationError(msg)
    return columns


def format_ddl(columns: tuple[Column, ...]) -> str:
    """Write columns as DDL that :func:`parse_ddl` reads back."""
    return ", ".join(f"{quote_name(column.name)} {column.type}" for column in columns)


def format_plain_ddl(columns: Iterable[Column]) -> str:
    """Write columns as DDL that :func:`parse_ddl` reads back, with quotes only around names that need them."""
    return ", ".join(
        f"{column.name if _PLAIN.fullmatch(column.name) else quote_name(column.name)} {column.type}"
        for column in columns
    )


def quote_name(name: str) -> str:
    """Quote an identifier for Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


def _parse_column(part: str) -> Column:
    if match := re.match(r"^`((?:[^`]|``)+)`\s+(.+)$", part, re.DOTALL):
        return Column(match[1].replace("``", "`"), parse_type(match[2]))
    if match := re.match(r"^([^\s`]+)\s+(.+)$", part, re.DOTALL):
        return Column(match[1], parse_type(match[2]))
    msg = f"cannot read the column {part!r}; expected a name and a type, names with blanks in `backquotes`"
    raise ConfigurationError(msg)


def _split_top_level(ddl: str) -> Iterator[str]:
    """Split at commas that are neither inside parentheses nor inside backquotes."""
    depth, quoted, start = 0, False, 0
    for position, character in enumerate(ddl):
        if character == "`":
            quoted = not quoted
        elif not quoted and character in "()":
            depth += 1 if character == "(" else -1
        elif not quoted and depth == 0 and character == ",":
            yield ddl[start:position].strip()
            start = position + 1
    if rest := ddl[start:].strip():
        yield rest


# Names that columns can have in the lake, and replacements for those that they cannot.
# A table with any other name would be written without an error and could not be read afterwards: Spark, Glue and Trino
# do not distinguish upper and lower case, and Iceberg refuses to scan a table with a column named like one of its own.


# Prefix of Lakeward's own columns, which the changelog has beside the source's.
OWN_PREFIX = "_lw_"
# Iceberg adds these columns to every scan: a table that has such a column itself cannot be read.
UNREADABLE_NAMES = frozenset(
    {"_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"}
)
# The other names of Iceberg's MetadataColumns, which only its views of changes add.
_VIEW_NAMES = frozenset({"_change_type", "_change_ordinal", "_commit_snapshot_id"})
ICEBERG_NAMES = UNREADABLE_NAMES | _VIEW_NAMES

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_YAML_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})


@dataclass(frozen=True)
class NameProblem:
    """A name that a column of the lake cannot have, the reason, and a free name.

    ``twin`` is the column from which it differs only in case; None where that is not the reason.
    """

    name: str
    reason: str
    proposal: str
    twin: str | None = None


def name_problems(names: Sequence[str], present: Iterable[str] = ()) -> list[NameProblem]:
    """Return the names that cannot be used, in their order.

    ``present`` are columns that a table of the lake has already: only those of them that cannot be read are problems.
    """
    kept = set(present)
    taken = {name.lower() for name in names}
    first: dict[str, str] = {}
    problems = []
    for name in sorted(names, key=lambda name: name not in kept):  # of two twins the one already in the table stays
        reason = _reason(name, first.get(name.lower()), is_present=name in kept)
        if reason is not None:
            proposal = _free_name(name, taken)
            taken.add(proposal.lower())
            problems.append(NameProblem(name, reason, proposal, first.get(name.lower())))
        first.setdefault(name.lower(), name)
    return sorted(problems, key=lambda problem: names.index(problem.name))


def describe_problems(problems: Sequence[NameProblem]) -> str:
    """Describe names that cannot be used, for a message."""
    return "; ".join(f"column {problem.name!r} {problem.reason}" for problem in problems)


def renames_for(problems: Sequence[NameProblem], renames: Mapping[str, str]) -> str:
    """Return a value of the setting ``renames`` that also solves the problems, as YAML on one line."""
    proposals = {problem.name: problem.proposal for problem in problems}
    # A name that comes from a rename is not renamed again: the column gets its final name directly.
    merged = {**{old: proposals.get(new, new) for old, new in renames.items()}, **proposals}
    pairs = ", ".join(f"{_yaml(old)}: {_yaml(new)}" for old, new in merged.items())
    return f"{{{pairs}}}"


def _yaml(name: str) -> str:
    """Quote a name unless it is plain in YAML; quotes are the same in JSON and YAML."""
    is_plain = _PLAIN.fullmatch(name) and name.lower() not in _YAML_WORDS
    return name if is_plain else json.dumps(name, ensure_ascii=False)


def _reason(name: str, twin: str | None, *, is_present: bool) -> str | None:
    lowered = name.lower()
    if not name:
        return "has no name"
    if name in UNREADABLE_NAMES or (lowered in ICEBERG_NAMES and not is_present):
        return "is the name of one of Iceberg's own columns"
    if lowered.startswith(OWN_PREFIX) and not is_present:
        return f"starts with {OWN_PREFIX}, as only Lakeward's own columns do"
    if twin is not None:
        return f"differs only in case from {twin!r}"
    return None


def _free_name(name: str, taken: set[str]) -> str:
    """Return a name similar to ``name`` that no column has in upper or lower case."""
    is_own = name.lower().startswith(OWN_PREFIX)
    bare = name[len(OWN_PREFIX) :] if is_own else name
    bare = bare.lstrip("_") or "column"
    candidates = [bare, *(f"{bare}_{number}" for number in range(2, len(taken) + 3))]
    return next(candidate for candidate in candidates if candidate.lower() not in taken)
