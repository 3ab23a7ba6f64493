"""Taking proposals: writing them into ``lakeward.yaml``, and activating tables about which nothing is in doubt."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakeward.config.editing import TableText, add_tables, read_text_exactly, require_valid, write_text_in_place
from lakeward.config.loading import read_yaml
from lakeward.documents import Document
from lakeward.errors import ConfigurationError
from lakeward.text import escape_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakeward.config import Config
    from lakeward.runner.proposals import Proposal

_MARK = "# proposed by lakeward discover for"
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*", re.ASCII)
# What JSON leaves in texts, and YAML refuses there or takes for the end of a line, which it reads as a blank.
_UNSAFE = re.compile(r"[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})


@dataclass(frozen=True)
class WrittenProposals(Document):
    """The result of writing proposals: tables that are declared now, tables written as comments, and those left out.

    ``present`` are tables that the file holds already, declared or proposed.
    """

    file: str
    declared: tuple[str, ...] = ()
    commented: tuple[str, ...] = ()
    present: tuple[str, ...] = ()


def write_proposals(config: Config, proposals: Mapping[str, Proposal]) -> WrittenProposals:
    """Add proposals to the configuration file, each with its evidence; everything else in it stays byte for byte.

    A table about which nothing is in doubt is declared, any other is written in comments. Tables that the file holds
    already are left alone, so that a repeated call changes nothing.

    Raises:
        ConfigurationError: there is no file, or it is written in a way in which nothing can be added safely.
        ConflictError: another program changed the file meanwhile.
    """
    if config.file is None:
        msg = "there is no configuration file to write to: this lake was opened by settings"
        raise ConfigurationError(msg, hint="Lakeward.open('lakeward.yaml')")
    text = read_text_exactly(config.file)
    declared = (read_yaml(text) or {}).get("tables") or {}
    marks = {line.strip() for line in text.splitlines()}
    present = [name for name in proposals if name in declared or heading_of(name) in marks]
    new = [proposal_text(name, proposal) for name, proposal in proposals.items() if name not in present]
    changed = add_tables(text, new, str(config.file))
    if new:
        require_valid(changed, config.file)
        write_text_in_place(config.file, text, changed)
    return WrittenProposals(
        str(config.file),
        tuple(table.name for table in new if table.content is not None),
        tuple(table.name for table in new if table.content is None),
        tuple(present),
    )


def proposal_text(name: str, proposal: Proposal) -> TableText:
    """Return the lines that declare a table as proposed; comments where a person must decide first."""
    lines = [f"{_yaml(name)}:"] if proposal.settings else [f"{_yaml(name)}: {{}}"]
    for setting, value in proposal.settings.items():
        lines += [f"  {line}" for line in _setting_lines(setting, value, proposal.evidence)]
    if proposal.schema and not proposal.needs_schema:
        lines.append(f"  # schema: {_yaml(proposal.schema)}{_note(proposal.evidence.get('schema'))}")
    lines += [
        f"  # partition_by: [{_yaml(candidate.partition)}]{_note(candidate.evidence)}"
        for candidate in proposal.partition_candidates
    ]
    if not proposal.doubts:
        return TableText(name, (heading_of(name), *lines), {**proposal.settings})
    doubts = [f"#   in doubt: {_one_line(doubt)}" for doubt in proposal.doubts]
    return TableText(name, (heading_of(name), *doubts, *(f"# {line}" for line in lines)))


def _setting_lines(setting: str, value: Any, evidence: Mapping[str, str]) -> Iterator[str]:
    if setting == "csv":
        yield "csv:"
        for inner, content in value.items():
            yield f"  {inner}: {_yaml(content)}{_note(evidence.get(f'csv.{inner}'))}"
        return
    shown = f"[{', '.join(map(_yaml, value))}]" if isinstance(value, list) else _yaml(value)
    yield f"{setting}: {shown}{_note(evidence.get(setting))}"


def heading_of(name: str) -> str:
    """Return the comment line above the lines of a table that was proposed."""
    return f"{_MARK} {_one_line(name)}"


def _note(evidence: str | None) -> str:
    return f"  # {_one_line(evidence)}" if evidence else ""


def _one_line(text: str) -> str:
    """Return text for a comment, which ends with its line."""
    return escape_name(" ".join(text.split()))


def _yaml(value: Any) -> str:
    """Return a value as YAML on one line; JSON's texts are YAML's."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return _UNSAFE.sub(_escaped, json.dumps(value, ensure_ascii=False))


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


@dataclass(frozen=True)
class TakenProposal(Document):
    """Whether a table was activated as proposed; ``reason`` is why it was left inactive."""

    table: str
    activated: bool
    reason: str | None = None


def why_left(proposal: Proposal) -> str | None:
    """Return why a table is not activated as proposed, None where nothing is in doubt."""
    return "; ".join(map(_one_line, proposal.doubts)) or None
