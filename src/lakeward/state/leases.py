"""Holding a table's lease: owners, dead owners, heartbeats, and noticing a lost lease before publishing."""

from __future__ import annotations

import logging
import socket
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Self

import psutil

from lakeward.errors import BugError, ConflictError, LeaseHeldError
from lakeward.logs import event
from lakeward.state.base import LeaseOwner

if TYPE_CHECKING:
    from lakeward.model import TableId
    from lakeward.state.base import Lease, StateStore

LEASE_SECONDS = 30.0
POLL_SECONDS = 0.5
# Start times are computed from a boot time in whole seconds. Taking a dead owner for a live one costs a wait until
# expiry; taking a live one for dead would put two writers on a table.
_START_TOLERANCE_SECONDS = 2.0

logger = logging.getLogger(__name__)


def current_owner(run_id: str) -> LeaseOwner:
    """Return this process as the owner of a lease."""
    process = psutil.Process()
    return LeaseOwner(socket.gethostname(), process.pid, _started_after_boot(process), run_id, _pid_space())


def is_dead(owner: LeaseOwner) -> bool:
    """Whether the owner ran in this host's process space and is gone; False when that is unknown."""
    if (owner.host, owner.pid_space) != (socket.gethostname(), _pid_space()):
        return False
    try:
        process = psutil.Process(owner.pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return True
        return abs(_started_after_boot(process) - owner.process_started) > _START_TOLERANCE_SECONDS
    except psutil.NoSuchProcess:
        return True
    except psutil.AccessDenied:
        return False


def is_live(lease: Lease, now: datetime) -> bool:
    """Whether the lease still excludes others at ``now``, which is read from the store's clock."""
    return now < lease.expires_at and not is_dead(lease.owner)


def lease_held_error(lease: Lease) -> LeaseHeldError:
    """Return the error for a table whose lease is live."""
    until = lease.expires_at.astimezone(UTC).isoformat(sep=" ", timespec="seconds")
    msg = f"{lease.table} is being written by {lease.owner}; its lease lasts until {until} unless renewed"
    return LeaseHeldError(msg, hint=f"lakeward run {lease.table} --wait")


def lease_lost_error(table: TableId, reason: str) -> ConflictError:
    """Return the error for a writer that must not publish any more."""
    return ConflictError(f"the lease on {table} was lost: {reason}", hint=f"lakeward run {table}")


@dataclass(frozen=True)
class _Term:
    """When a lease ends by this host's own clocks, counted from before it was requested.

    It ends by the monotonic clock, which is never set, or by the time of day, which continues while the host sleeps.
    The lease's own ``expires_at`` is by the store's clock, which may differ.
    """

    monotonic: float
    time_of_day: datetime

    @classmethod
    def from_now(cls, seconds: float) -> _Term:
        return cls(time.monotonic() + seconds, datetime.now(UTC) + timedelta(seconds=seconds))

    def is_over(self) -> bool:
        return time.monotonic() >= self.monotonic or datetime.now(UTC) >= self.time_of_day


class HeldLease:
    """A lease for the duration of a ``with`` block, renewed by a thread and released at the end.

    Call :meth:`require` before everything that others will see.
    """

    def __init__(
        self, store: StateStore, table: TableId, owner: LeaseOwner, *, seconds: float = LEASE_SECONDS, wait: float = 0
    ) -> None:
        self.table = table
        self._store = store
        self._owner = owner
        self._seconds = seconds
        self._wait = wait
        self._lease: Lease | None = None
        self._term = _Term.from_now(0)
        self._lost: ConflictError | None = None
        self._failure: Exception | None = None
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._heartbeat, name=f"lease {table}", daemon=True)

    def __enter__(self) -> Self:
        self._lease, self._term = _acquire(self._store, self.table, self._owner, seconds=self._seconds, wait=self._wait)
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join()
        try:
            self._store.release_lease(self.lease)
        except Exception as failure:
            # The work under the lease has succeeded or failed already; the lease expires anyway.
            logger.warning("could not release the lease on %s, it expires by itself: %s", self.table, failure)

    @property
    def lease(self) -> Lease:
        """The lease as last renewed."""
        if self._lease is None:
            msg = "a HeldLease is used outside of its with block"
            raise BugError(msg)
        return self._lease

    def require(self) -> None:
        """Renew the lease now, so that it is ours for its full term.

        Raises:
            ConflictError: the lease was taken over, is gone, was not renewed before it ended (this process may
                have been stopped for a while), or the store does not answer.
        """
        with self._lock:
            self._renew()
            if self._lost is not None:
                raise self._lost
            if self._failure is not None:
                msg = f"the lease on {self.table} cannot be renewed: {self._failure}"
                raise ConflictError(msg, hint=f"lakeward run {self.table}") from self._failure

    def _heartbeat(self) -> None:
        while not self._stop.wait(self._seconds / 3):
            with self._lock:
                self._renew()
            if self._lost is not None:
                return

    def _renew(self) -> None:
        """Renew once and keep the outcome for :meth:`require`; a failure is tried again until the lease ends."""
        if self._lost is not None:
            return
        lease = self.lease
        if self._term.is_over():
            self._lose(lease_lost_error(self.table, f"it was not renewed before it ended{self._because()}"))
            return
        term = _Term.from_now(self._seconds)
        try:
            self._lease = self._store.renew_lease(lease, seconds=self._seconds)
        except ConflictError as lost:
            self._lose(lost)
        except Exception as failure:
            logger.warning("could not renew the lease on %s: %s", self.table, failure)
            self._failure = failure
        else:
            self._failure = None
            self._term = term

    def _because(self) -> str:
        return f" ({self._failure})" if self._failure is not None else ""

    def _lose(self, lost: ConflictError) -> None:
        self._lost = lost
        self._lost.__cause__ = self._failure
        # The heartbeat's thread logs this, and has no ids.
        ids = {"run": self._owner.run_id, "table": str(self.table)}
        logger.warning("%s", lost.message, extra=event("lease.lost", **ids, error=lost.message))


def _acquire(
    store: StateStore, table: TableId, owner: LeaseOwner, *, seconds: float, wait: float
) -> tuple[Lease, _Term]:
    """Return the lease, and when it ends by this host's clocks."""
    give_up = time.monotonic() + wait
    announced = False
    while True:
        term = _Term.from_now(seconds)
        try:
            return store.acquire_lease(table, owner, seconds=seconds), term
        except LeaseHeldError as held:
            left = give_up - time.monotonic()
            if left <= 0:
                raise
            if not announced:
                logger.info("waiting up to %.0f seconds: %s", wait, held.message)
                announced = True
        time.sleep(min(POLL_SECONDS, left))


def _started_after_boot(process: psutil.Process) -> float:
    return process.create_time() - psutil.boot_time()


def _pid_space() -> str:
    """Return what identifies the space of process ids; empty where the system does not provide it."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""
