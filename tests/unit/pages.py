"""The pages of the documentation, and what stands on them as code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
# The changelog names files and commands as they were.
PRESENT = [page for page in PAGES if page.name != "CHANGELOG.md"]
CODE_SPAN = re.compile(r"`([^`]+)`")


class Mention(NamedTuple):
    """A name on a page."""

    page: Path
    line: int
    name: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}: {self.name}"


def code(page: Path) -> Iterator[tuple[int, str]]:
    """Yield the code of a page with its line numbers: code spans, and lines of fenced blocks."""
    fenced = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif fenced:
            yield number, line
        else:
            yield from ((number, span) for span in CODE_SPAN.findall(line))
