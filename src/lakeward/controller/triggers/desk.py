"""What is asked for, table by table: what waits for a run, what a run answers now, which messages hang on it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakeward.pipeline.report import Outcome

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from lakeward.controller.triggers.asks import Ask, Receipt

_UP_TO_DATE = (Outcome.DONE, Outcome.IDLE)


class Claim:
    """A message and the tables that must be up to date before it is ended."""

    def __init__(self, receipt: Receipt, tables: Collection[str]) -> None:
        self._receipt: Receipt | None = receipt
        self._open = set(tables)

    def settle(self, table: str) -> None:
        """One of the tables is up to date, or nobody's business any more; with the last one the message ends."""
        self._open.discard(table)
        if not self._open and self._receipt is not None:
            self._receipt.done()
            self._receipt = None

    def fail(self) -> None:
        """One of the tables failed: let the message come again, whatever the others do."""
        if self._receipt is not None:
            self._receipt.failed()
            self._receipt = None


@dataclass
class _Wanted:
    """Why a table is to be run, and the messages that wait for it."""

    reasons: set[str] = field(default_factory=set)
    claims: list[Claim] = field(default_factory=list)


class Desk:
    """Keeps asks until a run answers them; used by one thread.

    A run answers what was asked before it began: its listing may be older than a file that was told of since. What
    is asked for a table that is being run therefore waits for the next run of it.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, _Wanted] = {}
        self._running: dict[str, list[Claim]] = {}
        # Messages of tables that somebody asks for again later.
        self._held: dict[str, list[Claim]] = defaultdict(list)

    def ask(self, ask: Ask, tables: Collection[str]) -> None:
        """Take an ask in that concerns these tables; a message that concerns none is ended."""
        claims = [] if ask.receipt is None else [Claim(ask.receipt, tables)]
        if not tables and ask.receipt is not None:
            ask.receipt.done()
        for table in tables:
            wanted = self._waiting.setdefault(table, _Wanted())
            wanted.reasons.add(ask.reason)
            wanted.claims += [*self._held.pop(table, ()), *claims]

    def forget_all_but(self, tables: Collection[str]) -> None:
        """Drop what is asked for other tables: they were given up, and their messages have nothing to wait for."""
        for table in (self._waiting.keys() | self._held.keys()) - set(tables):
            given_up = self._waiting.pop(table, _Wanted())
            for claim in [*given_up.claims, *self._held.pop(table, ())]:
                claim.settle(table)

    def free(self) -> list[str]:
        """Give the tables that wait for a run and are in none."""
        return sorted(self._waiting.keys() - self._running.keys())

    def begin(self, tables: Iterable[str]) -> list[str]:
        """Note that a run of these tables begins; give the reasons for it."""
        reasons = set()
        for table in tables:
            wanted = self._waiting.pop(table)
            self._running[table] = wanted.claims
            reasons |= wanted.reasons
        return sorted(reasons)

    def finish(self, table: str, outcome: Outcome) -> None:
        """Note how a table came out of its run: its messages end, come again, or are held while it waits."""
        claims = self._running.pop(table)
        if outcome in _UP_TO_DATE:
            for claim in claims:
                claim.settle(table)
        elif outcome is Outcome.FAILED:
            for claim in claims:
                claim.fail()
        elif claims:
            self._held[table] += claims

    def put_back(self, tables: Iterable[str]) -> None:
        """Note that tables did not come to their run; their messages are held until they are asked for again."""
        for table in tables:
            if claims := self._running.pop(table):
                self._held[table] += claims
