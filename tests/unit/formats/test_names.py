from __future__ import annotations

from pathlib import Path

import pytest
from source_helpers import land, make_spec

from lakeward.config import TableSettings
from lakeward.errors import ConfigurationError
from lakeward.formats.dms.listing import (
    NameMatch,
    SkippedFolder,
    UnknownFile,
    classify,
    classify_transactions,
    file_format,
    is_data_file,
    is_transactions,
    list_files,
    list_folder,
    list_transactions,
    look_into,
    table_folder,
    table_folders,
)
from lakeward.model import FileClass, TableId
from lakeward.storage.landing import Landing

SETTINGS = TableSettings()
CDC = "20240327-014303888.parquet"


@pytest.mark.parametrize(
    ("path", "format_"),
    [
        ("LOAD00000001.csv", "csv"),
        ("LOAD001.csv", "csv"),
        ("LOAD00001.parquet", "parquet"),
        ("LOAD0000000A.parquet", "parquet"),
        ("LOAD0000000a.csv.gz", "csv"),
        ("LOAD00000010.parquet.gz", "parquet"),
        ("SEGMENT1_LOAD00000001.csv", "csv"),
        ("my_own_seg_LOAD0000000F.csv", "csv"),
        ("part one/LOAD00000002.csv", "csv"),
        ("a/b/c/SEGMENT2_LOAD00000002.csv", "csv"),
    ],
)
def test_load_parts(path: str, format_: str) -> None:
    assert classify(path) == NameMatch(FileClass.LOAD, format_)


@pytest.mark.parametrize(
    ("name", "time"),
    [
        ("20141029-1134010000.csv", "20141029113401000000"),
        ("20240327-014303888.parquet", "20240327014303888000"),
        ("20240405-003052555.csv.gz", "20240405003052555000"),
        ("20240405-003052.csv", "20240405003052000000"),
        ("20240405-003052123456.csv", "20240405003052123456"),
        ("20231231-235959999.parquet.gz", "20231231235959999000"),
        ("20240229-000000000.csv", "20240229000000000000"),
    ],
)
def test_change_files_and_their_time(name: str, time: str) -> None:
    match = classify(name)
    assert match is not None
    assert (match.file_class, match.time, match.ambiguous) == (FileClass.CHANGES, time, False)


def test_name_times_of_different_width_compare_by_real_time() -> None:
    wide, narrow = classify("20141029-1134010000.csv"), classify("20141029-113401001.csv")
    assert wide is not None
    assert narrow is not None
    assert wide.time < narrow.time


@pytest.mark.parametrize(
    "name",
    [
        "20230229-000000000.csv", "20241301-000000000.csv", "20240101-240000000.csv", "20240101-006000000.csv",
        "20240101-000060000.csv", "20240101-00000.csv", "2024011-000000000.csv", "20240101_000000000.csv",
        "20240101-000000000.txt", "20240101-0000000001234.csv", "20240101-000000000.csv.bz2", "x20240101-000000000.csv",
        "20240101-000000000.csv\n", "٢٠٢٤٠١٠١-000000000.csv", "00000101-000000000.csv",
        "LOAD.csv", "LOADED.csv", "PAYLOAD00000001.csv", "load00000001.csv", "LOAD0000000G.csv", "LOAD00000001.txt",
        "LOAD00000001", "notes.txt", "CDC_TXN-20201117153046033.csv", "other/" + CDC, "2024/13/01/" + CDC,
        "2024/01/01/extra/" + CDC, "region=eu/" + CDC, "2024-01_01/" + CDC, "2024/" + CDC,
    ],
)  # fmt: skip
def test_a_file_name_that_fits_no_rule_is_unknown(name: str) -> None:
    assert classify(name) is None


@pytest.mark.parametrize("delimiter", ["/", "-", "_", ""])
@pytest.mark.parametrize(
    "parts",
    [("2024", "03", "27"), ("2024", "03", "27", "23"), ("2024", "03"), ("03", "2024", "27"), ("27", "03", "2024")],
)
def test_date_folders(parts: tuple[str, ...], delimiter: str) -> None:
    match = classify(f"{delimiter.join(parts)}/{CDC}")
    assert match is not None
    assert match.file_class is FileClass.CHANGES
    assert match.time == "20240327014303888000"


