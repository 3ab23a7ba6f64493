"""Metadata columns: their names, their place among the table's columns, and what they must not clash with."""

import pytest

from lakeward.columns import Column, parse_ddl
from lakeward.config import TableSettings, parse_config
from lakeward.errors import ConfigurationError
from lakeward.formats.base import ReadSpec
from lakeward.mirror.op.metadata_columns import source_columns, source_names, with_metadata_columns
from lakeward.mirror.op.settings import captured_columns, settings_problems
from lakeward.model import TableId

ALL = {"op": "Op", "commit_time": "committed_at", "op_number": "op_no", "file": "file"}


def table(**metadata: str) -> TableSettings:
    return TableSettings.model_validate({"metadata_columns": metadata})


def names(columns: tuple[Column, ...]) -> list[str]:
    return [column.name for column in columns]


def test_there_are_none_unless_they_are_named():
    source = parse_ddl("id int, name string")
    assert with_metadata_columns(source, (), TableSettings()) == source
    assert source_columns(source, TableSettings()) == source


def test_new_ones_come_after_the_sources_columns_with_their_types():
    found = with_metadata_columns(parse_ddl("id int"), (), table(**ALL))
    assert [(column.name, column.type) for column in found] == [
        ("id", "int"), ("Op", "string"), ("committed_at", "timestamp"), ("op_no", "bigint"), ("file", "string"),
    ]  # fmt: skip


def test_columns_that_the_source_added_later_come_after_them():
    settings = table(op="Op", file="file")
    mirror = parse_ddl("id int, Op string, file string, added string")
    assert names(source_columns(mirror, settings)) == ["id", "added"]
    found = with_metadata_columns(parse_ddl("id int, added string, newest date"), mirror, settings)
    assert names(found) == ["id", "Op", "file", "added", "newest"]
    assert source_names(names(found), settings) == ("id", "added", "newest")


def test_a_renamed_column_keeps_its_place_beside_them():
    settings = table(op="Op")
    found = with_metadata_columns(
        parse_ddl("number int, name string"), parse_ddl("id int, Op string, name string"), settings
    )
    assert names(found) == ["number", "Op", "name"]


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({"op": "Op", "file": "OP"}, "differs only in case"),
        ({"op": "_lw_op"}, "starts with _lw_"),
        ({"file": "_file"}, "Iceberg's own columns"),
        ({"op": ""}, "has no name"),
        ({"operation": "Op"}, "operation"),
    ],
)
def test_names_that_no_column_can_have_are_refused(tmp_path, metadata, reason):
    with pytest.raises(ConfigurationError, match=reason):
        parse_config({"landing": "l", "defaults": {"metadata_columns": metadata}}, base=tmp_path)


def test_a_column_of_the_source_by_that_name_is_a_problem_whatever_its_case():
    problems = [*settings_problems(parse_ddl("id int, op string"), table(op="Op"))]
    assert [problem.setting for problem in problems] == ["metadata_columns"]
    assert "'Op', and the table has a column 'op'" in problems[0].message


def test_a_metadata_column_is_no_key_of_the_table():
    settings = TableSettings.model_validate({"metadata_columns": {"op_number": "n"}, "primary_key": "n"})
    assert [problem.setting for problem in settings_problems(parse_ddl("id int"), settings)] == ["primary_key"]


def test_no_file_is_read_as_if_it_had_them():
    spec = ReadSpec(TableId("a", "b"), parse_ddl("id int, Op string, name string"), table(op="Op"))
    assert names(spec.columns) == ["id", "name"]
    assert spec.names == ("id", "name")


def test_one_named_like_the_captures_column_is_not_taken_for_it():
    mirror = parse_ddl("id int, Op string")
    assert captured_columns(mirror, TableSettings()) == ("Op",)
    assert captured_columns(mirror, table(op="Op")) == ()


def test_a_table_has_other_ones_than_the_defaults_or_none(tmp_path):
    tables = {"a.b": {}, "a.c": {"metadata_columns": {}}, "a.d": {"metadata_columns": {"op": "what"}}}
    config = parse_config({"landing": "l", "defaults": {"metadata_columns": ALL}, "tables": tables}, base=tmp_path)
    assert [config.tables[name].metadata_columns.names() for name in tables] == [ALL, {}, {"op": "what"}]
