"""The tables of a Spark CDC snapshot generator, from its file ``core/sources.py``, as proposals.

The file is Python with a dictionary ``cdc`` of tables. It is parsed and never executed: what is not a plain value is
named with its line, and its table is in doubt.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakeward.columns import Column, format_plain_ddl, parse_type
from lakeward.documents import Document
from lakeward.errors import ConfigurationError, LakewardError
from lakeward.model import TableId
from lakeward.runner.proposals import PartitionCandidate, Proposal
from lakeward.runner.walkthrough import folder_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward.config import Config

# The commit time's column, as the generator requires it of DMS.
COMMIT_TIME = "cdc_timestamp"
_TABLES = "cdc"
_KEYS = ("path", "primary_keys", "partition_date", "cdc_start_date", "schema")
_TYPES = {
    "byte": "int", "short": "int", "integer": "int", "int": "int", "long": "bigint", "bigint": "bigint",
    "float": "float", "double": "double", "string": "string", "boolean": "boolean", "date": "date",
    "timestamp": "timestamp", "timestampntz": "timestamp_ntz", "timestamp_ntz": "timestamp_ntz", "binary": "binary",
}  # fmt: skip


@dataclass(frozen=True)
class GeneratorTables(Document):
    """The tables of the file, by name, as proposals; ``problems`` concern the file as a whole, each with its line."""

    file: str
    tables: dict[str, Proposal] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


class _NotPlainError(Exception):
    """A construct that would have to be executed."""

    def __init__(self, node: ast.AST, expected: str) -> None:
        line, shown = getattr(node, "lineno", 0), " ".join(ast.unparse(node).split())
        super().__init__(f"line {line}: {shown[:80]!r} is not understood; expected {expected}")


def read_generator(file: str | Path, config: Config) -> GeneratorTables:
    """Return the tables that the file names.

    Raises:
        ConfigurationError: it cannot be read, is not Python, or has no dictionary ``cdc``.
    """
    try:
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        msg = f"cannot read {file}: {error.strerror or error}"
        raise ConfigurationError(msg) from error
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        msg = f"{file} is not valid Python: {error}"
        raise ConfigurationError(msg, hint="name the generator's core/sources.py") from error
    reading = _Reading(config)
    reading.read(_dictionary(tree, str(file)))
    reading.problems += [f"line {line}: {_TABLES} is changed after it is set" for line in _changes(tree)]
    return GeneratorTables(str(file), reading.tables, tuple(reading.problems))


def _dictionary(tree: ast.Module, file: str) -> ast.Dict:
    found = [value for name, value in _assignments(tree) if name == _TABLES]
    if not found or not isinstance(found[-1], ast.Dict):
        what = "no dictionary" if not found else f"on line {found[-1].lineno} something else than a dictionary"
        msg = f"{file} has {what} named {_TABLES}"
        raise ConfigurationError(msg, hint="name the generator's core/sources.py")
    return found[-1]


def _assignments(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for node in tree.body:
        if isinstance(node, ast.Assign):
            yield from ((target.id, node.value) for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            yield node.target.id, node.value


def _changes(tree: ast.Module) -> Iterator[int]:
    """Yield the lines of statements that use the dictionary after it was set: they may change it."""
    seen = False
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        is_set = any(isinstance(target, ast.Name) and target.id == _TABLES for target in targets)
        if is_set and isinstance(node, ast.Assign | ast.AnnAssign):
            if seen:
                yield node.lineno
            seen = True
        elif any(isinstance(inner, ast.Name) and inner.id == _TABLES for inner in ast.walk(node)):
            yield node.lineno


class _Reading:
    """The reading of one file."""

    def __init__(self, config: Config) -> None:
        self.tables: dict[str, Proposal] = {}
        self.problems: list[str] = []
        self._config = config

    def read(self, tables: ast.Dict) -> None:
        """Read all entries; one that cannot be read concerns no other."""
        for key, value in zip(tables.keys, tables.values, strict=True):
            try:
                self._read(key, value)
            except _NotPlainError as error:
                self.problems.append(str(error))

    def _read(self, key: ast.expr | None, value: ast.expr) -> None:
        name = _text(key if key is not None else value, "the name of a table")
        if not isinstance(value, ast.Dict):
            raise _NotPlainError(value, "a dictionary of a table's settings")
        table = _Table(name, value.lineno)
        for inner, content in zip(value.keys, value.values, strict=True):
            try:
                table.take(_text(inner if inner is not None else content, "the name of a setting"), content)
            except _NotPlainError as error:
                table.doubts.append(str(error))
        found = table.identified(self._config.landing)
        if found is None:
            self.problems += [f"{name}: {doubt}" for doubt in table.doubts]
        elif found in self.tables:
            self.problems.append(f"line {value.lineno}: {name} is the table {found}, which another entry is, too")
        else:
            self.tables[found] = table.proposal()


class _Table:
    """One entry of the dictionary."""

    def __init__(self, name: str, line: int) -> None:
        self._name, self._line = name, line
        self._found: dict[str, Any] = {}
        self._folder: str | None = None
        self.doubts: list[str] = []

    def take(self, key: str, value: ast.expr) -> None:
        """Take a setting over."""
        if key == "path":
            self._found[key] = _text(value, "a path such as s3://bucket/schema/table/")
        elif key == "primary_keys":
            self._found[key] = _texts(value)
        elif key == "partition_date":
            self._found[key] = None if _is_none(value) else _text(value, "the name of a column")
        elif key == "cdc_start_date":
            self._found[key] = _date(value)
        elif key == "schema":
            self._found[key] = tuple(_columns(value))
        else:
            raise _NotPlainError(value, f"one of the settings {', '.join(_KEYS)}, and found {key!r}")

    def identified(self, landing: str) -> str | None:
        """Return the table's name by its path, None where it has none; the folder is noted if it is another one."""
        path = self._found.get("path")
        if path is None:
            self.doubts.append(f"line {self._line}: it has no path")
            return None
        try:
            folder = folder_of(path.split("://")[-1], path.split("://")[-1].split("/")[0], landing)
            if len(folder) < 2:
                msg = f"{path} does not end in schema/table"
                raise ConfigurationError(msg)
            table = TableId(folder[-2], folder[-1])
            table.require_usable()
        except LakewardError as error:
            self.doubts.append(f"line {self._line}: {error.message}")
            return None
        self._folder = "/".join(folder) if len(folder) > 2 else None
        return str(table)

    def proposal(self) -> Proposal:
        """Return the settings with their evidence and doubts."""
        found, day = self._found, self._found.get("cdc_start_date")
        columns: tuple[Column, ...] = found.get("schema", ())
        doubts = [*self.doubts, *self._missing(columns)]
        evidence = {name: f"{key} of {self._name}" for name, key in _EVIDENCE.items()}
        evidence["timestamp_column"] = "the generator requires DMS to write it"
        by_date = found.get("partition_date")
        note = f"partition_date: snapshots by date are made by snapshot create --layout dated --date-column {by_date}"
        return Proposal(
            primary_key=tuple(found.get("primary_keys", ())),
            timestamp_column=COMMIT_TIME,
            schema=format_plain_ddl(columns) if columns else None,
            partition_candidates=(PartitionCandidate(f"months({by_date})", note),) if by_date else (),
            evidence=evidence,
            doubts=tuple(doubts),
            needs_schema=True,
            path=self._folder,
            cdc_start=day.isoformat() if day else None,
        )

    def _missing(self, columns: tuple[Column, ...]) -> Iterator[str]:
        names = {column.name for column in columns}
        unread = len([doubt for doubt in self.doubts if doubt.startswith("line ")])
        if "primary_keys" not in self._found and not unread:
            yield f"line {self._line}: it has no primary_keys"
        if not columns and not unread:
            yield f"line {self._line}: it has no schema"
        if columns and (strange := [key for key in self._found.get("primary_keys", ()) if key not in names]):
            yield f"line {self._line}: primary_keys names {', '.join(strange)}, which its schema does not have"


