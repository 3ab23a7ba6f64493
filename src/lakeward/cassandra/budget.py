"""One rate budget for a whole job: kept by the driver process and consulted by every task before it sends requests.

Tasks come and go; none of them has a fixed share. Each asks for what it needs next, gets a small part of it at a time
in turn with the others, and returns what it did not use. So the cluster sees the configured rate, whatever the number
of tasks.

This module has the amounts that are counted, the accounts (no sockets, no threads, and any clock), the progress lines
that follow from them, and the protocol: lines of JSON over TCP, after both sides have proved that they know the job's
token.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import secrets
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

OnProgress = Callable[[str], None]
"""Called with a line about the progress."""

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


def progress_line(
    rows: int,
    expected: int | None,
    rate: float,
    *,
    written: tuple[float, float] = (0, 0),
    read: tuple[float, float] = (0, 0),
) -> str:
    """Return a progress line: rows, rate, time left, and the units per second and so far.

    >>> progress_line(412_000, 3_000_000, 9_980, written=(9_980, 412_000))
    '412,000 of about 3,000,000 rows, 9,980 rows/s, 4 min left, 9,980 WCU/s, 412,000 WCU so far'
    """
    whole = f" of about {expected:,}" if expected is not None and expected >= rows else ""
    parts = [f"{rows:,}{whole} rows", f"{rate:,.0f} rows/s"]
    if expected is not None and rate > 0 and expected > rows:
        parts.append(f"{duration((expected - rows) / rate)} left")
    for (units_rate, units), unit in ((written, "WCU"), (read, "RCU")):
        if units:
            parts.append(f"{units_rate:,.0f} {unit}/s, {units:,.0f} {unit} so far")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """Return a duration as text, in the largest unit of which there are at least two."""
    for unit, name in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:,.0f} {name}"
    return f"{seconds:,.0f} s"


class Amounts(NamedTuple):
    """An amount of each quantity that is counted."""

    rows: float = 0.0
    write_units: float = 0.0
    read_units: float = 0.0
    requests: float = 0.0

    def plus(self, other: Amounts) -> Amounts:
        """Return the sum of both."""
        return Amounts(*(mine + its for mine, its in zip(self, other, strict=True)))

    def times(self, factor: float) -> Amounts:
        """Return each amount times a factor."""
        return Amounts(*(mine * factor for mine in self))


NOTHING = Amounts()


@dataclass(frozen=True)
class RateLimits:
    """Limits of a job per second; None: no limit. Units are those of Amazon Keyspaces (WCU, RCU)."""

    rows_per_second: float | None = None
    write_units: float | None = None
    read_units: float | None = None
    requests_per_second: float | None = None

    def __post_init__(self) -> None:
        """Refuse limits that would let nothing pass."""
        for name, value in vars(self).items():
            if value is not None and value <= 0:
                msg = f"{name} must be more than 0, not {value}"
                raise ValueError(msg)

    def for_reading(self) -> RateLimits:
        """Return the limits for the table that is read."""
        return replace(self, write_units=None)

    def for_writing(self) -> RateLimits:
        """Return the limits for the table that is written."""
        return replace(self, read_units=None)

    @property
    def rates(self) -> tuple[float | None, ...]:
        """The limits in the order of :class:`Amounts`."""
        return (self.rows_per_second, self.write_units, self.read_units, self.requests_per_second)


@dataclass(frozen=True)
class Totals:
    """The work of a job, as reported by its tasks; ``rate`` is rows per second since the first report."""

    rows: int
    write_units: float
    read_units: float
    requests: int
    seconds: float
    rate: float


# The most that one turn grants, and the most that is saved up, in seconds of the full rate: a task waits for a turn and
# not for its whole share, a machine that stalls for a moment loses nothing, and a burst is 1.3 % of half a minute.
TURN_SECONDS = 0.05
SAVED_SECONDS = 0.4
RAMP_START = 0.25
# After an overload: a short pause, then half the rate, which doubles every few seconds up to the full rate.
PAUSE_SECONDS = 0.5
DEAF_SECONDS = 1.0
RECOVERY_SECONDS = 5.0
SLOWEST = 1 / 64
_RATE_WINDOW_SECONDS = 3.0
_REQUESTS = 3


class BudgetLedger:
    """The accounts of a job: what may be done and what was done. Not thread-safe."""

    def __init__(self, limits: RateLimits, *, ramp_seconds: float, clock: Callable[[], float]) -> None:
        """Begin with nothing saved."""
        self._rates, self._ramp, self._clock = limits.rates, ramp_seconds, clock
        self._levels = [0.0] * len(NOTHING)
        self._used, self._recent = NOTHING, deque[tuple[float, Amounts]]()
        self._first: float | None = None
        self._last = clock()
        self._factor, self._paused_until, self._slowed_at = 1.0, 0.0, float("-inf")
        # Requests per second after an overload of a job without limits; None: no such ceiling.
        self._ceiling: float | None = None

    @property
    def is_limited(self) -> bool:
        """Whether tasks must request a share at present."""
        return self._ceiling is not None or any(rate is not None for rate in self._rates)

    def offer(self, wanted: Amounts, needed: Amounts) -> Amounts | None:
        """Grant a part of what is wanted; None: not yet. ``needed`` is the least that is useful."""
        now = self._refill()
        if now < self._paused_until or self._debt_seconds(now) > 0:
            return None
        share, rates = 1.0, self._current_rates(now)
        for want, need, level, rate in zip(wanted, needed, self._levels, rates, strict=True):
            if rate is None or want <= 0:
                continue
            turn = max(rate * TURN_SECONDS, 1e-9)
            # Tolerate rounding errors: otherwise they would make a task wait for another turn.
            if level < min(need, turn) * (1 - 1e-9):
                return None
            share = min(share, min(level, turn) / want)
        granted = Amounts(*(want if rate is None else want * share for want, rate in zip(wanted, rates, strict=True)))
        self._take(granted)
        return granted

    def patience(self, wanted: Amounts, needed: Amounts) -> float:
        """Return after how many seconds to request again."""
        now = self._clock()
        waits = [self._paused_until - now, self._debt_seconds(now), 0.001]
        for want, need, level, rate in zip(wanted, needed, self._levels, self._current_rates(now), strict=True):
            if rate is not None and want > 0:
                waits.append((min(need, rate * TURN_SECONDS) - level) / rate)
        return min(max(waits), SAVED_SECONDS)

    def hand_back(self, unused: Amounts) -> None:
        """Take back what a task was granted and did not use; a negative amount is what it used in excess."""
        self._refill()
        self._take(unused.times(-1))

    def count(self, used: Amounts) -> None:
        """Record what was done."""
        self._begin()
        self._used = self._used.plus(used)
        self._recent.append((self._clock(), used))
        self._forget_old()

    def slow_down(self) -> bool:
        """Halve the rate for a while because the cluster is overloaded; return False if that was just done."""
        now = self._refill()
        if now - self._slowed_at < DEAF_SECONDS:
            return False
        if not any(rate is not None for rate in self._rates) and self._ceiling is None:
            self._ceiling = max(self.recent_rates().requests, 1.0)
        self._factor = max(self._factor / 2, SLOWEST)
        self._levels = [min(level, 0.0) for level in self._levels]
        self._slowed_at, self._paused_until = now, now + PAUSE_SECONDS
        return True

    def recent_rates(self) -> Amounts:
        """Return what was done per second in the last few seconds."""
        now = self._forget_old()
        total = NOTHING
        for _, used in self._recent:
            total = total.plus(used)
        begun = now if self._first is None else self._first
        return total.times(1 / max(min(_RATE_WINDOW_SECONDS, now - begun), 0.1))

    def totals(self) -> Totals:
        """Return the totals."""
        seconds = 0.0 if self._first is None else self._clock() - self._first
        rows = round(self._used.rows)
        return Totals(
            rows,
            self._used.write_units,
            self._used.read_units,
            round(self._used.requests),
            seconds,
            rows / seconds if seconds else 0.0,
        )

    def _forget_old(self) -> float:
        now = self._clock()
        while self._recent and self._recent[0][0] < now - _RATE_WINDOW_SECONDS:
            self._recent.popleft()
        return now

    def _begin(self) -> None:
        if self._first is None:
            self._first = self._last = self._clock()

    def _refill(self) -> float:
        """Add what has accrued since the last call; steps are short, so a change of the rate hardly matters."""
        self._begin()
        now = self._clock()
        # Nothing accrues during a pause.
        passed, self._last = max(now - max(self._last, self._paused_until), 0.0), now
        self._recover(passed)
        for at, rate in enumerate(self._current_rates(now)):
            if rate is not None:
                self._levels[at] = min(self._levels[at] + rate * passed, rate * SAVED_SECONDS)
        return now

    def _recover(self, passed: float) -> None:
        if self._factor >= 1.0:
            return
        self._factor = min(self._factor * 2 ** (passed / RECOVERY_SECONDS), 1.0)
        if self._factor >= 1.0:
            self._ceiling = None

    def _current_rates(self, now: float) -> list[float | None]:
        factor = self._factor
        if self._ramp and self._first is not None:
            factor *= min(1.0, RAMP_START + (1 - RAMP_START) * (now - self._first) / self._ramp)
        rates = [None if rate is None else rate * factor for rate in self._rates]
        if self._ceiling is not None:
            rates[_REQUESTS] = self._ceiling * self._factor
        return rates

    def _debt_seconds(self, now: float) -> float:
        """Return how many seconds the whole job waits because tasks spent more than they were granted."""
        rates = zip(self._levels, self._current_rates(now), strict=True)
        return max((-level / rate for level, rate in rates if rate is not None and level < -1e-6), default=0.0)

    def _take(self, amounts: Amounts) -> None:
        for at, (amount, rate) in enumerate(zip(amounts, self._current_rates(self._last), strict=True)):
            if rate is not None:
                self._levels[at] = min(self._levels[at] - amount, rate * SAVED_SECONDS)


NONCE_BYTES, _PROOF_BYTES = 16, 32
GREETING_SECONDS = 10.0


@dataclass(frozen=True)
class BudgetAddress:
    """The address at which tasks reach the budget of their job; the token is not shown."""

    host: str
    port: int
    token: bytes = field(repr=False)


class Line:
    """A connection that carries JSON documents in both directions."""

    def __init__(self, connection: socket.socket) -> None:
        """Take over a connection."""
        self._connection = connection
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = connection.makefile("rb")

    def send(self, document: Mapping[str, Any]) -> None:
        """Send a document."""
        self._connection.sendall(json.dumps(document).encode() + b"\n")

    def receive(self) -> dict[str, Any] | None:
        """Wait for a document; None if the other side has closed the connection."""
        line = self._reader.readline()
        if not line.endswith(b"\n"):
            return None
        document: dict[str, Any] = json.loads(line)
        return document

    def has_ended(self) -> bool:
        """Whether the other side has closed the connection, without waiting. It sends nothing while it waits."""
        self._connection.setblocking(False)
        try:
            return self._connection.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True
        finally:
            self._connection.settimeout(None)

    def hang_up(self) -> None:
        """Shut the connection down, which wakes threads that wait on either side."""
        # The other side may have closed it already.
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection; not while another thread waits on it."""
        self.hang_up()
        self._reader.close()
        self._connection.close()


