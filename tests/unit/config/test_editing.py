"""Adding tables to the text of a configuration: all else stays byte for byte, or nothing is changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeward.config.editing import (
    TableText,
    add_tables,
    declared_lines,
    line_of_table,
    read_text_exactly,
    with_renamed_table,
    without_table,
    write_text_in_place,
)
from lakeward.config.loading import read_yaml
from lakeward.errors import ConfigurationError, ConflictError

TABLE = TableText("a.b", ("# why", "a.b:", "  primary_key: [id]  # unique"), {"primary_key": ["id"]})
COMMENT = TableText("c.d", ("# c.d: {}",))
BLOCK = "  # why\n  a.b:\n    primary_key: [id]  # unique\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", f"tables:\n{BLOCK}"),
        ("# only a comment", f"# only a comment\n\ntables:\n{BLOCK}"),
        ("landing: x", f"landing: x\n\ntables:\n{BLOCK}"),
        ("landing: x\n", f"landing: x\n\ntables:\n{BLOCK}"),
        ("tables: {}\nlanding: x\n", f"tables:\n{BLOCK}landing: x\n"),
        ("tables: {}   # none\n#  s.p:\n", f"tables:   # none\n{BLOCK}#  s.p:\n"),
        ("tables: # none yet\nlanding: x\n", f"tables: # none yet\n{BLOCK}landing: x\n"),
        ("tables:\nlanding: x\n", f"tables:\n{BLOCK}landing: x\n"),
        ("tables:", f"tables:\n{BLOCK}"),
        ('"tables": null\n', f'"tables":\n{BLOCK}'),
        ("tables:\n  x.y: {}\n", f"tables:\n  x.y: {{}}\n{BLOCK}"),
        ("tables:\n  x.y: {}", f"tables:\n  x.y: {{}}\n{BLOCK}"),
        (
            "tables:\n  # first\n  x.y:\n    path: a   # here\n    # publish: later\n\n# end\nlanding: z\n",
            f"tables:\n  # first\n  x.y:\n    path: a   # here\n    # publish: later\n{BLOCK}\n# end\nlanding: z\n",
        ),
        (
            "tables:\n  x.y:\n    csv: {delimiter: ';',\n      header: true}\nlanding: z\n",
            f"tables:\n  x.y:\n    csv: {{delimiter: ';',\n      header: true}}\n{BLOCK}landing: z\n",
        ),
        (
            "tables:\n  x.y:\n    schema: >\n      id int,\n      v int\n\nlanding: z\n",
            f"tables:\n  x.y:\n    schema: >\n      id int,\n      v int\n\n{BLOCK}landing: z\n",
        ),
        ("tables:\n  x.y:\n    primary_key:\n    - id\n", f"tables:\n  x.y:\n    primary_key:\n    - id\n{BLOCK}"),
        ("\ufefflanding: x\n", f"\ufefflanding: x\n\ntables:\n{BLOCK}"),
    ],
)
def test_a_table_is_added_after_the_others_and_nothing_else_changes(text: str, expected: str) -> None:
    assert add_tables(text, [TABLE], "f.yaml") == expected
    assert read_yaml(expected.removeprefix("\ufeff"))["tables"]["a.b"] == {"primary_key": ["id"]}


def test_indentation_and_line_ends_are_those_of_the_file() -> None:
    text = "tables:\r\n    x.y: {}\r\n"
    wanted = "    # why\n    a.b:\n      primary_key: [id]  # unique\n".replace("\n", "\r\n")
    assert add_tables(text, [TABLE], "f.yaml") == text + wanted


def test_proposals_in_comments_declare_nothing() -> None:
    for text in ("", "tables: {}\n", "tables:\n  x.y: {}\n"):
        changed = add_tables(text, [COMMENT], "f.yaml")
        assert "  # c.d: {}\n" in changed
        assert ((read_yaml(changed) or {}).get("tables") or {}) == ((read_yaml(text) or {}).get("tables") or {})


@pytest.mark.parametrize(
    "text",
    [
        "{landing: x}\n",
        "tables: {x.y: {}}\n",
        "tables: &all\n  x.y: {}\n",
        "defaults: &d {}\ntables: *d\n",
        "tables: !!map\n  x.y: {}\n",
        "tables: [1]\n",
        "tables: text\n",
        "tables:\n  x.y: {}\ntables:\n  p.q: {}\n",
        "landing: x\n...\n",
        "- a\n",
        "  landing: x\n",
        "spark:\n  conf:\n    a: |+\n      text\n",
        "tables:\n  a.b: {path: mine}\n",
        "tables:\n  x.y: {\n",
    ],
)
def test_text_to_which_nothing_can_be_added_safely_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError):
        add_tables(text, [TABLE], "f.yaml")


def test_a_table_is_found_by_its_line() -> None:
    text = "landing: x\ntables:\n  # first\n  'a.b': {}\n  c.d:\n    path: x\n"
    assert [line_of_table(text, name) for name in ("a.b", "c.d", "e.f")] == [4, 5, None]
    assert line_of_table("tables: [", "a.b") is None


def test_a_file_is_replaced_with_its_permissions_and_only_as_it_was_read(tmp_path: Path) -> None:
    file, link = tmp_path / "real.yaml", tmp_path / "lakeward.yaml"
    file.write_bytes(b"a: 1\r\n")
    file.chmod(0o640)
    link.symlink_to(file)
    text = read_text_exactly(link)
    write_text_in_place(link, text, text + "b: 2\r\n")
    assert (file.read_bytes(), file.stat().st_mode & 0o777, link.is_symlink()) == (b"a: 1\r\nb: 2\r\n", 0o640, True)
    with pytest.raises(ConflictError):
        write_text_in_place(link, text, "lost")
    assert file.read_bytes() == b"a: 1\r\nb: 2\r\n" and [*tmp_path.iterdir()] in ([file, link], [link, file])


@pytest.mark.parametrize(
    ("text", "lines", "rest"),
    [
        ("tables:\n  a.b: {}\n  x.y: {}\n", (2, "  a.b: {}"), "tables:\n  x.y: {}\n"),
        ("tables:\n  x.y: {}\n  a.b:\n    path: p\n", (3, "  a.b:", "    path: p"), "tables:\n  x.y: {}\n"),
        ("tables:\n  a.b:\n", (2, "  a.b:"), "tables:\n"),
        (
            "tables:\n  x.y: {}\n  # mine\n  a.b:   # why\n    csv: {x: 1,\n      null: x}\n    # own\n#\nlanding: z\n",
            (4, "  a.b:   # why", "    csv: {x: 1,", "      null: x}", "    # own"),
            "tables:\n  x.y: {}\n  # mine\n#\nlanding: z\n",
        ),
        (
            "tables:\r\n  # proposed\r\n  a.b: {path: p}\r\n  x.y: {}\r\n",
            (2, "  # proposed", "  a.b: {path: p}"),
            "tables:\r\n  x.y: {}\r\n",
        ),
        ("tables:\n  'a.b': {}\nlanding: z", (2, "  'a.b': {}"), "tables:\nlanding: z"),
    ],
)
def test_the_lines_of_a_table_are_removed_and_nothing_else(text: str, lines: tuple[int, str], rest: str) -> None:
    found = declared_lines(text, "a.b", "f.yaml", heading="# proposed")
    assert (found.first, *found.lines) == lines
    assert without_table(text, "a.b", "f.yaml", heading="# proposed") == rest


@pytest.mark.parametrize(
    "text",
    [
        "tables: {a.b: {}, x.y: {}}\n",
        "tables:\n  a.b: &own {path: p}\n  x.y: *own\n",
        "tables:\n  ? a.b\n  : {path: p}\n  x.y: {}\n",
        "tables:\n  x.y: {}\n",
    ],
)
def test_a_table_that_cannot_be_taken_out_safely_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="was not changed") as error:
        without_table(text, "a.b", "f.yaml")
    assert error.value.hint is not None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("  a.b: {}   # why\n", "  n.m: {path: q/r}   # why\n"),
        ("  a.b:\n", "  n.m: {path: q/r}\n"),
        ("  a.b: ~\n", "  n.m: {path: q/r}\n"),
        ("  a.b:\n    # key\n    primary_key: [id]\n", "  n.m:\n    # key\n    path: q/r\n    primary_key: [id]\n"),
        ("  a.b: {primary_key: [id]}\n", "  n.m: {path: q/r, primary_key: [id]}\n"),
        ('  "a.b":\n    path: p   # stays\n', "  n.m:\n    path: p   # stays\n"),
        ("  a.b:\r\n    primary_key: [id]\r\n", "  n.m:\r\n    path: q/r\r\n    primary_key: [id]\r\n"),
    ],
)
def test_a_table_is_renamed_and_keeps_its_folder(before: str, after: str) -> None:
    around = "# top\ntables:\n{}  x.y: {{}}  # other a.b\n"
    changed = with_renamed_table(around.format(before), "a.b", "n.m", "q/r", "f.yaml")
    assert changed == around.format(after)


def test_a_name_that_needs_quotes_gets_them_and_one_that_is_taken_is_refused() -> None:
    changed = with_renamed_table("tables:\n  a.b: {}\n", "a.b", "n.m: x", "q r/s", "f.yaml")
    assert read_yaml(changed) == {"tables": {"n.m: x": {"path": "q r/s"}}}
    with pytest.raises(ConfigurationError, match="was not changed"):
        with_renamed_table("tables:\n  a.b: {}\n  x.y: {}\n", "a.b", "x.y", "a/b", "f.yaml")
