"""An erased key is gone from every file of every place, never comes back by old files, and the receipt proves it."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from lakeward.cli.main import cli
from lakeward.errors import ConfigurationError, DataError
from lakeward.iceberg.define import mirror_of
from lakeward.mirror.op.steps import Step
from lakeward.model import TableId
from tests.spark.crash import Crash, crash_at, leave_branches, steps_of
from tests.spark.scene import SCHEMA, TABLE
from tests.spark.source import check_books
from tests.views.versions import made, names, set_up

if TYPE_CHECKING:
    from lakeward.views.erasure import Receipt
    from tests.spark.scene import Scene

pytestmark = pytest.mark.spark

FEBRUARY = 1706745600.0
# The subject: a name that nothing else holds.
SUBJECT, SECRET = 5, "Zyxwvut"
LOAD = [f"{key},{SECRET if key == SUBJECT else f'row {key}'},x,1.00" for key in range(1, 13)]
CRASHED = steps_of("erase")
# Where values of columns are erased: in test_value_erasure.
OF_VALUES = (Step.ERASE_BEGUN, Step.ERASE_RULED)


def holding(*folders: Path) -> list[str]:
    """Files with the subject's bytes, read without Spark: Parquet by pyarrow, everything else as it is."""
    found = []
    for folder in folders:
        for file in (path for path in folder.rglob("*") if path.is_file()):
            if file.name.endswith(".parquet"):
                content = str(pq.read_table(file).to_pylist()).encode()
            else:
                content = file.read_bytes()
                content = gzip.decompress(content) if file.name.endswith(".gz") else content
            if SECRET.encode() in content:
                found.append(str(file))
    return found


def erase(scene: Scene, **options: Any) -> Receipt:
    return scene.lakeward.erase(TABLE, [{"id": SUBJECT}], reason="request 4711", **options)[-1]


def prepared(scene: Scene, **settings: Any) -> None:
    """Land a load and changes of the subject, some hidden by later ones, and publish a version of them."""
    scene.table(rewrite_share=10, on_bad_row="quarantine", timestamp_column="ts", **settings)
    stamped = [f"2024-01-01 00:00:00,{line}" for line in LOAD]
    scene.land("LOAD00000001.csv", *stamped, mtime=FEBRUARY - 40 * 86400)
    scene.land(
        "20240102-000000000.csv",
        f"U,2024-01-02 00:00:00,{SUBJECT},{SECRET} 2,x,2.00",
        "U,2024-01-02 00:00:00,6,six,x,2.00",
        f"U,2024-01-02 00:00:00,{SUBJECT},{SECRET} 3,x,no price",
        "D,2024-01-02 00:00:00,7,,,0",
    )
    scene.run()
    scene.lakeward.snapshots.create([TABLE], as_of="2024-01-02", to=str(scene.folder / "published"))
    scene.land("20240103-000000000.csv", f"U,2024-01-03 00:00:00,{SUBJECT},{SECRET} 4,x,4.00")
    scene.run()


def places(scene: Scene) -> list[Path]:
    return [scene.folder / "lake", scene.folder / "published", scene.folder / "current"]


def check_gone(scene: Scene, *, landing: bool = False) -> None:
    assert holding(*places(scene)) == []
    if landing:
        assert holding(scene.landing) == []
    assert SUBJECT not in scene.by_key()
    assert len(scene.by_key()) == 10
    mirror = mirror_of(scene.lakeward.spark, TableId.parse(TABLE))
    assert mirror.require_head().rows == 10
    check_books(scene)


