"""The record of a table that is written to, and the effect of a job on it.

Cassandra keeps the value with the latest timestamp of each cell. A job therefore leads to its intended state only if
the target has the right state before and no cell there is newer. Otherwise the target holds parts of two states, and
the record must show it: a change set applied as if one of them were there would leave rows that no later change set
corrects.

The exception is a job that is written again. Its cells are already in the target, with the same timestamp or hidden by
newer ones, so nothing changes as long as the tombstones of later deletes are kept (``gc_grace_seconds``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self

from lakeward.diffing.stored.changesets import is_same_state, is_surely_same, shown_state
from lakeward.documents import Record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward.diffing.stored.changesets import ChangeSetManifest

IMPORT, APPLY = "import", "apply"
# Jobs that edit the rows of a table where they are, and lead to no state of another table.
DELETE, TTL = "delete", "ttl"
EDITS = (DELETE, TTL)
_OPEN, _DONE = "open", "done"


@dataclass(frozen=True)
class Job(Record):
    """A snapshot or a change set that is written to a target; ``id`` identifies it.

    ``identity`` is the state of the target when the job is done; ``timestamp`` is that of its cells, so that a resumed
    job writes the same cells again. ``is_repair`` means that the recorded state stays the same.
    """

    id: str
    kind: str
    units: int
    timestamp: int
    identity: Mapping[str, Any] = field(default_factory=dict, hash=False)
    change_set: str | None = None
    is_repair: bool = False


@dataclass(frozen=True)
class AppliedState(
    Record,
    if_set=("unknown", "doubt", "repaired"),
    write={"at": datetime.isoformat},
    read={"at": datetime.fromisoformat},
):
    """The state of a target after the last job: the identity of a snapshot, and what led to it.

    ``timestamp`` is that of its cells, if it was written and not only recorded. ``table_id`` is the id of the table,
    which changes when it is dropped and created again; None where it was not recorded. ``unknown`` is why the content
    of the target is not known any more: ``identity`` is then the last known state. ``doubt`` is what may be in the
    target besides the rows of the state. ``repaired`` is the timestamp of the cells that a repair wrote. Change sets of
    earlier exports may be older than it: what they lose against is already correct.
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
        """The same state with the timestamp of its latest cells, including those of a repair."""
        known = [time for time in (self.timestamp, self.repaired) if time is not None]
        return replace(self, timestamp=max(known, default=None))

    @property
    def has_rows(self) -> bool:
        """Whether the target should have rows, as far as is known."""
        rows = self.identity.get("rows")
        return rows is None or int(rows) > self.rejected


@dataclass(frozen=True)
class Finished(Record):
    """The time at which a job first finished, the timestamp of its cells, and whether the target then had its state."""

    at: str
    timestamp: int
    led: bool


@dataclass(frozen=True)
class Begun(
    Record,
    keys=("is_open", "job", "at", "table_id", "finished", "doubt"),
    renamed={"is_open": "status"},
    ignores_unknown=True,
    write={"is_open": lambda is_open: _OPEN if is_open else _DONE},
    read={"is_open": lambda status: status == _OPEN},
):
    """A job that was begun: the number of earlier attempts, the id of the table, and whether it is still open.

    ``finished`` is set once all of it was written; ``doubt`` is what else was in the target when it began.
    """

    job: Job
    attempt: int
    is_open: bool
    at: str
    table_id: str | None = None
    finished: Finished | None = None
    doubt: str | None = None

    def led_to(self, last: AppliedState | None) -> bool:
        """Whether the target has the state that the job leads to, with its timestamp or a later one."""
        if last is None or last.timestamp is None or last.identity != self.job.identity or last.unknown is not None:
            return False
        is_late = self.job.timestamp > last.timestamp and not self.job.is_repair
        return last.change_set == self.job.change_set and not is_late


# Clocks differ, and a tombstone that is about to be removed does not help.
_CLOCKS = timedelta(hours=1)
# How much later than the timestamp of its job a list may be written, for each attempt.
_LIST_STEP = 1_000


class JobEffect(StrEnum):
    """The state of a target after a job."""

    LEADS = "leads"
    KEEPS = "keeps"
    MIXES = "mixes"


@dataclass(frozen=True)
class JobOutcome:
    """The effect of a job. ``why`` is the reason if it mixes states; if it leads to one, what may be there besides.

    ``seen`` is, for a repair, when its comparison began: later writes are not known to it.
    """

    effect: JobEffect = JobEffect.LEADS
    why: str | None = None
    seen: datetime | None = None

    def warnings(self, target: str) -> list[str]:
        """Return the warnings about the state of the target afterwards."""
        if self.effect is JobEffect.MIXES:
            msg = f"what {target} holds afterwards is not known: {self.why}"
            return [f"{msg}; lakeward cassandra compare shows what differs, and --to writes what repairs it"]
        if self.effect is JobEffect.KEEPS and self.seen is None:
            return [f"it is older than what {target} holds and was written before: the record stays as it is"]
        return []


@dataclass(frozen=True)
class JobDecision:
    """A job that may be written, its effect on the target, and the warnings."""

    job: Job
    outcome: JobOutcome
    warnings: tuple[str, ...]


