"""Adding, removing and renaming tables in ``lakeward.yaml``: all else stays byte for byte, or nothing is changed.

YAML libraries lose comments and layout when they write. Here lines are changed at places that are found by parsing,
and the result is parsed again: it must hold the former content with the change, and nothing else.
"""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from lakeward.config.loading import compose_yaml, read_config, read_yaml
from lakeward.errors import ConfigurationError, ConflictError
from lakeward.text import MALFORMED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_TABLES = "tables"
_ONLY_SPACE = re.compile(r"\s*:[ \t]*(?:#[^\n]*)?(?:\r?\n[ \t]*(?:#[^\n]*)?)*[ \t]*\Z")
_EMPTY = re.compile(r"(?P<before>\s*:[ \t]*)(?P<value>\{[ \t]*\}|~|null|)(?P<rest>[ \t]*(?:#[^\n]*)?)(?=\r?\n|\Z)")


@dataclass(frozen=True)
class TableText:
    """Lines that declare a table, or propose to declare it in comments, without indentation.

    ``content`` is what the lines mean, None where they are comments only.
    """

    name: str
    lines: tuple[str, ...]
    content: Mapping[str, Any] | None = None


def add_tables(text: str, tables: Sequence[TableText], source: str) -> str:
    """Return the text of a configuration with more tables at the end of ``tables:``.

    Raises:
        ConfigurationError: the text is written in a way in which nothing can be added without touching the rest.
    """
    if not tables:
        return text
    newline = "\r\n" if "\r\n" in text else "\n"
    start, end, prefix, indent = _place(text, source)
    lines = [f"{indent}{line}".rstrip() for table in tables for line in table.lines]
    edge = newline if not prefix and start and text[start - 1] != "\n" else ""
    changed = text[:start] + edge + prefix + newline.join(lines) + newline + text[end:]
    _require_added(text, changed, tables, source)
    return changed


@dataclass(frozen=True)
class TableLines:
    """The lines of a configuration that declare a table: the number of the first, and their texts."""

    first: int
    lines: tuple[str, ...]


def declared_lines(text: str, name: str, source: str, *, heading: str = "") -> TableLines:
    """Return the lines that declare a table.

    A comment line directly before them belongs to them if it is ``heading``.

    Raises:
        ConfigurationError: the table is declared in a way in which its lines cannot be told from others.
    """
    start, end = _span(text, name, source, heading)
    return TableLines(text.count("\n", 0, start) + 1, tuple(text[start:end].splitlines()))


def without_table(text: str, name: str, source: str, *, heading: str = "") -> str:
    """Return the text of a configuration without the lines that declare a table.

    Raises:
        ConfigurationError: the table cannot be removed without touching the rest.
    """
    start, end = _span(text, name, source, heading)
    changed = text[:start] + text[end:]
    old: Any = read_yaml(text)
    kept = {known: content for known, content in old[_TABLES].items() if known != name}
    _require_meaning(changed, {**old, _TABLES: kept or None}, source)
    return changed


def with_renamed_table(text: str, name: str, to: str, path: str, source: str) -> str:
    """Return the text of a configuration in which a table has another name and a ``path:``, added where it has none.

    Raises:
        ConfigurationError: the table cannot be renamed without touching the rest.
    """
    key, value = _declaration(text, name, source)
    old: Any = read_yaml(text)
    content = old[_TABLES][name] or {}
    edits = [(key.start_mark.index, key.end_mark.index, _scalar(to))]
    if "path" not in content:
        edits.append(_path_edit(text, key, value, path, source))
    changed = text
    for start, end, new in sorted(edits, reverse=True):
        changed = changed[:start] + new + changed[end:]
    renamed = {(to if known == name else known): inner for known, inner in old[_TABLES].items()}
    _require_meaning(changed, {**old, _TABLES: {**renamed, to: {"path": path, **content}}}, source)
    return changed


def _path_edit(text: str, key: yaml.Node, value: yaml.Node, path: str, source: str) -> tuple[int, int, str]:
    """Return what to replace (from, to) by what, so that the declaration of a table begins with ``path:``."""
    setting = f"path: {_scalar(path)}"
    if _is_empty(value):
        return (
            value.start_mark.index,
            value.end_mark.index,
            f"{'' if value.start_mark.index > key.end_mark.index + 1 else ' '}{{{setting}}}",
        )
    if isinstance(value, yaml.MappingNode) and not value.flow_style:
        first = value.value[0][0].start_mark
        newline = "\r\n" if "\r\n" in text else "\n"
        return first.index, first.index, f"{setting}{newline}{' ' * first.column}"
    if isinstance(value, yaml.MappingNode):
        first = value.value[0][0].start_mark
        return first.index, first.index, f"{setting}, "
    raise _refused(source, "the table is declared with an anchor, alias or tag", by_hand=True)