def greet_as_server(connection: socket.socket, token: bytes) -> bool:
    """Check that a client has the token, which is never sent; then prove the same to it."""
    connection.settimeout(GREETING_SECONDS)
    nonce = secrets.token_bytes(NONCE_BYTES)
    connection.sendall(nonce)
    answer = _exactly(connection, _PROOF_BYTES + NONCE_BYTES)
    if not hmac.compare_digest(answer[:_PROOF_BYTES], _proof(token, b"client", nonce)):
        return False
    connection.sendall(_proof(token, b"server", answer[_PROOF_BYTES:]))
    connection.settimeout(None)
    return True


def greet_as_client(connection: socket.socket, token: bytes) -> bool:
    """Prove to the server that this task belongs to the job, and check that it is the job's server."""
    connection.settimeout(GREETING_SECONDS)
    nonce = _exactly(connection, NONCE_BYTES)
    own = secrets.token_bytes(NONCE_BYTES)
    connection.sendall(_proof(token, b"client", nonce) + own)
    is_known = hmac.compare_digest(_exactly(connection, _PROOF_BYTES), _proof(token, b"server", own))
    connection.settimeout(None)
    return is_known


def _proof(token: bytes, role: bytes, nonce: bytes) -> bytes:
    return hmac.new(token, role + nonce, hashlib.sha256).digest()


def _exactly(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        part = connection.recv(count - len(found))
        if not part:
            msg = "the other side closed the connection"
            raise ConnectionError(msg)
        found += part
    return found
