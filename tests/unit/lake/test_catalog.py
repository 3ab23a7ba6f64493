"""The configured catalog as Spark settings."""

from pathlib import Path
from typing import Any

import pytest

from lakeward.config import Config, parse_config
from lakeward.errors import ConfigurationError
from lakeward.lake.iceberg.catalog import CatalogKind, catalog_conf, catalog_kind, sqlite_file


def configured(base: Path, **lake: Any) -> Config:
    return parse_config({"lake": lake}, base=base)


def properties(config: Config) -> dict[str, str]:
    conf = catalog_conf(config)
    assert conf.pop("spark.sql.catalog.lake") == "org.apache.iceberg.spark.SparkCatalog"
    return {key.removeprefix("spark.sql.catalog.lake."): value for key, value in conf.items()}


def test_default_is_a_sqlite_file_beside_the_configuration(tmp_path):
    assert properties(configured(tmp_path)) == {
        "type": "jdbc",
        "uri": f"jdbc:sqlite:{tmp_path}/lake/catalog.db?busy_timeout=30000",
        "jdbc.schema-version": "V1",
        "warehouse": f"{tmp_path}/lake/data",
        "cache-enabled": "false",
    }
    assert (tmp_path / "lake" / "data").is_dir()


def test_four_slashes_make_a_sqlite_path_absolute(tmp_path):
    config = configured(tmp_path / "elsewhere", catalog=f"sqlite:///{tmp_path}/a b/catalog.db")
    assert sqlite_file(config) == tmp_path / "a b" / "catalog.db"


@pytest.mark.parametrize("catalog", ["sqlite://", "sqlite:///", "sqlite://host/catalog.db", "hadoop://host/lake"])
def test_a_local_catalog_without_a_path_is_refused(tmp_path, catalog):
    with pytest.raises(ConfigurationError, match="names no path"):
        catalog_conf(configured(tmp_path, catalog=catalog))


def test_a_path_that_the_sqlite_driver_would_misread_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match=r"holds a '\?'"):
        catalog_conf(configured(tmp_path, catalog="sqlite:///why?/catalog.db"))


@pytest.mark.parametrize(
    ("catalog", "warehouse"),
    [
        ("hadoop:///files", "{base}/files"),
        ("hadoop://", "{base}/lake/data"),
        ("hadoop://s3a://bucket/lake", "s3a://bucket/lake"),
    ],
)
def test_a_hadoop_catalog_is_its_warehouse(tmp_path, catalog, warehouse):
    found = properties(configured(tmp_path, catalog=catalog))
    assert found == {"type": "hadoop", "warehouse": warehouse.format(base=tmp_path), "cache-enabled": "false"}


def test_a_rest_catalog_gets_a_warehouse_only_if_one_is_named(tmp_path):
    catalog = "rest+https://catalog.example/api"
    assert properties(configured(tmp_path, catalog=catalog)) == {
        "type": "rest",
        "uri": "https://catalog.example/api",
        "cache-enabled": "false",
    }
    assert properties(configured(tmp_path, catalog=catalog, warehouse="prod"))["warehouse"] == "prod"
    assert not (tmp_path / "lake").exists()


def test_a_glue_catalog_takes_account_and_region(tmp_path):
    found = properties(
        configured(tmp_path, catalog="glue://123456789012?region=eu-west-1", warehouse="s3://bucket/lake")
    )
    assert found["catalog-impl"] == "org.apache.iceberg.aws.glue.GlueCatalog"
    assert found["io-impl"] == "org.apache.iceberg.aws.s3.S3FileIO"
    assert (found["glue.id"], found["client.region"]) == ("123456789012", "eu-west-1")


def test_a_bare_glue_catalog_leaves_account_and_region_to_aws(tmp_path):
    found = properties(configured(tmp_path, catalog="glue://", warehouse="s3://bucket/lake"))
    assert found.keys().isdisjoint({"glue.id", "client.region"})


@pytest.mark.parametrize(
    ("lake", "problem"),
    [
        ({"catalog": "glue://"}, "needs an s3:// location"),
        ({"catalog": "glue://?zone=a", "warehouse": "s3://bucket"}, "unknown option 'zone'"),
    ],
)
def test_an_incomplete_glue_catalog_is_refused(tmp_path, lake, problem):
    with pytest.raises(ConfigurationError, match=problem):
        catalog_conf(configured(tmp_path, **lake))


@pytest.mark.parametrize("catalog", ["", "lake/catalog.db", "mysql://user:confidential@host/db"])
def test_an_unknown_catalog_is_refused_with_the_known_ones_and_without_its_password(tmp_path, catalog):
    with pytest.raises(ConfigurationError, match=r"sqlite:///.*hadoop:///.*rest\+https://.*glue://") as refused:
        catalog_kind(configured(tmp_path, catalog=catalog))
    assert "confidential" not in str(refused.value)


def test_properties_of_the_configuration_win(tmp_path):
    found = properties(configured(tmp_path, properties={"jdbc.schema-version": "V0", "header.x": "y"}))
    assert (found["jdbc.schema-version"], found["header.x"]) == ("V0", "y")


def test_a_folder_that_cannot_be_created_is_named(tmp_path):
    (tmp_path / "lake").touch()
    with pytest.raises(ConfigurationError, match="cannot create"):
        catalog_conf(configured(tmp_path))


@pytest.mark.parametrize(
    ("catalog", "kind"),
    [
        ("sqlite:///c.db", CatalogKind.SQLITE),
        ("hadoop:///c", CatalogKind.HADOOP),
        ("rest+http://h", CatalogKind.REST),
        ("glue://", CatalogKind.GLUE),
    ],
)
def test_the_scheme_tells_the_kind(tmp_path, catalog, kind):
    assert catalog_kind(configured(tmp_path, catalog=catalog)) is kind
