"""Reading lakeward.yaml: defaults, overrides, and messages that help."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from lakeward.columns import Column
from lakeward.config import Config, load_config, parse_config
from lakeward.errors import ConfigurationError

DESIGN_EXAMPLE = """
landing: ./landing
lake:
  catalog: sqlite:///lake/catalog.db
  warehouse: ./lake/data
state: sqlite:///lakeward.db
spark: {master: "local[*]", conf: {}}
include: ["sales.*"]
defaults: {on_bad_row: fail, max_delete_share: 0.5, format_version: 2}
tables:
  sales.product:
    path: sales/product
    primary_key: [id]
    partition_by: [dept]
    timestamp_column: cdc_timestamp
    before_image_prefix: BI_
    schema: "id int, name string, dept string, price decimal(10,2)"
    csv: {header: false, delimiter: ",", null: "NULL", unchanged: null}
    cdc_start: 2020-11-13
    publish: {to: ./current, format: parquet}
  sales.audit:
"""


def read(folder: Path, text: str, environment: dict[str, str] | None = None) -> Config:
    (folder / "lakeward.yaml").write_text(text)
    return load_config(folder / "lakeward.yaml", environment or {})


def test_every_key_of_the_documented_example_is_read(tmp_path: Path) -> None:
    config = read(tmp_path, DESIGN_EXAMPLE)
    product = config.tables["sales.product"]
    assert product.columns is not None
    assert product.columns[-1] == Column("price", "decimal(10,2)")
    assert (product.csv.null, product.csv.unchanged, product.cdc_start) == ("NULL", None, "2020-11-13")
    assert product.is_strict
    audit = config.tables["sales.audit"]
    assert (audit.primary_key, audit.is_strict) == ((), False)


def test_a_capture_begins_with_a_day_or_a_time(tmp_path: Path) -> None:
    given = "tables: {a.b: {cdc_start: 2020-11-13 10:30:00}, a.c: {cdc_start: '2020-11-13T10:30+01:00'}, a.d: }"
    tables = read(tmp_path, given).tables
    assert [tables[name].cdc_start for name in ("a.b", "a.c", "a.d")] == [
        "2020-11-13T10:30:00", "2020-11-13T10:30:00+01:00", None,
    ]  # fmt: skip


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    config = read(tmp_path, "landing: ./in")
    assert config.resolve(config.landing) == str(tmp_path / "in")
    assert config.resolve("s3://bucket/x") == "s3://bucket/x"


def test_defaults_are_merged_into_tables_and_csv_key_by_key(tmp_path: Path) -> None:
    text = "defaults: {on_bad_row: quarantine, csv: {header: true}}\ntables: {a.b: {csv: {delimiter: ';'}}, a.c: }"
    tables = read(tmp_path, text).tables
    own = tables["a.b"]
    assert (own.csv.header, own.csv.delimiter, own.on_bad_row) == (True, ";", "quarantine")
    assert tables["a.c"].csv.header


def test_the_environment_overrides_the_file(tmp_path: Path) -> None:
    environment = {"LAKEWARD_STATE": "memory://", "LAKEWARD_LAKE__WAREHOUSE": "/w", "LAKEWARD_JARS": "/jars"}
    config = read(tmp_path, "state: sqlite:///x.db\nlake: {warehouse: ./d}", environment)
    assert (config.state, config.lake.warehouse, config.lake.catalog) == (
        "memory://",
        "/w",
        "sqlite:///lake/catalog.db",
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("landig: x", "did you mean 'landing'"),
        ("tables: {a.b: {primary_kee: id}}", "did you mean 'primary_key'"),
        ("tables: {a.b: {csv: {headr: true}}}", "did you mean 'header'"),
        ("defaults: {on_bad_rows: fail}", "did you mean 'on_bad_row'"),
        ("tables: {a.b: {max_delete_share: 2}}", "less than or equal to 1"),
        ("tables: {product: }", "expected schema.table"),
        ("tables: {sales_changes.x: }", "hold changelogs"),
        ("tables: {a.b: {schema: 'id inth'}}", "unknown column type 'inth'"),
        ("tables: {a.b: {schema: 'id int, id int'}}", "more than once: id"),
        ("- a", "must hold a mapping"),
        ("a: [", "not valid YAML"),
        ("tables: {a.b: 7}", "tables.a.b"),
        ("tables: {a.b: {cdc_start: 20201113}}", "20201113 is not a day; expected 2020-11-13"),
        ("tables: {a.b: {cdc_start: '2020-13-45'}}", "2020-13-45 is not a day"),
        ("tables: {a.b: {cdc_start: soon}}", "soon is not a day"),
    ],
)
def test_the_error_for_a_wrong_file_names_the_mistake(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        read(tmp_path, text)
    assert words in str(raised.value)


def test_an_error_in_the_file_is_explained_without_its_lines(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"not valid YAML: line 2, column \d+: ") as raised:
        read(tmp_path, "lake: {properties: {credential: hush,\n  token: [hush}}")
    assert "hush" not in str(raised.value)


def test_neither_a_configuration_nor_what_is_wrong_with_one_shows_a_secret(tmp_path: Path) -> None:
    text = "{state: 'postgresql://u:hush@h/d', lake: {properties: {token: hush}}, spark: {conf: {a: hush}}}"
    assert "hush" not in repr(read(tmp_path, text))
    with pytest.raises(ValidationError) as raised:
        Config.model_validate({"lake": {"properties": "hush"}, "spark": {"conf": ["hush"]}})
    assert "hush" not in str(raised.value)


def test_the_error_for_a_missing_file_names_the_command_that_creates_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="lakeward init"):
        load_config(tmp_path / "none.yaml", {})


def test_an_empty_configuration_is_all_defaults() -> None:
    assert parse_config({}, base=Path("/x")).landing == "./landing"


def test_metrics_notifications_and_history(tmp_path: Path) -> None:
    config = read(tmp_path, "metrics: {file: l.prom}\nnotify: {webhook: 'env:X', on: recovery}\nhistory_days: 7")
    assert (config.metrics.file, config.metrics.port, config.history_days) == ("l.prom", None, 7)
    assert config.notify is not None and config.notify.on == ("recovery",)
    assert parse_config({}, base=tmp_path).notify is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("metrics: {prot: 1}", "did you mean 'port'"),
        ("notify: {webhok: x}", "did you mean 'webhook'"),
        ("notify: {on: failure}", "has no receiver"),
        ("history_days: 0", "greater than or equal to 1"),
    ],
)
def test_the_error_for_wrong_monitoring_names_the_mistake(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        read(tmp_path, text)
    assert words in str(raised.value)
