"""Several connections of a process to each node, as one session.

The driver keeps one connection to a node, and Amazon Keyspaces takes 3,000 requests per second on each.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


class SpreadSession:
    """Sends requests over several sessions in turn; everything else is that of the first.

    A statement that one of them prepared is known to all: nodes prepare it, not connections, and each session can tell
    a node that does not have it yet.
    """

    def __init__(self, sessions: Sequence[Any]) -> None:
        """Take over sessions of one cluster."""
        self.__dict__["_sessions"] = tuple(sessions)
        self.__dict__["_turns"] = itertools.cycle(sessions)

    def prepare(self, query: str) -> Any:
        """Prepare a statement for all sessions: within a batch, a node names it by its id alone."""
        first, *others = self._sessions
        statement = first.prepare(query)
        for session in others:
            session.cluster.add_prepared(statement.query_id, statement)
        return statement

    def execute(self, *arguments: Any, **options: Any) -> Any:
        """Run a statement on the next session."""
        return next(self._turns).execute(*arguments, **options)

    def execute_async(self, *arguments: Any, **options: Any) -> Any:
        """Start a statement on the next session."""
        return next(self._turns).execute_async(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sessions[0], name)

    def __setattr__(self, name: str, value: Any) -> None:
        for session in self._sessions:
            setattr(session, name, value)
