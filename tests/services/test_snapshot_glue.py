"""Versions registered in a Glue catalog: the table points to the newest, with its partitions and no others."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from lakeward.columns import Column
from lakeward.config import parse_config
from lakeward.errors import ConfigurationError
from lakeward.views.versions.all_versions import GlueVersions, VersionPart, put_version
from lakeward.views.versions.register import GlueTables, for_glue
from tests.servers.moto import CREDENTIALS, REGION, moto_client
from tests.unit.views.manifests import manifest_of

COLUMNS = (Column("id", "int"), Column("sold", "date"), Column("seen", "timestamp_ntz"))
DATES = [f"2020-{month:02}-{day:02}" for month in range(1, 5) for day in range(1, 29)]


@pytest.fixture
def client(moto_endpoint: str) -> Iterator[Any]:
    made = moto_client("glue", moto_endpoint)
    yield made
    made.close()


def dated(version: str, dates: list[str]) -> Any:
    files = {f"sold={date}/part-0.parquet": 1 for date in dates}
    made = manifest_of(version, files, version)
    return replace(made, columns=COLUMNS, layout="dated", date_column="sold", folder_column="sold")


def partitions(client: Any, database: str) -> dict[str, str]:
    pages = client.get_paginator("get_partitions").paginate(DatabaseName=database, TableName="product_snapshot")
    found = [partition for page in pages for partition in page["Partitions"]]
    return {entry["Values"][0]: entry["StorageDescriptor"]["Location"] for entry in found}


def points_to(tables: GlueTables, name: str, location: str) -> bool:
    return tables.location(name) == for_glue(location)


def test_a_table_points_to_the_newest_version_with_its_partitions_alone(client):
    database = f"d{uuid.uuid4().hex[:8]}"
    tables, name = GlueTables(client), f"{database}.product_snapshot"
    old, new = "s3a://bucket/out/sales.product/version=a", "s3a://bucket/out/sales.product/version=b"
    tables.point(name, old, dated("a", [*DATES, "__HIVE_DEFAULT_PARTITION__"]))
    found = client.get_table(DatabaseName=database, Name="product_snapshot")["Table"]
    assert [column["Name"] for column in found["StorageDescriptor"]["Columns"]] == ["id", "seen"]
    assert [column["Type"] for column in found["StorageDescriptor"]["Columns"]] == ["int", "timestamp"]
    assert found["PartitionKeys"] == [{"Name": "sold", "Type": "date"}]
    assert len(partitions(client, database)) == len(DATES) + 1
    assert points_to(tables, name, old)
    tables.point(name, new, dated("b", DATES[:2]))
    assert (points_to(tables, name, old), points_to(tables, name, new)) == (False, True)
    assert partitions(client, database) == {
        date: f"s3://bucket/out/sales.product/version=b/sold={date}" for date in DATES[:2]
    }
    tables.point(name, new, manifest_of("c", {"part-0.parquet": 1}))
    assert partitions(client, database) == {}


def test_a_table_of_another_program_is_never_replaced(client):
    database = f"d{uuid.uuid4().hex[:8]}"
    client.create_database(DatabaseInput={"Name": database})
    client.create_table(DatabaseName=database, TableInput={"Name": "product_snapshot"})
    with pytest.raises(ConfigurationError, match="not made by Lakeward"):
        GlueTables(client).point(f"{database}.product_snapshot", "s3://b/v", manifest_of("a", {}))
    assert not points_to(GlueTables(client), f"{database}.product_snapshot", "s3://b/v")


def test_the_catalog_of_the_configuration_is_opened(moto_endpoint, monkeypatch, tmp_path):
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name.upper(), value)
    monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", moto_endpoint)
    lake = {"catalog": f"glue://?region={REGION}", "warehouse": "s3://bucket/lake"}
    with GlueTables.open(parse_config({"lake": lake}, base=tmp_path)) as tables:
        assert not points_to(tables, f"none{uuid.uuid4().hex}.product", "s3://b/v")


def test_folders_by_value_keep_their_types_and_follow_the_version(client):
    database = f"d{uuid.uuid4().hex[:8]}"
    tables, name = GlueTables(client), f"{database}.product_snapshot"

    def version(label: str, depts: list[str], **described: Any) -> Any:
        files = {f"dept={dept}/size=7/part-0.parquet": 1 for dept in depts}
        columns = (Column("dept", "string"), Column("size", "int"), Column("id", "bigint"))
        made = replace(manifest_of(label, files, label), columns=columns, layout="partitioned")
        return replace(made, **{"partition_by": ("dept", "size"), **described})

    place = "s3://bucket/_lakeward_versions/sales.product/version="
    tables.point(name, f"{place}a", version("a", ["007", "a%2Fb", "gone"]), {"id": "the key", "dept": "as sold"})
    found = client.get_table(DatabaseName=database, Name="product_snapshot")["Table"]
    assert found["PartitionKeys"] == [
        {"Name": "dept", "Type": "string", "Comment": "as sold"}, {"Name": "size", "Type": "int"},
    ]  # fmt: skip
    assert found["StorageDescriptor"]["Columns"] == [{"Name": "id", "Type": "bigint", "Comment": "the key"}]
    tables.point(name, f"{place}b", version("b", ["007", "a%2Fb", "new"]))
    assert partitions(client, database) == {
        value: f"{place}b/dept={folder}/size=7" for value, folder in (("007",) * 2, ("a/b", "a%2Fb"), ("new",) * 2)
    }
    # Other folders than before: none of the former ones is left among them.
    tables.point(name, f"{place}c", version("c", ["007"], partition_by=("dept",), files={"dept=007/p": 1}))
    assert partitions(client, database) == {"007": f"{place}c/dept=007"}
    with pytest.raises(ConfigurationError, match=r"belongs to sales\.product, not to sales\.other"):
        tables.point(name, f"{place}d", replace(version("d", []), table="sales.other"))
    tables.forget(name, "sales.other")
    assert points_to(tables, name, f"{place}c"), "it was removed for another table"
    tables.forget(name, "sales.product")
    tables.forget(name, "sales.product")
    assert not points_to(tables, name, f"{place}c")


def test_text_files_are_text_for_glue(client):
    database = f"d{uuid.uuid4().hex[:8]}"
    made = replace(manifest_of("a", {"final.csv": 1}), format="csv", header=False)
    GlueTables(client).point(f"{database}.product_snapshot", "s3://b/v", made)
    found = client.get_table(DatabaseName=database, Name="product_snapshot")["Table"]
    assert {column["Type"] for column in found["StorageDescriptor"]["Columns"]} == {"string"}
    assert "skip.header.line.count" not in found["Parameters"]


def part(value: str, dates: list[str], **changes: Any) -> VersionPart:
    made = replace(dated(value, dates), **changes)
    return VersionPart(value, f"s3a://bucket/out/sales.product/version={value}", made)


def all_partitions(client: Any, database: str) -> dict[tuple[str, ...], str]:
    pages = client.get_paginator("get_partitions").paginate(DatabaseName=database, TableName="versions")
    found = [partition for page in pages for partition in page["Partitions"]]
    return {tuple(entry["Values"]): entry["StorageDescriptor"]["Location"] for entry in found}


def test_a_table_over_all_versions_has_the_partitions_of_each(client):
    database = f"d{uuid.uuid4().hex[:8]}"
    tables, name = GlueVersions(client), f"{database}.versions"
    put_version(tables, name, "version", part("2020-11-14", [*DATES, "__HIVE_DEFAULT_PARTITION__"]), lambda: ())
    wide = (Column("id", "bigint"), *COLUMNS[1:], Column("more", "string"))
    put_version(tables, name, "version", part("2020-11-15", DATES[:2], columns=wide), lambda: ())
    found = client.get_table(DatabaseName=database, Name="versions")["Table"]
    assert [key["Name"] for key in found["PartitionKeys"]] == ["version", "sold"]
    columns = {column["Name"]: column["Type"] for column in found["StorageDescriptor"]["Columns"]}
    assert columns == {"id": "bigint", "seen": "timestamp", "more": "string"}
    assert found["StorageDescriptor"]["Location"] == "s3://bucket/out/sales.product"
    assert len(all_partitions(client, database)) == len(DATES) + 3

    # Made again elsewhere, with other dates.
    again = replace(part("2020-11-14", DATES[1:3]), location="s3a://bucket/out/sales.product/version=2020-11-14.2")
    put_version(tables, name, "version", again, lambda: ())
    moved = {("2020-11-14", date): f"s3://bucket/out/sales.product/version=2020-11-14.2/sold={date}"
             for date in DATES[1:3]}  # fmt: skip
    kept = {("2020-11-15", date): f"s3://bucket/out/sales.product/version=2020-11-15/sold={date}"
            for date in DATES[:2]}  # fmt: skip
    assert all_partitions(client, database) == moved | kept
    tables.remove(name, ("version", "sold"), tables.partitions(name, ("version", "sold"), "2020-11-14"))
    assert all_partitions(client, database) == kept
    own = [column["Name"] for column in client.get_partition(
        DatabaseName=database, TableName="versions", PartitionValues=["2020-11-15", DATES[0]],
    )["Partition"]["StorageDescriptor"]["Columns"]]  # fmt: skip
    assert own == ["id", "seen", "more"]

    with pytest.raises(ConfigurationError, match="holds all scheduled versions"):
        tables.point(name, "s3://b/v", manifest_of("a", {}))
    tables.forget(name, "sales.product")
    assert all_partitions(client, database) == kept, "it was removed as if it pointed to one version"
    tables.point(f"{database}.latest", "s3://b/v", manifest_of("a", {}))
    with pytest.raises(ConfigurationError, match="not one that Lakeward made over all versions"):
        put_version(tables, f"{database}.latest", "version", part("2020-11-14", DATES[:1]), lambda: ())
