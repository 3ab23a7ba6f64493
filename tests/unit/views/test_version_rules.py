"""Which shape fits a table, which versions go, what hashes add up to; no JVM."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from lakeward.api.snapshots import SnapshotReport, Snapshots, _named, _table_to_register, snapshots_exit_code
from lakeward.columns import Column
from lakeward.config import parse_config
from lakeward.errors import ConfigurationError, DataError
from lakeward.mirror.op.checkpoints import parse_moment
from lakeward.session.catalog import CatalogKind
from lakeward.storage.checksum import CHECKSUM_VERSION, Checksum, checksum_form, total
from lakeward.storage.filesystem import for_reading
from lakeward.views.points.tagging import point_moment
from lakeward.views.versions.create import moment_of, moment_text
from lakeward.views.versions.layouts import FileShape, require_visible
from lakeward.views.versions.manifest import Publication, PublicationKind
from lakeward.views.versions.register import (
    Pointing,
    default_name,
    is_same_place,
    renew_registration,
    require_free_name,
    require_lasting,
    require_name,
)
from lakeward.views.versions.tags import beyond_retention

COLUMNS = (Column("id", "int"), Column("sold", "date"), Column("seen", "timestamp"), Column("name", "string"))
NOW = datetime.now(UTC)


def publication(version: str, days_ago: float, kind: PublicationKind, root: str = "/out/sales.product") -> Publication:
    return Publication(
        id=f"{root}{version}{kind}",
        kind=kind,
        version=version,
        moment=f"op:{version}",
        location=version if kind is PublicationKind.TAG else f"{root}/version={version}",
        generation=1,
        op=1,
        rows=1,
        content_hash="",
        created=(NOW - timedelta(days=days_ago)).isoformat(),
        changelog=1,
    )


def test_dates_of_a_date_column_are_in_the_path_and_of_a_timestamp_beside_it():
    assert FileShape().folder_column("t", COLUMNS) == ""
    assert FileShape(layout="dated", date_column="sold").folder_column("t", COLUMNS) == "sold"
    assert FileShape(layout="dated", date_column="seen").folder_column("t", COLUMNS) == "seen_date"


@pytest.mark.parametrize(
    ("column", "columns", "words"),
    [
        ("name", COLUMNS, "of type string"),
        ("gone", COLUMNS, "no column 'gone'"),
        ("seen", (*COLUMNS, Column("Seen_Date", "date")), "named like its column 'Seen_Date'"),
        ("sold", (Column("sold", "date"),), "only column"),
    ],
)
def test_columns_that_make_no_dates_are_refused(column, columns, words):
    with pytest.raises(ConfigurationError, match=words):
        FileShape(layout="dated", date_column=column).folder_column("sales.product", columns)


@pytest.mark.parametrize("shape", [FileShape("xml"), FileShape(layout="dated"), FileShape(date_column="sold")])
def test_a_shape_that_contradicts_itself_is_refused(shape):
    with pytest.raises(ConfigurationError):
        shape.require_usable()


def test_folders_that_readers_pass_over_are_refused():
    with pytest.raises(ConfigurationError, match=r"folders by \.dept would be hidden"):
        FileShape(layout="partitioned", partition_by=(".dept",)).published_columns(
            "t", (*COLUMNS, Column(".dept", "string"))
        )
    require_visible("t", ["dept=a/part-0.parquet", "dept=_COPYING_/part-0.parquet", "x._COPYING_"])
    with pytest.raises(DataError, match=r"the folder dept=x\._COPYING_ would not be read by Spark"):
        require_visible("t", ["dept=a/part-0.parquet", "dept=x._COPYING_/part-1.parquet"])


def test_retention_counts_each_folder_and_tags_by_themselves():
    files, tag = PublicationKind.FILES, PublicationKind.TAG
    found = [publication(name, age, files) for name, age in (("a", 3), ("b", 2), ("c", 1))]
    found += [publication("a", 9, files, "/other/sales.product"), publication("t", 8, tag), publication("u", 0, tag)]
    found.append(publication("op-9", 30, PublicationKind.CURRENT))
    assert [version.version for version in beyond_retention(found, keep=1, older_than=None)] == ["t", "a", "b"]
    assert [version.location for version in beyond_retention(found, keep=None, older_than=5 * 86_400.0)] == [
        "/other/sales.product/version=a",
        "t",
    ]
    assert beyond_retention(found, keep=None, older_than=None) == []
    points = [replace(publication(name, age, tag), moment="file:1") for name, age in (("p", 9), ("q", 8), ("r", 7))]
    assert [version.version for version in beyond_retention([*points, *found[4:6]], keep=2, older_than=None)] == ["p"]


def test_checksums_of_parts_add_up():
    assert total([]).text == f"0:{0:032x}"
    assert total([Checksum(2, 2**64 - 1, 5), Checksum(3, 2, 7)]) == Checksum(5, 1, 12)


def test_the_form_of_a_checksum_is_chosen_by_its_version():
    assert checksum_form(CHECKSUM_VERSION) is not checksum_form(1)
    with pytest.raises(DataError, match="checksums of version 3 are unknown; expected 1 or 2"):
        checksum_form(3)


@pytest.mark.parametrize("text", ["2020-11-14", "2020-11-14T10:30:00.5", "op:41", "sequence:20201114103000123"])
def test_a_moment_is_kept_whatever_the_time_zone_is_later(text):
    moment = parse_moment(text, "Europe/Berlin")
    kept = replace(publication(moment.label, 0, PublicationKind.FILES), moment=moment_text(moment))
    assert moment_of(kept) == moment


def test_a_point_is_kept_with_its_name():
    moment = point_moment("20240401100010000000")
    kept = replace(publication(moment.label, 0, PublicationKind.TAG), moment=moment_text(moment))
    assert (kept.moment, moment_of(kept), kept.is_of_point) == ("file:20240401100010000000", moment, True)


def test_names_of_registered_tables():
    assert require_name(default_name("product"), CatalogKind.SQLITE) == "default.product_snapshot"
    for name in ("product", "a.b.c", ".b"):
        with pytest.raises(ConfigurationError, match=r"database\.table"):
            require_name(name, CatalogKind.GLUE)
    assert require_name("my-base.product", CatalogKind.GLUE) == "my-base.product"
    with pytest.raises(ConfigurationError, match="letters, digits and _"):
        require_name(default_name("Order Lines"), CatalogKind.SQLITE)


@pytest.mark.parametrize("given", [True, ""])
def test_registering_by_true_means_the_usual_name(given):
    assert _table_to_register(given) == ""
    assert _table_to_register("a.b") == "a.b"
    assert _table_to_register(False) is _table_to_register(None) is None
    with pytest.raises(ConfigurationError, match="register=7 names no table"):
        _table_to_register(7)


@pytest.mark.parametrize(
    ("implementation", "catalog", "lasts"),
    [("in-memory", "sqlite:///c.db", False), ("hive", "sqlite:///c.db", True), ("in-memory", "glue://", True)],
)
def test_a_table_that_would_be_gone_with_the_process_is_not_registered(implementation, catalog, lasts):
    spark: Any = SimpleNamespace(conf={"spark.sql.catalogImplementation": implementation})
    config: Any = SimpleNamespace(lake=SimpleNamespace(catalog=catalog))
    if lasts:
        require_lasting(spark, config)
        return
    with pytest.raises(ConfigurationError, match="gone when this process ends") as refused:
        require_lasting(spark, config)
    assert "hive" in str(refused.value.hint) and refused.value.exit_code == 2


@pytest.mark.parametrize("register", [True, "", "shop.products"])
def test_a_lake_that_started_spark_itself_registers_nothing_in_memory(tmp_path, register):
    config = parse_config({"lake": {"catalog": "sqlite:///c.db"}}, base=tmp_path)
    spark: Any = SimpleNamespace(conf={"spark.sql.catalogImplementation": "in-memory"})
    bench: Any = SimpleNamespace(config=config, spark=spark, is_own_session=True)
    known: Any = SimpleNamespace(table="sales.product")
    lake: Any = SimpleNamespace(config=config, workbench=lambda: bench, active=lambda names: [known])
    snapshots = Snapshots(lake)
    [report] = snapshots.create(["sales.product"], as_of="op:1", to=str(tmp_path / "out"), register=register)
    assert (report.outcome, report.exit_code) == ("failed", 2)
    assert "gone when this process ends" in str(report.message)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("taken", "wanted", "is_free"),
    [
        (Pointing.CURRENT, Pointing.CURRENT, True),
        (Pointing.CURRENT, Pointing.SCHEDULE, False),
        (Pointing.CURRENT, Pointing.REQUEST, False),
        (Pointing.SCHEDULE, Pointing.CURRENT, False),
        (Pointing.SCHEDULE, Pointing.SCHEDULE, True),
        (Pointing.SCHEDULE, Pointing.REQUEST, False),
        (Pointing.REQUEST, Pointing.CURRENT, False),
        (Pointing.REQUEST, Pointing.SCHEDULE, True),
        (Pointing.REQUEST, Pointing.REQUEST, True),
    ],
)
def test_a_registered_table_points_to_versions_of_one_kind(monkeypatch, taken, wanted, is_free):
    kind = PublicationKind.CURRENT if taken is Pointing.CURRENT else PublicationKind.FILES
    period = "2024-01-01" if taken is Pointing.SCHEDULE else None
    found = replace(publication("1", 0, kind), registered="shop.Product", period=period)
    monkeypatch.setattr("lakeward.views.versions.register.list_publications", lambda _: [found])
    context = SimpleNamespace(table="sales.product", mirror=SimpleNamespace(find_metadata=object))
    require_free_name(context, "shop.other", wanted)
    if is_free:
        require_free_name(context, "Shop.product", wanted)
    else:
        with pytest.raises(ConfigurationError, match=rf"points to versions of {taken} already"):
            require_free_name(context, "Shop.product", wanted)


def test_locations_of_registered_tables_are_compared_exactly():
    version = "file:/out/sales.product/version=2020-11-14"
    assert is_same_place(version, "file:///out/sales.product/version=2020-11-14/")
    assert is_same_place("hdfs://name:8020/out/v", "hdfs:///out/v")
    for other in (f"{version}T103000Z", "file:///other/sales.product/version=2020-11-14", f"s3a://bucket{version[5:]}"):
        assert not is_same_place(version, other)
    assert not is_same_place("s3a://one/out/v", "s3a://other/out/v")


def test_a_registered_table_that_is_gone_is_not_an_error(tmp_path):
    catalog = SimpleNamespace(tableExists=lambda _: False)
    spark = SimpleNamespace(catalog=catalog, sql=lambda text: pytest.fail(f"Spark would log an error: {text}"))
    gone = replace(publication("1", 1, PublicationKind.FILES), registered="default.product_snapshot")
    renew_registration(SimpleNamespace(spark=spark, config=parse_config({}, base=tmp_path)), gone)


def test_a_name_does_not_drop_the_copy_that_readers_open():
    copies = "/shared/_lakeward_versions/sales.product"
    found = [
        publication("op-1", 3, PublicationKind.CURRENT, copies),
        publication("op-2", 2, PublicationKind.CURRENT, copies),
        publication("op-2", 1, PublicationKind.FILES),
        publication("op-1", 0, PublicationKind.CURRENT, "/former/_lakeward_versions/sales.product"),
    ]
    assert _named("sales.product", found, "op-2") == [found[2]]
    assert _named("sales.product", found, "op-1") == [found[0]]
    assert _named("sales.product", found, found[1].location) == [found[1]]
    with pytest.raises(ConfigurationError, match="dropped only by its location") as refused:
        _named("sales.product", found[:2], "op-2")
    assert found[1].location in str(refused.value.hint)


def test_failures_beside_done_tables_exit_with_3():
    done, refused = SnapshotReport("a.b", "done"), SnapshotReport("c.d", "failed", exit_code=2)
    assert [snapshots_exit_code(some) for some in ([done], [refused], [done, refused], [])] == [0, 2, 3, 0]


def test_patterns_in_paths_are_literal():
    assert for_reading("/a[b]/c*?.parquet") == "/a\\[b\\]/c\\*\\?.parquet"


def test_settings_of_copies_and_retention(tmp_path):
    body = {"publish": {"to": "./c", "layout": "dated", "date_column": "sold"}, "snapshots": {"older_than": "30d"}}
    config = parse_config({"defaults": {"snapshots": {"keep": 2}}, "tables": {"a.b": body}}, base=tmp_path)
    kept = config.tables["a.b"].snapshots
    assert (kept.keep, kept.older_than) == (2, 30 * 86_400.0)
    for wrong in ({"to": "./c", "layout": "dated"}, {"to": "./c", "date_column": "sold"}):
        with pytest.raises(ConfigurationError, match="must be set together"):
            parse_config({"tables": {"a.b": {"publish": wrong}}}, base=tmp_path)
