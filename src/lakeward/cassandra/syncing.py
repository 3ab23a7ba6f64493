"""A table kept up to date in another cluster: exported, compared with what the copy holds, the difference applied."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from lakeward.cassandra.sync_steps import Action, Step, next_step, require_known_target
from lakeward.diffing.inputs.folders import INCREMENTAL
from lakeward.errors import BugError
from lakeward.lake.folders import SUCCESS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakeward.cassandra.export_folders import ExportFolder
    from lakeward.cassandra.sync_steps import First, Target

_MINUTE_NAME = "year=%Y/month=%m/day=%d/hour=%H/minute=%M"
_MINUTE = 60


class Work(Protocol):
    """The steps done for real; each gives what its command shows as JSON."""

    def export(self) -> Mapping[str, Any]:
        """Export the source into the folder, or go on with an export that was interrupted."""

    def perform(self, step: Step) -> Mapping[str, Any]:
        """Do any other step."""


@dataclass(frozen=True)
class SyncStep:
    """A step that was done: ``result`` is what the command of that name shows."""

    action: Action
    result: Mapping[str, Any]

    @property
    def rejected(self) -> int:
        """How many rows the target refused."""
        return int(self.result.get("rejected", 0))


@dataclass(frozen=True)
class SyncReport:
    """What one round did, and which export the target holds after it."""

    steps: tuple[SyncStep, ...]
    holds: Mapping[str, Any] | None
    removed: tuple[str, ...] = field(default_factory=tuple)

    @property
    def rejected(self) -> int:
        """How many rows the target refused in all steps."""
        return sum(one.rejected for one in self.steps)

    @property
    def status(self) -> str:
        """``rejected rows``, ``applied``, ``assumed``, ``nothing changed``, or ``nothing to do`` without any export."""
        actions = {one.action for one in self.steps}
        if self.rejected:
            return "rejected rows"
        if actions & {Action.IMPORT, Action.APPLY}:
            return "applied"
        if Action.ASSUME in actions:
            return "assumed"
        return "nothing changed" if actions else "nothing to do"

    def to_document(self) -> dict[str, Any]:
        """Give it as JSON."""
        return {
            "status": self.status,
            "steps": [{"action": str(one.action), "result": dict(one.result)} for one in self.steps],
            "holds": dict(self.holds) if self.holds is not None else None,
            "rejected": self.rejected,
            "removed": list(self.removed),
        }


@dataclass(frozen=True)
class SyncRound:
    """One round: what is open is finished first, then, if there is a source, it is exported and followed.

    keep: how many exports stay in the folder; None: all. The one that the target holds and later ones always do.
    """

    folder: ExportFolder
    target: Target
    work: Work
    has_source: bool = True
    first: First | None = None
    keep: int | None = None
    tell: Callable[[str], None] = lambda _: None
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    wait: Callable[[float], None] = time.sleep

    def run(self) -> SyncReport:
        """Do all steps.

        Raises:
            RefusedInputError: a step cannot be done as things are; the next round begins with it.
        """
        steps = self._follow()
        if self.has_source and not any(one.rejected for one in steps):
            require_known_target(self.target, self.first)
            self._wait_for_free_minute("an export", self._newest())
            self.tell("exporting")
            steps = [*steps, SyncStep(Action.EXPORT, self.work.export()), *self._follow()]
        return SyncReport(tuple(steps), self.target.applied(), tuple(self._removed()))

    def _follow(self) -> list[SyncStep]:
        """Bring the target to the newest export, one export after the other; rejected rows end it."""
        done: list[SyncStep] = []
        last: Step | None = None
        while (step := next_step(self.folder, self.target, self.first)) is not None:
            if step == last:
                msg = f"the step {step.action} of {step.export.folder} was done, and is still to be done"
                raise BugError(msg)
            if step.action is Action.DIFF:
                self._wait_for_free_minute("a change set", self._change_set_of_now())
            self.tell(_told(step))
            done.append(SyncStep(step.action, self.work.perform(step)))
            if done[-1].rejected:
                break
            last = step
        return done

    def _newest(self) -> str | None:
        names = self.folder.exports()
        return names[-1] if names else None

    def _change_set_of_now(self) -> str | None:
        name = self._minute()
        path = f"{self.folder.folder}/{INCREMENTAL}/{name}/{SUCCESS}"
        return name if self.folder.store.exists(path) else None

    def _minute(self) -> str:
        return self.now().astimezone(UTC).strftime(_MINUTE_NAME)

    def _wait_for_free_minute(self, what: str, taken: str | None) -> None:
        """Wait until the next minute where this one has such a folder already."""
        if taken is None or taken != self._minute():
            return
        seconds = _MINUTE - self.now().timestamp() % _MINUTE
        self.tell(f"this minute has {what} already; waiting {seconds:.0f} s for the next one")
        self.wait(seconds)

    def _removed(self) -> list[str]:
        applied = self.target.applied()
        name = self.folder.name_of(applied) if applied is not None else None
        names = self.folder.exports()
        if self.keep is None or name is None or len(names) <= self.keep:
            return []
        return self.folder.remove_before(min(name, names[-self.keep]))


def _told(step: Step) -> str:
    words = {
        Action.IMPORT: f"importing {step.export.folder}",
        Action.ASSUME: f"taking the target for what {step.export.folder} holds",
        Action.DIFF: f"comparing {step.export.folder} with what the target holds",
        Action.APPLY: f"applying {step.change_set}",
        Action.RECORD: f"nothing changed until {step.export.folder}",
    }
    return words[step.action]
