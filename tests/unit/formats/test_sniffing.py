"""Files that look as if they were written with other settings, and files that only might."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.unit.formats.source_helpers import make_spec, read

from lakeward.formats.dms.sniffing import Suggestion, sniff_bad_rows, sniff_header, sniff_named_times, sniff_records

TEXTS = "code string, name string"
TYPED = "id int, name string, price decimal(10,2)"
TIME = "2024-03-27 01:43:03.888000"


def settings_of(found: list[Suggestion]) -> list[tuple[str, str]]:
    return [(entry.setting, entry.value) for entry in found]


def sniffed(schema: str, *texts: str, **settings: Any) -> list[tuple[str, str]]:
    return settings_of(sniff_records(texts, make_spec(schema, **settings), starts_file=True))


@pytest.mark.parametrize(
    ("schema", "texts"),
    [
        (TEXTS, ("code,name", "a,b")),
        (TEXTS, ("Op,CODE,name", "I,a,b")),
        (TEXTS, ("Op,code,name,AR_H_CHANGE_SEQ,BI_code", "U,a,b,1,c")),
        (TEXTS, ('"code","name"',)),
        (TYPED, ("id,name,price", "1,a,2.50")),
        (TYPED, ("number,title,cost", "1,a,2.50", "2,b,3")),
    ],
)
def test_a_header_is_recognised_by_names_or_as_unlike_the_other_records(schema: str, texts: tuple[str, ...]) -> None:
    assert sniffed(schema, *texts) == [("csv.header", "true")]
    # An explicit setting that there is none is respected.
    assert sniffed(schema, *texts, csv={"header": False}) == []


@pytest.mark.parametrize(
    ("schema", "texts"),
    [
        (TEXTS, ("a,b", "code,name")),
        (TEXTS, ("code,other", "a,b")),
        (TEXTS, ("I,code,b",)),
        (TYPED, ("1,a,2.50", "2,b,3")),
        (TYPED, ("x,y,z", "x,y,z")),
        (TYPED, ("1,a,bad", "2,b,3")),
        ("a string, b string", ("x;y,z", "p;q,r")),
    ],
)
def test_rows_are_not_a_header(schema: str, texts: tuple[str, ...]) -> None:
    assert sniffed(schema, *texts) == []


@pytest.mark.parametrize("delimiter", [";", "\t", "|", "\x01"])
def test_another_delimiter_is_recognised_with_and_without_a_header(delimiter: str) -> None:
    rows = [delimiter.join(fields) for fields in (("1", "a, b", "2.50"), ("2", "c", "3"))]
    [found] = sniff_records(rows, make_spec(TYPED), starts_file=True)
    assert found.setting == "csv.delimiter" and repr(delimiter) in found.message and found.stops
    header = delimiter.join(("id", "name", "price"))
    assert [setting for setting, _ in sniffed(TYPED, header, *rows)] == ["csv.delimiter", "csv.header"]
    [found] = sniff_header([header], header, make_spec(TYPED, csv={"header": True}))
    assert found.setting == "csv.delimiter"


def test_the_tab_is_proposed_as_yaml_writes_it() -> None:
    assert sniffed(TYPED, "1\ta\t2.50") == [("csv.delimiter", '"\\t"')]


def test_a_row_used_as_a_header_is_recognised() -> None:
    spec = make_spec(TYPED, csv={"header": True})
    assert settings_of(sniff_header(["1", "a", "2.50"], "1,a,2.50", spec)) == [("csv.header", "false")]
    assert sniff_header(["id", "nme", "price"], "id,nme,price", spec) == []


@pytest.mark.parametrize("texts", [(f"{TIME},1,a,2.50",), (f"I,{TIME},1,a,2.50", f"U,{TIME},2,b,3")])
def test_an_undeclared_commit_time_of_headerless_files_is_recognised(texts: tuple[str, ...]) -> None:
    assert sniffed(TYPED, *texts) == [("timestamp_column", "commit_time")]
    assert sniffed(TYPED, *texts, timestamp_column="ts") == []


def test_a_time_of_the_source_is_not_a_commit_time() -> None:
    assert sniffed("at timestamp, id int", f"U,{TIME},1,{TIME}", primary_key="at") == []
    assert sniffed("at string, id int", f"{TIME},1") == []


@pytest.mark.parametrize(
    ("names", "first", "found"),
    [
        (("Op", "ts", "id"), ("I", TIME, 1), True),
        (("dms_timestamp", "id"), (datetime(2024, 1, 1), 1), True),
        (("happened", "id"), (datetime(2024, 1, 1), 1), False),
        (("Op", "id", "ts"), ("I", 1, TIME), False),
        (("Op", "ts", "id"), ("I", 17, 1), False),
    ],
)
def test_an_undeclared_commit_time_among_named_columns_is_reported(
    names: tuple[str, ...], first: tuple[object, ...], found: bool
) -> None:
    spec = make_spec("id int")
    spec = type(spec)(spec.table, (), spec.settings.model_copy(update={"table_schema": None}))
    signs = sniff_named_times(names, first, spec)
    assert [sign.setting for sign in signs] == (["timestamp_column"] if found else [])
    assert not any(sign.stops for sign in signs)


def test_the_error_for_bad_rows_describes_what_they_look_like() -> None:
    spec = make_spec(TYPED)
    assert settings_of(sniff_bad_rows(["number,title,cost"], spec, are_first=True)) == [("csv.header", "true")]
    assert sniff_bad_rows(["number,title,cost"], spec, are_first=False) == []
    assert settings_of(sniff_bad_rows(["1;a;2", "2;b;3"], spec, are_first=False)) == [("csv.delimiter", '";"')]
    assert sniff_bad_rows(["x,a,2"], spec, are_first=False) == []


def test_a_file_that_begins_with_its_columns_names_is_refused_unless_it_is_declared_headerless(tmp_path: Path) -> None:
    text = "code,name\na,b\n"
    problem = read(tmp_path, text, make_spec(TEXTS, primary_key="code")).summary.problem or ""
    assert "csv.header is not set: set csv.header: true" in problem
    summary = read(tmp_path, text, make_spec(TEXTS, primary_key="code", csv={"header": False})).summary
    assert summary.problem is None and summary.rows == 2


def test_every_type_is_checked_without_an_error() -> None:
    schema = "a boolean, b double, c date, d timestamp, e time, f decimal(4,1), g bigint"
    assert sniffed(schema, "a1,b1,c1,d1,e1,f1,g1", f"true,1.5,2024-01-01,{TIME},10:00:00,1.5,7") == [
        ("csv.header", "true")
    ]
