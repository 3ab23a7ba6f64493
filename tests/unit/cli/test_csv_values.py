"""CSV for spreadsheets."""

import pytest

from lakeward.cli.sql_values import csv_record, without_formula


@pytest.mark.parametrize(
    "value",
    ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "  =1", "|cmd", "%0A", "\uff1d1", "=", "-", '="a"'],
)
def test_a_text_that_begins_a_formula_gets_an_apostrophe(value):
    assert without_formula(value) == f"'{value}"


@pytest.mark.parametrize("value", [None, "", "a=1", "1-2", "'=1", "a@b", " a", "2024-04-05"])
def test_other_texts_stay(value):
    assert without_formula(value) == value


def test_a_formula_with_quotes_stays_one_field():
    assert csv_record([without_formula('=HYPERLINK("x",A1)'), "b"]) == '"\'=HYPERLINK(""x"",A1)",b\r\n'
