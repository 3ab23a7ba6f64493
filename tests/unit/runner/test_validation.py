"""Settings checked against files, without Spark: findings, their texts, and what is accepted."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeward.config import parse_config
from lakeward.errors import ConfigurationError
from lakeward.model import TableId
from lakeward.runner import validation
from lakeward.runner.tables import KnownTable
from lakeward.runner.validation import SettingsCheck, Severity, require_fitting
from lakeward.storage.landing import Landing

TABLE = "sales.product"
LOAD, CHANGE = "LOAD00000001.parquet", "20240327-014303888.parquet"
ROWS = {"id": [1, 2, 3], "dept": ["x", "x", "y"], "price": [1.0, 2.0, 3.0], "sold": [date(2024, 1, 1)] * 3}


class Bench:
    """One table, its files and its settings."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def land(self, name: str, columns: dict[str, object]) -> None:
        pq.write_table(pa.table(columns), self.path(name))

    def text(self, name: str, *lines: str) -> None:
        self.path(name).write_text("".join(f"{line}\n" for line in lines))

    def path(self, name: str) -> Path:
        folder = self.root / "landing" / "sales" / "product"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / name

    def known(self, **settings) -> KnownTable:
        self.config = parse_config({"tables": {TABLE: settings}}, base=self.root)
        return KnownTable(
            TableId.parse(TABLE), self.config.declared()[TableId.parse(TABLE)], active=True, declared=True
        )

    def check(self, *, check_data: bool = True, spark=None, **settings):
        known = self.known(**settings)
        storage = Landing(self.root / "landing")
        return SettingsCheck(known, self.config, storage, check_data=check_data, spark=spark).findings()

    def only(self, **settings):
        [finding] = self.check(**settings)
        return finding


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def landed(bench: Bench) -> Bench:
    bench.land(LOAD, ROWS)
    bench.land(CHANGE, {"Op": ["I"], **{name: values[:1] for name, values in ROWS.items()}})
    return bench


def test_settings_that_fit_have_no_findings(landed):
    assert (
        landed.check(primary_key="id", partition_by=["dept", "days(sold)", "bucket(4, id)", "truncate(2, dept)"]) == []
    )


@pytest.mark.parametrize(
    ("settings", "setting", "words"),
    [
        ({"primary_key": "ID"}, "primary_key", "names 'ID', which is not a column of the table; did you mean 'id'?"),
        ({"primary_key": ["id", "id"]}, "primary_key", "names id more than once"),
        ({"partition_by": "dpt"}, "partition_by", "did you mean 'dept'? columns: id, dept, price, sold"),
        ({"partition_by": "days(soldd)"}, "partition_by", "did you mean 'sold'?"),
        ({"partition_by": "days(dept)"}, "partition_by", "days() takes date, timestamp, timestamp_ntz, and dept"),
        ({"partition_by": "hours(sold)"}, "partition_by", "hours() takes timestamp, timestamp_ntz, and sold is date"),
        ({"partition_by": "bucket(8, price)"}, "partition_by", "and price is double"),
        ({"partition_by": "truncate(8, price)"}, "partition_by", "and price is double"),
        ({"partition_by": "bucket(0, id)"}, "partition_by", "with n at least 1"),
        ({"partition_by": "bucket(id)"}, "partition_by", "cannot be read; expected a column, years(c)"),
        ({"partition_by": ["days(sold)", "months(sold)"]}, "partition_by", "sold is in the partition already, by days"),
        ({"null_means_unchanged": "nmae"}, "null_means_unchanged", "which is not a column of the table"),
        ({"before_image_columns": ["id", "who"]}, "before_image_columns", "names 'who'"),
        ({"timestamp_column": "committed"}, "timestamp_column", "has no column 'committed', by which changes"),
        ({"snapshots": {"every": "day", "to": "out"}}, "snapshots", "need timestamp_column"),
        ({"schema": "id string"}, "schema", "column id is bigint, declared is string"),
        ({"schema": "id bigint"}, "schema", "column dept is not declared"),
    ],
)  # fmt: skip
def test_a_setting_that_does_not_fit_is_an_error(landed, settings, setting, words):
    finding = landed.only(**{"primary_key": "id", **settings})
    assert (finding.severity, finding.setting, finding.table) == (Severity.ERROR, setting, TABLE)
    assert words in finding.message
    assert finding.hint == f"correct tables: {TABLE}: {setting}: in lakeward.yaml"


def test_the_field_that_iceberg_names_for_a_transform_must_not_be_a_column(bench):
    bench.land(LOAD, {"id": [1], "id_bucket": [1]})
    assert (
        "Iceberg would name the field id_bucket" in bench.only(primary_key="id", partition_by="bucket(4, id)").message
    )