LEADS: JobOutcome = JobOutcome()
KEEPS: JobOutcome = JobOutcome(JobEffect.KEEPS)


@dataclass(frozen=True)
class JobHistory:
    """The jobs that were begun on a target, and how long it keeps tombstones."""

    jobs: Sequence[Begun]
    marks_kept: timedelta
    now: datetime

    def has_written(self, job: Job) -> bool:
        """Whether all cells of a job are in the target, or hidden by newer ones."""
        return any(self._is_of(begun_job, job) and begun_job.job.id == job.id for begun_job in self.jobs)

    def has_led_to(self, job: Job) -> bool:
        """Whether the target once had the state of a job, with the timestamp of the job."""
        same = (
            begun_job
            for begun_job in self.jobs
            if self._is_of(begun_job, job) and begun_job.finished is not None and begun_job.finished.led
        )
        return any(is_surely_same(begun_job.job.identity, job.identity) for begun_job in same)

    def _is_of(self, begun: Begun, job: Job) -> bool:
        if begun.finished is None or begun.finished.timestamp != job.timestamp:
            return False
        is_marked = self.now - datetime.fromisoformat(begun.finished.at) < self.marks_kept - _CLOCKS
        return is_marked and not self._reaches_later(job)

    def _reaches_later(self, job: Job) -> bool:
        """Whether lists of the job, written a little later at each attempt, could win over those of a later job."""
        attempts = max(
            (begun_job.attempt for begun_job in self.jobs if begun_job.job.timestamp == job.timestamp), default=0
        )
        end = job.timestamp + (attempts + 2) * _LIST_STEP
        return any(job.timestamp < begun_job.job.timestamp <= end for begun_job in self.jobs)


def import_outcome(
    last: AppliedState | None, job: Job, history: JobHistory, *, has_recorded_times: bool, has_rows: bool
) -> JobOutcome:
    """Return the effect of an import on its target.

    Args:
        last: the recorded state of the target.
        job: the import.
        history: what was written to the target before.
        has_recorded_times: whether cells are written with their own timestamps, which may be old ones.
        has_rows: whether the target has rows, where nothing is recorded of it.
    """
    if last is None:
        return JobOutcome(why=f"rows that were there before {_shown(job)} was imported") if has_rows else LEADS
    if history.has_written(job):
        return KEEPS
    is_later = last.timestamp is None or job.timestamp > last.timestamp
    if last.unknown is None:
        if is_surely_same(last.identity, job.identity):
            return JobOutcome(why=last.doubt) if is_later else KEEPS
        if history.has_led_to(job):
            return KEEPS
    if is_later and not has_recorded_times:
        return JobOutcome(why=f"rows of {shown_state(last.identity)}, over which {_shown(job)} was imported")
    return JobOutcome(
        JobEffect.MIXES, f"{_shown(job)} was imported over {shown_state(last.identity)}, parts of which are newer"
    )


def apply_outcome(
    last: AppliedState | None, job: Job, manifest: ChangeSetManifest | None, history: JobHistory, *, lost: str | None
) -> JobOutcome:
    """Return the effect of a change set on its target; ``lost`` is why the recorded state is gone."""
    what = f"the change set {job.change_set or job.identity.get('location')}"
    if lost is not None:
        return JobOutcome(JobEffect.MIXES, f"{what} was applied although {lost}")
    if manifest is None:
        return JobOutcome(JobEffect.MIXES, f"{what} was applied, which does not record the state it leads to")
    if job.is_repair:
        return _repair_outcome(last, job, manifest)
    if last is None or _leads(last, job, manifest, history):
        return JobOutcome(why=last.doubt if last is not None else None)
    if history.has_written(job) or (last.unknown is None and history.has_led_to(job)):
        return KEEPS
    return JobOutcome(JobEffect.MIXES, f"{what} was applied to {shown_state(last.identity)}, which it was not made for")


def edit_outcome(last: AppliedState | None, job: Job) -> JobOutcome:
    """Return the effect of an edit of its rows on a table: a copy then no longer has the recorded state."""
    if last is None:
        return KEEPS
    what = str(job.identity.get("location"))
    return JobOutcome(JobEffect.MIXES, f"{last.unknown}; {what}" if last.unknown is not None else what)


def _leads(last: AppliedState, job: Job, manifest: ChangeSetManifest, history: JobHistory) -> bool:
    """Whether a change set leads to its state: the target has that state already, or the past of the change set."""
    if last.unknown is not None:
        return False
    if last.change_set == job.change_set or is_surely_same(last.identity, job.identity):
        return True
    is_later = last.timestamp is None or job.timestamp > last.timestamp
    return is_same_state(last.identity, manifest.past) and (is_later or is_replay(last, job, history))


def is_replay(last: AppliedState, job: Job, history: JobHistory) -> bool:
    """Whether a job was begun before with the latest timestamp: it then competes only with its own cells."""
    return job.timestamp == last.timestamp and any(
        begun_job.job.id == job.id and begun_job.job.timestamp == job.timestamp for begun_job in history.jobs
    )


