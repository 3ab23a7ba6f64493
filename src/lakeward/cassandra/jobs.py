"""What is recorded of a table that is written to: jobs, and the state that the last of them led to."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

IMPORT, APPLY = "import", "apply"
# Fields of a state that the first version did not have.
_LATER = ("unknown", "doubt", "repaired")


@dataclass(frozen=True)
class Job:
    """Something that is written to a target: ``id`` is that of the change set or of the snapshot.

    ``identity`` is the state that the target has when the job is done; ``timestamp`` is that of its cells, so that a
    job which goes on writes what it wrote before. ``is_repair`` tells that it leaves the state as it is.
    """

    id: str
    kind: str
    units: int
    timestamp: int
    identity: Mapping[str, Any] = field(default_factory=dict, hash=False)
    change_set: str | None = None
    is_repair: bool = False


@dataclass(frozen=True)
class AppliedState:
    """The state that a target had after the last job: the identity of a snapshot, and what led to it.

    ``timestamp`` is that of its cells, where it was written and not only recorded. ``table_id`` is that of the table
    which has it: one that was dropped and made anew has another; None where it was not recorded. ``unknown`` says why
    the target does not hold this state any more, and nobody knows which: ``identity`` is then the last one that was
    known. ``doubt`` says what may be there besides the rows of the state. ``repaired`` is the time of the cells that a
    repair wrote, which change sets of earlier exports need not be after: they lose against what is right already.
    """

    identity: Mapping[str, Any]
    change_set: str | None
    at: datetime
    rejected: int = 0
    dead_letters: str | None = None
    timestamp: int | None = None
    table_id: str | None = None
    unknown: str | None = None
    doubt: str | None = None
    repaired: int | None = None

    @property
    def with_latest_time(self) -> Self:
        """The same with the time of its latest cells, those of a repair included."""
        known = [one for one in (self.timestamp, self.repaired) if one is not None]
        return replace(self, timestamp=max(known, default=None))

    @property
    def has_rows(self) -> bool:
        """Whether rows were written for it, as far as is known."""
        rows = self.identity.get("rows")
        return rows is None or int(rows) > self.rejected

    def to_document(self) -> dict[str, Any]:
        """Give it as JSON has it; what earlier versions do not know is there only where it says something."""
        document = {**asdict(self), "at": self.at.isoformat()}
        return {name: value for name, value in document.items() if name not in _LATER or value is not None}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """Read what :meth:`to_document` gave, or an earlier version of it."""
        return cls(**{**document, "at": datetime.fromisoformat(document["at"])})


@dataclass(frozen=True)
class Finished:
    """When all of a job was written first, at which time of its cells, and whether the target had its state then."""

    at: str
    timestamp: int
    led: bool


@dataclass(frozen=True)
class Begun:
    """A job as it was begun last: how often before, of which table, and whether it has ended since.

    ``finished`` tells of the last time that all of it was written, ``doubt`` what was in the target when it was begun.
    """

    job: Job
    attempt: int
    is_open: bool
    at: str
    table_id: str | None = None
    finished: Finished | None = None
    doubt: str | None = None

    def to_document(self) -> dict[str, Any]:
        """Give it as JSON has it; the attempt is kept beside it."""
        status = "open" if self.is_open else "done"
        finished = asdict(self.finished) if self.finished is not None else None
        document = {"status": status, "job": asdict(self.job), "at": self.at, "table_id": self.table_id}
        return {**document, "finished": finished, "doubt": self.doubt}

    @classmethod
    def from_document(cls, document: Mapping[str, Any], attempt: int) -> Self:
        """Read what :meth:`to_document` gave, or an earlier version of it, which said less."""
        is_open, finished = document["status"] == "open", document.get("finished")
        return cls(
            Job(**document["job"]),
            attempt,
            is_open,
            document["at"],
            document.get("table_id"),
            Finished(**finished) if finished is not None else None,
            document.get("doubt"),
        )

    def led_to(self, last: AppliedState | None) -> bool:
        """Tell whether the target has the state that the job leads to, at its time or a later one."""
        if last is None or last.timestamp is None or last.identity != self.job.identity or last.unknown is not None:
            return False
        is_late = self.job.timestamp > last.timestamp and not self.job.is_repair
        return last.change_set == self.job.change_set and not is_late
