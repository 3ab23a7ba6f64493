"""One call of the command: its global options, and the lake it works on."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward import Lakeward


@dataclass
class Invocation:
    """The global options, given before or after the subcommand; the later one counts.

    ``has_output`` tells that standard output holds part of a result, to which no error document may be added,
    ``has_reader`` that someone took it when it was written last.
    """

    config: str | None = None
    output: str = "text"
    debug: bool = False
    quiet: bool = False
    log_format: Literal["auto", "text", "json"] = "auto"
    has_output: bool = False
    has_reader: bool = True

    @property
    def is_json(self) -> bool:
        """Whether programs read the result."""
        return self.output == "json"

    @contextmanager
    def lake(self) -> Iterator[Lakeward]:
        """Open the configured lake, with progress on standard error until the block ends; print results after it."""
        from lakeward.cli.progress import open_lake, open_progress

        with open_progress(quiet=self.quiet) as progress, open_lake(self.config, progress) as lake:
            yield lake
