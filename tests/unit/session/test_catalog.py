"""The configured catalog as Spark settings."""

import stat
from pathlib import Path
from typing import Any

import pytest

from lakeward.config import Config, parse_config
from lakeward.errors import ConfigurationError
from lakeward.session.catalog import CatalogKind, catalog_conf, catalog_kind, sqlite_file


def configured(base: Path, s3: dict[str, Any] | None = None, **lake: Any) -> Config:
    return parse_config({"lake": lake, **({"s3": s3} if s3 is not None else {})}, base=base)


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


@pytest.mark.parametrize(("access", "modes"), [("private", (0o700, 0o600, 0o755)), ("umask", (0o755, 0o644, 0o755))])
def test_a_catalog_file_is_for_its_user_alone_unless_configured(tmp_path, usual_umask, access, modes):
    catalog_conf(parse_config({"file_access": access, "lake": {"warehouse": "./elsewhere"}}, base=tmp_path))
    made = (tmp_path / "lake", tmp_path / "lake" / "catalog.db", tmp_path / "elsewhere")
    assert tuple(stat.S_IMODE(found.stat().st_mode) for found in made) == modes


def test_a_catalog_file_that_exists_keeps_its_mode(tmp_path):
    (tmp_path / "lake").mkdir(mode=0o750)
    file = tmp_path / "lake" / "catalog.db"
    file.touch(mode=0o640)
    catalog_conf(configured(tmp_path))
    assert (stat.S_IMODE(file.parent.stat().st_mode), stat.S_IMODE(file.stat().st_mode)) == (0o750, 0o640)


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
        ("hadoop://hdfs://host/lake", "hdfs://host/lake"),
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


def test_a_property_may_be_read_from_the_environment(tmp_path, monkeypatch):
    config = configured(tmp_path, catalog="rest+https://host", properties={"credential": "env:CATALOG_CREDENTIAL"})
    with pytest.raises(
        ConfigurationError, match=r"lake\.properties credential .*'CATALOG_CREDENTIAL', which is not set"
    ):
        catalog_conf(config)
    monkeypatch.setenv("CATALOG_CREDENTIAL", "id:confidential")
    assert properties(config)["credential"] == "id:confidential"


KEYS = {"access_key": "env:KEY", "secret_key": "env:SECRET", "session_token": "env:TOKEN"}


@pytest.fixture
def keys(monkeypatch):
    for name in ("KEY", "SECRET", "TOKEN"):
        monkeypatch.setenv(name, f"the {name.lower()}")


@pytest.mark.usefixtures("keys")
def test_a_warehouse_on_s3_is_reached_by_icebergs_own_client(tmp_path):
    config = configured(tmp_path, {"endpoint": "http://store:9000", **KEYS}, warehouse="s3://bucket/lake")
    found = properties(config)
    assert found["warehouse"] == "s3://bucket/lake"
    assert found["io-impl"] == "org.apache.iceberg.aws.s3.S3FileIO"
    assert (found["s3.endpoint"], found["s3.path-style-access"]) == ("http://store:9000", "true")
    assert found["client.region"] == "us-east-1"
    own = [found[f"s3.{name}"] for name in ("access-key-id", "secret-access-key", "session-token")]
    assert own == ["the key", "the secret", "the token"]
    assert not (tmp_path / "lake" / "data").exists()


@pytest.mark.parametrize("warehouse", ["s3://bucket/why?/lake", "s3://bucket/no#1"])
def test_a_warehouse_whose_path_iceberg_would_truncate_is_refused(tmp_path, warehouse):
    with pytest.raises(ConfigurationError, match="cuts the path"):
        catalog_conf(configured(tmp_path, warehouse=warehouse))


def test_on_aws_itself_keys_and_region_are_left_to_aws(tmp_path):
    found = properties(configured(tmp_path, warehouse="s3://bucket/lake"))
    assert found["s3.path-style-access"] == "false"
    assert not {"s3.endpoint", "client.region", "s3.access-key-id", "s3.secret-access-key"} & found.keys()
    found = properties(configured(tmp_path, {"region": "eu-west-1", "path_style": True}, warehouse="s3a://bucket"))
    assert (found["client.region"], found["s3.path-style-access"]) == ("eu-west-1", "true")


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize(
    "lake", [{"catalog": "hadoop://s3://bucket/lake"}, {"catalog": "hadoop://", "warehouse": "s3a://bucket/lake"}]
)
def test_a_hadoop_catalog_on_s3_is_reached_by_hadoop_with_separate_settings(tmp_path, lake):
    found = properties(configured(tmp_path, {"endpoint": "http://store:9000", **KEYS}, **lake))
    assert found["warehouse"] == "s3a://bucket/lake"
    assert found["hadoop.fs.s3a.endpoint"] == "http://store:9000"
    assert found["hadoop.fs.s3a.secret.key"] == "the secret"
    assert "io-impl" not in found


def test_a_rest_catalog_has_s3_settings_only_if_the_configuration_has(tmp_path):
    assert "io-impl" not in properties(configured(tmp_path, catalog="rest+http://host", warehouse="prod"))
    assert "io-impl" in properties(configured(tmp_path, {}, catalog="rest+http://host", warehouse="prod"))


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
def test_the_scheme_decides_the_kind(tmp_path, catalog, kind):
    assert catalog_kind(configured(tmp_path, catalog=catalog)) is kind


@pytest.mark.parametrize(
    "lake", [{"warehouse": "s3://AK:hush@bucket/x"}, {"catalog": "hadoop://s3a://AK:hush@bucket/x"}]
)
def test_an_address_of_files_with_a_password_is_refused_without_showing_it(tmp_path, lake):
    with pytest.raises(ConfigurationError, match="holds a password") as refused:
        catalog_conf(configured(tmp_path, **lake))
    assert "hush" not in str(refused.value)
