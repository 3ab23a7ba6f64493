"""Public names: every class of Lakeward that a public call takes or returns can be imported from the package."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from dataclasses import is_dataclass
from enum import Enum
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, ForwardRef, get_args, get_type_hints

import pytest

import lakeward

# What is not for users' own calls, and why: constructors of objects that only the library makes, and ways to adapters.
INTERNAL = {
    "History.__init__": "lake.history returns it",
    "Lakeward.storage": "watchers take the files of the landing from it",
    "LocalCassandra.__init__": "cassandra_demo_server returns it",
    "Points.__init__": "lake.points returns it",
    "Snapshots.__init__": "lake.snapshots returns it",
    "StateStore": "types of an adapter are in lakeward.state.base and lakeward.model, as docs/state.md says",
    "Watcher.__init__": "lake.watch returns it",
}


@cache
def names_of(module: str) -> dict[str, Any]:
    """Return a module's names with those that it imports for type checkers only."""
    found = dict(vars(import_module(module)))
    tree = ast.parse(Path(str(sys.modules[module].__file__)).read_text(encoding="utf-8"))
    for block in tree.body:
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING":
            for node in block.body:
                if isinstance(node, ast.ImportFrom):
                    for name in node.names:
                        found[name.asname or name.name] = imported(str(node.module), name.name)
                else:
                    exec(ast.unparse(node), found)
    return found


def imported(module: str, name: str) -> Any:
    source = import_module(module)
    return getattr(source, name) if hasattr(source, name) else names_of(module)[name]


def is_ours(item: Any) -> bool:
    return str(getattr(item, "__module__", "")).split(".")[0] == "lakeward"


def hints(item: Any) -> dict[str, Any]:
    """Return what the annotations of a function, or of a class's own body, mean."""
    if isinstance(item, type):
        own = {name: text for name, text in inspect.get_annotations(item).items() if not name.startswith("_")}
        return get_type_hints(type("Own", (), {"__annotations__": own}), names_of(item.__module__))
    return get_type_hints(item, names_of(item.__module__))


def classes_in(hint: Any) -> Iterator[type]:
    assert not isinstance(hint, str | ForwardRef), hint
    if isinstance(hint, list | tuple):
        parts = tuple(hint)
    else:
        parts = get_args(hint)
        if isinstance(hint, type) and not parts:
            yield hint
        if is_ours(getattr(hint, "__origin__", None)):
            yield hint.__origin__
    for part in parts:
        if not isinstance(part, str):
            yield from classes_in(part)


def functions_of(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield what a user calls of a class: its constructor, methods and properties."""
    for name, member in vars(kind).items():
        if not name.startswith("_") or name in ("__init__", "__call__", "__iter__", "__enter__"):
            function = getattr(member, "__func__", getattr(member, "fget", getattr(member, "func", member)))
            if inspect.isfunction(function) and is_ours(function):
                yield name, function


def annotated(item: Any) -> Iterator[tuple[str, Any]]:
    """Yield the meaning of each annotation of a public function or class, and where it is."""
    if inspect.isfunction(item):
        yield from ((item.__name__, hint) for hint in hints(item).values())
        return
    for base in item.__mro__:
        if is_ours(base) and not issubclass(base, Enum):
            yield from ((f"{item.__name__}.{name}", hint) for name, hint in hints(base).items())
            for name, function in functions_of(base):
                yield from ((f"{item.__name__}.{name}", hint) for hint in hints(function).values())


def mentioned(item: Any) -> set[tuple[str, type]]:
    """Return the classes of Lakeward in the annotations of a public function or class, and where they are."""
    return {(where, kind) for where, hint in annotated(item) for kind in classes_in(hint) if is_ours(kind)}


def hidden(item: Any) -> set[tuple[str, type]]:
    return {(where, kind) for where, kind in mentioned(item) if getattr(lakeward, kind.__name__, None) is not kind}


@pytest.mark.parametrize("name", lakeward.__all__)
def test_what_a_public_name_takes_or_returns_is_public_as_well(name):
    found = {
        f"{where}: {kind.__module__}.{kind.__name__}"
        for where, kind in hidden(getattr(lakeward, name))
        if name not in INTERNAL and where not in INTERNAL
    }
    assert not found, "\n".join(sorted(found))


@pytest.mark.parametrize("place", sorted(INTERNAL))
def test_every_exception_is_needed(place):
    name = place.partition(".")[0]
    assert {where for where, _ in hidden(getattr(lakeward, name)) if place in (where, name)}


def test_annotations_are_followed_into_fields_bases_properties_and_imports_for_type_checkers():
    assert {"RunReport", "RunOptions", "Watcher", "History"} <= names_in(lakeward.Lakeward)
    assert "CsvSettings" in names_in(lakeward.TableSettings)
    assert "Severity" in names_in(lakeward.Finding)
    assert "LocalCassandra" in names_in(lakeward.cassandra_demo_server)


def names_in(item: Any) -> set[str]:
    return {kind.__name__ for _, kind in mentioned(item)}


# Values that a user passes, not reports: they are not written as JSON.
ARGUMENTS = {
    "Bitwise", "ClusterAddress", "Column", "DemoTable", "DiffOptions", "Duration", "Epsilon",
    "Equality", "KnownTable", "LiveTable", "MapEntries", "RateLimits", "RunOptions", "S3Keys", "SimulatorOptions",
    "TableId", "TableName", "Whitespace",
}  # fmt: skip


def test_every_report_has_plain_data():
    plain = {name for name in lakeward.__all__ if is_dataclass(getattr(lakeward, name))}
    without = {name for name in plain if not hasattr(getattr(lakeward, name), "to_dict")}
    assert without == ARGUMENTS