@pytest.mark.parametrize(
    ("settings", "setting", "words"),
    [
        ({"primary_key": ()}, "primary_key", "the table is insert-only"),
        ({"operation_column": "Action"}, "operation_column", "every row counts as an insert"),
        ({"sequence_column": "lsn"}, "sequence_column", "has no column 'lsn'"),
        ({"before_image_prefix": "OLD_"}, "before_image_prefix", "no before-image column named OLD_"),
        ({"renames": {"departement": "depts"}}, "renames", "did you mean 'dept'?"),
    ],
)
def test_possible_mistakes_are_warnings(landed, settings, setting, words):
    findings = [finding for finding in landed.check(**{"primary_key": "id", **settings}) if finding.setting == setting]
    assert [finding.severity for finding in findings] == [Severity.WARNING]
    assert words in findings[0].message


def test_a_renamed_column_has_its_new_name_in_the_key_and_either_name_in_the_partition(bench):
    bench.land(LOAD, {"ident": [1], "sold": [datetime(2024, 1, 1)]})
    renames = {"ident": "id", "sold": "sold_at"}
    assert "it was renamed to id" in bench.only(primary_key="ident", renames=renames).message
    for partition in ("days(sold)", "days(sold_at)"):
        assert bench.check(primary_key="id", partition_by=partition, renames=renames) == []


def test_names_that_the_lake_cannot_have_are_an_error_with_the_renames_that_help(bench):
    bench.land(LOAD, {"id": [1], "v": ["a"], "V": ["b"], "_pos": [1]})
    finding = bench.only(primary_key="id")
    assert (finding.severity, finding.setting) == (Severity.ERROR, "renames")
    assert "'V' differs only in case from 'v'" in finding.message and "'_pos' is the name of" in finding.message
    assert finding.hint == f"set tables: {TABLE}: renames: {{V: V_2, _pos: pos}} in lakeward.yaml"
    assert bench.check(primary_key="id", renames={"V": "V_2", "_pos": "pos"}) == []
    # A column that only a change file has.
    bench.path(LOAD).unlink()
    bench.land(LOAD, {"id": [1], "v": ["a"]})
    bench.land(CHANGE, {"Op": ["I"], "id": [1], "v": ["a"], "_row_id": [1]})
    assert "'_row_id' is the name of" in bench.only(primary_key="id").message


def test_repeated_keys_are_counted_over_all_parts_and_shown(bench):
    bench.land(LOAD, {"id": [1, 2, 2, 3], "region": ["a", "a", "a", None]})
    bench.land("LOAD00000002.parquet", {"id": [1, 2, 1, 3], "region": ["a", "a", "b", None]})
    finding, warning = bench.check(primary_key=["id", "region"])
    assert (finding.severity, finding.setting) == (Severity.ERROR, "primary_key")
    assert finding.message == (
        "3 keys occur more than once in the load, where only the last row would stay: "
        '{"id": 2, "region": "a"} 3 times; {"id": 1, "region": "a"} 2 times; {"id": 3, "region": null} 2 times'
    )
    assert warning.message.startswith("2 rows of the load have NULL in key column region")
    assert bench.check(primary_key=["id", "region"], check_data=False) == []


def test_texts_that_look_like_one_number_are_different_keys(bench):
    bench.land(LOAD, {"id": ["007", "7", "07"], "n": [1, 1, 1]})
    assert bench.check(primary_key="id") == []


@pytest.mark.parametrize("count", [1001, 5000])
def test_many_repeated_keys_are_counted_all(bench, count):
    bench.land(LOAD, {"id": [*range(count), *range(count)]})
    assert bench.only(primary_key="id").message.startswith(f"{count:,} keys occur more than once")


def test_a_large_load_is_checked_by_spark_or_reported_as_unchecked(landed, monkeypatch):
    monkeypatch.setattr(validation, "LOCAL_BYTES", 10)
    assert "its keys were not checked" in landed.only(primary_key="id").message


def test_csv_needs_a_schema_and_its_records_must_have_its_columns(bench):
    bench.text("LOAD00000001.csv", "1,a", "2,b")
    assert "there is no schema" in bench.only(primary_key="id").message
    finding = bench.only(primary_key="id", schema="id int, name string, dept string")
    assert finding.setting == "files"
    assert "most records have 2 fields, which the 3 columns id, name, dept do not explain" in finding.message
    assert bench.check(primary_key="id", schema="id int, name string") == []


def test_csv_rows_are_read_for_keys_and_for_what_does_not_fit(bench):
    bench.text("LOAD00000001.csv", "1,a", "x,b", "1,c")
    repeated, bad = bench.check(primary_key="id", schema="id int, name string")
    assert '{"id": 1} 2 times' in repeated.message
    assert (bad.setting, bad.message) == ("on_bad_row", "1 of 3 rows of the load does not fit the schema")


def test_csv_headers_and_named_columns_are_checked(bench):
    bench.text("20240327-014303888.csv", "Op,id,nme", "I,1,a")
    header = bench.only(primary_key="id", schema="id int, name string", csv={"header": True})
    assert header.setting == "schema" and "nme is not declared" in header.message
    named = {"columns": ["Op", "id", "nme"]}
    finding = bench.only(primary_key="id", schema="id int, name string", csv=named)
    assert "csv.columns names nme, which the table's schema does not have" in finding.message