def _declaration(text: str, name: str, source: str) -> tuple[yaml.Node, yaml.Node]:
    """Return the nodes of a table's name and of its settings."""
    found = _tables(_composed(text, source))
    if found is None or not isinstance(found[1], yaml.MappingNode) or found[1].flow_style:
        raise _refused(source, "tables: is not written as a block", by_hand=True)
    for key, value in found[1].value:
        if key.value == name:
            return key, value
    raise _refused(source, f"{name} is not declared in it under this name", by_hand=True)


def _span(text: str, name: str, source: str, heading: str) -> tuple[int, int]:
    """Return where the lines that declare a table begin and end."""
    key, value = _declaration(text, name, source)
    start = text.rfind("\n", 0, key.start_mark.index) + 1
    if text[start : key.start_mark.index].strip():
        raise _refused(source, f"something else is in the line of {name}", by_hand=True)
    before = text.rfind("\n", 0, max(start - 1, 0)) + 1
    if heading and text[before:start].strip() == heading:
        start = before
    return start, _after_comments(text, _last(value, key.end_mark.index), key.start_mark.column)


def _scalar(text: str) -> str:
    """Return a text as YAML on one line."""
    dumped: str = yaml.safe_dump(text, allow_unicode=True, width=10_000, default_flow_style=True)
    return dumped.removesuffix("...\n").strip()


def _require_meaning(changed: str, wanted: Mapping[str, Any], source: str) -> None:
    """Refuse a text that does not mean exactly what it should."""
    try:
        found: Any = read_yaml(changed)
    except (yaml.YAMLError, *MALFORMED):
        found = None
    if isinstance(found, dict) and not found.get(_TABLES):
        found = {**found, _TABLES: None}
    if found != wanted:
        raise _refused(source, "the tables cannot be changed without changing what the rest of it means")


def line_of_table(text: str, name: str) -> int | None:
    """Return the number of the line that declares a table, None where it cannot be determined."""
    try:
        tables = _tables(compose_yaml(text))
    except (yaml.YAMLError, *MALFORMED):
        return None
    if tables is None or not isinstance(tables[1], yaml.MappingNode):
        return None
    return next((key.start_mark.line + 1 for key, _ in tables[1].value if key.value == name), None)


def _tables(root: yaml.Node | None) -> tuple[yaml.Node, yaml.Node] | None:
    pairs = root.value if isinstance(root, yaml.MappingNode) else []
    return next(((key, value) for key, value in pairs if key.value == _TABLES), None)


def _place(text: str, source: str) -> tuple[int, int, str, str]:
    """Return what to replace (from, to), what comes first in its place, and the indentation of table names."""
    root = _composed(text, source)
    if root is None:
        return len(text), len(text), _after(text, f"{_TABLES}:"), "  "
    if not isinstance(root, yaml.MappingNode) or root.flow_style or root.start_mark.column:
        raise _refused(source, "its settings are written in braces or indented")
    found = _tables(root)
    if found is None:
        if re.search(r"^(?:\.\.\.|---)", text[_last(root, 0) :], re.MULTILINE):
            raise _refused(source, "it ends with a mark of a document")
        return len(text), len(text), _after(text, f"{_TABLES}:"), "  "
    key, value = found
    rest = text[key.end_mark.index :]
    if _is_empty(value) and (empty := _EMPTY.match(rest)):
        return _emptied(text, key.end_mark.index, empty)
    between = text[key.end_mark.index : value.start_mark.index]
    is_marked = text[value.start_mark.index :].startswith(("&", "!", "*")) or not _ONLY_SPACE.match(between)
    if not isinstance(value, yaml.MappingNode) or value.flow_style or is_marked:
        raise _refused(source, "tables: is written in braces, or with an anchor, alias or tag")
    indent = value.value[0][0].start_mark.column
    end = _after_comments(text, _last(value, key.end_mark.index), indent)
    return end, end, "", " " * indent


def _is_empty(value: yaml.Node) -> bool:
    if isinstance(value, yaml.ScalarNode):
        return value.tag == "tag:yaml.org,2002:null"
    return isinstance(value, yaml.MappingNode) and not value.value


def _emptied(text: str, start: int, empty: re.Match[str]) -> tuple[int, int, str, str]:
    """Replace an empty value, such as ``{}``, by the tables; a comment behind it stays."""
    newline = "\r\n" if "\r\n" in text else "\n"
    line_end = start + empty.end()
    follows = re.match(r"\r?\n", text[line_end:])
    # Without a blank before it, YAML takes "#" for a part of a value.
    before = empty["before"] if empty["rest"].startswith("#") else empty["before"].rstrip()
    kept = f"{before}{empty['rest']}"
    return start, line_end + (follows.end() if follows else 0), kept + newline, "  "


