"""The examples of docs/python.md and docs/query.md run, one after the other, in the folder of a demo."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import duckdb_extension_avro
import duckdb_extension_iceberg
import pytest
import yaml

from lakeward import Lakeward, play_demo, write_demo

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DOCS = Path(__file__).parents[2] / "docs"


def blocks_of(page: str, language: str) -> list[str]:
    return re.findall(
        rf"^```{language}\n(.*?)^```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )


@pytest.fixture(scope="module")
def demo(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Play a demo with the publications of docs/query.md, and work in its folder."""
    folder, before = tmp_path_factory.mktemp("demo"), Path.cwd()
    path = write_demo(folder)
    settings = yaml.safe_load(path.read_text())
    for table, body in yaml.safe_load(blocks_of("query.md", "yaml")[0])["tables"].items():
        settings["tables"][table] |= body
    path.write_text(yaml.safe_dump(settings))
    with Lakeward.open(path) as lake:
        assert play_demo(lake, folder).ok
    os.chdir(folder)
    yield folder
    os.chdir(before)


@pytest.mark.parametrize(("page", "least"), [("python.md", 4), ("query.md", 6)])
def test_the_examples_run(demo: Path, page: str, least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(demo))
    for package, extension in ((duckdb_extension_avro, "avro"), (duckdb_extension_iceberg, "iceberg")):
        _install(demo, package.__path__[0], extension)
    blocks = blocks_of(page, "python")
    assert len(blocks) >= least
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(DOCS / page), "exec"), names)


def _install(home: Path, package: str, extension: str) -> None:
    """Let DuckDB find an extension that the development environment pins, as if it had been downloaded."""
    found = duckdb.sql("PRAGMA platform").fetchone()
    assert found is not None
    folder = home / f".duckdb/extensions/v{duckdb.__version__}/{found[0]}"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{extension}.duckdb_extension"
    if not file.exists():
        file.symlink_to(f"{package}/extensions/v{duckdb.__version__}/{extension}.duckdb_extension")
