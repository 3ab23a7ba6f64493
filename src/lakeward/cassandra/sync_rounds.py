"""Rounds of a sync: a round brings a copy to the newest export, and a loop repeats it by interval or for new exports.

Everything with an effect is passed in: the work of the steps, the clock, and the waits.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

import watchfiles

from lakeward.cassandra.export_folder import CLOCKS_DIFFER, MINUTE_NAME, SNAPSHOTS, name_in, seconds_to_next_minute
from lakeward.cassandra.sync_steps import NextStep, Rules, SyncAction, next_step, require_known_target
from lakeward.diffing.stored.folders import INCREMENTAL
from lakeward.documents import Document
from lakeward.errors import BugError, ConflictError, RefusedInputError, RetriableError
from lakeward.logs import event
from lakeward.storage.claims import SUCCESS
from lakeward.storage.filesystem import LocalFileSystem, local_path

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from lakeward.cassandra.export_folder import ExportFolder, KnownExport
    from lakeward.cassandra.sync_steps import SyncTarget
    from lakeward.errors import LakewardError

# Seconds between looks into a folder where nothing reports changes, and where the operating system does.
REMOTE_POLL, LOCAL_POLL = 30.0, 5.0
# Files of one export come together.
_GROUP_MS, _QUIET_MS = 300, 100


class SyncWork(Protocol):
    """The work of the steps; each method returns what its command shows as JSON."""

    def export(self) -> Mapping[str, Any]:
        """Export the source into the folder, or resume an interrupted export."""

    def perform(self, step: NextStep) -> Mapping[str, Any]:
        """Perform any other step."""


@dataclass(frozen=True)
class SyncStep(Document):
    """A finished step; ``result`` is what the command of that name shows."""

    action: SyncAction
    result: Mapping[str, Any]

    @property
    def rejected(self) -> int:
        """The number of rejected rows."""
        return int(self.result.get("rejected", 0))


def _reasons(left_out: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"folder": folder, "reason": why} for folder, why in left_out.items()]


@dataclass(frozen=True)
class SyncReport(
    Document,
    keys=("status", "steps", "holds", "rejected", "removed", "left_out"),
    write={"left_out": _reasons},
):
    """The result of one round, and the export that the target holds after it.

    left_out: exports later than what the target held that are not followed, by their folders, and why.
    """

    steps: tuple[SyncStep, ...]
    holds: Mapping[str, Any] | None
    removed: tuple[str, ...] = field(default_factory=tuple)
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def rejected(self) -> int:
        """The number of rejected rows of all steps."""
        return sum(step.rejected for step in self.steps)

    @property
    def warnings(self) -> list[str]:
        """The warnings of the steps, and about exports that are not followed."""
        lines = [str(line) for step in self.steps for line in step.result.get("warnings", ())]
        return lines + [f"{folder} is left out: {why}" for folder, why in self.left_out.items()]

    @property
    def status(self) -> str:
        """``rejected rows``, ``applied``, ``assumed``, ``nothing changed``, or ``nothing to do`` without any export."""
        actions = {step.action for step in self.steps}
        if self.rejected:
            return "rejected rows"
        if actions & {SyncAction.IMPORT, SyncAction.APPLY}:
            return "applied"
        if SyncAction.ASSUME in actions:
            return "assumed"
        return "nothing changed" if actions else "nothing to do"


@dataclass(frozen=True)
class SyncRound:
    """One round: unfinished work first, then, if there is a source, a new export that is applied.

    keep: how many exports stay in the folder; None: all. The one that the target holds and later ones always stay.
    """

    folder: ExportFolder
    target: SyncTarget
    work: SyncWork
    rules: Rules
    keep: int | None = None
    on_progress: Callable[[str], None] = lambda _: None
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    wait: Callable[[float], None] = time.sleep

    def run(self) -> SyncReport:
        """Perform all steps and return the report.

        Raises:
            RefusedInputError: a step is refused; the next round begins with it.
        """
        before = self.target.applied()
        steps = self._follow()
        if self.rules.source is not None and not any(step.rejected for step in steps):
            require_known_target(self.target, self.rules.first)
            self._require_latest_minute()
            self.on_progress("exporting")
            steps = [*steps, SyncStep(SyncAction.EXPORT, self.work.export()), *self._follow()]
        holds = self.target.applied()
        left_out = self.folder.exports(after=name_in(before or holds or {})).unusable
        return SyncReport(tuple(steps), holds, tuple(self._removed()), left_out)

    def _follow(self) -> list[SyncStep]:
        """Bring the target to the newest export, one export after the other; stop at rejected rows."""
        done: list[SyncStep] = []
        last: NextStep | None = None
        while (step := next_step(self.folder, self.target, self.rules)) is not None:
            if step == last:
                raise _still_to_be_done(step, is_empty=self.target.is_empty())
            if step.action is SyncAction.DIFF:
                self._require_known_time(step.export)
                self._wait_for_free_minute("a change set", self._change_set_of_now())
            self.on_progress(_step_text(step))
            done.append(SyncStep(step.action, self.work.perform(step)))
            if done[-1].rejected:
                break
            last = step
        return done

    def _require_latest_minute(self) -> None:
        """Require that a new export sorts after the newest one: otherwise it would be ignored."""
        names = self.folder.names()
        newest = names[-1] if names else None
        if newest is not None and newest > self._minute():
            msg = (
                f"{self.folder.folder} has an export of {newest}, which is in the future (now: {self._minute()}, UTC): "
                "a new export would be taken for an earlier one"
            )
            raise RetriableError(msg, hint="correct the clocks of the machines that export, or wait")
        self._wait_for_free_minute("an export", newest)

    def _require_known_time(self, export: KnownExport) -> None:
        """Refuse an export of the far future: change sets for it are looked up near its own time."""
        latest = self._minute(CLOCKS_DIFFER)
        if export.name > latest:
            msg = f"{export.folder} is more than {CLOCKS_DIFFER} in the future (now: {self._minute()}, UTC)"
            raise RefusedInputError(msg, hint="correct the clocks of the machines, and remove that export")

    def _change_set_of_now(self) -> str | None:
        name = self._minute()
        path = f"{self.folder.folder}/{INCREMENTAL}/{name}/{SUCCESS}"
        return name if self.folder.store.exists(path) else None

    def _minute(self, ahead: timedelta = timedelta()) -> str:
        return (self.now() + ahead).astimezone(UTC).strftime(MINUTE_NAME)

    def _wait_for_free_minute(self, what: str, taken: str | None) -> None:
        """Wait until the next minute if this one already has such a folder."""
        if taken is None or taken != self._minute():
            return
        seconds = seconds_to_next_minute(self.now())
        self.on_progress(f"this minute already has {what}; waiting {seconds:.0f} s for the next one")
        self.wait(seconds)

    def _removed(self) -> list[str]:
        applied = self.target.applied()
        name = self.folder.name_of(applied) if applied is not None else None
        names = self.folder.names()
        if self.keep is None or name is None or len(names) <= self.keep:
            return []
        return self.folder.remove_before(min(name, names[-self.keep]))


def _still_to_be_done(step: NextStep, *, is_empty: bool) -> LakewardError:
    if step.action is SyncAction.IMPORT and is_empty:
        msg = f"{step.export.folder} was written to the target, which still has no rows"
        hint = "--timestamp now   (if its rows were deleted in the target after the export)"
        return RefusedInputError(msg, hint=hint)
    return BugError(f"the step {step.action} of {step.export.folder} was done, but is still pending")


def _step_text(step: NextStep) -> str:
    change_set = step.change_set.folder if step.change_set is not None else ""
    words = {
        SyncAction.IMPORT: f"importing {step.export.folder}",
        SyncAction.ASSUME: f"assuming that the target holds {step.export.folder}",
        SyncAction.DIFF: f"comparing {step.export.folder} with what the target holds",
        SyncAction.APPLY: f"applying {change_set}",
        SyncAction.RECORD: f"nothing changed up to {step.export.folder}",
    }
    return words[step.action]


logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SyncLoop:
    """A loop of rounds, until ``stop`` returns true or an error occurs that is not transient.

    sync: runs one round.
    wait: waits for the next one; called with the report of the last round, None where it failed.
    on_report: called with the report of a round; None: only its warnings are logged.
    on_error: called with the error that the next round may not have; None: it is logged as a warning.
    stop: called after every round and every wait; None: rounds go on.
    """

    sync: Callable[[], SyncReport]
    wait: Callable[[SyncReport | None], None]
    on_report: Callable[[SyncReport], None] | None = None
    on_error: Callable[[LakewardError], None] | None = None
    stop: Callable[[], bool] | None = None

    def run(self) -> None:
        """Run rounds. After a transient error or a conflict the next round tries again."""
        while not self._has_to_stop():
            try:
                report = self.sync()
                (self.on_report or _log_warnings)(report)
                if self._has_to_stop():
                    return
                self.wait(report)
            except (RetriableError, ConflictError) as error:
                if self._has_to_stop():
                    return
                (self.on_error or _log_error)(error)
                self.wait(None)

    def _has_to_stop(self) -> bool:
        return self.stop is not None and self.stop()


def _log_warnings(report: SyncReport) -> None:
    for line in report.warnings:
        logger.warning("%s", line, extra=event("cassandra.sync"))


def _log_error(error: LakewardError) -> None:
    logger.warning("%s; tried again with the next round", error.message, extra=event("cassandra.sync"))


class Interval:
    """Waits until a number of seconds after the start of the last round, or not at all if it took longer."""

    def __init__(
        self,
        seconds: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._seconds, self._clock, self._sleep = seconds, clock, sleep
        self._began = clock()

    def __call__(self, _report: SyncReport | None) -> None:
        """Wait for the beginning of the next round."""
        self._sleep(max(self._began + self._seconds - self._clock(), 0))
        self._began = self._clock()


class NewExport:
    """Waits until a folder has a complete export that is later than the one that the copy holds."""

    def __init__(
        self, folder: ExportFolder, poll: float | None = None, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._folder, self._poll, self._sleep = folder, poll, sleep

    def __call__(self, report: SyncReport | None) -> None:
        """Wait for an export, or after a failed round for the polling interval.

        Raises:
            RetriableError: the storage does not answer.
        """
        if report is None:
            self._sleep(self._poll or REMOTE_POLL)
        else:
            self.wait_after(name_in(report.holds or {}))

    def wait_after(self, name: str) -> None:
        """Wait until the folder has a complete export later than the named one, or any if the name is empty."""
        while not self._folder.exports(name).exports:
            if isinstance(self._folder.store, LocalFileSystem):
                self._wait_for_change(local_path(f"{self._folder.folder}/{SNAPSHOTS}"), self._poll or LOCAL_POLL)
            else:
                self._sleep(self._poll or REMOTE_POLL)

    def _wait_for_change(self, path: Path, seconds: float) -> None:
        """Wait for a change below a folder for a limited time: changes before the watch begins are not reported."""
        if not path.is_dir():
            self._sleep(min(seconds, 1.0))
            return
        changes = watchfiles.watch(
            path, watch_filter=None, debounce=_GROUP_MS, step=_QUIET_MS, rust_timeout=int(seconds * 1000),
            yield_on_timeout=True, raise_interrupt=True, ignore_permission_denied=True,
        )  # fmt: skip
        next(changes, None)
