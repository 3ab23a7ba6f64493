"""Finding tables in landing: which are found, which are distinguished, and how few listings that needs."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from lakeward.config import parse_config
from lakeward.errors import ConfigurationError, DataError
from lakeward.runner.tables import discover
from lakeward.state.memory import MemoryStateStore
from lakeward.storage.filesystem import LocalFileSystem
from lakeward.storage.landing import Landing

ELSEWHERE = "files are looked for in SCHEMA/TABLE/, or in the folder that a table's path: names"
LOAD, CHANGE = "LOAD00000001.parquet", "20240327-014303888.parquet"


class CountingStorage(Landing):
    """Counts calls, and the files that listings returned."""

    def __init__(self, root):
        super().__init__(root)
        self.calls = Counter()

    def walk(self, prefix):
        self.calls["walk"] += 1
        for file in super().walk(prefix):
            self.calls["files"] += 1
            yield file

    def children(self, prefix):
        self.calls["folders"] += 1
        return super().children(prefix)

    def spool(self, path):
        self.calls["spool"] += 1
        return super().spool(path)


def land(root: Path, *paths: str, text: str = "") -> None:
    for path in paths:
        file = root / "landing" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def look(root: Path, state=None, *, read_transactions: bool = False, **settings):
    config = parse_config(settings, base=root)
    storage = CountingStorage(root / "landing")
    found = discover(config, storage, state or MemoryStateStore(), read_transactions=read_transactions)
    return found, storage.calls


def names(tables) -> list[str]:
    return [str(table) for table in tables]


def test_three_thousand_tables_cost_one_check_each_and_then_none(tmp_path):
    for number in range(3000):
        folder = f"schema{number % 30:02}/table{number:04}"
        land(tmp_path, f"{folder}/2024/03/27/{CHANGE}", f"{folder}/{LOAD}")
    state = MemoryStateStore()
    found, calls = look(tmp_path, state)
    assert len(found.new) == 3000
    assert not any(table.active for table in state.registered())
    assert calls == {"folders": 31, "walk": 3000, "files": 6000}
    again, calls = look(tmp_path, state)
    assert again.new == ()
    assert calls == {"folders": 31}


def test_files_that_nobody_reads_are_named_with_the_setting_that_would_read_them(tmp_path):
    land(tmp_path, f"sales/product/{LOAD}", "sales/product/2024/05/delta_0042.csv", "sales/product/notes.txt")
    land(tmp_path, f"sales/orders/{LOAD}", "sales/product/CDC_TXN-20240327014303888.csv")
    found, _ = look(tmp_path)
    assert names(found.new) == ["sales.orders", "sales.product"]
    [unread] = found.unread
    assert (unread.folder, unread.count) == ("sales/product", 3)
    reasons = {file.path.rpartition("/")[2]: (file.pattern, file.reason) for file in unread.files}
    assert reasons["delta_0042.csv"][0] == "**/delta_*.csv"
    assert "files.changes=**/delta_*.csv and files.order as changes" in reasons["delta_0042.csv"][1]
    assert reasons["notes.txt"][0] is None and "no setting reads it" in reasons["notes.txt"][1]
    assert "transactions: sales/product is set" in reasons["CDC_TXN-20240327014303888.csv"][1]


def test_default_patterns_decide_which_folders_are_tables(tmp_path):
    land(tmp_path, "sales/product/part-0.csv", "hr/people/delta_1.csv", f"sales/orders/{LOAD}")
    own = {"load": "part-*", "changes": "delta_*", "order": "name"}
    assert names(look(tmp_path, defaults={"files": own})[0].new) == ["hr.people", "sales.product"]
    both = {"load": "*.csv", "changes": "delta_*", "order": "name"}
    skipped = look(tmp_path, defaults={"files": both})[0].skipped
    assert any("fits both files.load" in folder.reason for folder in skipped)


def test_excluded_folders_are_not_listed(tmp_path):
    land(tmp_path, f"sales/product/{LOAD}", f"sales/audit_log/{LOAD}", f"hr/people/{LOAD}", f"Sales/product/{LOAD}")
    found, calls = look(tmp_path, include=["sales.*", "hr.p*"], exclude="*.audit_*")
    assert names(found.new) == ["hr.people", "sales.product"]
    assert calls["walk"] == 2


def test_declared_tables_are_not_registered(tmp_path):
    land(tmp_path, f"sales/product/{LOAD}", f"hr/product/{LOAD}")
    found, _ = look(tmp_path, tables={"sales.product": {}})
    assert names(found.new) == ["hr.product"]


def test_names_that_differ_little_are_separate_tables(tmp_path):
    wanted = [
        "Sales.product",
        "sales.Product",
        "sales.it's",
        "sales.pro.duct",
        "sales.pro duct",
        "sales.product",
        "sales.数量",
    ]
    for name in wanted:
        schema, _, table = name.partition(".")
        land(tmp_path, f"{schema}/{table}/{LOAD}")
    state = MemoryStateStore()
    found, _ = look(tmp_path, state)
    assert sorted(names(found.new)) == sorted(wanted)
    assert len({str(table.table) for table in state.registered()}) == len(wanted)


def test_date_folders_and_unusable_names_are_reported_and_not_registered(tmp_path):
    land(tmp_path, f"product/20240327/{CHANGE}", f"x_changes/a/{LOAD}", f"a.b/c/{LOAD}", f"sales/product/{LOAD}")
    found, _ = look(tmp_path)
    assert names(found.new) == ["sales.product"]
    assert [folder.path for folder in found.skipped] == ["a.b/c", "product/20240327", "x_changes/a"]
    assert look(tmp_path, exclude=["product.*", "x_*", "a.b*"])[0].skipped == ()


def test_ignored_files_are_reported_with_the_expected_names(tmp_path):
    land(tmp_path, f"sales/product/{LOAD}", "sales/orders/part-00000.parquet", "sales/orders/part-00001.parquet")
    land(tmp_path, "sales/people/load00000001.parquet", f"invoice/{LOAD}", "customers.csv", "sales/_tmp/x.csv")
    land(tmp_path, "cdc/CDC_TXN-20240327014303888.csv", "sales/empty/.keep")
    found, _ = look(tmp_path)
    assert names(found.new) == ["sales.product"]
    reasons = {folder.path: folder.reason for folder in found.skipped}
    assert sorted(reasons) == [".", "cdc", "invoice", "sales/orders", "sales/people"]
    assert reasons["."] == f"holds customers.csv: {ELSEWHERE}"
    assert reasons["invoice"] == f"holds invoice/{LOAD}: {ELSEWHERE}"
    assert "transactions: cdc is set" in reasons["cdc"]
    assert reasons["sales/orders"].startswith(
        "holds 2 files such as sales/orders/part-00000.parquet: its name fits neither files.load (LOAD00000001.parquet)"
    )
    assert "files.load=part-*.parquet would read it as a load" in reasons["sales/orders"]
    assert "files.changes=load*.parquet and files.order as changes" in reasons["sales/people"]
    assert [folder.path for folder in look(tmp_path, transactions="cdc")[0].skipped] == [
        "invoice", "sales/orders", "sales/people", ".",
    ]  # fmt: skip
    assert look(tmp_path, include="sales.p*")[0].skipped[0].path == "sales/people"


def test_a_landing_that_points_too_deep_is_reported_with_its_files(tmp_path):
    land(tmp_path, f"product/{LOAD}")
    found, _ = look(tmp_path)
    assert found.new == () and found.stray == f"product/{LOAD}"
    land(tmp_path, f"sales/product/{LOAD}")
    assert look(tmp_path)[0].stray is None


def test_the_transactions_folder_is_not_a_table_and_is_not_walked(tmp_path):
    land(tmp_path, *(f"dms/cdc/CDC_TXN-2024032701430388{number}.csv" for number in range(5)), text="I,orders,sales,1\n")
    found, calls = look(tmp_path, transactions="dms/cdc/")
    assert found.new == () and calls["spool"] == 0
    assert calls["files"] == 1, "one file is shown, as landing holds no table"


def test_tables_that_appear_only_in_transactions_are_found_on_request(tmp_path):
    land(tmp_path, f"sales/product/{LOAD}")
    rows = "I,orders,sales,1\nU,product,sales,1\nD,log,audit,2\nI,bad,x_changes,1\n"
    land(tmp_path, "cdc/CDC_TXN-20240327014303888.csv", text=rows)
    land(tmp_path, "cdc/CDC_TXN-20240327014303889.csv", text='I,"or,ders",sales,1\n')
    state = MemoryStateStore()
    found, _ = look(tmp_path, state, read_transactions=True, transactions="cdc", exclude="audit.*")
    assert names(found.new) == ["sales.product", "sales.or,ders", "sales.orders"]
    assert names(found.unlanded) == ["sales.or,ders", "sales.orders"]
    assert [folder.path for folder in found.skipped] == ["x_changes/bad"]
    assert look(tmp_path, state, read_transactions=True, transactions="cdc", exclude="audit.*")[0].new == ()


def test_transactions_that_cannot_be_read_are_an_error(tmp_path):
    land(tmp_path, f"sales/product/{LOAD}")
    with pytest.raises(ConfigurationError, match="transactions: is not set"):
        look(tmp_path, read_transactions=True)
    land(tmp_path, "cdc/CDC_TXN-20240327014303888.csv", text="I,orders\n")
    with pytest.raises(DataError, match=r"CDC_TXN-20240327014303888\.csv cannot be used: record 1 has 2 fields"):
        look(tmp_path, read_transactions=True, transactions="cdc")


def test_names_that_are_not_utf8_are_reported_and_do_not_hide_the_others(tmp_path):
    land(tmp_path, f"sales/product/{LOAD}")
    for folder in (b"sales/caf\xe9", b"sch\xe9ma/orders", b"sales/two\nlines", b"sales/\x1b[2J"):
        path = tmp_path / "landing" / os.fsdecode(folder)
        path.mkdir(parents=True)
        (path / LOAD).write_text("")
    found, _ = look(tmp_path)
    assert names(found.new) == ["sales.product"]
    assert {folder.path for folder in found.skipped} == {
        "sales/caf\\xe9", "sch\\xe9ma/orders", "sales/two\\nlines", "sales/\\x1b[2J"
    }  # fmt: skip
    assert all("cannot name a table: its name" in folder.reason for folder in found.skipped)


def test_a_folder_that_cannot_be_listed_does_not_hide_the_others(tmp_path, monkeypatch):
    land(tmp_path, f"sales/product/{LOAD}", f"sales/secret/{LOAD}", f"closed/orders/{LOAD}")
    entries = LocalFileSystem.entries

    def refused(system, folder):
        if folder.endswith(("/sales/secret", "/closed")):
            raise PermissionError(13, "Permission denied", folder)
        return entries(system, folder)

    monkeypatch.setattr(LocalFileSystem, "entries", refused)
    found, _ = look(tmp_path, include=["sales.*", "closed.orders"])
    assert names(found.new) == ["sales.product"]
    assert {(folder.path, folder.reason) for folder in found.skipped} == {
        ("sales/secret", "it cannot be listed: Permission denied"),
        ("closed", "it cannot be listed: Permission denied"),
    }


def test_a_link_that_leads_to_itself_is_not_a_folder(tmp_path):
    land(tmp_path, f"sales/product/{LOAD}")
    for link in ("loop", "sales/loop"):
        (tmp_path / "landing" / link).symlink_to((tmp_path / "landing" / link).name)
    found, _ = look(tmp_path)
    assert names(found.new) == ["sales.product"]
    assert sorted(folder.path for folder in found.skipped) == [".", "sales"]


def test_a_folder_that_is_a_link_out_of_landing_is_skipped_and_the_others_are_found(tmp_path):
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    (outside / "x").mkdir(parents=True)
    (outside / "x" / "LOAD00000001.csv").write_text("1\n")
    (tmp_path / "landing" / "sales" / "product").mkdir(parents=True)
    (tmp_path / "landing" / "sales" / "product" / "LOAD00000001.csv").write_text("1\n")
    (tmp_path / "landing" / "sales" / "linked").symlink_to(outside / "x")
    (tmp_path / "landing" / "whole").symlink_to(outside)
    found, _ = look(tmp_path)
    assert [str(table) for table in found.new] == ["sales.product"]
    [skipped] = found.skipped
    assert skipped.path == "sales/linked" and "outside the landing folder" in skipped.reason
