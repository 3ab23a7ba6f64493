"""The configuration file of a Spark CDC snapshot generator, parsed and never executed."""

from __future__ import annotations

import pytest

from lakeward.config import load_config, parse_config
from lakeward.config.loading import read_yaml
from lakeward.errors import ConfigurationError
from lakeward.runner.declaring import proposal_text, write_proposals
from lakeward.runner.generator import read_generator
from lakeward.runner.proposals import Proposal

EXAMPLE = """
from datetime import date
from pyspark.sql import types as T

cdc = {
    "employees": {
        "path": "s3://sprkcdc-bucket/dms/employees/employees/",
        "primary_keys": ["emp_no"],
        "partition_date": "hire_date",
        "cdc_start_date": date(2020, 11, 13),
        "schema": T.StructType()
        .add("emp_no", "integer")
        .add("birth_date", "date")
        .add("first name", "string")
        .add("pay", T.DecimalType(10, 2), True)
        .add("hire_date", "date")
    },
    "titles": {
        "path": "s3://sprkcdc-bucket/dms/employees/titles/",
        "primary_keys": ["emp_no", "title"],
        "cdc_start_date": date(2020, 11, 13),
        "schema": T.StructType([T.StructField("emp_no", T.LongType(), False), T.StructField("title", T.StringType())]),
    },
}
"""


def read(tmp_path, text, landing="s3://sprkcdc-bucket/dms"):
    (tmp_path / "sources.py").write_text(text)
    return read_generator(tmp_path / "sources.py", parse_config({"landing": landing}, base=tmp_path))


def test_the_published_example_is_read_completely(tmp_path):
    found = read(tmp_path, EXAMPLE)
    assert (list(found.tables), found.problems) == (["employees.employees", "employees.titles"], ())
    proposal = found.tables["employees.employees"]
    assert proposal.doubts == ()
    assert proposal.settings == {
        "cdc_start": "2020-11-13",
        "primary_key": ["emp_no"],
        "timestamp_column": "cdc_timestamp",
        "schema": "emp_no int, birth_date date, `first name` string, pay decimal(10,2), hire_date date",
    }
    assert proposal.partition_candidates[0].partition == "months(hire_date)"
    assert found.tables["employees.titles"].schema == "emp_no bigint, title string"
    assert read(tmp_path, EXAMPLE, "./landing").tables["employees.titles"].path == "dms/employees/titles"


def test_the_tables_are_written_to_the_configuration_and_are_valid_there(tmp_path):
    file = tmp_path / "lakeward.yaml"
    file.write_text("landing: s3://sprkcdc-bucket/dms   # kept\n")
    config = load_config(file)
    written = write_proposals(config, read(tmp_path, EXAMPLE).tables)
    assert written.declared == ("employees.employees", "employees.titles")
    assert file.read_text().startswith("landing: s3://sprkcdc-bucket/dms   # kept\n")
    [first, _] = load_config(file).declared().values()
    assert (first.cdc_start, first.primary_key, first.timestamp_column) == ("2020-11-13", ("emp_no",), "cdc_timestamp")
    assert write_proposals(load_config(file), read(tmp_path, EXAMPLE).tables).present == written.declared


def test_characters_that_end_lines_in_yaml_are_written_as_they_are_meant():
    key = "a\u2028b\u2029c\x85d\ufeffe\uffff"
    lines = proposal_text("s.t", Proposal(primary_key=(key,))).lines
    assert read_yaml("\n".join(lines)) == {"s.t": {"primary_key": [key]}}


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('["emp_no"]', "KEYS", "line 8: 'KEYS' is not understood; expected a list of the key's columns"),
        ("date(2020, 11, 13),\n        \"schema\": T.StructType()", 'start(),\n        "schema": T.StructType()',
         "line 10: 'start()' is not understood; expected a day"),
        ('.add("birth_date", "date")', '.add("birth_date", kind("date"))', "is not understood; expected a type"),
        ('.add("birth_date", "date")', '.add("t", T.ArrayType(T.StringType()))', "expected a type that the lake has"),
        ('T.StructType()\n        .add("emp_no", "integer")', "employee_schema()", "expected StructType()"),
        ('["emp_no"]', '["emp"]', "primary_keys names emp, which its schema does not have"),
        ('"partition_date"', '"partition_dat"', "and found 'partition_dat'"),
    ],
)  # fmt: skip
def test_what_is_not_a_plain_value_is_named_with_its_line(tmp_path, old, new, words):
    assert old in EXAMPLE
    found = read(tmp_path, EXAMPLE.replace(old, new, 1))
    assert words in "; ".join(found.tables["employees.employees"].doubts)
    assert found.tables["employees.titles"].doubts == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cdc = {**other}", "'other' is not understood; expected the name of a table"),
        ("cdc = {'a': load('a')}", "expected a dictionary of a table's settings"),
        ("cdc = {'a': {'path': 's3://other/x/y/'}}", "does not lie in landing"),
        ("cdc = {'a': {}}", "it has no path"),
        ("cdc = {}\ncdc['a'] = make()", "line 2: cdc is changed after it is set"),
        ("cdc = {}\nfor name in names:\n    cdc[name] = {}", "line 2: cdc is changed"),
        (f"{EXAMPLE}\ncdc.update(more)", "cdc is changed after it is set"),
    ],
)
def test_problems_of_the_file_are_named(tmp_path, text, words):
    assert words in "; ".join(read(tmp_path, text).problems)


def test_nothing_is_executed(tmp_path):
    read(tmp_path, f"import pathlib\npathlib.Path({str(tmp_path / 'ran')!r}).touch()\ncdc = {{}}")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("text", ["", "cdc = []", "cdc = {", "cdc: dict", "\0"])
def test_a_file_without_tables_is_refused(tmp_path, text):
    with pytest.raises(ConfigurationError):
        read(tmp_path, text)
    with pytest.raises(ConfigurationError, match="cannot read"):
        read_generator(tmp_path / "none.py", parse_config({}, base=tmp_path))