def test_an_undeclared_header_refuses_the_table_and_names_the_setting(bench):
    bench.text("LOAD00000001.csv", "code,name", "a,b")
    finding = bench.only(primary_key="code", schema="code string, name string")
    assert (finding.severity, finding.setting) == (Severity.ERROR, "csv.header")
    assert finding.message.startswith("sales/product/LOAD00000001.csv: the first record holds the names of columns")
    assert finding.hint == f"set tables: {TABLE}: csv: {{header: true}} in lakeward.yaml"
    assert bench.check(primary_key="code", schema="code string, name string", csv={"header": True}) == []
    # Under another name it is recognised by the types, and by the row that does not fit.
    bench.text("LOAD00000001.csv", "number,title", "1,b")
    header, bad = bench.check(primary_key="id", schema="id int, name string")
    assert (header.severity, header.setting, bad.setting) == (Severity.WARNING, "csv.header", "on_bad_row")


def test_another_delimiter_and_a_missing_header_refuse_the_table(bench):
    bench.text("LOAD00000001.csv", "1;a", "2;b")
    settings = {"primary_key": "id", "schema": "id int, name string"}
    finding = bench.only(**settings)
    assert (finding.severity, finding.setting) == (Severity.ERROR, "csv.delimiter")
    assert finding.hint == f'set tables: {TABLE}: csv: {{delimiter: ";"}} in lakeward.yaml'
    assert bench.check(**settings, csv={"delimiter": ";"}) == []
    finding = bench.only(**settings, csv={"delimiter": ";", "header": True})
    assert (finding.severity, finding.setting) == (Severity.ERROR, "csv.header")


def test_an_undeclared_commit_time_is_reported_for_text_and_for_parquet(bench):
    bench.text("LOAD00000001.csv", "2024-01-01 00:00:00.000000,1,a")
    finding = bench.only(primary_key="id", schema="id int, name string")
    assert (finding.severity, finding.setting) == (Severity.ERROR, "timestamp_column")
    assert bench.check(primary_key="id", schema="id int, name string", timestamp_column="commit_time") == []
    bench.path("LOAD00000001.csv").unlink()
    bench.land(LOAD, {"ts": ["2024-01-01 00:00:00.000000"], "id": [1]})
    bench.land(CHANGE, {"Op": ["I"], "ts": ["2024-01-02 00:00:00.000000"], "id": [2]})
    finding = bench.only(primary_key="id")
    assert (finding.severity, finding.setting) == (Severity.WARNING, "timestamp_column")
    assert "with these settings it becomes a column of the mirror" in finding.message
    assert finding.hint == f"set tables: {TABLE}: timestamp_column: ts in lakeward.yaml"
    assert bench.check(primary_key="id", timestamp_column="ts") == []
    assert bench.check(primary_key="id", schema="ts string, id bigint") == []


def test_a_headerless_change_file_without_its_timestamp_is_found_by_its_values(bench):
    bench.text("20240327-014303888.csv", "I,1,a", "U,1,b")
    finding = bench.only(primary_key="id", schema="id int, name string", timestamp_column="ts")
    assert finding.setting == "timestamp_column"


def test_files_that_cannot_be_read_are_reported(bench):
    bench.path(LOAD).write_bytes(b"PAR1 cut off")
    for schema in ("id int", None):
        finding = bench.only(primary_key="id", schema=schema)
        assert finding.setting == "files" and LOAD in finding.message


def test_load_parts_with_other_columns_are_reported_as_unchecked(bench):
    bench.land(LOAD, {"id": [1]})
    bench.land("LOAD00000002.parquet", {"id": [1, 1, 2], "name": ["a", "b", "c"]})
    finding = bench.only(primary_key="id")
    assert finding.severity is Severity.WARNING
    assert "1 load part has other columns and was not read: sales/product/LOAD00000002.parquet" in finding.message


def test_a_table_without_files_is_only_a_warning(bench):
    (bench.root / "landing").mkdir()
    assert [finding.setting for finding in bench.check(primary_key="id")] == ["path"]
    assert [finding.setting for finding in bench.check(primary_key="idd", schema="id int")] == ["primary_key", "path"]


def test_ignored_files_are_reported(landed):
    landed.text("load00000002.csv", "1,a")
    finding = landed.only(primary_key="id")
    assert (finding.severity, finding.setting) == (Severity.WARNING, "files")
    assert finding.message.startswith(
        "sales/product/load00000002.csv: nobody reads it; its name fits neither files.load"
    )


def test_errors_refuse_an_activation_and_force_lets_them_through(landed):
    known, reported = landed.known(primary_key="no"), []
    findings = landed.check(primary_key="no")
    with pytest.raises(ConfigurationError, match=r"was not activated: .*\n  primary_key: primary_key names 'no'"):
        require_fitting(known, findings, force=False, on_finding=reported.append)
    require_fitting(known, findings, force=True, on_finding=reported.append)
    assert reported == findings
    require_fitting(known, [], force=False, on_finding=None)
