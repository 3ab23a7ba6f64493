"""The steps of a replication scenario: what the source, DMS, copy tools, lifecycle rules and people do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from lakeward.testing.simulator.options import Segments

# "gzipped csv" is compressed although its name does not show it.
Form = Literal["csv", "csv.gz", "gzipped csv", "parquet"]
Pending = Literal["flushed", "carried", "dropped"]
# (key, text) inserts or updates a row, (key, None) deletes it.
Change = tuple[int, str | None]


@dataclass(frozen=True)
class Write:
    """One commit at the source. Not ``captured``: no change file ever shows it, as in a task of full loads only.

    Of a table without a key only inserts are captured; its updates and deletes do nothing where they would be.
    """

    changes: tuple[Change, ...]
    captured: bool = True


@dataclass(frozen=True)
class Flush:
    """DMS writes the pending changes into a change file. While a load is unfinished it does not."""


@dataclass(frozen=True)
class FullLoad:
    """The first full load: rows in the order of their keys, in parts of about one size; nothing for an empty table.

    ``during`` are commits made when half of the rows were read: of the keys read before they are in change files only,
    of the others in the load as well. ``unfinished`` parts are left to ResumeLoad. ``form`` None is that of the
    options. ``pending`` is what happens to captured changes that no file has yet: written to a file before the load
    begins, carried into the first file after it (never of a table without a key), or dropped, as the load contains
    them.
    """

    parts: int = 1
    unfinished: int = 0
    form: Form | None = None
    segments: Segments = "none"
    during: tuple[Change, ...] = ()
    pending: Pending = "flushed"


@dataclass(frozen=True)
class Reload(FullLoad):
    """Load the table again (reload-target): parts of the same name are replaced, every other file stays."""


@dataclass(frozen=True)
class Restart(FullLoad):
    """Restart the task (start-replication): its target is cleared, then the table is loaded."""


@dataclass(frozen=True)
class ResumeLoad:
    """Finish an unfinished load: parts with higher numbers, of keys that no earlier part has."""


@dataclass(frozen=True)
class ResumeTask:
    """Stop the task and resume it: everything goes on as it was, but later loads may carry a new time of its start."""


@dataclass(frozen=True)
class TruncateSource:
    """Truncate at the source. DMS removes the table's folder, or leaves everything as it was without a sign."""

    removes_folder: bool = True


@dataclass(frozen=True)
class Expire:
    """A lifecycle rule deletes files that were modified longer than so many minutes ago and were read by a run."""

    minutes: int = 0


@dataclass(frozen=True)
class Pause:
    """Nothing happens for some minutes."""

    minutes: int = 30


@dataclass(frozen=True)
class Touch:
    """Set the modification time of one landing file (counted in the order of paths), or of all, to now."""

    file: int | None = None


@dataclass(frozen=True)
class Recopy:
    """Rewrite one landing file, or all, with the same bytes and the present time."""

    file: int | None = None


@dataclass(frozen=True)
class HoldBack:
    """Hold back everything that DMS writes from now on; with ``half`` the first half of every file arrives."""

    half: bool = False


@dataclass(frozen=True)
class Deliver:
    """Deliver so many held files; if ``count`` is None, all of them and what is written later.

    ``shuffle`` 0 keeps the order in which they were written, other numbers are seeds of other orders. Files keep their
    modification times, or have the time of arrival (``new_times``), which the end of a half-written file always has.
    """

    count: int | None = None
    shuffle: int = 0
    new_times: bool = False


@dataclass(frozen=True)
class RunLakeward:
    """Run Lakeward. The caller does so, and calls ``mark_read()`` if the run read what had landed."""


Step = (
    Write | Flush | FullLoad | Reload | Restart | ResumeLoad | ResumeTask | TruncateSource
    | Expire | Pause | Touch | Recopy | HoldBack | Deliver | RunLakeward
)  # fmt: skip


def slowly(step: FullLoad | Flush | ResumeLoad, files: int = 2, *, half: bool = False) -> tuple[Step, ...]:
    """Return steps in which the files of a step arrive one by one, with a run before each and after the last."""
    between: list[Step] = [
        following for _ in range(files - 1) for following in (RunLakeward(), Deliver(1, new_times=True))
    ]
    return (HoldBack(half), step, *between, RunLakeward(), Deliver(new_times=True), RunLakeward())
