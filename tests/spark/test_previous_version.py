"""A lake, a state store, change sets and exports written by the version before, opened by this one.

``scripts/previous_version.py`` wrote the archive, with the code of that version.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from pyarrow.parquet import read_table

from lakeward.cli.main import cli

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

ARCHIVE = Path(__file__).parents[1] / "fixtures/previous_version.tar.xz"
# Where it was written: Iceberg's metadata names files by absolute paths.
FOLDER = Path("/tmp/lakeward-previous-version")
TABLES = ("sales.customer", "sales.product", "sales.visit")
BAD_ROW = "sales/product/20240102-000000000.csv:2"


@pytest.fixture(scope="module", autouse=True)
def _lake(spark: SparkSession) -> Iterator[None]:
    """Unpack the lake at its one place, which no other process may use meanwhile, and work in it."""
    before = Path.cwd()
    with FOLDER.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(FOLDER, ignore_errors=True)
        with tarfile.open(ARCHIVE) as archive:
            archive.extractall(FOLDER, filter="data")
        os.chdir(FOLDER)
        yield
        os.chdir(before)
        shutil.rmtree(FOLDER)


def call(*arguments: str) -> Any:
    """Run a command in this process and return its document."""
    done = CliRunner().invoke(cli, [*arguments, "--output", "json"], prog_name="lakeward")
    assert done.exit_code == 0, (arguments, done.output)
    return json.loads(done.stdout)


def by_table(document: Any, field: str) -> dict[str, Any]:
    return {table["table"]: table[field] for table in document["tables"]}


def require_verified() -> None:
    """Compute every mirror anew from files or changelog, and require that it is equal."""
    assert by_table(call("verify"), "verdict") == dict.fromkeys(TABLES, "clean")


# Sentences for people: they may be reworded.
PROSE = {"reason"}


def differences(kept: Any, found: Any, where: str = "") -> list[str]:
    """Return where an answer lacks or contradicts what was answered before; fields may be added."""
    if isinstance(kept, dict) and isinstance(found, dict):
        return [
            difference
            for name, value in kept.items()
            if name not in PROSE
            for difference in differences(value, found.get(name, "absent"), f"{where}.{name}")
        ]
    if isinstance(kept, list) and isinstance(found, list) and len(kept) == len(found):
        pairs = enumerate(zip(kept, found, strict=True))
        return [text for at, (old, new) in pairs for text in differences(old, new, f"{where}[{at}]")]
    return [] if kept == found else [f"{where}: {found!r}, before {kept!r}"]


def test_every_question_is_answered_as_the_version_before_answered_it() -> None:
    kept = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(Path("answers").iterdir())]
    assert len(kept) >= 13
    for entry in kept:
        assert differences(entry["answer"], call(*entry["question"])) == [], entry["question"]


def test_snapshots_and_change_sets_are_compared_and_applied() -> None:
    (change_set,) = [file.parent for file in Path("changes").rglob("_manifest.json")]
    versions = [f"published/sales.customer/version=op-{op}" for op in (2, 3)]
    applied = call("patch", versions[0], str(change_set), "--to", "patched-now")
    assert applied["verified"]
    for result in ("patched-now", "patched", "mirror:sales.customer@op:3"):
        summary = call("diff", versions[1], result, "--keys", "id")["summary"]
        assert (summary["inserted"], summary["changed"], summary["deleted"], summary["unchanged"]) == (0, 0, 0, 5)
    tagged = call("diff", versions[0], "iceberg:sales.customer@tag:before_move", "--keys", "id")["summary"]
    assert (tagged["inserted"], tagged["changed"], tagged["deleted"]) == (0, 0, 0)


def test_the_lake_is_run_verified_undone_and_its_state_rebuilt() -> None:
    assert by_table(call("status"), "state") == dict.fromkeys(TABLES, "current")
    require_verified()
    assert by_table(call("run"), "outcome") == dict.fromkeys(TABLES, "idle")
    # Its copy as files was in the folder that readers scan, one version beside the other.
    visits = Path("published/sales.visit")
    assert sorted(path.name for path in visits.iterdir()) == ["_current.json", "current"]
    assert sum(read_table(file).num_rows for file in (visits / "current").glob("*.parquet")) == 3

    before = by_table(call("status"), "op")
    landing = Path("landing/sales")
    (landing / "product/20240107-000000000.csv").write_text("U,1,Nut,tools,0.13\nI,10,Hose,garden,3.00\n")
    (landing / "visit/20240107-000000000.csv").write_text("Op,page,seconds,at\nI,pay,1.00,2024-01-07 00:00:00\n")
    assert by_table(call("run"), "outcome") == {
        "sales.customer": "idle", "sales.product": "done", "sales.visit": "done",
    }  # fmt: skip
    require_verified()
    assert call("sql", "SELECT price FROM sales.product WHERE id = 1") == [{"price": "0.13"}]

    call("undo", "sales.product", "--to-op", str(before["sales.product"]), "--yes")
    assert call("sql", "SELECT price FROM sales.product WHERE id = 1") == [{"price": "0.12"}]
    call("quarantine", "retry", "sales.product", "--replace", f"{BAD_ROW}=I,8,Odd,garden,1.00")

    for file in FOLDER.glob("lakeward.db*"):
        file.unlink()
    assert len(call("state", "rebuild")["tables"]) == len(TABLES)
    assert by_table(call("run"), "outcome")["sales.product"] == "done"
    require_verified()
    ops = by_table(call("status"), "op")
    assert call("sql", "SELECT price FROM sales.product WHERE id = 1") == [{"price": "0.13"}]
    assert ops["sales.product"] > before["sales.product"] + 2