def _after(text: str, line: str) -> str:
    """Return a line to put after the end of a text, with the line end that the text may lack."""
    newline = "\r\n" if "\r\n" in text else "\n"
    lead = newline if text and not text.endswith("\n") else ""
    blank = newline if text.strip() else ""
    return f"{lead}{blank}{line}{newline}"


def _last(node: yaml.Node, floor: int) -> int:
    """Return where the content of a node ends; comments behind a block are not part of it."""
    if isinstance(node, yaml.MappingNode) and not node.flow_style:
        ends = [_last(child, floor) for pair in node.value for child in pair]
    elif isinstance(node, yaml.SequenceNode) and not node.flow_style:
        ends = [_last(child, floor) for child in node.value]
    else:
        ends = [node.end_mark.index]
    return max([floor, *ends])


def _after_comments(text: str, end: int, indent: int) -> int:
    """Return the end of the line at ``end`` and of the comment lines that belong to it by their indentation."""
    position = end if end and text[end - 1] == "\n" else _line_end(text, end)
    kept = position
    while position < len(text):
        following = _line_end(text, position)
        line = text[position:following]
        bare = line.lstrip(" ")
        if bare.strip() and not (bare.startswith("#") and len(line) - len(bare) > indent):
            break
        position = following
        kept = position if bare.strip() else kept
    return kept


def _line_end(text: str, position: int) -> int:
    found = text.find("\n", position)
    return len(text) if found < 0 else found + 1


def _composed(text: str, source: str) -> yaml.Node | None:
    try:
        return compose_yaml(text)
    except (yaml.YAMLError, *MALFORMED) as error:
        msg = f"{source} is not valid YAML: {error}"
        raise ConfigurationError(msg) from error


def _require_added(before: str, after: str, tables: Sequence[TableText], source: str) -> None:
    """Refuse a text that does not mean the former content and the new tables."""
    old: Any = read_yaml(before) or {}
    wanted = dict(old)
    added = {table.name: dict(table.content) for table in tables if table.content is not None}
    present = old.get(_TABLES) or {}
    if known := sorted(added.keys() & {*map(str, present)}):
        raise _refused(source, f"it has the table {known[0]} already")
    wanted[_TABLES] = {**present, **added} or None
    _require_meaning(after, wanted, source)


def _refused(source: str, reason: str, *, by_hand: bool = False) -> ConfigurationError:
    msg = f"{source} was not changed: {reason}"
    if by_hand:
        return ConfigurationError(msg, hint="change the file by hand, and repeat the command")
    return ConfigurationError(msg, hint="write tables: as a block, with one table per line, or add the table by hand")


def write_text_in_place(file: Path, before: str, after: str) -> None:
    """Replace a text file in one step, with its permissions, if it is still what was read.

    Raises:
        ConflictError: another program changed it meanwhile.
        ConfigurationError: it cannot be written.
    """
    target = file.resolve()
    try:
        if target.read_bytes() != before.encode("utf-8"):
            msg = f"{file} was changed by another program meanwhile; it was not written"
            raise ConflictError(msg, hint="the same command again")
        mode = target.stat().st_mode & 0o7777
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as draft:
            try:
                draft.write(after.encode("utf-8"))
                draft.flush()
                os.fsync(draft.fileno())
                Path(draft.name).chmod(mode)
                Path(draft.name).replace(target)
            except BaseException:
                Path(draft.name).unlink(missing_ok=True)
                raise
    except OSError as error:
        msg = f"cannot write {file}: {error.strerror or error}"
        raise ConfigurationError(msg) from error


def read_text_exactly(file: Path) -> str:
    """Return the text of a file with its own line ends.

    Raises:
        ConfigurationError: it cannot be read, or is not UTF-8.
    """
    try:
        return file.read_bytes().decode("utf-8")
    except OSError as error:
        msg = f"cannot read {file}: {error.strerror or error}"
        raise ConfigurationError(msg, hint="lakeward init   (or --config FILE)") from error
    except UnicodeDecodeError as error:
        msg = f"{file} is not UTF-8: byte {error.object[error.start]:#04x} at position {error.start}"
        raise ConfigurationError(msg) from error


def require_valid(text: str, file: Path) -> None:
    """Refuse a text that is not a valid configuration.

    Raises:
        ConfigurationError: what is wrong with it.
    """
    read_config(text, base=file.resolve().parent, environment={}, source=str(file))
