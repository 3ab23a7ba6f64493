"""Change sets on disk: written and read back equal, complete or not there, and applied to what they were made from."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from pyspark.sql import functions as F

from lakeward.cli.main import cli
from lakeward.diffing.frames.alignment import align
from lakeward.diffing.frames.comparators import Epsilon
from lakeward.diffing.frames.joining import diff
from lakeward.diffing.frames.options import DiffMode, DiffOptions
from lakeward.diffing.stored.addresses import Side
from lakeward.diffing.stored.applying import apply_change_sets, write_change_set
from lakeward.diffing.stored.changesets import ChangeSet, ChangeSetManifest, describe, find_change_set
from lakeward.diffing.stored.open import open_side
from lakeward.errors import RefusedInputError
from lakeward.session.sessions import table_session
from lakeward.storage.checksum import checksum_of
from lakeward.storage.filesystem import LocalFileSystem
from tests.diffing.tables import frozen_rows, make_change, settled

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from lakeward.config import Config

NOON = datetime(2026, 11, 15, 21, 5, 59, tzinfo=UTC)
STORE = LocalFileSystem()
SCHEMA = "id int, name string"


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    return table_session(spark)


@pytest.fixture
def config(tmp_path: Path, lake_config: Any) -> Config:
    return lake_config(tmp_path)


def identity(frame: DataFrame, location: str = "somewhere") -> dict[str, Any]:
    checksum = checksum_of(frame).text
    return {"kind": "files", "location": location, "rows": int(checksum.split(":")[0]), "checksum": checksum}


def manifest_of(past: DataFrame, current: DataFrame, keys: Any, options: DiffOptions, **more: Any) -> ChangeSetManifest:
    alignment = align(past.schema, current.schema, keys, options, evolve=True, case_sensitive=True)
    states = {
        "past": identity(past),
        "current": identity(current),
        "counts": {"inserted": 1, "changed": 1, "deleted": 1},
    }
    return describe(alignment, options, **{**states, **more})


def written(
    past: DataFrame,
    current: DataFrame,
    to: Path,
    options: DiffOptions | None = None,
    keys: tuple[str, ...] = ("id",),
    moment: datetime = NOON,
    **more: Any,
) -> str:
    options = options or DiffOptions()
    frame = diff(past, current, keys, replace(options, evolve=True))
    manifest = manifest_of(past, current, keys, options, **more)
    return write_change_set(frame, STORE, str(to), manifest, moment=moment)


def found(session: SparkSession, config: Config, folder: str, **more: Any) -> ChangeSet:
    return find_change_set(session, config, folder, **more)


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def counted(frame: DataFrame, names: list[str]) -> Counter[Any]:
    chosen = frame.select(*["`" + name.replace("`", "``") + "`" for name in names])
    return Counter(tuple(settled(value) for value in row) for row in chosen.collect())


@pytest.mark.parametrize(
    ("kind", "nested", "mode", "seed"),
    [
        ("parquet", True, DiffMode.STRUCTS, 3),
        ("json", False, DiffMode.COLUMN_BY_COLUMN, 5),
        ("json", False, DiffMode.STRUCTS, 7),
        ("csv", False, DiffMode.SIDE_BY_SIDE, 5),
        ("csv", False, DiffMode.COLUMN_BY_COLUMN, 11),
    ],
)
def test_what_is_read_back_equals_what_was_written(session, config, tmp_path, kind, nested, mode, seed):
    change = make_change(seed, rows=60, nested=nested)
    past, current = change.frames(session)
    options = DiffOptions(diff_mode=mode, change_column="what changed", default_comparator=Epsilon(1e-9))
    frame = diff(past, current, change.keys, options)
    manifest = manifest_of(past, current, change.keys, options, format=kind)
    folder = write_change_set(frame, STORE, str(tmp_path), manifest, moment=NOON)
    back = found(session, config, folder)
    assert back.manifest is not None
    assert back.frame.columns == frame.columns
    assert [field.dataType for field in back.manifest.past_schema] == [field.dataType for field in past.schema]
    assert back.options == options
    assert frozen_rows(back.frame.collect()) == frozen_rows(frame.collect())


def test_nested_values_come_back_from_json_and_are_refused_by_csv(session, config, tmp_path):
    schema = "id int, place struct<street:string, tags:array<string>>, sizes map<string,double>, bytes binary"
    past = session.createDataFrame([(1, ("a", ["x", None]), {"k": 1.0}, b"\x00"), (2, None, None, None)], schema)
    current = session.createDataFrame(
        [(1, ("a", []), {"k": float("nan")}, b""), (3, (None, None), {}, b"\xff")], schema
    )
    folder = written(past, current, tmp_path, format="json")
    assert frozen_rows(found(session, config, folder).frame.collect()) == frozen_rows(
        diff(past, current, ["id"]).collect()
    )
    with pytest.raises(RefusedInputError, match=r"CSV cannot hold nested values: left_place struct<.*right_sizes map"):
        written(past, current, tmp_path / "csv", format="csv")
    assert not (tmp_path / "csv").exists()
    odd = session.createDataFrame([(1, {1: 2})], "id int, sizes map<int,int>")
    with pytest.raises(RefusedInputError, match="JSON cannot hold maps with other keys than texts"):
        written(odd, odd, tmp_path / "json", format="json")


def test_json_leaves_out_the_side_that_has_no_row_and_keeps_nulls_of_the_one_that_has(session, tmp_path):
    moment = datetime(2026, 11, 15, 8, 0, 0, 7)
    schema = "id int, name string, at timestamp"
    past = session.createDataFrame([(1, None, moment), (2, "b", None)], schema)
    current = session.createDataFrame([(1, "", moment), (3, None, None)], schema)
    folder = tmp_path / "x"
    place = written(past, current, folder, format="json")
    assert place == f"{folder}/incremental/year=2026/month=11/day=15/hour=21/minute=05"
    lines = [line for file in folder.rglob("part-*.json") for line in file.read_text().splitlines()]
    stamp = session.range(1).select(F.date_format(F.lit(moment), "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX")).first()[0]
    assert stamp.endswith("000007Z")
    assert sorted((json.loads(line) for line in lines), key=lambda one: one["id"]) == [
        {"diff": "C", "id": 1, "left_name": None, "right_name": "", "left_at": stamp, "right_at": stamp},
        {"diff": "D", "id": 2, "left_name": "b", "left_at": None},
        {"diff": "I", "id": 3, "right_name": None, "right_at": None},
    ]


def test_the_second_change_set_of_a_minute_is_refused_and_names_the_first(session, config, tmp_path):
    past, current = session.createDataFrame([(1, "a")], SCHEMA), session.createDataFrame([(1, "b")], SCHEMA)
    first = found(session, config, written(past, current, tmp_path))
    with pytest.raises(RefusedInputError, match=f"minute=05 already holds the change set {first.manifest.id} of"):
        written(past, current, tmp_path)
    assert written(past, current, tmp_path, moment=NOON + timedelta(minutes=1)).endswith("minute=06")


def test_a_check_that_fails_leaves_nothing(session, tmp_path):
    past = session.createDataFrame([(1, "a")], SCHEMA)

    def fail() -> ChangeSetManifest:
        assert list((tmp_path / "to").rglob("part-*"))
        msg = "too many deletes"
        raise RefusedInputError(msg)

    manifest = manifest_of(past, past, ["id"], DiffOptions())
    with pytest.raises(RefusedInputError, match="too many deletes"):
        write_change_set(diff(past, past, ["id"]), STORE, str(tmp_path / "to"), manifest, moment=NOON, check=fail)
    assert not (tmp_path / "to").exists()


def test_incomplete_or_mixed_change_sets_are_refused(session, config, tmp_path):
    past, current = session.createDataFrame([(1, "a")], SCHEMA), session.createDataFrame([(1, "b")], SCHEMA)
    folder = written(past, current, tmp_path)
    written(past, current, tmp_path, moment=NOON + timedelta(minutes=1))
    with pytest.raises(RefusedInputError, match=r"minute=05.*minute=06"):
        found(session, config, str(tmp_path))
    with pytest.raises(RefusedInputError, match="no change set at"):
        found(session, config, str(tmp_path / "nowhere"))
    with pytest.raises(RefusedInputError, match="its keys are id, not name"):
        found(session, config, folder, keys=["name"])
    place = tmp_path / folder
    (place / "_SUCCESS").unlink()
    with pytest.raises(RefusedInputError, match="no _SUCCESS"):
        found(session, config, folder)
    assert rows(found(session, config, folder, incomplete_ok=True).frame) == [("C", 1, "a", "b")]
    (place / "_SUCCESS").touch()
    part = next(place.glob("part-*"))
    part.write_bytes(part.read_bytes()[:-1])
    with pytest.raises(RefusedInputError, match="1 of 1 files are missing or not as they were written"):
        found(session, config, folder)
    (place / "_manifest.json").write_text('{"kind": "change-set"}')
    with pytest.raises(RefusedInputError, match=r"_manifest\.json is damaged"):
        found(session, config, folder)
    (place / "_manifest.json").write_text('{"kind": "set"}')
    with pytest.raises(RefusedInputError, match=r"not a change set: according to its _manifest\.json it is a set"):
        found(session, config, folder)


def test_a_change_set_of_the_published_recipe_is_taken_with_its_keys(session, config, tmp_path):
    past, current = session.createDataFrame([(1, "a"), (2, "b")], SCHEMA), session.createDataFrame([(1, "c")], SCHEMA)
    folder = f"{tmp_path}/incremental/year=2026/month=11/day=15/hour=21/minute=05"
    diff(past, current, ["id"]).write.parquet(folder)
    with pytest.raises(RefusedInputError, match=r"no _manifest\.json, so it is not known which columns identify a row"):
        found(session, config, folder)
    one = found(session, config, folder, keys=["id"])
    result = apply_change_sets(Side("past", past), [one], STORE, f"{tmp_path}/result")
    assert (result.rows, result.verified) == (1, False)
    assert rows(open_side(session, config, f"{tmp_path}/result").frame) == [(1, "c")]


def test_one_of_the_recipe_in_json_or_csv_has_the_types_of_the_past(session, config, tmp_path):
    schema = "id string, at timestamp, size bigint, price decimal(9,2)"
    at = datetime(2026, 1, 1, tzinfo=UTC)
    past = session.createDataFrame([("1", at, 1, Decimal("1.50")), ("007", at, 2, None)], schema)
    current = session.createDataFrame([("1", at, None, Decimal("1.50")), ("", at, 9, None)], schema)
    made, keys = diff(past, current, ["id", "at"]), ["id", "at"]
    made.write.json(f"{tmp_path}/json")
    made.write.option("header", True).csv(f"{tmp_path}/csv")
    for kind in ("json", "csv"):
        one = found(session, config, f"{tmp_path}/{kind}", keys=keys, past=past.schema)
        apply_change_sets(Side("past", past), [one], STORE, f"{tmp_path}/{kind}-result")
        assert rows(open_side(session, config, f"{tmp_path}/{kind}-result").frame) == rows(current)
        with pytest.raises(RefusedInputError, match="must be all parquet; found: part-"):
            found(session, config, f"{tmp_path}/{kind}", keys=keys)
    with pytest.raises(RefusedInputError, match="has columns that the table does not have: at"):
        found(session, config, f"{tmp_path}/json", keys=["id"], past=past.schema)


def test_a_base_and_its_increments_restore_every_state(session, config, tmp_path):
    base = make_change(21, rows=50)
    past, current = base.frames(session)
    last = past.filter(F.rand(1) < 2).limit(7)
    to = tmp_path / "sets"
    folders = [
        written(past, current, to, keys=base.keys),
        written(current, last, to, DiffOptions(diff_mode=DiffMode.STRUCTS), base.keys, NOON + timedelta(minutes=1)),
    ]
    sets = [found(session, config, folder) for folder in folders]
    side = Side("past", past, identity=identity(past))
    both = apply_change_sets(side, sets, STORE, f"{tmp_path}/both")
    assert both.verified
    assert both.checksum == identity(last)["checksum"]
    first = apply_change_sets(side, sets[:1], STORE, f"{tmp_path}/first")
    again = open_side(session, config, f"{tmp_path}/first")
    assert (again.checksum, again.primary_key) == (first.checksum, base.keys)
    assert counted(again.frame, base.schema.names) == counted(current, base.schema.names)
    second = apply_change_sets(again, sets[1:], None, None)
    assert (second.to, second.checksum, second.rows) == (None, both.checksum, both.rows)
    for wrong, message in (
        ([sets[1]], "was made from"),
        ([sets[1], sets[0]], "was made from"),
        ([sets[0]] * 2, "result of"),
    ):
        with pytest.raises(RefusedInputError, match=message):
            apply_change_sets(side, wrong, STORE, f"{tmp_path}/wrong")
    with pytest.raises(RefusedInputError, match="exists already"):
        apply_change_sets(side, sets, STORE, f"{tmp_path}/both")
    assert not (tmp_path / "wrong").exists()


def test_a_column_that_went_and_came_back_in_another_type(session, config, tmp_path):
    states = [
        session.createDataFrame([(1, 7), (2, 8)], "id int, x int"),
        session.createDataFrame([(1,), (2,)], "id int"),
        session.createDataFrame([(1, "a"), (2, None)], "id int, x string"),
    ]
    sets = [
        found(session, config, written(*states[at : at + 2], tmp_path, moment=NOON + timedelta(minutes=at)))
        for at in range(2)
    ]
    done = apply_change_sets(Side("past", states[0], identity=identity(states[0])), sets, None, None)
    assert (done.verified, done.checksum) == (True, identity(states[2])["checksum"])


def test_a_key_that_makes_no_set_makes_plain_files(session, config, tmp_path):
    schema = "id double, name string"
    past = session.createDataFrame([(1.5, "a"), (float("nan"), "b"), (2.5, "c")], schema)
    current = session.createDataFrame([(1.5, "A"), (float("nan"), "b")], schema)
    one = found(session, config, written(past, current, tmp_path / "sets"))
    result = apply_change_sets(Side("past", past, identity=identity(past)), [one], STORE, f"{tmp_path}/result")
    again = open_side(session, config, f"{tmp_path}/result")
    assert (result.verified, again.set, again.primary_key) == (True, None, ("id",))
    assert (again.rows, again.checksum) == (2, identity(current)["checksum"])
    assert identity(again.frame)["checksum"] == again.checksum


def test_a_result_that_is_not_what_the_change_set_was_made_from_is_not_published(session, config, tmp_path):
    past, current = session.createDataFrame([(1, "a"), (2, "b")], SCHEMA), session.createDataFrame([(1, "c")], SCHEMA)
    one = found(session, config, written(past, current, tmp_path / "sets"))
    # A row that the change set does not mention.
    other = Side("other", past.union(session.createDataFrame([(9, "z")], SCHEMA)))
    with pytest.raises(RefusedInputError, match=r"the result has the checksum 2:\w+, but .* was made from one with 1:"):
        apply_change_sets(other, [one], STORE, f"{tmp_path}/wrong")
    assert not (tmp_path / "wrong").exists()
    forced = apply_change_sets(other, [one], STORE, f"{tmp_path}/forced", force=True)
    assert (forced.rows, forced.verified) == (2, False)
    twice = Side("twice", session.createDataFrame([(1, "c")], SCHEMA))
    with pytest.raises(RefusedInputError, match=r'for \{"id":1\}|deletes \{"id":2\}'):
        apply_change_sets(twice, [one], STORE, f"{tmp_path}/wrong")


def test_the_command_applies_checks_and_refuses(session, spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("lakeward.session.sessions.open_session", lambda config: spark)
    past, current = session.createDataFrame([(1, "a"), (2, "b")], SCHEMA), session.createDataFrame([(1, "c")], SCHEMA)
    past.write.parquet(str(tmp_path / "past"))
    folder = written(past, current, tmp_path / "sets")

    def run(*arguments: str) -> Any:
        return CliRunner().invoke(cli, ["patch", "past", folder, *arguments])

    checked = run("--check")
    assert (checked.exit_code, "1 change set fit: they lead to 1 row" in checked.stdout) == (0, True), checked.output
    done = run("--to", "result", "--output", "json", "-q")
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert (document["to"], document["rows"], document["primary_key"], document["verified"]) == (
        f"{tmp_path}/result",
        1,
        ["id"],
        True,
    )
    assert rows(session.read.parquet(str(tmp_path / "result"))) == [(1, "c")]
    manifest = json.loads((tmp_path / "result" / "_manifest.json").read_text())
    assert manifest["made_from"]["change_sets"][0]["location"] == folder
    assert run("--to", "result").exit_code == 2
    assert run("--to", "result", "--check").exit_code == 2
    again = CliRunner().invoke(cli, ["patch", "result", folder, "--to", "twice", "-q"])
    assert (again.exit_code, "was made from" in again.output) == (2, True)
    assert not (tmp_path / "twice").exists()
