"""Commands called in this process, on a project in a folder of the test's own; no JVM."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from lakeward import Lakeward

CONFIGURATION = """
tables:
  sales.product: {primary_key: [id], partition_by: [dept]}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a configuration and a landing file, which is the working directory."""
    (tmp_path / "lakeward.yaml").write_text(CONFIGURATION)
    for name in ("sales/product", "sales/customer"):
        folder = tmp_path / "landing" / name
        folder.mkdir(parents=True)
        (folder / "LOAD00000001.csv").write_text("1,a\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def call_json(call: Callable[..., Result]) -> Callable[..., Any]:
    """Return a function that calls the command and reads its JSON."""

    def invoke(*arguments: str) -> Any:
        return json.loads(call(*arguments, "--output", "json").stdout)

    return invoke


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """Return a function that replaces a method of the lake by an answer without Spark, and that notes its calls."""

    def let(method: str, answer: Any) -> list[Any]:
        calls: list[Any] = []

        def fake(self: Any, *arguments: Any, **options: Any) -> Any:
            calls.append((arguments, options))
            if isinstance(answer, BaseException):
                raise answer
            return answer

        monkeypatch.setattr(Lakeward, method, fake)
        return calls

    return let
