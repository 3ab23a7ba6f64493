"""A rule for a column of a table with rows: what was stored is replaced everywhere, and the receipt proves it."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from lakeward.cli.main import cli
from lakeward.errors import ConfigurationError
from lakeward.mirror.op.steps import Step
from tests.spark.crash import Crash, leave_branches, steps_of
from tests.spark.lake_files import files_holding
from tests.spark.scene import TABLE
from tests.spark.source import check_books

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lakeward.views.erasure import Receipt
    from tests.spark.scene import Scene

pytestmark = pytest.mark.spark

KEY = "0123456789abcdef0123456789abcdef"
# All values that a rule concerns hold this, and nothing else does.
TEXT, NUMBER = "xq7z", 98765.43
SCHEMA = "id int, name string, note string, ssn string, mail string, pay decimal(8,2), size int"
RULES = {"name": "truncate(2)", "note": "mask", "ssn": "hash", "mail": "drop", "pay": "redact"}
JANUARY = 1704067200.0


@pytest.fixture(autouse=True)
def _with_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLICY_KEY", KEY)


def line(key: int, day: int, *, size: str = "1") -> str:
    return f"2024-01-{day:02d} 00:00:00,{key},{TEXT} name,{TEXT} note {day},{TEXT}-{key},{TEXT}@{key},{NUMBER},{size}"


def ruled(key: int, *, size: int = 1) -> tuple[Any, ...]:
    hashed = hmac.new(KEY.encode(), f"{TEXT}-{key}".encode(), hashlib.sha256).hexdigest()
    return (key, "xq", "***", hashed, None, size)


def settings(**own: Any) -> dict[str, Any]:
    common = {"schema": SCHEMA, "primary_key": "id", "timestamp_column": "ts", "on_bad_row": "quarantine"}
    return {TABLE: {**common, "rewrite_share": 10, "hash_key": "env:POLICY_KEY", **own}}


def prepared(scene: Scene, **own: Any) -> None:
    """Land a load and changes, some of them bad, and publish, tag and keep what comes of them."""
    scene.configure(settings(**own))
    scene.land("LOAD00000001.csv", *[line(key, 1) for key in range(1, 7)], mtime=JANUARY)
    scene.land("20240102-000000000.csv", f"U,{line(2, 2, size='2')}", f"U,{line(3, 2, size='many')}", f"D,{line(4, 2)}")
    scene.run()
    snapshots, to = scene.lakeward.snapshots, str(scene.folder / "published")
    for file_format in ("parquet", "csv"):
        snapshots.create([TABLE], as_of="2024-01-02", to=f"{to}-{file_format}", format=file_format)
    snapshots.create([TABLE], as_of="2024-01-01", tag="new-year")
    scene.lakeward.history.keep_scd2(TABLE)
    scene.land("20240103-000000000.csv", f"U,{line(2, 3, size='3')}", f"I,{line(7, 3)}")
    scene.run()


def holding(scene: Scene) -> list[str]:
    """Files outside of landing that hold a value which a rule concerns."""
    wanted = (TEXT.encode(), str(NUMBER).encode(), round(NUMBER * 100).to_bytes(8, "little"))
    return [file for value in wanted for file in files_holding(scene.folder, value, apart_from=scene.landing)]


STATE = [ruled(1), ruled(2, size=3), ruled(3), ruled(5), ruled(6), ruled(7)]


def check_ruled(scene: Scene, rows: Sequence[tuple[Any, ...]] = STATE) -> None:
    assert holding(scene) == []
    assert scene.rows() == sorted(rows, key=repr)
    for basis in ("changelog", "files"):
        (verified,) = scene.lakeward.verify([TABLE], basis=basis).tables
        assert verified.exit_code == 0, verified.message
    check_books(scene)


def apply(scene: Scene) -> Receipt:
    return scene.lakeward.apply_column_policy(TABLE, reason="decided on 3 May")[-1]


def test_stored_values_follow_new_rules_in_every_place(scene: Scene) -> None:
    prepared(scene, publish={"to": "current"})
    scene.configure(settings(publish={"to": "current"}, columns=RULES))
    stopped = scene.refused()
    assert "name was without a rule, now truncate(2)" in str(stopped.message)
    assert f"lakeward erase {TABLE} --column-policy --reason" in str(stopped.hint)
    before = holding(scene)
    planned = scene.lakeward.plan_column_policy(TABLE)
    assert (planned.dry_run, planned.columns, holding(scene)) == (True, RULES, before)
    receipt = apply(scene)
    assert (receipt.columns, receipt.keys, receipt.hashes, receipt.proved) == (RULES, 0, (), True)
    assert {place.place for place in planned.places} == {place.place for place in receipt.places if place.files}
    by_place = {place.place: place for place in receipt.places}
    assert (by_place["mirror"].rows, by_place["mirror load-1"].rows, by_place["mirror new-year"].rows) == (6, 6, 6)
    # Four changes and the bad row; the delete has its key only. Two versions and the current state were published.
    assert by_place["changelog"].rows == 5
    published = [place for place in receipt.places if place.place.startswith("publication ")]
    assert len([place for place in published if place.rows]) == 4, "two versions, and two of the current state"
    check_ruled(scene)
    assert TEXT not in json.dumps(receipt.to_dict())
    (bad,) = scene.lakeward.bad_rows(TABLE)
    assert (bad.reason, bad.column, bad.value, bad.raw) == ("not a value of type int", "size", None, None)
    _what_follows(scene)


def _what_follows(scene: Scene) -> None:
    """The past, an undo, a retry, a reload and the history are those of a source that had the rules from the start."""
    [version] = scene.lakeward.snapshots.create([TABLE], as_of="2024-01-02", to=str(scene.folder / "later"))
    past = [tuple(row) for row in scene.lakeward.snapshots.read(version.location).collect()]
    assert sorted(past) == sorted([ruled(1), ruled(2, size=2), ruled(3), ruled(5), ruled(6)])
    built = scene.lakeward.history.keep_scd2(TABLE)
    assert (built.action, built.reason) == ("built", "there was an erasure")
    scene.lakeward.undo(TABLE, to_op=1)
    assert len(scene.rows()) == 6
    scene.run()
    check_ruled(scene)
    with pytest.raises(ConfigurationError, match="there is nothing to replace"):
        apply(scene)
    scene.land("LOAD00000001.csv", line(1, 9), line(8, 9), mtime=JANUARY + 30 * 86400)
    scene.run(reload=True, allow_deletes=True)
    check_ruled(scene, [ruled(1), ruled(8)])


OF_VALUES: tuple[str, ...] = (Step.ERASE_BEGUN, Step.ERASE_RULED)
# Only an erasure of rows rewrites landing.
CROSSED = [step for step in steps_of("erase") if step not in (Step.ERASE_ANNOUNCED, Step.ERASE_REPLACED)]


def test_a_crash_at_every_step_leaves_no_value_behind(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_branches(monkeypatch)
    prepared(scene)
    scene.configure(settings(columns=RULES))
    crossed: list[str] = []

    def observe_step(_table: str, step: str) -> None:
        if step.startswith("erase.") and step not in crossed:
            crossed.append(step)
            raise Crash(step, tidy=len(crossed) % 3 == 0)

    while Step.ERASE_DONE not in crossed:
        scene.on_step = observe_step
        try:
            if crossed and crossed[-1] in OF_VALUES:
                # What is not logged yet is not taken up by a run, which would leave stored values as they are.
                assert ("--column-policy", "--resume")[OF_VALUES.index(crossed[-1])] in str(scene.refused().hint)
            elif len(crossed) % 3 == 1:
                scene.run()
            if not (crossed and scene.lakeward.resume_erasure(TABLE)):
                apply(scene)
        except Crash:
            scene.on_step = None
            scene.forget_state() if len(crossed) % 2 else scene.close()
    scene.on_step = None
    assert sorted(crossed) == sorted(CROSSED)
    check_ruled(scene)
    assert scene.lakeward.status([TABLE])[0].unfinished_erasure is None
    assert scene.run().ops == ()


@pytest.mark.parametrize(
    ("before", "now", "why"),
    [
        ({}, {"size": "mask"}, "it would become text, and the column is stored as int"),
        ({}, {"id": "hash"}, "values of a key"),
        ({"ssn": "mask"}, {"ssn": "hash"}, "the former rule left too little"),
        ({"ssn": "truncate(3)"}, {"ssn": "truncate(4)"}, "the former rule left too little"),
        ({"ssn": "hash"}, {}, "are gone"),
        ({"mail": "drop"}, {"mail": "mask"}, "are gone"),
    ],
)
def test_values_that_cannot_follow_a_rule_stay_as_they_are(
    scene: Scene, before: dict[str, str], now: dict[str, str], why: str
) -> None:
    scene.configure(settings(columns=before))
    scene.land("LOAD00000001.csv", line(1, 1), mtime=JANUARY)
    scene.run()
    rows = scene.rows()
    scene.configure(settings(columns=now))
    with pytest.raises(ConfigurationError, match=why) as refusal:
        apply(scene)
    assert "tables remove" in str(refusal.value.hint)
    scene.configure(settings(columns=before))
    assert (scene.run().ops, scene.rows()) == ((), rows)


def test_values_under_a_former_name_are_found(scene: Scene) -> None:
    # Only the files of one folder hold values, so that their manifests have entries of others as well.
    scene.configure(settings(partition_by=["size"]))
    scene.land("LOAD00000001.csv", line(1, 1), "2024-01-01 00:00:00,2,,,NULL,NULL,NULL,2", mtime=JANUARY)
    scene.run()
    to = str(scene.folder / "published")
    scene.lakeward.snapshots.create([TABLE], as_of="2024-01-01", to=to)
    scene.lakeward.history.keep_scd2(TABLE, track=["name", "mail"])
    renamed = SCHEMA.replace("note", "remark").replace("mail", "address")
    own = {"schema": renamed, "partition_by": ["size"], "renames": {"note": "remark", "mail": "address"}}
    scene.configure(settings(**own, columns={"remark": "mask"}))
    with pytest.raises(ConfigurationError, match="under its former name until the table is run"):
        apply(scene)
    scene.configure(settings(**own))
    scene.land("20240103-000000000.csv", f"I,{line(7, 3)}")
    scene.run()
    rules = {"name": "mask", "remark": "mask", "ssn": "redact", "address": "drop", "pay": "redact"}
    scene.configure(settings(**own, columns=rules))
    receipt = apply(scene)
    assert {place.place for place in receipt.places if place.rows} >= {
        "history",
        f"publication {to}/{TABLE}/version=2024-01-01",
    }
    check_ruled(
        scene, [(1, "***", "***", None, None, 1), (2, "***", "***", None, None, 2), (7, "***", "***", None, None, 1)]
    )
    scene.configure(settings(**own, columns=rules))
    built = scene.lakeward.history.keep_scd2(TABLE)
    assert (built.action, built.track) == ("built", ("name",))
    assert holding(scene) == []


@pytest.mark.parametrize(
    ("before", "now", "why"),
    [
        ({}, {"columns": {"size": "truncate(2)"}}, "only text has characters"),
        ({}, {"primary_key": "name", "columns": {"id": "redact"}}, "primary_key was"),
        ({"partition_by": ["mail"]}, {"columns": {"mail": "drop"}}, "partition_by was"),
        ({"metadata_columns": {"file": "src"}}, {"columns": {"src": "drop"}}, "metadata_columns was"),
        ({}, {"null_means_unchanged": ["note"], "columns": {"note": "drop"}}, "null_means_unchanged names 'note'"),
        ({}, {"columns": {"Note": "mask"}}, "has a rule for 'Note'"),
        ({}, {"columns": {"notee": "mask"}}, "has a rule for 'notee', which is not a column"),
        (
            {},
            {"publish": {"to": "out", "columns": ["id", "mail"]}, "columns": {"mail": "drop"}},
            "in publish: columns:",
        ),
    ],
)
def test_settings_that_would_not_fit_are_refused_before_anything_is_changed(
    scene: Scene, before: dict[str, Any], now: dict[str, Any], why: str
) -> None:
    scene.configure(settings(**before))
    scene.land("LOAD00000001.csv", line(1, 1), mtime=JANUARY)
    scene.run()
    rows = scene.rows()
    scene.configure(settings(**{**before, "partition_by": [], "metadata_columns": {}, **now}))
    for attempt in (apply, lambda scene: scene.lakeward.plan_column_policy(TABLE)):
        with pytest.raises(ConfigurationError, match=why):
            attempt(scene)
    scene.configure(settings(**before))
    assert (scene.run().ops, scene.rows()) == ((), rows)


def test_another_key_counts_once_no_hash_is_stored(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER_KEY", "o" * 32)
    scene.configure(settings(columns={"ssn": "hash"}))
    scene.land("LOAD00000001.csv", line(1, 1), mtime=JANUARY)
    scene.run()
    scene.configure(settings(columns={"ssn": "hash", "mail": "hash"}, hash_key="env:OTHER_KEY"))
    with pytest.raises(ConfigurationError, match="hash_key is not the key"):
        apply(scene)
    scene.configure(settings(columns={"ssn": "mask"}))
    apply(scene)
    scene.configure(settings(columns={"ssn": "mask", "mail": "hash"}, hash_key="env:OTHER_KEY"))
    apply(scene)
    assert scene.by_key()[1]["mail"] == hmac.new(b"o" * 32, f"{TEXT}@1".encode(), hashlib.sha256).hexdigest()
    assert scene.run().ops == ()


def test_a_version_by_dates_of_the_column_comes_first(scene: Scene) -> None:
    scene.configure(settings(schema=f"{SCHEMA}, day date"))
    scene.land("LOAD00000001.csv", f"{line(1, 1)},2024-01-01", mtime=JANUARY)
    scene.run()
    shape = {"layout": "dated", "date_column": "day"}
    scene.lakeward.snapshots.create([TABLE], as_of="2024-01-01", to=str(scene.folder / "published"), **shape)
    scene.configure(settings(schema=f"{SCHEMA}, day date", columns={"day": "drop"}))
    with pytest.raises(ConfigurationError, match="its dates are the folders of") as refusal:
        apply(scene)
    assert f"lakeward snapshot drop {TABLE} --version 2024-01-01" in str(refusal.value.hint)


def test_values_that_look_like_hashes_are_not_hashed(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.configure(settings())
    scene.land("LOAD00000001.csv", line(1, 1).replace(f"{TEXT}-1", "ab" * 32), mtime=JANUARY)
    scene.run()
    scene.configure(settings(columns={"ssn": "hash"}))
    with pytest.raises(ConfigurationError, match="values of 64 hexadecimal digits are stored already"):
        apply(scene)
    monkeypatch.delenv("POLICY_KEY")
    with pytest.raises(ConfigurationError, match="POLICY_KEY"):
        apply(scene)
    assert scene.lakeward.status([TABLE])[0].unfinished_erasure is None


def test_rules_become_stricter_one_after_the_other(scene: Scene) -> None:
    scene.configure(settings(columns={"ssn": "truncate(5)"}))
    scene.land("LOAD00000001.csv", line(1, 1), mtime=JANUARY)
    scene.run()
    for rule, value in (("truncate(2)", "xq"), ("mask", "***")):
        scene.configure(settings(columns={"ssn": rule}))
        apply(scene)
        assert [row["ssn"] for row in scene.by_key().values()] == [value]
    scene.configure(settings(columns={"ssn": "drop"}))
    apply(scene)
    assert "ssn" not in scene.by_key()[1]
    assert scene.run().ops == ()


def test_the_command_shows_asks_and_replaces(scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.configure({})
    scene.land("LOAD00000001.csv", f"1,{TEXT}", folder="sales/other")
    own = {"schema": "id int, note string", "primary_key": ["id"]}
    scene.lakeward.set_table("sales.other", settings=own, active=True)
    scene.run("sales.other")
    scene.close()
    (tmp_path / "lakeward.yaml").write_text("state: sqlite:///state.db\n")
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str, code: int = 0) -> Any:
        result = CliRunner().invoke(cli, arguments, prog_name="lakeward")
        assert result.exit_code == code, result.output
        return result

    noted = call("tables", "set", "sales.other", "--column", "note=mask").stderr
    assert "lakeward erase sales.other --column-policy" in noted
    assert "other rules" in call("run", "sales.other", code=2).stderr
    erase = ("erase", "sales.other", "--column-policy")
    assert "takes no keys" in call(*erase, "--key", "id=1", code=2).stderr
    shown = call(*erase, "--dry-run").stdout
    assert "would replace values of note (mask)" in shown
    assert "mirror load-1" in shown
    assert "needs a reason" in call(*erase, "--yes", code=2).stderr
    done = call(*erase, "--reason", "r", "--yes", "--receipt", "receipt.json")
    assert "a scan of every place found no such value" in done.stdout
    assert json.loads((tmp_path / "receipt.json").read_text())["columns"] == {"note": "mask"}
    assert scene.rows("sales.other") == [(1, "***")]
    assert call("run", "sales.other").exit_code == 0