def test_erased_key_is_in_no_file_of_any_place(
    scene: Scene, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    prepared(scene, publish={"to": "current"})
    scene.lakeward.snapshots.create([TABLE], as_of="2024-01-01", tag="new-year")
    before = scene.rows()
    planned = scene.lakeward.plan_erasure(TABLE, [{"id": "5"}])
    assert planned.dry_run and not planned.proved and planned.hashes == ()
    assert scene.rows() == before and len(holding(*places(scene))) > 4
    receipt = erase(scene)
    check_gone(scene)
    assert {place.place for place in planned.places} == {place.place for place in receipt.places if place.files}
    by_place = {place.place: place for place in receipt.places}
    assert receipt.proved and all(place.remaining_rows == place.remaining_files == 0 for place in receipt.places)
    assert (by_place["mirror"].rows, by_place["mirror"].hidden) == (1, 2)
    assert (by_place["mirror load-1"].rows, by_place["mirror new-year"].rows) == (1, 1)
    # Two changes and one bad row.
    assert by_place["changelog"].rows == 3
    # Two versions of the current state, and the one that was asked for.
    assert sum(place.rows for place in receipt.places if place.place.startswith("publication ")) == 3
    assert [(file.path.rpartition("/")[2], file.rows, file.outcome) for file in receipt.landing] == [
        ("20240102-000000000.csv", 2, "listed"),
        ("20240103-000000000.csv", 1, "listed"),
        ("LOAD00000001.csv", 1, "listed"),
    ]
    text = json.dumps(receipt.to_dict())
    assert SECRET not in text and '"5"' not in text and len(receipt.hashes[0]) == 64
    assert scene.lakeward.status([TABLE])[0].quarantined == 0
    printed = "".join(capfd.readouterr()) + caplog.text
    assert SECRET not in printed and f"id={SUBJECT}" not in printed


@pytest.mark.slow
def test_crash_at_every_step_is_finished_by_the_next_run_or_call(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_branches(monkeypatch)
    prepared(scene)
    crossed: list[str] = []
    receipts: list[Receipt] = []

    def observe_step(_table: str, step: str) -> None:
        if step.startswith("erase.") and step not in crossed:
            crossed.append(step)
            raise Crash(step, tidy=len(crossed) % 3 == 0)

    while not receipts:
        scene.on_step = observe_step
        try:
            if len(crossed) % 3 == 1:
                scene.run()
            is_open = scene.lakeward.status([TABLE])[0].unfinished_erasure
            receipts = scene.lakeward.resume_erasure(TABLE) if crossed else []
            receipts = receipts or scene.lakeward.erase(TABLE, [{"id": SUBJECT}], reason="request 4711", landing=True)
        except Crash:
            scene.on_step = None
            scene.forget_state() if len(crossed) % 2 else scene.close()
            if crossed[-1] == "erase.changelog":
                # Logged and not yet applied: a version of now would have what is about to be erased.
                to = str(scene.folder / "published")
                [report] = scene.lakeward.snapshots.create([TABLE], as_of="2024-01-03", to=to)
                assert "an erasure is logged and not yet applied" in str(report.message)
    scene.on_step = None
    assert sorted(crossed) == sorted({*CRASHED} - {*OF_VALUES})
    assert is_open is None
    check_gone(scene, landing=True)
    assert scene.run().ops == (), "a rewritten landing file was taken for another one"
    assert scene.lakeward.status([TABLE])[0].unfinished_erasure is None
    # Nor is it once the ops that took note of it are undone.
    scene.lakeward.undo(TABLE, to_op=receipts[-1].op - 1)
    scene.forget_state()
    assert scene.run().ops == ()
    check_gone(scene, landing=True)


@pytest.mark.soak
def test_erased_key_does_not_come_back_by_a_version_that_a_crash_left(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_branches(monkeypatch)
    set_up(scene)
    place = Path(made(scene, "2020-11-14"))
    crash_at(scene, "publish.aside", lambda: made(scene, "2020-11-14", replace=True))
    assert not place.exists()
    # Files that nobody can account for: no proof while they are there.
    unknown = place.parent / ".replaced-version=2020-11-13@0123456789ab" / "rows.csv"
    unknown.parent.mkdir()
    unknown.write_text("2")
    with pytest.raises(DataError, match="version=2020-11-13@0123456789ab may hold what was erased"):
        scene.lakeward.erase(TABLE, [{"id": 2}], reason="request 4711")
    shutil.rmtree(unknown.parent)
    [receipt] = scene.lakeward.resume_erasure(TABLE)
    assert receipt.proved and f"publication {place}" in str([found.place for found in receipt.places])
    assert names(scene, str(place)).keys() == {1}
    made(scene, "2020-11-13")
    assert [path.name for path in place.parent.iterdir() if path.name.startswith(".")] == []
    assert all(2 not in pq.ParquetFile(file).read()["id"].to_pylist() for file in place.parent.rglob("*.parquet"))


def test_erased_key_does_not_come_back_by_old_files_and_comes_back_by_a_new_row(scene: Scene) -> None:
    # Deletion vectors hide the subject's older row here, position deletes in the tests above.
    scene.table(rewrite_share=10, timestamp_column="ts", on_bad_row="quarantine", format_version=3)
    scene.land("LOAD00000001.csv", *[f"2024-01-01 00:00:00,{line}" for line in LOAD], mtime=FEBRUARY)
    scene.land(
        "20240202-000000000.csv", f"U,2024-02-02 00:00:00,{SUBJECT},{SECRET} 2,x,2.00", "D,2024-02-02 00:00:00,7,,,0"
    )
    scene.run()
    receipt = erase(scene)
    others = scene.rows()
    # An older file that arrives now.
    scene.land(
        "20240201-120000000.csv",
        f"U,2024-02-01 12:00:00,{SUBJECT},{SECRET} late,x,2.00",
        f"U,2024-02-01 12:00:00,{SUBJECT},{SECRET} bad,x,price",
        "U,2024-02-01 12:00:00,3,row 3,x,1.00",
    )
    read = scene.run().ops[0].read
    assert (read.rows, read.updates, read.bad, read.erased) == (1, 1, 0, 2)
    assert scene.rows() == others
    check_books(scene)
    # The op before the erasure, and the same files read again after it.
    scene.lakeward.undo(TABLE, to_op=receipt.op - 2)
    assert SUBJECT not in scene.by_key()
    scene.forget_state()
    assert sum(op.read.erased for op in scene.run().ops) == 3
    assert scene.rows() == others
    assert holding(scene.folder / "lake") == []
    # A reload whose rows have times that are younger than the erasure, and a row that really is.
    scene.land("LOAD00000001.csv", *[f"2098-01-01 00:00:00,{line}" for line in LOAD], mtime=FEBRUARY + 40 * 86400)
    assert scene.run().ops[0].read.erased == 1
    assert SUBJECT not in scene.by_key()
    scene.land("20990101-000000000.csv", f"I,2099-01-01 00:00:00,{SUBJECT},back again,x,9.00")
    assert scene.run().ops[0].read.erased == 0
    assert scene.names()[SUBJECT] == "back again"


def test_key_that_changed_is_erased_with_its_earlier_keys_only_on_request(scene: Scene) -> None:
    schema, key = "region string, number int, name string", ["region", "number"]
    scene.configure({TABLE: {"schema": schema, "primary_key": key, "before_image_columns": key, "rewrite_share": 10}})
    scene.land("LOAD00000001.csv", f"EU,1,{SECRET}", "EU,2,two", "US,1,one")
    scene.land("20240101-000000000.csv", f"U,EU,7,{SECRET},EU,1", "U,EU,2,zwei,EU,2")
    scene.run()
    subject = [{"region": "EU", "number": "7"}]
    with pytest.raises(ConfigurationError, match="1 other key"):
        scene.lakeward.erase(TABLE, subject, reason="request")
    assert scene.lakeward.plan_erasure(TABLE, subject, moves="keep").keys == 1
    with pytest.raises(ConfigurationError, match="is region, number; found region"):
        scene.lakeward.erase(TABLE, [{"region": "EU"}], reason="request")
    both = [*subject, {"region": "US", "number": 1}]
    receipt = scene.lakeward.erase(TABLE, both, reason="request", moves="erase")[-1]
    assert receipt.keys == 3
    assert scene.rows() == [("EU", 2, "zwei")]
    assert holding(scene.folder / "lake") == []
    check_books(scene)


def test_command_shows_the_rows_first_and_erases_only_after_confirmation(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.land("LOAD00000001.csv", *LOAD)
    scene.run()
    scene.close()
    file = tmp_path / "lakeward.yaml"
    file.write_text(f"state: sqlite:///state.db\ntables: {{{TABLE}: {{schema: '{SCHEMA}', primary_key: id}}}}\n")
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str, code: int) -> Any:
        result = CliRunner().invoke(cli, ["erase", TABLE, *arguments], prog_name="lakeward")
        assert result.exit_code == code, result.output
        return result

    assert "use --yes" in call("--key", "id=5", "--reason", "r", code=2).stderr
    assert "needs a reason" in call("--key", "id=5", "--yes", code=2).stderr
    call("--key", "id=five", "--reason", "r", "--yes", code=2)
    shown = call("--key", "id=5", "--dry-run", code=0).stdout
    assert "would erase 1 key" in shown and "mirror load-1" in shown
    (tmp_path / "keys").write_text('id=5\n{"id": 6}\n')
    done = call(
        "--keys-from", "keys", "--reason", "r", "--yes", "--receipt", "receipt.json", "--output", "json", code=0
    )
    receipt = json.loads((tmp_path / "receipt.json").read_text())
    assert json.loads(done.stdout) == {"receipts": [receipt]} and receipt["proved"] and receipt["keys"] == 2
    assert sorted(scene.names()) == [1, 2, 3, 4, 7, 8, 9, 10, 11, 12]
    assert json.loads(call("--resume", "--output", "json", code=0).stdout) == {"receipts": []}
