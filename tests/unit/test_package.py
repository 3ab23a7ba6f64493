"""Rules about the package as a whole: public names, and transforms that neither act nor read."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import lakeward

SOURCE = Path(lakeward.__file__).parent


def test_every_public_name_is_there_and_documented() -> None:
    assert list(lakeward.__all__) == sorted(lakeward.__all__)
    for name in lakeward.__all__:
        assert getattr(lakeward, name).__doc__, name


def test_type_checkers_see_the_public_names_where_they_are_loaded_from() -> None:
    stub = ast.parse((SOURCE / "__init__.pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    exported = {name.name: node.module for node in imports for name in node.names if name.asname == name.name}
    assert exported == lakeward._MODULES
    assert list(exported) == [name for names in lakeward._NAMES_BY_MODULE.values() for name in names.split()]
    assert sorted(exported) == lakeward.__all__ == dir(lakeward)


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    assert not hasattr(lakeward, "no_such_name")


def test_importing_the_package_loads_nothing_of_it() -> None:
    script = "import sys, lakeward; print([name for name in sys.modules if name.startswith(('lakeward.', 'pyspark'))])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_public_names_are_documented_for_users() -> None:
    page = (SOURCE.parents[1] / "docs" / "python.md").read_text(encoding="utf-8")
    missing = [name for name in lakeward.__all__ if f"`{name}" not in page]
    assert not missing


def test_the_contract_of_the_command_line_names_every_package_and_module() -> None:
    project = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    [contract] = [
        contract
        for contract in project["tool"]["importlinter"]["contracts"]
        if contract["name"] == "The command line uses the public names of the library"
    ]
    parts = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    public = {"__init__", "__main__", "cli", "errors"}
    assert set(contract["forbidden_modules"]) == {f"lakeward.{name}" for name in parts - public}


def test_transforms_have_no_action_no_session_and_no_udf() -> None:
    forbidden = re.compile(
        r"\.(collect|count|take|first|head|show|toPandas|toLocalIterator|persist|cache|write|writeTo|read|table|sql)\("
        r"|sparkSession|getActiveSession|\budf\b|mapIn(Pandas|Arrow)|foreach"
    )
    allowed = re.compile(r"F\.(count|first)\(")
    for file in (SOURCE / "transforms").glob("*.py"):
        text = allowed.sub("", file.read_text(encoding="utf-8"))
        assert not forbidden.search(text), f"{file.name}: {forbidden.search(text)}"
