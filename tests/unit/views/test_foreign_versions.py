"""The folders of versions that another system wrote."""

from __future__ import annotations

import pytest

from lakeward.errors import DataError
from lakeward.storage.filesystem import StoredFile
from lakeward.views.versions.foreign import find_folders

ROOT = "s3://bucket/employees"


def found(*paths: str):
    return find_folders(ROOT, [StoredFile(path, 1, 1) for path in paths])


@pytest.mark.parametrize(
    ("paths", "versions"),
    [
        (("part-0.parquet", "_SUCCESS", "_temporary/x"), [("employees", "", 1)]),
        (("v=1/a.parquet", "v=2/b.parquet", "v=2/c.parquet", "v=1_$folder$"), [("v=1", "", 1), ("v=2", "", 2)]),
        (("hire_date=2020-11-13/a.parquet", "hire_date=2020-11-14/b.parquet"), [("employees", "hire_date", 2)]),
        (("_day=2020-11-13/a.parquet",), [("employees", "_day", 1)]),
        (("one/day=2020-11-13/a.parquet", "one/day=2020-11-14/a.parquet", "two/b.parquet"),
         [("one", "day", 2), ("two", "", 1)]),
    ],
)  # fmt: skip
def test_a_folder_is_one_version_or_holds_several(paths, versions):
    assert [(folder.name, folder.date_column, len(folder.files)) for folder in found(*paths)] == versions


@pytest.mark.parametrize(
    ("paths", "words"),
    [
        ((), "holds no Parquet file"),
        (("a.parquet", "v1/b.parquet"), "holds files beside folders"),
        (("v1/a.csv",), "that are not Parquet files: v1/a.csv"),
        (("v1/dept=x/a.parquet",), "holds folders that are not dates: dept=x"),
        (("v1/day=2020-11-13/a.parquet", "v1/b.parquet"), "holds folders that are not dates"),
        (("v1/day=2020-11-13/a.parquet", "v1/year=2020-11-13/b.parquet"), "are not dates: day=2020-11-13, year"),
        (("version=2020-11-14/_manifest.json", "version=2020-11-14/a.parquet"), "Lakeward wrote this version"),
    ],
)
def test_what_is_no_version_is_refused(paths, words):
    with pytest.raises(DataError) as refused:
        found(*paths)
    assert words in refused.value.message


def test_a_fingerprint_shows_files_that_changed():
    [before] = found("a.parquet")
    [same, other] = (find_folders(ROOT, [StoredFile("a.parquet", 1, time)])[0] for time in (1, 2))
    assert before.listing == same.listing != other.listing
