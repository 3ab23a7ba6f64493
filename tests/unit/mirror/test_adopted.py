"""Which change files an adopted lake contains, and the values in the names of its folders."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeward.column_policy import as_stored, hashed, of_files
from lakeward.columns import Column
from lakeward.config import TableSettings
from lakeward.config.policy import rules_of
from lakeward.config.tables import AdoptSettings
from lakeward.errors import ConfigurationError, DataError
from lakeward.formats.base import FileSummary, ReadSpec
from lakeward.formats.dms.files import UnusableFileError
from lakeward.formats.dms.folders import NO_VALUE, folder_texts, folder_values
from lakeward.formats.dms.reader import read_file
from lakeward.mirror.op.adopted import adopted_columns, adoption_problem, former_files, list_lake, outdated_files
from lakeward.model import FileClass, FileIdentity, LandingFile, TableId
from lakeward.schemas import DETAIL
from lakeward.storage.landing import Landing, LandingWithLake, is_hidden_in_lake

KEY = "0123456789abcdef0123456789abcdef"
TABLE, FOLDER = TableId("sales", "product"), "sales/product"


def change(name: str, written: int = 0) -> LandingFile:
    path = f"{FOLDER}/{name}"
    digits = name.rpartition("/")[2].removesuffix(".parquet").replace("-", "").ljust(20, "0")
    return LandingFile(path, path, FileClass.CHANGES, digits, FileIdentity(1, written))


def divided(last_file: str, *files: LandingFile):
    return former_files(files, FOLDER, TableSettings(adopt=AdoptSettings(lake="lake", last_file=last_file)))


def names(files) -> list[str]:
    return [file.path.removeprefix(f"{FOLDER}/").removesuffix(".parquet") for file in files]


def test_the_newest_applied_file_divides_by_text_and_includes_itself():
    days = [change(f"2024010{day}-000000000.parquet", day) for day in range(1, 5)]
    found = divided("20240102-000000000.parquet", *days)
    assert names(found.contained) == ["20240101-000000000", "20240102-000000000"]
    assert names(found.unread) == ["20240103-000000000", "20240104-000000000"]
    assert (found.doubtful, found.cut) == ((), "20240102000000000001")
    assert found.read_again(found.cut) == []


def test_the_default_of_the_controller_means_that_nothing_was_applied():
    found = divided("0.parquet", change("20240101-000000000.parquet"))
    assert (len(found.unread), found.contained, found.cut) == (1, (), "")


def test_applied_files_that_are_gone_from_landing_still_set_the_cut():
    found = divided("2024/01/02/20240102-000000000.parquet")
    assert found.cut == "20240102000000000001"


def test_a_file_that_came_after_others_that_sort_after_it_may_have_been_missed():
    files = [change("20240101-000000000.parquet", 9), change("20240102-000000000.parquet", 2),
             change("20240103-000000000.parquet", 3), change("20240104-000000000.parquet", 4)]  # fmt: skip
    found = divided("20240103-000000000.parquet", *files)
    assert names(found.late) == ["20240101-000000000"]
    # Read together with all that follows it, except itself.
    assert names(found.read_again(found.doubtful[0].time)) == ["20240102-000000000", "20240103-000000000"]
    copied = [replace(file, identity=FileIdentity(1, 5)) for file in files]
    assert divided("20240103-000000000.parquet", *copied).late == ()


def test_date_folders_that_do_not_sort_as_time_does_are_read_from_the_first_unread_file_on():
    march = change("28032024/20240328-000000000.parquet", 1)
    april = change("29022024/20240229-000000000.parquet", 0)
    found = divided("28032024/20240328-000000000.parquet", march, april)
    assert (names(found.contained), names(found.unread)) == (
        ["28032024/20240328-000000000"],
        ["29022024/20240229-000000000"],
    )
    assert found.cut == april.time
    assert found.read_again(found.cut) == [march]


def test_names_that_the_former_system_never_lists_are_doubtful():
    found = divided("20240103-000000000.parquet", change("032024/20240303-000000000.parquet"))
    assert names(found.unlisted) == ["032024/20240303-000000000"] == names(found.doubtful)


@pytest.mark.parametrize(
    ("path", "texts"),
    [
        ("part-0.parquet", {}),
        ("dept=007/part-0.parquet", {"dept": "007"}),
        ("dept=a%2Fb%3Dc/day=2024-01-01/x", {"dept": "a/b=c", "day": "2024-01-01"}),
        (f"dept={NO_VALUE}/x", {"dept": NO_VALUE}),
        ("a%20b=/x", {"a b": ""}),
    ],
)
def test_folders_hold_values_as_escaped_text(path, texts):
    assert folder_texts(path) == texts


@pytest.mark.parametrize("path", ["product/part-0.parquet", "=1/x", "a=1/a=2/x"])
def test_folders_that_are_no_partition_are_refused(path):
    with pytest.raises(UnusableFileError):
        folder_texts(path)


def spec(column_type: str, **adopt) -> ReadSpec:
    settings = TableSettings(adopt=AdoptSettings(lake="lake", **adopt))
    return ReadSpec(TABLE, (Column("c", column_type),), settings)


@pytest.mark.parametrize(
    ("text", "column_type", "value"),
    [
        ("007", "string", "007"), ("7", "int", 7), ("-7", "bigint", -7), ("2024-01-31", "string", "2024-01-31"),
        (NO_VALUE, "int", None), ("1.50", "string", "1.50"), ("true", "boolean", True),
    ],
)  # fmt: skip
def test_a_folder_s_value_has_the_type_of_its_column(text, column_type, value):
    assert folder_values(f"c={text}/x", spec(column_type))["c"].as_py() == value


@pytest.mark.parametrize(("text", "column_type"), [("007", "int"), ("x", "int"), ("2024-13-01", "date"), ("", "int")])
def test_a_folder_s_value_is_never_bent_to_a_type(text, column_type):
    with pytest.raises(UnusableFileError, match="is not one of column c"):
        folder_values(f"c={text}/x", spec(column_type))


def test_null_and_the_empty_text_are_told_apart_by_a_person():
    with pytest.raises(UnusableFileError, match=r"adopt\.empty_partition decides"):
        folder_values(f"c={NO_VALUE}/x", spec("string"))
    assert folder_values(f"c={NO_VALUE}/x", spec("string", empty_partition="empty"))["c"].as_py() == ""
    assert folder_values(f"c={NO_VALUE}/x", spec("string", empty_partition="null"))["c"].as_py() is None
    with pytest.raises(UnusableFileError, match="the type of partition column 'd' is unknown"):
        folder_values("d=1/x", spec("string"))


def lake_with(folder: Path, *paths: str) -> Landing:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"Op": ["I"], "id": [1]}), folder / path)
    return Landing(folder)


def adopt(**settings) -> AdoptSettings:
    return AdoptSettings(lake="lake", **settings)


def test_the_files_of_a_lake_are_listed_without_marks(tmp_path):
    lake = lake_with(tmp_path, "c=1/a.parquet", "c=2/b.parquet", "c=2/old.parquet")
    for mark in ("_SUCCESS", "c=1_$folder$", ".hidden.crc"):
        (tmp_path / mark).touch()
    found = list_lake(lake, adopt(leave_out=("c=2/old.parquet",)))
    assert [file.path for file in found.files] == [f"{tmp_path}/c=1/a.parquet", f"{tmp_path}/c=2/b.parquet"]
    assert ([file.path for file in found.left_out], found.partitions) == ([f"{tmp_path}/c=2/old.parquet"], ("c",))
    assert found.fingerprint == list_lake(lake, adopt()).fingerprint
    lake_with(tmp_path, "c=1/new.parquet")
    assert found.fingerprint != list_lake(lake, adopt()).fingerprint


def test_a_partition_is_read_whatever_its_value_is(tmp_path: Path):
    paths = ["_kind=1/a.parquet", "kind=a.tmp/b.parquet", "kind=.x/c.parquet"]
    skipped = ["_temporary/0/kind=1/a.parquet", "kind=a.tmp/_d.parquet", "kind=a.tmp/.d.parquet.crc"]
    lake = lake_with(tmp_path, *paths, *skipped)
    assert sorted(file.path for file in lake.walk("", is_hidden_in_lake)) == sorted(paths)
    flat = [file.path for file in lake._walk_flat("", is_hidden_in_lake)]
    assert sorted(flat) == sorted(paths)
    values = lake_with(tmp_path / "values", *paths[1:])
    assert len(list_lake(values, adopt()).files) == 2


@pytest.mark.parametrize(
    ("paths", "settings", "words"),
    [
        ((), {}, "holds no Parquet file"),
        (("c=1/a.parquet", "b.parquet"), {}, "are partitioned in different ways"),
        (("product/a.parquet",), {}, "is not a partition folder"),
        (("c=1/notes.txt",), {}, "that are not Parquet files: c=1/notes.txt"),
        (("a.parquet",), {"leave_out": ("b.parquet",)}, "leave_out names b.parquet"),
    ],
)
def test_a_folder_that_is_not_the_lake_of_one_table_is_refused(tmp_path, paths, settings, words):
    with pytest.raises((DataError, ConfigurationError)) as refused:
        list_lake(lake_with(tmp_path, *paths), adopt(**settings))
    assert words in refused.value.message


@pytest.mark.parametrize(
    ("settings", "setting", "words"),
    [
        ({"files": {"changes": "delta_*.csv", "order": "name"}}, "files.changes", "adopt and files.changes"),
        ({"columns": {"dept": "mask"}}, "columns", "dept cannot have the rule mask"),
        ({"columns": {"team": "hash"}, "renames": {"dept": "team"}}, "columns", "team cannot have the rule hash"),
    ],
)
def test_settings_that_cannot_go_together_with_a_lake_are_named(settings, setting, words):
    problem = adoption_problem(TableSettings.model_validate({"adopt": {"lake": "lake"}, **settings}), ("dept",))
    assert problem is not None
    assert problem.setting == setting
    assert words in problem.message
    assert adoption_problem(TableSettings.model_validate(settings), ()) is None


def test_other_settings_go_together_with_a_lake():
    settings = {"columns": {"name": "mask"}, "files": {"load": "part-*.parquet"}, "adopt": {"lake": "lake"}}
    assert adoption_problem(TableSettings.model_validate(settings), ("dept",)) is None


def test_the_older_of_two_files_that_share_keys_is_outdated():
    written = {"a": 3, "b": 1, "c": 2}
    assert outdated_files({("a", "b"), ("a", "c"), ("a", "a")}, written) == ["b", "c"]


def test_files_of_a_lake_are_read_as_loads_and_never_written(tmp_path):
    (tmp_path / "landing").mkdir()
    storage = LandingWithLake(Landing(tmp_path / "landing"), lake_with(tmp_path / "lake", "dept=007/a.parquet"))
    path = f"{tmp_path}/lake/dept=007/a.parquet"
    file = LandingFile(path, path, FileClass.LOAD, "", storage.identity(path))
    assert storage.location(path) == path
    for kept in (False, True):
        columns = (Column("id", "bigint"), Column("dept", "string"), *([Column("Op", "string")] if kept else []))
        settings = TableSettings(primary_key=("id",), adopt=adopt(keep_op=kept))
        rows, summary = read_file(storage, file, ReadSpec(TABLE, columns, settings))
        found = FileSummary.from_json(summary.column(DETAIL)[0].as_py())
        assert (found.problem, found.mismatch, found.rows) == (None, False, 1)
        [row] = rows.select([column.name for column in columns]).to_pylist()
        assert row == {"id": 1, "dept": "007", **({"Op": "I"} if kept else {})}
    with pytest.raises(DataError, match="it is only read"):
        storage.replace(path, path)


def test_rules_for_columns_hold_for_the_rows_of_a_lake(tmp_path, monkeypatch):
    monkeypatch.setenv("POLICY_KEY", KEY)
    (tmp_path / "landing").mkdir()
    folder = tmp_path / "lake" / "dept=toys"
    folder.mkdir(parents=True)
    columns = {"id": [7], "ssn": ["123"], "mail": ["a@b"], "born": ["1970"], "phone": ["123456"], "notes": ["secret"]}
    pq.write_table(pa.table({"Op": ["I"], **columns}), folder / "a.parquet")
    storage = LandingWithLake(Landing(tmp_path / "landing"), Landing(tmp_path / "lake"))
    rules = {"id": "hash", "ssn": "hash", "mail": "mask", "born": "redact", "phone": "truncate(2)", "notes": "drop"}
    settings = TableSettings.model_validate(
        {
            "primary_key": ["id"], "columns": rules, "hash_key": "env:POLICY_KEY",
            "adopt": {"lake": "lake", "partition_types": {"dept": "string"}},
        }
    )  # fmt: skip
    path = f"{tmp_path}/lake/dept=toys/a.parquet"
    file = LandingFile(path, path, FileClass.LOAD, "", storage.identity(path))
    found = adopted_columns(TABLE, storage, settings, [file])
    assert [column.name for column in found] == [*columns, "dept"]
    stored = as_stored(of_files(found, rules_of(settings)), rules_of(settings))
    rows, last = read_file(storage, file, ReadSpec(TABLE, stored, settings))
    summary = FileSummary.from_json(last.column(DETAIL)[0].as_py())
    assert (summary.problem, summary.mismatch, summary.rows) == (None, False, 1)
    assert "notes" not in rows.schema.names
    assert rows.select([column.name for column in stored]).to_pylist() == [
        {
            "id": hashed(KEY.encode(), b"7"), "ssn": hashed(KEY.encode(), b"123"), "mail": "***", "born": None,
            "phone": "12", "dept": "toys",
        }
    ]  # fmt: skip