@pytest.mark.parametrize(
    ("zone", "name", "time", "ambiguous"),
    [
        ("Europe/Berlin", "20240701-003000123", "20240630223000123000", False),
        ("Europe/Berlin", "20240101-003000123", "20231231233000123000", False),
        ("Europe/Berlin", "20241027-023000000", "20241027003000000000", True),
        ("Europe/Berlin", "20241027-015959999", "20241026235959999000", False),
        ("Europe/Berlin", "20241027-030000000", "20241027020000000000", False),
        ("America/New_York", "20241103-013000000", "20241103053000000000", True),
        ("Asia/Kolkata", "20240101-000000000", "20231231183000000000", False),
    ],
)
def test_name_time_zones(zone: str, name: str, time: str, ambiguous: bool) -> None:
    match = classify(name + ".csv", zone)
    assert match is not None
    assert (match.time, match.ambiguous) == (time, ambiguous)


def test_a_time_the_clocks_jumped_over_matches_nothing() -> None:
    assert classify("20240331-023000000.csv", "Europe/Berlin") is None


def test_an_unknown_time_zone_is_a_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match="Mars/Base"):
        classify("20240331-023000000.csv", "Mars/Base")


def test_transaction_files() -> None:
    match = classify_transactions("CDC_TXN-20201117153046033.csv")
    assert match == NameMatch(FileClass.TRANSACTIONS, "csv", "20201117153046033000")
    assert classify_transactions("CDC_TXN-20201117153046033.csv.gz") == match
    for name in ("CDC_TXN-20201317153046033.csv", "CDC_TXN-1.csv", "CDC_TXN-20201117153046033.parquet", "a/" + CDC):
        assert classify_transactions(name) is None
    assert is_transactions("cdc/CDC_TXN-20201117153046033.csv")
    assert not is_transactions("cdc/" + CDC)


def test_file_format() -> None:
    names = ("a.csv", "a.csv.gz", "a.parquet", "a.parquet.gz")
    assert [file_format(name) for name in names] == ["csv", "csv", "parquet", "parquet"]


def test_listing_separates_known_from_unknown_files(tmp_path: Path) -> None:
    for name in ("LOAD00000001.csv", "2024/03/27/" + CDC, "notes.txt", "odd/" + CDC, "_SUCCESS", "x.csv.tmp"):
        land(tmp_path, "x", name)
    storage, settings = Landing(tmp_path), make_spec().settings
    known = list(list_files(storage, "sales/product", settings))
    assert [(file.path, file.file_class, file.time) for file in known] == [
        ("sales/product/2024/03/27/" + CDC, FileClass.CHANGES, "20240327014303888000"),
        ("sales/product/LOAD00000001.csv", FileClass.LOAD, ""),
    ]
    assert known[0].location == str(tmp_path / known[0].path)
    assert known[0].identity == storage.identity(known[0].path)
    unknown = [file for file in list_folder(storage, "sales/product/", settings) if isinstance(file, UnknownFile)]
    assert [file.path for file in unknown] == ["sales/product/notes.txt", "sales/product/odd/" + CDC]
    assert unknown[0] == UnknownFile(
        "sales/product/notes.txt", str(tmp_path / "sales/product/notes.txt"), 1, "notes.txt"
    )
    assert len(list(list_folder(storage, "sales/product", settings))) == 4


def test_listing_more_than_a_thousand_files(tmp_path: Path) -> None:
    for number in range(1001):
        land(tmp_path, "", f"20240101-000000{number:04}.csv")
    names = {f"20240101-000000{number:04}.csv" for number in range(1001)}
    listed = list(list_files(Landing(tmp_path), "sales/product", make_spec().settings))
    assert {Path(file.path).name for file in listed} == names


def test_listing_uses_the_name_time_zone(tmp_path: Path) -> None:
    land(tmp_path, "", "20240101-003000000.csv")
    settings = make_spec(name_timezone="Europe/Berlin").settings
    (file,) = list_files(Landing(tmp_path), "sales/product", settings)
    assert file.time == "20231231233000000000"