_EVIDENCE = {"primary_key": "primary_keys", "schema": "schema", "cdc_start": "cdc_start_date", "path": "path"}


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _text(node: ast.expr, expected: str) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    raise _NotPlainError(node, expected)


def _texts(node: ast.expr) -> list[str]:
    if not isinstance(node, ast.List | ast.Tuple):
        raise _NotPlainError(node, "a list of the key's columns")
    return [_text(element, "the name of a column") for element in node.elts]


def _date(node: ast.expr) -> date:
    expected = "a day such as date(2020, 11, 13)"
    try:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return date.fromisoformat(node.value)
        if isinstance(node, ast.Call) and _called(node) in ("date", "datetime") and not node.keywords:
            parts = [part.value if isinstance(part, ast.Constant) else None for part in node.args]
            year, month, day = (part for part in parts if isinstance(part, int))
            if len(parts) == 3:
                return date(year, month, day)
    except ValueError as error:
        raise _NotPlainError(node, expected) from error
    raise _NotPlainError(node, expected)


def _called(node: ast.Call) -> str:
    """Return the last part of the name of what is called: ``T.StructType()`` calls StructType."""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def _columns(node: ast.expr) -> list[Column]:
    """Return the columns of ``StructType()`` with ``.add(…)`` calls, or of a list of ``StructField``s."""
    expected = "StructType().add('name', 'type')… or StructType([StructField('name', StringType()), …])"
    if not isinstance(node, ast.Call):
        raise _NotPlainError(node, expected)
    if _called(node) == "StructType":
        fields = node.args[0] if node.args else ast.List(elts=[])
        if not isinstance(fields, ast.List) or node.keywords:
            raise _NotPlainError(node, expected)
        return [_field(element) for element in fields.elts]
    if _called(node) == "add" and isinstance(node.func, ast.Attribute):
        return [*_columns(node.func.value), _column(node)]
    raise _NotPlainError(node, expected)


def _field(node: ast.expr) -> Column:
    if isinstance(node, ast.Call) and _called(node) == "StructField":
        return _column(node)
    raise _NotPlainError(node, "StructField('name', StringType())")


def _column(node: ast.Call) -> Column:
    expected = "the name of a column and its type"
    if len(node.args) < 2 or any(word.arg not in ("nullable", "metadata") for word in node.keywords):
        raise _NotPlainError(node, expected)
    return Column(_text(node.args[0], expected), _type(node.args[1]))


def _type(node: ast.expr) -> str:
    """Return the type of a column, from Spark's word for it or from its class."""
    expected = "a type that the lake has, as 'string' or StringType()"
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        word, sizes = node.value.strip().lower(), ""
        word = _TYPES.get(word, word)
    elif isinstance(node, ast.Call) and not node.keywords:
        word = _called(node).removesuffix("Type").lower()
        word, sizes = _TYPES.get(word, word), ",".join(ast.unparse(part) for part in node.args)
    else:
        raise _NotPlainError(node, expected)
    try:
        return parse_type(f"{word}({sizes})" if sizes else word)
    except ConfigurationError as error:
        raise _NotPlainError(node, expected) from error
