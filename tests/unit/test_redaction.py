"""No password, key or token is shown, whatever surrounds it and however the address is mistyped."""

from __future__ import annotations

import logging
import pickle
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeward.cli.failures import guarded
from lakeward.cli.options import Invocation
from lakeward.errors import ConfigurationError
from lakeward.logs import JsonFormatter, TextFormatter
from lakeward.redaction import redact, redact_address, redact_values

SECRET = "S3cr3t/Pa:ss"
# No part of anything else in an address, and no white space: an address in a text ends there.
PASSWORDS = st.text(
    st.characters(min_codepoint=33, max_codepoint=0x2FF, categories=["L", "N", "P", "S"]), min_size=1
).map(lambda text: f"Zq{text}qZ")
USERS = st.text("abcdef0123456789._%-@", max_size=8)
SCHEMES = st.sampled_from(
    ["postgresql", "postgresql+psycopg", "https", "jdbc:mysql", "s3", "cassandra", "mongodb", "rest+https", "unknown"]
)
# As it should be, and as fingers write it.
SEPARATORS = st.sampled_from(["://", "//", ":////", ":///"])
TYPOS = st.sampled_from([":/", ":", "\\\\", ":\\\\"])
KNOWN = st.sampled_from(["postgresql", "mysql", "https", "jdbc:postgresql", "s3", "cassandra"])
SURROUNDINGS = st.sampled_from(["{}", "cannot open '{}': refused", '("{}")', "a {} b c@d e:f@g", "x={}, y=1\n"])
TAILS = st.sampled_from(["@host/db", "@host:5432/db?sslmode=require", "@[::1]/db", "@"])


@given(SCHEMES, SEPARATORS, USERS, PASSWORDS, TAILS, SURROUNDINGS)
def test_a_password_of_an_address_is_hidden_in_any_text(scheme, separator, user, password, tail, surrounding):
    assert password not in redact(surrounding.format(f"{scheme}{separator}{user}:{password}{tail}"))


@given(KNOWN, TYPOS, USERS, PASSWORDS, TAILS, SURROUNDINGS)
def test_a_password_behind_a_mistyped_scheme_is_hidden(scheme, separator, user, password, tail, surrounding):
    assert password not in redact(surrounding.format(f"{scheme}{separator}{user}:{password}{tail}"))


@given(st.sampled_from(["", "postgresql", "pg"]), st.sampled_from(["", ":", "/", "//", "://"]), USERS, st.text(), TAILS)
def test_an_address_shows_nothing_before_its_host_but_scheme_and_user(scheme, separator, user, noise, tail):
    password = f"Zq{noise}qZ"
    assert password not in redact_address(f"{scheme}{separator}{user}:{password}{tail}")


@given(
    st.sampled_from(["password", "PWD", "sslpassword", "secretAccessKey", "X-Amz-Signature", "db.passwd", "api_key"]),
    st.text("abcdefXYZ0123456789+/=%.:@-,'\"{}()", min_size=1).map(lambda text: f"Zq{text}qZ"),
    st.sampled_from(["jdbc:sqlserver://h;user=u;{}={};encrypt=true", "https://h/p?{}={}&b=c", "host=h {}={} port=1"]),
)
def test_secret_options_are_hidden(name, value, surrounding):
    assert value not in redact(surrounding.format(name, value))


@given(st.text())
def test_redacting_twice_is_redacting_once(text):
    assert redact(redact(text)) == redact(text)
    assert redact_address(redact_address(text)) == redact_address(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"postgresql://u:{SECRET}@h/db", "postgresql://u:***@h/db"),
        (f"postgresql//u:{SECRET}@h/db", "postgresql//u:***@h/db"),
        ("https://ghp_token@h/x", "https://***@h/x"),
        ("https://hooks.slack.com/services/T0/B0/hush", "https://hooks.slack.com/***"),
        (f"jdbc:oracle:thin:scott/{SECRET}@h:1521", "jdbc:oracle:***@h:1521"),
        (
            "https://b.s3.amazonaws.com/k?X-Amz-Signature=abc&x=1",
            "https://b.s3.amazonaws.com/k?X-Amz-Signature=***&x=1",
        ),
        ("https://h/?access_token=abc#f", "https://h/?access_token=***#f"),
        ("Authorization: Bearer abcdefgh.ijk", "Authorization: Bearer ***"),
        ("the token is: bearer eyJhbGciOi9.x", "the token is: bearer ***"),
        ("jdbc:sqlserver://h;password={a;b c};x=1", "jdbc:sqlserver://h;password=***;x=1"),
        ("connection to host=h password='p w' failed", "connection to host=h password=*** failed"),
    ],
)
def test_what_is_shown(text, shown):
    assert redact(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://lakeward@db.example/lake",
        "s3://bucket/a:b@c/LOAD00000001.csv",
        "cassandra://[::1],[::2]:9043/shop",
        "jdbc:postgresql://db:5432/shop?sslmode=require",
        "rest+http://catalog:8181/api",
        "password: env:NAME of the cluster",
        "CASSANDRA_PASSWORD=… before starting",
        "mail joe@example.com at 12:30",
        "basic functionality and bearer credentials",
        "row 3: column mail: 'a:b@c' is no number",
    ],
)
def test_other_text_is_not_redacted(text):
    assert redact(text) == text


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("u:hush@h/db", "***@h/db"),
        ("postgresql:/u:hush@h/db", "***@h/db"),
        ("postgresql://u@h/db", "postgresql://u@h/db"),
        ("postgresql://u:hush", "postgresql://u:***"),
        ("postgresql://h:5432/db", "postgresql://h:5432/db"),
        ("lakeward.db", "lakeward.db"),
    ],
)
def test_what_is_shown_of_an_address(address, shown):
    assert redact_address(address) == shown


def test_documents_are_redacted_text_by_text():
    document = {"publish": {"to": f"s3://AK:{SECRET}@bucket/x"}, "keys": ("a", 1, None)}
    assert redact_values(document) == {"publish": {"to": "s3://AK:***@bucket/x"}, "keys": ["a", 1, None]}


def test_no_error_of_lakeward_contains_a_password():
    error = ConfigurationError("cannot open https://u:hush@h", hint="open https://u:hush@h")
    for shown in (error, pickle.loads(pickle.dumps(error))):
        assert "hush" not in f"{shown} {shown!r} {shown.message} {shown.hint}"


def refuse(text: str, cause: Exception | None = None) -> None:
    raise OSError(text) from cause


@pytest.mark.parametrize("formatter", [JsonFormatter(), TextFormatter()])
def test_no_line_of_the_log_contains_a_password(formatter):
    try:
        refuse("cannot open https://u:hush@h")
    except OSError:
        caught = sys.exc_info()
    record = logging.LogRecord("lakeward", logging.WARNING, "", 0, "to %s", ("https://u:hush@h",), caught)
    record.event, record.fields = "x", {"where": ["https://u:hush@h"], "path": Path("x:/https://u:hush@h")}
    assert "hush" not in formatter.format(record)


def test_no_traceback_of_a_command_contains_a_password(capsys):
    def work():
        try:
            refuse("https://u:hush@h refuses")
        except OSError as error:
            refuse("https://u:hush@h/again", error)

    assert guarded(work, Invocation(debug=True, output="json"), []) == 3
    shown = capsys.readouterr()
    assert "https://u:***@h refuses" in shown.err and "https://u:***@h/again" in shown.err
    assert "hush" not in shown.out + shown.err.replace('refuse("https://u:hush@h', "")
