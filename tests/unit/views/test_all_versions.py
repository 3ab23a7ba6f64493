"""A table over all versions, in a catalog that only takes notes: what adding, moving and removing a version changes."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.views.manifests import manifest_of

from lakeward.columns import Column
from lakeward.config import parse_config
from lakeward.errors import ConfigurationError
from lakeward.model import TableId
from lakeward.views.versions import all_versions, schedule
from lakeward.views.versions.all_versions import FoundTable, VersionPart, merged_columns, put_version, take_out
from lakeward.views.versions.register import ALL_VERSIONS, OWN_MIRROR, OWN_PROPERTY

NAME = "shop.versions"
COLUMNS = (Column("id", "int"), Column("sold", "date"), Column("name", "string"))


class FakeCatalog:
    """One catalog; ``calls`` are the changes, ``widens`` whether it can change the types of columns."""

    def __init__(self, *, widens: bool = True) -> None:
        self.table: FoundTable | None = None
        self.places: dict[tuple[str, ...], str] = {}
        self.calls: list[tuple[str, Any]] = []
        self.widens = widens

    def find(self, _name: str) -> FoundTable | None:
        return self.table

    def column_type(self, lake_type: str, _manifest: Any) -> str:
        return lake_type

    def create(self, _name: str, root: str, column: str, columns: Any, manifest: Any) -> None:
        self.calls.append(("create", root))
        dated = (manifest.folder_column,) if manifest.folder_column else ()
        own = {OWN_PROPERTY: manifest.table, ALL_VERSIONS: manifest.format}
        self.table = FoundTable(own, tuple(columns), (column, *dated))

    def widen(self, _name: str, _before: Any, columns: Any) -> bool:
        self.calls.append(("widen", tuple(columns)))
        if self.widens and self.table is not None:
            self.table = replace(self.table, columns=tuple(columns))
        return self.widens

    def drop(self, _name: str) -> None:
        self.calls.append(("drop", None))
        self.table, self.places = None, {}

    def partitions(self, _name: str, _keys: Any, value: str) -> set[tuple[str, ...]]:
        return {values for values in self.places if values[0] == value}

    def add(self, _name: str, _keys: Any, _part: VersionPart, folders: Any) -> None:
        assert not folders.keys() & self.places.keys()
        self.calls.append(("add", sorted(folders)))
        self.places |= folders

    def move(self, _name: str, _keys: Any, _part: VersionPart, folders: Any) -> None:
        assert folders.keys() <= self.places.keys()
        self.calls.append(("move", sorted(folders)))
        self.places |= folders

    def remove(self, _name: str, _keys: Any, partitions: Any) -> None:
        self.calls.append(("remove", sorted(partitions)))
        for values in partitions:
            del self.places[values]


def part(value: str, *dates: str, folder: str = "", **changes: Any) -> VersionPart:
    files = {f"sold={date}/a.parquet": 1 for date in dates} or {"a.parquet": 1}
    dated = {"layout": "dated", "date_column": "sold", "folder_column": "sold"} if dates else {}
    manifest = replace(manifest_of(value, files, value), **{"columns": COLUMNS, **dated, **changes})
    return VersionPart(value, f"/out/sales.product/version={folder or value}", manifest)


def put(
    catalog: FakeCatalog, *parts: VersionPart, others: tuple[VersionPart, ...] = (), column: str = "version"
) -> None:
    for each in parts:
        put_version(catalog, NAME, column, each, lambda: others)


def test_a_new_table_gets_all_versions_and_later_ones_cost_only_themselves():
    catalog = FakeCatalog()
    put(catalog, part("b"), others=(part("a"), part("b")))
    assert catalog.places == {(name,): f"/out/sales.product/version={name}" for name in "ab"}
    catalog.calls.clear()
    put(catalog, part("c"))
    assert catalog.calls == [("add", [("c",)])]


def test_a_version_made_again_is_moved_in_one_step_and_keeps_no_date_that_is_gone():
    catalog = FakeCatalog()
    put(catalog, part("a", "2020-01-01", "2020-01-02"), part("b", "2020-01-01"))
    catalog.calls.clear()
    put(catalog, part("a", "2020-01-02", "__HIVE_DEFAULT_PARTITION__", folder="a.2"))
    assert catalog.calls == [
        ("move", [("a", "2020-01-02")]),
        ("add", [("a", "__HIVE_DEFAULT_PARTITION__")]),
        ("remove", [("a", "2020-01-01")]),
    ]
    assert catalog.places[("a", "2020-01-02")] == "/out/sales.product/version=a.2/sold=2020-01-02"
    assert catalog.places[("b", "2020-01-01")] == "/out/sales.product/version=b/sold=2020-01-01"


def test_columns_are_those_of_all_versions_and_the_widest():
    catalog = FakeCatalog()
    wide = (Column("id", "bigint"), Column("sold", "date"), Column("more", "int"))
    put(catalog, part("a"), part("b", columns=wide), part("c"))
    assert catalog.table is not None
    assert catalog.table.columns == (
        Column("id", "bigint"), Column("sold", "date"), Column("name", "string"), Column("more", "int"),
    )  # fmt: skip
    assert [call for call, _ in catalog.calls].count("widen") == 1


def test_where_a_type_cannot_be_changed_the_table_is_made_again_with_all_versions():
    catalog = FakeCatalog(widens=False)
    put(catalog, part("a"))
    wide = part("b", columns=(Column("id", "bigint"), *COLUMNS[1:]))
    put(catalog, wide, others=(part("a"), wide))
    assert catalog.table is not None and catalog.table.columns[0] == Column("id", "bigint")
    assert catalog.places.keys() == {("a",), ("b",)}


@pytest.mark.parametrize(
    ("properties", "keys", "message"),
    [
        ({}, ("version",), "not one that Lakeward made over all versions of sales.product"),
        ({OWN_PROPERTY: "sales.product"}, ("version",), "not one that Lakeward made over all versions"),
        ({OWN_PROPERTY: "sales.other", ALL_VERSIONS: "parquet"}, ("version",), "over all versions of sales.product"),
        (
            {OWN_PROPERTY: "sales.product", ALL_VERSIONS: "parquet", OWN_MIRROR: "theirs"},
            ("version",),
            "made from theirs; this one is made from uuid",
        ),
        ({OWN_PROPERTY: "sales.product", ALL_VERSIONS: "csv"}, ("version",), "holds versions in csv"),
        ({OWN_PROPERTY: "sales.product", ALL_VERSIONS: "parquet"}, ("version", "sold"), "partitioned by version, sold"),
        ({OWN_PROPERTY: "sales.product", ALL_VERSIONS: "parquet"}, ("other",), "partitioned by other"),
    ],
)
def test_a_table_that_is_not_this_one_is_left_alone(properties, keys, message):
    catalog = FakeCatalog()
    catalog.table = FoundTable(properties, COLUMNS, keys)
    with pytest.raises(ConfigurationError, match=message):
        put(catalog, part("a"))
    assert catalog.calls == []


@pytest.mark.parametrize("column", ["name", "NAME", "sold"])
def test_the_partition_column_must_not_have_the_name_of_a_column(column):
    catalog = FakeCatalog()
    with pytest.raises(ConfigurationError, match="has a column") as refused:
        put(catalog, part("a"), column=column)
    assert "version_column" in str(refused.value.hint) and catalog.calls == []


def test_a_column_of_another_type_and_one_that_differs_only_in_case_are_refused():
    with pytest.raises(ConfigurationError, match="'id' is string in this version and int in others"):
        merged_columns(NAME, COLUMNS, (Column("id", "string"),))
    with pytest.raises(ConfigurationError, match="differ only in case"):
        merged_columns(NAME, (), (Column("id", "int"), Column("ID", "int")))


def test_text_that_is_read_by_position_takes_no_version_with_other_columns():
    catalog = FakeCatalog()
    put(catalog, part("a", format="csv"), part("b", format="csv"))
    with pytest.raises(ConfigurationError, match="finds columns by position"):
        put(catalog, part("c", format="csv", columns=(COLUMNS[1], COLUMNS[0], COLUMNS[2])))
    assert catalog.places.keys() == {("a",), ("b",)}


def test_a_dropped_version_leaves_the_partition_of_another_folder():
    catalog = FakeCatalog()
    put(catalog, part("a"), others=(part("b"),))
    moved = part("a", folder="moved")
    put(catalog, moved)
    assert catalog.table is not None
    take_out(catalog, NAME, catalog.table, "a", [part("a", format="csv"), moved])
    assert catalog.places[("a",)] == moved.location
    take_out(catalog, NAME, catalog.table, "a", [part("a", format="csv")])
    assert catalog.places.keys() == {("b",)}


def test_a_version_in_a_former_shape_is_passed_over_by_the_present_table(monkeypatch, caplog):
    listed: list[str] = []
    tables = FakeCatalog()
    tables.table = FoundTable({OWN_PROPERTY: "sales.product", ALL_VERSIONS: "parquet"}, (), ("version",))
    monkeypatch.setattr(schedule, "list_version", lambda _context, _name, _column, each, _others: listed.append(each))
    monkeypatch.setattr(all_versions, "_catalog", lambda _context: nullcontext(tables))
    monkeypatch.setattr(all_versions, "table_uuid", lambda _context: "uuid")
    monkeypatch.setattr(schedule, "_part_of", lambda _context, publication: publication.part)
    own = {"timestamp_column": "ts", "snapshots": {"every": "day", "to": "out"}}
    config = parse_config({"tables": {"sales.product": own}}, base=Path("/lake"))
    settings, table = config.tables["sales.product"], TableId("sales", "product")
    context: Any = SimpleNamespace(table=table, config=config, settings=settings)

    def add(day: str, kind: str) -> None:
        each: Any = SimpleNamespace(
            version=day, location=f"/x/{day}", format=kind, layout="flat", date_column="", part=part(day, format=kind)
        )
        schedule.list_one(context, NAME, "version", each)

    add("2020-11-14", "csv")
    assert listed == []
    assert "lakeward snapshot drop sales.product --version 2020-11-14" in caplog.text
    add("2020-11-15", "parquet")
    # A table that is still to be made, or that is somebody else's, passes nothing over.
    tables.table = None
    add("2020-11-14", "csv")
    tables.table = FoundTable({OWN_PROPERTY: "sales.other", ALL_VERSIONS: "parquet"}, (), ("version",))
    add("2020-11-14", "csv")
    assert [each.value for each in listed] == ["2020-11-15", "2020-11-14", "2020-11-14"]
