"""The current state as plain files, kept up by runs: one pointer flip, and unchanged dates are not written again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from lakeward.mirror.op.report import Outcome
from lakeward.storage.checksum import CHECKSUM_VERSION, checksum_form
from lakeward.views.versions.manage import rebuild_publication
from lakeward.views.versions.manifest import list_publications
from tests.spark.scene import TABLE
from tests.views.copies import DATED, seen_by_readers, versions_of
from tests.views.versions import SETTINGS, line, set_up, states

if TYPE_CHECKING:
    from pathlib import Path

    from tests.spark.scene import Scene

pytestmark = pytest.mark.spark

# Of the rows of `set_up`, as manifests had them before they named the version of their checksums.
FIRST_CHECKSUM = "3:9a3084eed8198118:8794342741261057698"
FIRST_CHECKSUMS = {
    "2020-01-02": "2:74c10473927e61dd:10023402551509949917",
    "2020-01-04": "1:eef1809d4a67e0c5:17217684263460659397",
}


def files(folder: Path) -> dict[str, int]:
    """Data files by date folder and their inode."""
    return {file.parent.name: file.stat().st_ino for file in folder.glob("*/*.parquet")}


def test_a_run_brings_the_copy_up_and_writes_only_dates_that_changed(scene: Scene) -> None:
    set_up(scene, publish=DATED)
    root = scene.folder / "copy" / TABLE
    assert seen_by_readers(root) == {1: "one on 13th", 2: None, 4: "four"}
    versions = versions_of(root)
    first = files(versions / "version=op-2")
    flipped = (root / "_current.json").stat().st_mtime_ns
    assert scene.run().outcome is Outcome.IDLE
    assert (root / "_current.json").stat().st_mtime_ns == flipped, "nothing happened, and something was written"
    # A row moves from the fourth to the fifth of January: the former folder becomes empty, the second stays.
    scene.land("20201117-000000000.csv", line("U", "2020-11-16 10:00:00", 4, "moved", "2020-01-05"))
    scene.run()
    second = files(versions / "version=op-3")
    assert set(second) == {"sold=2020-01-02", "sold=2020-01-05"}
    assert second["sold=2020-01-02"] == first["sold=2020-01-02"], "an unchanged date was written again"
    assert seen_by_readers(root) == {1: "one on 13th", 2: None, 4: "moved"}
    scene.land("20201118-000000000.csv", line("I", "2020-11-17 10:00:00", 5, "without a date"))
    scene.run()
    assert sorted(path.name for path in root.iterdir()) == ["_current.json", "current"]
    assert sorted(path.name for path in versions.iterdir()) == ["version=op-3", "version=op-4"]
    assert states(scene) == {"op-3": "former", "op-4": "current"}
    assert seen_by_readers(root)[5] == "without a date"
    found = scene.lakeward.snapshots.read(str(versions / "version=op-4"))
    assert found.count() == 4
    # What an erasure asks for: the copy made anew, and no older one left.
    with scene.lakeward._opened.workbench().leased(scene.lakeward.table(TABLE)) as context:
        newest = list_publications(context.mirror.metadata())[-1]
        rebuild_publication(context, newest)
    assert states(scene) == {"op-4": "current"}
    assert not set(files(versions / "version=op-4").values()) & set(second.values())


def test_a_manifest_with_the_first_checksums_is_held_against_the_rows(scene: Scene) -> None:
    set_up(scene, publish=DATED)
    root = scene.folder / "copy" / TABLE
    path = versions_of(root) / "version=op-2" / "_manifest.json"
    manifest = json.loads(path.read_text())
    assert manifest.pop("checksum_version") == CHECKSUM_VERSION
    assert manifest["parts"].keys() == FIRST_CHECKSUMS.keys()
    path.write_text(json.dumps({**manifest, "parts": FIRST_CHECKSUMS, "content_hash": FIRST_CHECKSUM}))
    rows = scene.lakeward.snapshots.read(str(path.parent))
    form = checksum_form(1)
    assert form.text(rows.agg(*form.columns(rows.schema)).collect()[0].asDict()) == FIRST_CHECKSUM
    first = files(path.parent)
    scene.land("20201117-000000000.csv", line("U", "2020-11-16 10:00:00", 4, "moved", "2020-01-05"))
    scene.run()
    second = files(versions_of(root) / "version=op-3")
    assert second["sold=2020-01-02"] == first["sold=2020-01-02"], "an unchanged date was written again"
    written = json.loads((versions_of(root) / "version=op-3" / "_manifest.json").read_text())
    assert written["checksum_version"] == CHECKSUM_VERSION
    assert {text.count(":") for text in (written["content_hash"], *written["parts"].values())} == {1}


def test_the_copy_of_a_table_after_all_ops_were_undone_is_empty(scene: Scene) -> None:
    scene.configure({TABLE: {**SETTINGS, "publish": {"to": "./copy"}}})
    scene.land("20201113-100000000.csv", line("I", "2020-11-13 10:00:00", 1, "wrong"))
    scene.run()
    root = scene.folder / "copy" / TABLE
    assert seen_by_readers(root) == {1: "wrong"}
    scene.lakeward.undo(TABLE, to_op=0, skip_files=["sales/product/20201113-100000000.csv"])
    assert scene.run().outcome is Outcome.IDLE
    assert (seen_by_readers(root), scene.rows()) == ({}, [])
    [verified] = scene.lakeward.verify().tables
    assert (verified.verdict, verified.rows_expected, verified.op) == ("clean", 0, 2)


def test_a_copy_that_fails_is_the_tables_failure_and_the_mirror_stays_done(scene: Scene) -> None:
    scene.configure({TABLE: {**SETTINGS, "publish": {"to": "./copy", "format": "csv"}}})
    scene.land("LOAD00000001.csv", line("I", "2020-11-13 10:00:00", 1, "one"))
    blocking = scene.folder / "copy"
    blocking.write_text("not a folder")
    report = scene.refused()
    assert report.ops and len(scene.rows()) == 1
    blocking.unlink()
    assert scene.run().outcome is Outcome.IDLE
    [file] = (blocking / TABLE / "current").glob("*.csv")
    assert file.read_text().splitlines()[0] == "id,name,sold,seen,price,raw"
    assert states(scene) == {"op-1": "current"}
