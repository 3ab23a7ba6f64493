"""The console that commands print on: data is shown as it is, and cannot control the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.segment import Segment

from lakeward import escape_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import ConsoleOptions, RenderableType


class DataConsole(Console):
    """A console without markup and highlighting, which escapes characters that would control the terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the pieces to print: control sequences are the program's own, but texts may come from anybody."""
        for piece in super().render(renderable, options):
            yield piece if piece.control else Segment(escape_text(piece.text), piece.style)
