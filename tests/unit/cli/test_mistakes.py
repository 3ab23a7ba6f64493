"""A user's mistake ends with exit code 2 and words for it, and is never called a bug."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from lakeward.cli.failures import guarded
from lakeward.cli.options import Invocation

DEEP = "a: " + "[" * 3000 + "]" * 3000


def refused(result) -> str:
    """The words of a refusal, which must be one."""
    assert result.exit_code == 2, result.output
    assert "bug" not in result.stderr
    assert "Traceback" not in result.stderr
    return result.stderr


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"landing: 2024-02-30\n", "not valid YAML: day is out of range for month"),
        (b"landing: 2024-01-01 00:00:00 +99:99\n", "not valid YAML"),
        (b"landing: !!int ''\n", "not valid YAML"),
        ("landing: caf\xe9\n".encode("latin-1"), "is not UTF-8: byte 0xe9 at position 12"),
        (b'landing: "a\\0b"\n', "landing: 'a\\x00b' holds the character '\\x00', which no name or path can"),
        (b'tables: {"a\\0.b": {}}\n', "holds the character"),
        (b'lake: {warehouse: "a\\uD800b"}\n', "lake.warehouse: 'a\\ud800b' holds the character"),
        (DEEP.encode(), "nested too deeply"),
        (b"lake: &a {properties: *a}\n", "nested too deeply, or an alias in it contains itself"),
        (b"\xff\xfel\x00", "is not UTF-8: byte 0xff at position 0"),
        (b"landing: 'x://[::1'\n", "landing is not an address"),
        (b"state: 'postgresql://h/db?colour=red'\n", "has the unknown option 'colour'"),
        (b"state: 'postgresql://h/db?sslmod=require'\n", "?sslmode="),
        (b"state: 'postgresql://h/db?cursor_factory=x'\n", "has the unknown option 'cursor_factory'"),
        (b"state: 'postgresql://h/db?connect_timeout=soon'\n", "connect_timeout"),
        (b"state: 'dynamodb://table?endpoint=x://[::1'\n", "state: endpoint is not an address"),
    ],
)
def test_an_impossible_configuration_is_refused(project: Path, call, content: bytes, words: str) -> None:
    (project / "lakeward.yaml").write_bytes(content)
    assert words in refused(call("tables", "list"))


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("LAKEWARD_INCLUDE", "[a", "LAKEWARD_INCLUDE is not valid YAML"),
        ("LAKEWARD_LANDING", "2024-02-30", "LAKEWARD_LANDING is not valid YAML"),
        ("LAKEWARD_LANDING__X", "a", "LAKEWARD_LANDING__X sets a key inside landing:"),
        ("LAKEWARD_PARALLEL", "many", "parallel"),
    ],
)
def test_an_impossible_variable_is_refused(project: Path, call, monkeypatch, name, value, words) -> None:
    (project / "lakeward.yaml").write_text("landing: ./landing\n")
    monkeypatch.setenv(name, value)
    assert words in refused(call("tables", "list"))


def test_a_pattern_in_a_variable_is_itself(project: Path, call_json, monkeypatch) -> None:
    (project / "lakeward.yaml").write_text("lake:\n")
    monkeypatch.setenv("LAKEWARD_INCLUDE", "*.product")
    monkeypatch.setenv("LAKEWARD_LAKE__WAREHOUSE", str(project / "elsewhere"))
    assert call_json("discover")["new"] == ["sales.product"]


def test_a_loop_of_links_in_landing_is_named(project: Path, call) -> None:
    (project / "landing/sales/product/LOAD00000002.csv").symlink_to("LOAD00000002.csv")
    result = call("tables", "check", "sales.product")
    assert result.exit_code == 1 and "error sales.product: files" in result.stdout
    assert "LOAD00000002.csv" in result.stdout


def test_an_impossible_address_of_a_file_is_refused(project: Path, call, answers) -> None:
    assert "is not an address" in refused(call("plan", "--file", "x://[::1"))


def test_a_file_where_a_folder_must_be_is_refused(project: Path, call) -> None:
    assert "lakeward.yaml" in refused(call("simulate", "lakeward.yaml"))
    assert "lakeward.yaml" in refused(call("simulate", "lakeward.yaml/deeper"))
    assert "lakeward.yaml" in refused(call("init", "lakeward.yaml"))


@pytest.mark.parametrize("settings", ["0", "", "[1", "[" * 100_000])
def test_a_damaged_row_of_the_state_store_is_named(project: Path, call, settings: str) -> None:
    assert call("tables", "set", "sales.customer", "--primary-key", "id").exit_code == 0
    with closing(sqlite3.connect(project / "lakeward.db")) as store, store:
        assert store.execute("UPDATE lakeward_tables SET settings = ?", [settings]).rowcount == 1
    words = refused(call("tables", "list"))
    assert "the settings of sales.customer is damaged" in words
    assert "lakeward state rebuild" in words


@pytest.mark.parametrize(("code", "exit_code", "words"), [
    ("ENOSPC", 3, "the disk is full (there)"), ("EDQUOT", 3, "the disk is full"), ("EMFILE", 3, "ulimit -n"),
    ("EACCES", 2, "permissions"), ("ENOENT", 2, "check the path"), ("ENAMETOOLONG", 2, "there: File name too long"),
    ("EIO", 3, "there: Input/output error"),
])  # fmt: skip
def test_an_error_of_the_system_is_not_a_bug(capsys, code: str, exit_code: int, words: str) -> None:
    number = getattr(__import__("errno"), code)

    def work() -> None:
        raise OSError(number, os.strerror(number), "there")

    assert guarded(work, Invocation(), []) == exit_code
    printed = capsys.readouterr().err
    assert words in printed and "bug" not in printed


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["runs", "\udcff"], "is not UTF-8"),
        (["runs", "--limit", "99999999999999999999"], "is not in the range"),
        (["tables", "set", "sales.customer", "--set", "time_limit=2024-02-30"], "time_limit: Input should be"),
        (["tables", "set", "sales.customer", "--set", "time_limit=" + "[" * 3000], "time_limit"),
        (["erase", "sales.product", "--keys-from", "bytes", "--reason", "x", "--yes"], "is not UTF-8: byte 0xff"),
        (
            ["erase", "sales.product", "--keys-from", "deep", "--reason", "x", "--yes"],
            "deep, line 1: not a JSON object",
        ),
    ],
)
def test_an_impossible_argument_is_refused(project: Path, call, arguments: list[str], words: str) -> None:
    (project / "bytes").write_bytes(b"\xff\xfe")
    (project / "deep").write_text('{"id":' * 100_000)
    assert words in refused(call(*arguments))
