"""What tests share is in separate modules: no test module imports another."""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).parents[1]


def imported(file: Path) -> set[str]:
    """Return the last part of each name that a file imports, and of each module that it imports from."""
    nodes = list(ast.walk(ast.parse(file.read_text("utf-8"))))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    froms = [node for node in nodes if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests")]
    named = {name for node in froms for name in (node.module or "", *(alias.name for alias in node.names))}
    return {name.rpartition(".")[2] for name in plain | named}


def test_no_test_module_is_imported() -> None:
    found = {
        f"{file.relative_to(TESTS)}: {name}"
        for file in TESTS.rglob("*.py")
        for name in imported(file)
        if name.startswith("test_")
    }
    assert found == set()
