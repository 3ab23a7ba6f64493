"""Text from outside, made safe to store and to print."""

import json
import logging

import pytest

from lakeward.logs import JsonFormatter, TextFormatter
from lakeward.text import escape_name, escape_text, escape_undecoded, is_utf8, listed, name_problem, to_json

LATIN = b"caf\xe9".decode("utf-8", "surrogateescape")


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("plain ä €", "plain ä €"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\x9b31m", "\\x9b31m"),
        ("a\rb\bc\x00\x7f", "a\\x0db\\x08c\\x00\\x7f"),
        (LATIN, "caf\\xe9"),
        ("\ud800", "\\ud800"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
    ],
)
def test_terminal_control_characters_are_escaped(text, printed):
    assert escape_text(text) == escape_name(text) == printed
    escape_text(text).encode()


def test_messages_keep_their_lines_and_names_have_one():
    assert escape_text("a\n\tb") == "a\n\tb"
    assert escape_name("a\n\tb") == "a\\n\\tb"


def test_undecoded_bytes_alone():
    assert escape_undecoded(f"{LATIN}\x1b\n") == "caf\\xe9\x1b\n"
    assert not is_utf8(LATIN) and is_utf8("café")


def test_names_that_cannot_be_stored():
    assert name_problem(LATIN) == "its name is not UTF-8"
    assert name_problem("a\nb") == name_problem("\x1b[2J") == "its name holds a control character"
    assert name_problem("it's a name, ä") is None


def test_a_list_of_names_ends_with_the_number_of_those_that_are_not_shown():
    assert listed([]) == ""
    assert listed(iter("abcde")) == "a, b, c, d, e"
    assert listed("abcdef") == "a, b, c, d, e and 1 more"
    assert listed(["a", "b", "c"], most=1) == "a and 2 more"


def test_json_that_any_reader_takes():
    document = {"name": f"{LATIN}\x9b\x1b\n", "plain": "ä"}
    text = to_json(document)
    text.encode()
    assert json.loads(text) == document and "ä" in text and "\x9b" not in text and "\x1b" not in text


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_log_lines_cannot_control_a_terminal(formatter):
    record = logging.LogRecord("x", logging.WARNING, "x", 1, "found %s", (f"\x1b[2J{LATIN}",), None)
    line = formatter.format(record)
    line.encode()
    assert "\x1b" not in line and "u001b[2J" in line.replace("\\x1b", "\\u001b")