def test_listing_transactions(tmp_path: Path) -> None:
    land(tmp_path, "", "CDC_TXN-20201117153046033.csv", folder="cdc")
    land(tmp_path, "", "other.csv", folder="cdc")
    files = list(list_transactions(Landing(tmp_path), "cdc", make_spec().settings))
    assert [(file.path, file.file_class) for file in files] == [
        ("cdc/CDC_TXN-20201117153046033.csv", FileClass.TRANSACTIONS)
    ]


def test_table_folder() -> None:
    assert table_folder(TableId("a", "b"), make_spec().settings) == "a/b"
    assert table_folder(TableId("a", "b"), make_spec(path="x/y/").settings) == "x/y"


def test_discovery(tmp_path: Path) -> None:
    land(tmp_path, "", "LOAD00000001.csv", "sales/product")
    land(tmp_path, "", CDC, "sales/orders/2024/03/27")
    land(tmp_path, "", "LOAD00000001.csv", "hr/people/segment_a")
    land(tmp_path, "", "notes.txt", "sales/notes")
    land(tmp_path, "", "CDC_TXN-20201117153046033.csv", "cdc/txn")
    land(tmp_path, "", "LOAD00000001.csv", "_tmp/product")
    land(tmp_path, "", "LOAD00000001.csv", "x_changes/product")
    land(tmp_path, "", "LOAD00000001.csv", "toplevel")
    storage = Landing(tmp_path)
    folders = list(table_folders(storage, transactions="/cdc/txn/"))
    skipped = [folder for folder in folders if isinstance(folder, SkippedFolder)]
    assert [folder.path for folder in skipped] == ["toplevel", "x_changes/product"]
    tables = [folder for folder in folders if isinstance(folder, TableId)]
    assert [str(table) for table in tables] == ["hr.people", "sales.notes", "sales.orders", "sales.product"]
    none = [
        table for table in tables
        if not look_into(storage, f"{table.schema}/{table.name}", SETTINGS, most=1, completely=False)[0]
    ]  # fmt: skip
    assert [str(name) for name in none] == ["sales.notes"]


@pytest.mark.parametrize("folder", ["sales/20240327", "sales/202403", "sales/2024-03-27", "2024/03"])
def test_a_date_folder_among_tables_is_not_a_table(tmp_path: Path, folder: str) -> None:
    land(tmp_path, "", CDC, folder)
    [skipped] = table_folders(Landing(tmp_path))
    assert isinstance(skipped, SkippedFolder)
    assert skipped.path == folder
    assert "declare it" in skipped.reason


def test_a_schema_with_a_dot_is_not_a_table_under_its_own_name(tmp_path: Path) -> None:
    land(tmp_path, "", CDC, "a.b/c")
    land(tmp_path, "", CDC, "a/b.c")
    table, skipped = table_folders(Landing(tmp_path))
    assert isinstance(skipped, SkippedFolder) and "a dot ends" in skipped.reason
    assert table == TableId.parse("a.b.c") == TableId("a", "b.c")


def test_looking_for_files_stops_at_the_first_match(tmp_path: Path) -> None:
    for number in range(5):
        land(tmp_path, "", f"LOAD0000000{number}.csv")
    seen = []

    class Counting(Landing):
        def walk(self, prefix):  # type: ignore[no-untyped-def]
            for file in super().walk(prefix):
                seen.append(file)
                yield file

    assert look_into(Counting(tmp_path), "sales/product", SETTINGS, most=1, completely=False)[0]
    assert len(seen) == 1


@pytest.mark.parametrize(("path", "is_one"), [
    ("sales/product/LOAD00000001.csv", True), ("a.parquet", True), ("a/b.csv.gz", True), ("a.parquet.gz", True),
    ("logo.png", False), ("a.csv.tmp", False), ("a.gz", False), ("csv", False), ("a.CSV", False), ("a.csv/b", False),
])  # fmt: skip
def test_files_that_may_be_data_by_their_ending(path: str, is_one: bool) -> None:
    assert is_data_file(path) is is_one
