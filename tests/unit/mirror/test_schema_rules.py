"""Which schema differences evolve and which stop the table."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from lakeward.columns import Column, parse_ddl
from lakeward.config import TableSettings
from lakeward.errors import ConfigurationError, SchemaError
from lakeward.formats.base import FileSummary
from lakeward.mirror.op.schema import (
    describe_changes,
    known_columns,
    require_readable_names,
    require_usable,
    with_file_columns,
)
from lakeward.model import FileClass, FileIdentity, TableId

TABLE = TableId("sales", "product")


def summary(columns: str, path: str = "f.parquet") -> FileSummary:
    pairs = tuple((column.name, column.type) for column in parse_ddl(columns))
    identity = FileIdentity(1, 1)
    return FileSummary(path, FileClass.CHANGES, "2024", identity, "h", mismatch=True, columns=pairs)


def evolved(table: str, *files: str, **settings: Any) -> list[tuple[str, str]]:
    found = with_file_columns(TABLE, parse_ddl(table), [summary(file) for file in files], TableSettings(**settings))
    return [(column.name, column.type) for column in found]


def test_new_columns_are_added_and_narrow_ones_widened() -> None:
    assert evolved("id int, n float", "id bigint, n double, added string", "id int, more date") == [
        ("id", "bigint"),
        ("n", "double"),
        ("added", "string"),
        ("more", "date"),
    ]


def test_decimals_widen_in_precision_only() -> None:
    assert evolved("d decimal(10,2), x int", "d decimal(12,2), y int")[0] == ("d", "decimal(12,2)")
    with pytest.raises(SchemaError, match=r"column d is decimal\(12,3\), the table has decimal\(10,2\)"):
        evolved("d decimal(10,2)", "d decimal(12,3)")


@pytest.mark.parametrize(
    ("table", "file"), [("id int", "id string"), ("t timestamp", "t date"), ("b binary", "b string")]
)
def test_another_type_stops_the_table(table: str, file: str) -> None:
    with pytest.raises(SchemaError, match=r"f\.parquet: column"):
        evolved(table, file)


def test_strict_refuses_any_difference_and_names_each() -> None:
    with pytest.raises(SchemaError) as raised:
        evolved("id int, a string", "id int, b string", table_schema="id int, a string")
    assert "column b is not declared" in str(raised.value)
    assert "declared column a is missing" in str(raised.value)


def test_a_file_without_rows_is_never_overlooked() -> None:
    with pytest.raises(SchemaError, match="do not fit"):
        evolved("id int", "id int")


def test_declared_columns_are_merged_with_the_mirrors() -> None:
    mirror = parse_ddl("id int, old string, gone int")
    declared = TableSettings(schema="id bigint, new string, extra date", renames={"old": "new"})
    found = known_columns(TABLE, mirror, declared)
    assert found == parse_ddl("id bigint, new string, gone int, extra date")
    assert describe_changes(mirror, found, {"old": "new"}) == (
        "widen id from int to bigint",
        "rename old to new",
        "add extra date",
    )


def test_narrowing_by_declaration_is_refused() -> None:
    with pytest.raises(SchemaError, match="the mirror has bigint, declared is int"):
        known_columns(TABLE, parse_ddl("id bigint"), TableSettings(schema="id int"))


def test_settings_must_name_columns_that_exist() -> None:
    with pytest.raises(ConfigurationError, match="primary_key names 'nope'"):
        require_usable(TABLE, parse_ddl("id int"), TableSettings(primary_key=("nope",)))


@pytest.mark.parametrize(
    ("columns", "words", "renames"),
    [
        ("id int, _lw_op int", "column '_lw_op' starts with _lw_", "{_lw_op: op}"),
        ("id int, _LW_x int, x int", "column '_LW_x' starts with _lw_", "{_LW_x: x_2}"),
        ("v int, V int, V_2 int", "column 'V' differs only in case from 'v'", "{V: V_3}"),
        ("é int, É int", "column 'É' differs only in case from 'é'", '{"É": "É_2"}'),
        ("_file int, _POS int", "'_POS' is the name of one of Iceberg's own columns", "{_file: file, _POS: POS}"),
        ("_row_id int, _change_type int", "Iceberg's own", "{_row_id: row_id, _change_type: change_type}"),
        ("___ int, ` ` int, on int, ON int, _lw_ int", "column 'ON' differs", '{"ON": ON_2, _lw_: column}'),
    ],
)
def test_names_that_the_lake_cannot_have_are_refused_with_a_proposal(columns: str, words: str, renames: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        require_usable(TABLE, parse_ddl(columns), TableSettings())
    assert words in raised.value.message
    assert f"renames={renames}" in (raised.value.hint or "")
    # What is proposed is a setting that is taken, and that helps.
    given = yaml.safe_load(renames)
    assert TableSettings(renames=given).renames == given
    renamed = [Column(given.get(column.name, column.name), column.type) for column in parse_ddl(columns)]
    require_usable(TABLE, renamed, TableSettings())


def test_a_column_needs_a_name() -> None:
    with pytest.raises(ConfigurationError, match="column '' has no name") as raised:
        require_usable(TABLE, (Column("id", "int"), Column("", "int")), TableSettings())
    assert 'renames={"": column}' in (raised.value.hint or "")


def test_of_two_spellings_that_of_the_mirror_stays_and_readable_names_continue() -> None:
    mirror = parse_ddl("id int, Name string, _FILE int, _change_type int, _LW_x int")
    require_usable(TABLE, mirror, TableSettings(), mirror)
    with pytest.raises(ConfigurationError, match="column 'NAME' differs only in case from 'Name'") as raised:
        require_usable(TABLE, (Column("NAME", "string"), *mirror), TableSettings(), mirror)
    assert "NAME: Name where both are one column" in (raised.value.hint or "")
    require_readable_names(TABLE, mirror, TableSettings())
    with pytest.raises(ConfigurationError, match="cannot read: column '_file' is the name"):
        require_readable_names(TABLE, parse_ddl("id int, _file int"), TableSettings())
    # What is proposed keeps the renames there are; one that made the name in question makes another one instead.
    settings = TableSettings(renames={"a": "V", "b": "c"})
    with pytest.raises(ConfigurationError) as raised:
        require_usable(TABLE, parse_ddl("v int, V int, c int"), settings)
    assert "renames={a: V_2, b: c, V: V_2}" in (raised.value.hint or "")
