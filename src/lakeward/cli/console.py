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
    """Prints without markup and highlighting; characters that would control the terminal are written as escapes."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Return the pieces to print: styles and cursor movements are the program's own, texts may be anybody's."""
        for piece in super().render(renderable, options):
            yield piece if piece.control else Segment(escape_text(piece.text), piece.style)
