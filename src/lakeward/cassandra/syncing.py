"""A table kept up to date in another cluster: exported, compared with what the copy holds, the difference applied."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

from lakeward.cassandra.export_folders import CLOCKS_DIFFER, MINUTE_NAME, name_in, seconds_to_next_minute
from lakeward.cassandra.sync_steps import Action, Rules, Step, next_step, require_known_target
from lakeward.diffing.inputs.folders import INCREMENTAL
from lakeward.errors import BugError, RefusedInputError, RetriableError
from lakeward.lake.folders import SUCCESS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakeward.cassandra.export_folders import ExportFolder, KnownExport
    from lakeward.cassandra.sync_steps import Target
    from lakeward.errors import LakewardError


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
    """What one round did, and which export the target holds after it.

    left_out: exports later than what the target held that are not followed, by their folders, and why.
    """

    steps: tuple[SyncStep, ...]
    holds: Mapping[str, Any] | None
    removed: tuple[str, ...] = field(default_factory=tuple)
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def rejected(self) -> int:
        """How many rows the target refused in all steps."""
        return sum(one.rejected for one in self.steps)

    @property
    def warnings(self) -> list[str]:
        """Sentences for people: those of the steps, and of exports that are not followed."""
        told = [str(line) for one in self.steps for line in one.result.get("warnings", ())]
        return told + [f"{folder} is left out: {why}" for folder, why in self.left_out.items()]

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
            "left_out": [{"folder": folder, "reason": why} for folder, why in self.left_out.items()],
        }


@dataclass(frozen=True)
class SyncRound:
    """One round: what is open is finished first, then, if there is a source, it is exported and followed.

    keep: how many exports stay in the folder; None: all. The one that the target holds and later ones always do.
    """

    folder: ExportFolder
    target: Target
    work: Work
    rules: Rules
    keep: int | None = None
    tell: Callable[[str], None] = lambda _: None
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    wait: Callable[[float], None] = time.sleep

    def run(self) -> SyncReport:
        """Do all steps.

        Raises:
            RefusedInputError: a step cannot be done as things are; the next round begins with it.
        """
        before = self.target.applied()
        steps = self._follow()
        if self.rules.source is not None and not any(one.rejected for one in steps):
            require_known_target(self.target, self.rules.first)
            self._require_latest_minute()
            self.tell("exporting")
            steps = [*steps, SyncStep(Action.EXPORT, self.work.export()), *self._follow()]
        holds = self.target.applied()
        left_out = self.folder.exports(after=name_in(before or holds or {})).unusable
        return SyncReport(tuple(steps), holds, tuple(self._removed()), left_out)

    def _follow(self) -> list[SyncStep]:
        """Bring the target to the newest export, one export after the other; rejected rows end it."""
        done: list[SyncStep] = []
        last: Step | None = None
        while (step := next_step(self.folder, self.target, self.rules)) is not None:
            if step == last:
                raise _still_to_be_done(step, is_empty=self.target.is_empty())
            if step.action is Action.DIFF:
                self._require_known_time(step.export)
                self._wait_for_free_minute("a change set", self._change_set_of_now())
            self.tell(_told(step))
            done.append(SyncStep(step.action, self.work.perform(step)))
            if done[-1].rejected:
                break
            last = step
        return done

    def _require_latest_minute(self) -> None:
        """Let no export begin that would be taken for an earlier one than the newest: it would not be followed."""
        names = self.folder.names()
        newest = names[-1] if names else None
        if newest is not None and newest > self._minute():
            msg = (
                f"{self.folder.folder} has an export of {newest}, which is later than now ({self._minute()}, UTC): an "
                "export of now would be taken for an earlier one"
            )
            raise RetriableError(msg, hint="set the clocks of the machines that export right, or wait")
        self._wait_for_free_minute("an export", newest)

    def _require_known_time(self, export: KnownExport) -> None:
        """Refuse an export of the far future: change sets for it are looked for among those of its own day."""
        latest = self._minute(CLOCKS_DIFFER)
        if export.name > latest:
            msg = f"{export.folder} is later than now by more than {CLOCKS_DIFFER}: {self._minute()}, UTC"
            raise RefusedInputError(msg, hint="set the clocks of the machines right, and remove that export")

    def _change_set_of_now(self) -> str | None:
        name = self._minute()
        path = f"{self.folder.folder}/{INCREMENTAL}/{name}/{SUCCESS}"
        return name if self.folder.store.exists(path) else None

    def _minute(self, ahead: timedelta = timedelta()) -> str:
        return (self.now() + ahead).astimezone(UTC).strftime(MINUTE_NAME)

    def _wait_for_free_minute(self, what: str, taken: str | None) -> None:
        """Wait until the next minute where this one has such a folder already."""
        if taken is None or taken != self._minute():
            return
        seconds = seconds_to_next_minute(self.now())
        self.tell(f"this minute has {what} already; waiting {seconds:.0f} s for the next one")
        self.wait(seconds)

    def _removed(self) -> list[str]:
        applied = self.target.applied()
        name = self.folder.name_of(applied) if applied is not None else None
        names = self.folder.names()
        if self.keep is None or name is None or len(names) <= self.keep:
            return []
        return self.folder.remove_before(min(name, names[-self.keep]))


def _still_to_be_done(step: Step, *, is_empty: bool) -> LakewardError:
    if step.action is Action.IMPORT and is_empty:
        msg = f"{step.export.folder} was written to the target, which has no rows all the same"
        hint = "--timestamp now   (where its rows were deleted in the target, later than the export)"
        return RefusedInputError(msg, hint=hint)
    return BugError(f"the step {step.action} of {step.export.folder} was done, and is still to be done")


def _told(step: Step) -> str:
    change_set = step.change_set.folder if step.change_set is not None else ""
    words = {
        Action.IMPORT: f"importing {step.export.folder}",
        Action.ASSUME: f"taking the target for what {step.export.folder} holds",
        Action.DIFF: f"comparing {step.export.folder} with what the target holds",
        Action.APPLY: f"applying {change_set}",
        Action.RECORD: f"nothing changed until {step.export.folder}",
    }
    return words[step.action]
