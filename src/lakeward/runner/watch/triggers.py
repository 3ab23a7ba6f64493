"""The triggers of runs: notifications about files in a local landing folder (inotify on Linux), and schedules."""

from __future__ import annotations

import logging
import os
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import watchfiles
from cronsim import CronSim, CronSimError

from lakeward.errors import ConfigurationError
from lakeward.runner.watch.requests import PathFilter, RunRequest, parent
from lakeward.text import time_zone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


logger = logging.getLogger(__name__)

# The inbox collects bursts; only simultaneous changes are grouped here.
_GROUP_MS, _QUIET_MS = 100, 20
# How often to check that the folder is still the same one.
_LOOK_MS = 500
_READY_SECONDS = 120.0
_REOPEN_SECONDS = 1.0


class FolderWatcher:
    """A trigger that requests runs when files appear below a folder: written, moved there, or in new folders.

    A new folder is requested as a whole: files may land in it before the system watches it. Files that are missed all
    the same (an overflow, a network file system without notifications) are found by the periodic rescan.
    """

    def __init__(self, root: str, put: Callable[[RunRequest], None], accepts: PathFilter | None = None) -> None:
        self._root = Path(root)
        self._put = put
        self._accepts = accepts or PathFilter()
        self._stop = threading.Event()
        self._ready = threading.Event()
        self._failure: Exception | None = None
        self._is_anew = False
        self._thread = threading.Thread(target=self._run, name="lakeward-folder", daemon=True)

    def start(self) -> None:
        """Start to watch, and return once no new file is missed.

        Raises:
            ConfigurationError: the folder is missing, or the system watches no more folders.
        """
        if not self._root.is_dir():
            msg = f"landing {self._root} is not a folder: nothing to watch"
            raise ConfigurationError(msg, hint="make the folder, or correct landing: in lakeward.yaml")
        self._thread.start()
        is_ready = self._ready.wait(_READY_SECONDS)
        if self._failure is not None:
            raise _refused(self._root, self._failure) from self._failure
        if not is_ready:
            self.stop()
            msg = f"watching {self._root} did not begin within {_READY_SECONDS:.0f} s"
            raise ConfigurationError(msg, hint="watch on a schedule instead: lakeward watch --every 1m")

    def drain(self) -> None:
        """Do nothing: a run finds what waits in the folder without them."""

    def stop(self) -> None:
        """End watching."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._watch()
            except Exception as error:  # raised by the thread that waits for the start
                if not self._ready.is_set():
                    self._failure = error
                    self._ready.set()
                    return
                logger.warning("watching %s failed and is started again: %s", self._root, error)
            if not self._stop.wait(_REOPEN_SECONDS):
                self._await_root()
                self._is_anew = True

    def _watch(self) -> None:
        """Watch until stopped, or until the folder is replaced by another one."""
        watched = _identity(self._root)
        for changes in watchfiles.watch(
            self._root, watch_filter=None, debounce=_GROUP_MS, step=_QUIET_MS, stop_event=self._stop,
            rust_timeout=_LOOK_MS, yield_on_timeout=True, raise_interrupt=False, ignore_permission_denied=True,
        ):  # fmt: skip
            self._ready.set()
            if self._is_anew:
                # Only after the watch has started: files that land between a rescan and the watch would be missed.
                self._put(RunRequest("landing is watched again", everything=True))
                self._is_anew = False
            self._request(path for change, path in changes if change is not watchfiles.Change.deleted)
            # A new folder may get the inode number of the old one.
            is_gone = (watchfiles.Change.deleted, str(self._root)) in changes
            if is_gone or _identity(self._root) != watched:
                logger.warning("landing %s is gone; waiting for it to come back", self._root)
                return

    def _await_root(self) -> None:
        """Wait for the folder to be there again."""
        while not self._root.is_dir() and not self._stop.wait(_REOPEN_SECONDS):
            pass

    def _request(self, paths: Iterable[str]) -> None:
        folders, trees = set(), set()
        for path in paths:
            try:
                relative = Path(path).relative_to(self._root).as_posix()
            except ValueError:
                logger.warning("%s is not below %s and is left out", path, self._root)
                continue
            # Not Path.is_dir, which raises for a folder that may not be entered.
            if os.path.isdir(path):  # noqa: PTH112
                if self._accepts.accepts_tree(relative):
                    trees.add(relative)
            elif self._accepts.accepts_file(relative):
                folders.add(parent(relative))
        if folders or trees:
            self._put(RunRequest("files landed", frozenset(folders), frozenset(trees)))


def _identity(root: Path) -> tuple[int, int] | None:
    try:
        status = root.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _refused(root: Path, error: Exception) -> ConfigurationError:
    msg = f"the system does not watch {root}: {error}"
    hint = "raise the limit (sysctl fs.inotify.max_user_watches), or watch on a schedule: lakeward watch --every 1m"
    return ConfigurationError(msg, hint=hint)


class Timer(Protocol):
    """A schedule for runs."""

    reason: str

    def wait(self) -> float:
        """Return the seconds until the next tick; 0 when it is due."""
        ...

    def tick(self) -> bool:
        """Return whether a tick is due, and set the next one into the future."""
        ...


class Every:
    """A timer with a fixed interval from its creation; a long run skips ticks and does not shift them."""

    def __init__(self, seconds: float, clock: Clock, *, reason: str) -> None:
        if seconds <= 0:
            msg = f"an interval of {seconds:g} s never ends; expected a span such as 10m"
            raise ConfigurationError(msg)
        self.reason = reason
        self._seconds = seconds
        self._clock = clock
        self._due = clock.monotonic() + seconds

    def wait(self) -> float:
        """Return the seconds until the next tick."""
        return max(0.0, self._due - self._clock.monotonic())

    def tick(self) -> bool:
        """Return whether a tick is due, and set the next one into the future."""
        late = self._clock.monotonic() - self._due
        if late < 0:
            return False
        self._due += (late // self._seconds + 1) * self._seconds
        return True


class Cron:
    """A timer that ticks at the times of a cron expression (5 fields, or 6 with seconds first)."""

    def __init__(self, expression: str, clock: Clock, *, timezone: str = "UTC") -> None:
        self.reason = f"schedule {expression}"
        self._expression = expression
        self._zone = time_zone(timezone)
        self._clock = clock
        self._seen = clock.wall()
        self._due = self._after(self._seen)

    def wait(self) -> float:
        """Return the seconds until the next tick."""
        return max(0.0, self._due - self._clock.wall())

    def tick(self) -> bool:
        """Return whether a tick is due, and set the next one into the future."""
        now = self._clock.wall()
        is_set_back, is_due = now < self._seen, now >= self._due
        self._seen = now
        # A wall clock that was set back would leave the next tick too far away.
        if is_due or is_set_back:
            self._due = self._after(now)
        return is_due

    def _after(self, moment: float) -> float:
        try:
            return next(CronSim(self._expression, datetime.fromtimestamp(moment, self._zone))).timestamp()
        except CronSimError as error:
            msg = f"{self._expression!r} is not a cron expression ({error}); expected five fields such as '0 * * * *'"
            raise ConfigurationError(msg, hint="minute hour day-of-month month day-of-week") from None
        except StopIteration:
            msg = f"the cron expression {self._expression!r} never matches"
            raise ConfigurationError(msg) from None


class Clock(Protocol):
    """The clock of timers, replaced in tests: a monotonic time for waiting, and a wall time for calendars."""

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        ...

    def wall(self) -> float:
        """Return the wall-clock time, which an administrator may change, in seconds since 1970."""
        ...


class SystemClock:
    """The clock of the machine."""

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        return time.monotonic()

    def wall(self) -> float:
        """Return seconds since 1970."""
        return time.time()
