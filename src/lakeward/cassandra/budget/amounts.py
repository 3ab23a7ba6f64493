"""What a budget counts: rows, units of write and read capacity, and requests."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple


class Amounts(NamedTuple):
    """Some of everything that is counted."""

    rows: float = 0.0
    write_units: float = 0.0
    read_units: float = 0.0
    requests: float = 0.0

    def plus(self, other: Amounts) -> Amounts:
        """Add."""
        return Amounts(*(mine + its for mine, its in zip(self, other, strict=True)))

    def times(self, factor: float) -> Amounts:
        """Multiply each."""
        return Amounts(*(mine * factor for mine in self))


NOTHING = Amounts()


@dataclass(frozen=True)
class RateLimits:
    """What a job may do per second; None: as much as it can. Units are those of Amazon Keyspaces (WCU, RCU)."""

    rows_per_second: float | None = None
    write_units: float | None = None
    read_units: float | None = None
    requests_per_second: float | None = None

    def __post_init__(self) -> None:
        """Refuse limits under which nothing could ever be done."""
        for name, value in vars(self).items():
            if value is not None and value <= 0:
                msg = f"{name} must be more than 0, not {value}"
                raise ValueError(msg)

    def for_reading(self) -> RateLimits:
        """Return what concerns the table that is read."""
        return replace(self, write_units=None)

    def for_writing(self) -> RateLimits:
        """Return what concerns the table that is written."""
        return replace(self, read_units=None)

    @property
    def rates(self) -> tuple[float | None, ...]:
        """The limits in the order of :class:`Amounts`."""
        return (self.rows_per_second, self.write_units, self.read_units, self.requests_per_second)


@dataclass(frozen=True)
class Totals:
    """What a job did, as its tasks told it; ``rate`` is rows per second since the first of them."""

    rows: int
    write_units: float
    read_units: float
    requests: int
    seconds: float
    rate: float
