"""The simulator's files against other readers: Python's csv and pyarrow."""

from __future__ import annotations

import csv
import gzip
import io
import re
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeward.columns import SIMPLE_TYPES
from lakeward.model import FileClass, Operation
from lakeward.testing.simulator import Simulation, SimulatorOptions
from lakeward.testing.simulator.files import change_path, column_names, load_paths
from lakeward.testing.simulator.simulation import render
from lakeward.testing.simulator.tables import odd_values
from lakeward.testing.simulator.writers import arrow_type, quote, value_writer

CSV = SimulatorOptions(seed=9, format="csv", changes=200, tables=2)


def files(options, *classes):
    landed = [landing.file for stage in Simulation(options).stages() for landing in stage.landings]
    return [file for file in landed if not classes or file.file_class in classes]


def read_csv(content, delimiter=","):
    return list(csv.reader(io.StringIO(content.decode(), newline=""), delimiter=delimiter, strict=True))


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), min_size=2, max_size=5))
def test_quoted_texts_are_read_back_by_python(texts):
    line = ",".join(quote(text, CSV) for text in texts) + "\n"
    assert read_csv(line.encode()) == [texts]


@pytest.mark.parametrize("token", ["NULL", "", "\\N"])
def test_null_is_bare_and_a_text_equal_to_the_token_is_quoted(token):
    write = value_writer("string", replace(CSV, null=token))
    assert write(None) == token
    assert write(token) == f'"{token}"'
    assert write("a,b") == '"a,b"'
    assert write('say "hi"') == '"say ""hi"""'
    assert write("two\nlines") == '"two\nlines"'


def test_an_empty_binary_value_is_not_null():
    assert value_writer("binary", replace(CSV, null=""))(b"") == '""'
    assert value_writer("binary", CSV)(b"\x0a\xff") == "0aff"


def test_numbers_and_times_are_written_in_full():
    written = {
        kind: [value_writer(kind, CSV)(value) for value in odd_values(kind, CSV)]
        for kind in ("decimal(38,18)", "date", "timestamp_ntz", "timestamp", "boolean")
    }
    assert "0.000000000000000001" in written["decimal(38,18)"]
    assert "0001-01-01" in written["date"]
    assert "1582-10-10 01:02:03.000004" in written["timestamp"]
    assert written["timestamp"] == written["timestamp_ntz"]


@pytest.mark.parametrize("header", [False, True])
@pytest.mark.parametrize("delimiter", [",", "|"])
def test_every_record_has_the_fields_that_its_layout_names(header, delimiter):
    options = replace(CSV, header=header, delimiter=delimiter, before_image="all", change_sequence=True)
    for file in files(options):
        records = read_csv(render(file), delimiter)
        names = column_names(file, file.table)
        if header:
            assert records.pop(0) == names
        assert len(records) == len(file.load) + len(file.changes)
        assert {len(record) for record in records} <= {len(names)}


def test_raw_csv_contains_no_quotes():
    assert not any(b'"' in render(file) for file in files(replace(CSV, rfc4180=False)))


def test_unchanged_columns_show_the_marker_and_key_only_deletes_show_nulls():
    options = replace(CSV, unchanged="<same>", key_only_deletes=True)
    for file in files(options, FileClass.CHANGES):
        for change, record in zip(file.changes, read_csv(render(file)), strict=True):
            shown = dict(zip(column_names(file, file.table), record, strict=True))
            assert record[0] == change.operation
            assert {name for name, text in shown.items() if text == "<same>"} == file.omitted(change)
            if change.operation is Operation.DELETE:
                others = [column.name for column in file.columns if column.name not in file.table.key]
                assert {shown[name] for name in others} == {"NULL"}


def test_transaction_files_name_each_row_s_table():
    options = replace(CSV, transactions=True, timestamp_column=None)
    written = files(options, FileClass.TRANSACTIONS)
    assert all(re.fullmatch(r"cdc/CDC_TXN-\d{17}\.csv", file.path) for file in written)
    records = [record for file in written for record in read_csv(render(file))]
    assert {record[1] for record in records} == {"customer", "orders"}
    assert {record[2] for record in records} == {"shop"}


def test_compressed_csv_is_recognised_by_its_content():
    for file in files(replace(CSV, gzip=True)):
        assert gzip.decompress(render(file)) == render(replace(file, options=CSV))


def test_parquet_contains_the_rows_in_the_types_of_dms():
    options = SimulatorOptions(seed=9, changes=100, before_image="pk-only", op_in_load=True)
    for file in files(options):
        table = pq.read_table(io.BytesIO(render(file)))
        assert table.column_names == column_names(file, file.table)
        for column in file.columns:
            assert table.schema.field(column.name).type == arrow_type(column.type)
        if file.load:
            name = file.columns[0].name
            assert table.column(name).to_pylist() == [row[name] for row in file.load]
            assert set(table.column("Op").to_pylist()) == {"I"}


def test_every_type_has_a_dms_type():
    assert arrow_type("ubigint") == pa.uint64()
    assert arrow_type("time") == pa.time32("ms")
    assert arrow_type("decimal(28,6)") == pa.decimal128(28, 6)
    assert all(arrow_type(kind) for kind in SIMPLE_TYPES)


def test_load_counters_are_hexadecimal_and_segments_have_their_own():
    table = Simulation(CSV).tables[0].id
    plain = load_paths(table, replace(CSV, load_start=9), 2, ".csv")
    assert [path.rsplit("/", 1)[1] for path in plain] == ["LOAD00000009.csv", "LOAD0000000A.csv"]
    prefixed = load_paths(table, replace(CSV, segments="prefix"), 2, ".csv")
    assert [path.rsplit("/", 1)[1] for path in prefixed] == ["SEGMENT1_LOAD00000001.csv", "SEGMENT2_LOAD00000001.csv"]
    assert len(set(load_paths(table, replace(CSV, segments="folder"), 5, ".csv"))) == 5


@pytest.mark.parametrize(
    ("sequence", "delimiter", "folder"),
    [
        ("YYYYMMDD", "SLASH", "2024/03/26/"),
        ("YYYYMMDDHH", "DASH", "2024-03-26-23/"),
        ("MMYYYYDD", "UNDERSCORE", "03_2024_26/"),
        ("DDMMYYYY", "NONE", "26032024/"),
        (None, "SLASH", ""),
    ],
)
def test_the_folder_has_the_day_of_the_commit_and_the_name_the_day_of_the_file(sequence, delimiter, folder):
    simulation = Simulation(CSV)
    commit = simulation.stages()[0].landings[0].mtime.replace(day=26, hour=23, minute=59)
    written = commit.replace(day=27, hour=0, minute=1, second=2, microsecond=345_600)
    options = replace(CSV, date_folders=sequence, date_delimiter=delimiter)
    path = change_path(simulation.tables[0].id, options, written, commit, ".csv", 4)
    assert path == f"shop/customer/{folder}20240327-0001023456.csv"
