"""What a command tells while it works, before it has a result."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from lakeward.cli.invocation import Invocation


@contextmanager
def telling(invocation: Invocation) -> Iterator[Callable[[str], AbstractContextManager[None]]]:
    """Tell what takes time, and let Ctrl-C end the command while Spark starts; for a desk's ``during``."""
    from lakeward.cli.process import keep_interrupts
    from lakeward.cli.progress import open_progress

    with open_progress(quiet=invocation.quiet) as progress:

        @contextmanager
        def during(message: str) -> Iterator[None]:
            with progress.during(message), keep_interrupts():
                yield

        yield during
