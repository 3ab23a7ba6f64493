"""What a command tells while it works, before it has a result."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from lakeward.cli.invocation import Invocation


@contextmanager
def telling(invocation: Invocation) -> Iterator[Callable[[str], AbstractContextManager[None]]]:
    """Tell what takes time, and let Ctrl-C end the command while Spark starts; for a desk's ``during``."""
    from lakeward.cli.progress import interruptible, open_progress

    with open_progress(quiet=invocation.quiet) as progress:
        yield partial(interruptible, progress)