def _repair_outcome(last: AppliedState | None, job: Job, manifest: ChangeSetManifest) -> JobOutcome:
    """Return the effect of a repair, which is correct if its comparison saw all writes and no cell is newer."""
    seen = compared_since(manifest)
    if last is None:
        return JobOutcome(seen=seen)
    if is_outdated(last, seen):
        return JobOutcome(JobEffect.MIXES, f"the repair {job.change_set}, which is older, was applied", seen)
    is_later = last.timestamp is None or job.timestamp > last.timestamp
    return JobOutcome(JobEffect.LEADS if is_later else JobEffect.KEEPS, seen=seen)


def is_outdated(last: AppliedState, seen: datetime) -> bool:
    """Whether a repair whose comparison began at ``seen`` is older than what the target holds.

    Change sets applied in order since then do not matter: they lead to the state of the repair, or to an earlier one.
    """
    return seen <= last.at and (last.unknown is not None or last.doubt is not None)


def compared_since(manifest: ChangeSetManifest) -> datetime:
    """Return when the comparison of a repair began: later writes are not known to it."""
    began = manifest.past.get("since") or manifest.past.get("created")
    return datetime.fromisoformat(str(began)) if began else datetime.min.replace(tzinfo=UTC)


def state_after(
    last: AppliedState | None,
    job: Job,
    outcome: JobOutcome,
    others: Sequence[Begun],
    *,
    at: datetime,
    rejected: int = 0,
    dead_letters: str | None = None,
    table_id: str | None = None,
) -> AppliedState | None:
    """Return the state to record after a job; None where the record stays as it is.

    Args:
        last: the state recorded before.
        job: what was written.
        outcome: its effect on a target to which nothing else was written.
        others: jobs that were begun, have written rows, and were not finished.
        at: the current time.
        rejected: how many rows of the job were rejected.
        dead_letters: where these are.
        table_id: the id of the table that was written.
    """
    if job.kind in EDITS and last is None:
        # The table is not a copy of which anything is known.
        return None
    outcome = _beside(outcome, job, others)
    if outcome.effect is JobEffect.KEEPS and last is not None:
        return None
    is_mixed = outcome.effect is JobEffect.MIXES
    adds = last is not None and (is_mixed or not _is_whole(job, last))
    if last is not None and adds:
        rejected, dead_letters = rejected + last.rejected, dead_letters or last.dead_letters
    known = last if is_mixed and last is not None else None
    return AppliedState(
        undefined(known.identity if known is not None else job.identity),
        None if is_mixed else job.change_set,
        at,
        rejected,
        dead_letters,
        _latest(last, job, others, is_mixed=is_mixed),
        table_id,
        unknown=outcome.why if is_mixed else None,
        doubt=None if is_mixed else outcome.why,
        repaired=_repaired(last, job),
    )


def undefined(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return an identity without the definition of its table, which the record does not need."""
    return {name: value for name, value in identity.items() if name != "cassandra"}


def _beside(outcome: JobOutcome, job: Job, others: Sequence[Begun]) -> JobOutcome:
    """Return the outcome of a job where other jobs have left rows in the target."""
    if outcome.seen is not None:
        # The repair corrects what its comparison saw, except for newer cells.
        others = [
            begun_job
            for begun_job in others
            if datetime.fromisoformat(begun_job.at) >= outcome.seen or begun_job.job.timestamp >= job.timestamp
        ]
    if not others:
        return outcome
    halves = ", ".join(_shown(begun_job.job) for begun_job in others)
    is_later = all(job.timestamp > begun_job.job.timestamp for begun_job in others)
    if job.kind == IMPORT and outcome.effect is JobEffect.LEADS and is_later:
        why = f"rows of {halves}, which was not finished"
        return replace(outcome, why=f"{outcome.why}; {why}" if outcome.why else why)
    return JobOutcome(JobEffect.MIXES, outcome.why or f"{halves} was written in part before {_shown(job)}")


def _is_whole(job: Job, last: AppliedState) -> bool:
    """Whether a job writes the rows again that were rejected before."""
    return job.kind == IMPORT or job.is_repair or job.change_set == last.change_set


def _latest(last: AppliedState | None, job: Job, others: Sequence[Begun], *, is_mixed: bool) -> int:
    """Return the timestamp that later jobs must exceed: no cell of the target is newer."""
    known = [last.timestamp] if last is not None and last.timestamp is not None else []
    if job.is_repair and known and not is_mixed:
        # The next change set may be of an export that began before the repair.
        return known[0]
    return max([*known, job.timestamp, *(begun_job.job.timestamp for begun_job in others)])


def _repaired(last: AppliedState | None, job: Job) -> int | None:
    """Return the timestamp of repaired cells, unless something newer was written over them."""
    times = [job.timestamp] if job.is_repair else []
    if last is not None and last.repaired is not None and (job.is_repair or job.timestamp <= last.repaired):
        times.append(last.repaired)
    return max(times, default=None)


def _shown(job: Job) -> str:
    return f"the change set {job.change_set}" if job.change_set else shown_state(job.identity)
