"""What was written to a table, kept in a small table beside it.

For every target it holds the state that was applied last and, of each job, how often it was begun and which of its
units are done. It is in the cluster that is written to, so that it survives whatever happens to the job, and is asked
and written at LOCAL_QUORUM, so that it survives the loss of a node too.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lakeward.cassandra.jobs import IMPORT, AppliedState, Begun
from lakeward.cassandra.names import TableName
from lakeward.cassandra.presence import has_rows, is_there, make_table, table_id
from lakeward.cassandra.retrying import call_again, told
from lakeward.errors import ConfigurationError, ConflictError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakeward.cassandra.jobs import Job

LEDGER = "lakeward_applied"
# Rows of a target that are no unit: what a job is, and (of no job) the state that was applied last.
_HEADER, _NO_JOB = -1, ""
_DEFINITION = "cassandra"
# Where lists may be there of a job that nobody knows of any more, this second's number is most likely not one of its.
_FIRST_UNKNOWN, _UNKNOWN = 100, 900


class Ledger:
    """The ledger of one target."""

    def __init__(self, session: Any, target: TableName, table: TableName | None = None) -> None:
        """Name the target and the ledger's own table; by default that is in the target's keyspace."""
        self._session, self._name, self._target = session, target, str(target)
        self._is_there, self._only_looks = True, False
        self.table = table or TableName(target.keyspace, LEDGER)

    def look(self) -> None:
        """Only read from here on, where there is a table; where there is none, nothing is recorded."""
        self._is_there, self._only_looks = is_there(self._session, self.table), True

    def create(self) -> None:
        """Make the ledger's table where there is none yet.

        Raises:
            ConfigurationError: there is no such keyspace, or it may not be written to.
            RetriableError: the table does not become ready.
        """
        if is_there(self._session, self.table):
            return
        statement = (
            f"CREATE TABLE IF NOT EXISTS {self.table.cql} (target text, job text, unit int, attempt int, "
            "document text, PRIMARY KEY (target, job, unit))"
        )
        what = f"{self.table}, the record of what was written to {self._target}"
        otherwise = "--ledger KEYSPACE.TABLE   (keeps it elsewhere)"
        make_table(self._session, self.table, [statement], what=what, otherwise=otherwise)

    def last(self) -> AppliedState | None:
        """Give the state that was applied last; None where nothing is recorded."""
        rows = self._read(_NO_JOB, _HEADER)
        return AppliedState.from_document(json.loads(rows[0][1])) if rows else None

    def holds_other_table(self, last: AppliedState) -> bool:
        """Tell whether the target was dropped since a state of it was recorded; one of that name may be there anew."""
        return self._is_other(last.table_id, table_id(self._session, self._name))

    def lost(self) -> str | None:
        """Say why what is recorded of the target is not there any more; None where it may be.

        That is so where the target was dropped, and where it has no row at all though some were written.
        """
        last, begun = self.last(), self._open_jobs()
        current = table_id(self._session, self._name)
        ids = [last.table_id] if last is not None else [one.table_id for one in begun]
        if any(self._is_other(one, current) for one in ids):
            return f"{self._target} was dropped since it was last written to, so that what is recorded of it is void"
        imports = [one.job for one in begun if one.job.kind == IMPORT]
        is_filled = last.has_rows if last is not None else any(self._has_written(one) for one in imports)
        if not is_filled or has_rows(self._session, self._name):
            return None
        return f"{self._target} is empty, though rows were written to it, so that what is recorded of it is void"

    @staticmethod
    def _is_other(recorded: str | None, current: str | None) -> bool:
        return recorded is not None and recorded != current

    def _has_written(self, job: Job) -> bool:
        return any(int(one["rows"]) > int(one["rejected"]) for one in self._units(job).values())

    def under_way(self, kind: str | None = None) -> Job | None:
        """Give the job that was begun last and has not ended, of a kind if one is named."""
        current = table_id(self._session, self._name)
        begun = [one for one in self._open_jobs() if kind in (None, one.job.kind)]
        there = [one for one in begun if not self._is_other(one.table_id, current)]
        return max(there, key=lambda one: one.at).job if there else None

    def known(self, job_id: str) -> Job | None:
        """Give a job that was begun and has not ended, as it was begun."""
        return next((one.job for one in self._open_jobs() if one.job.id == job_id), None)

    def _open_jobs(self) -> list[Begun]:
        """Give the jobs that have not ended; one that led to the state which is recorded has, killed at its end."""
        last = self.last()
        return [one for one in self._begun() if one.is_open and not one.led_to(last)]

    def _begun(self) -> list[Begun]:
        query = f"SELECT job, unit, attempt, document FROM {self.table.cql} WHERE target = %s"
        return [
            Begun.from_document(json.loads(text), attempt)
            for job, unit, attempt, text in self._execute(query, (self._target,))
            if unit == _HEADER and job != _NO_JOB
        ]

    def begin(self, job: Job, *, anew: bool = False) -> int:
        """Record that a job is begun, or goes on, and give how often lists were written at its times before.

        Args:
            job: what is begun.
            anew: count none of its units as done.
        """
        begun, current = self._begun(), table_id(self._session, self._name)
        before = next((one for one in begun if one.job.id == job.id), None)
        if before is not None:
            is_same_work = before.is_open and before.job.units == job.units
            if anew or not is_same_work or self._is_other(before.table_id, current):
                self._forget_units(job)
        attempt = self._next_attempt(job, begun)
        self._together([self._header(Begun(job, attempt, is_open=True, at=_now(), table_id=current))])
        return attempt

    def _next_attempt(self, job: Job, begun: Iterable[Begun]) -> int:
        """Count past every job whose lists may have the times of this one's.

        Those are the ones of its own time and, since imports write cells at the times that are recorded for them, all
        imports for an import.
        """
        known = list(begun)
        same = [
            one.attempt
            for one in known
            if one.job.timestamp == job.timestamp or one.job.kind == job.kind == IMPORT or one.job.id == job.id
        ]
        if not known and self.last() is None and has_rows(self._session, self._name):
            return _FIRST_UNKNOWN + int(time.time()) % _UNKNOWN
        return max(same, default=-1) + 1

    def done(self, job: Job) -> set[int]:
        """Give the units of a job whose rows are all dealt with."""
        return set(self._units(job))

    def rejected(self, job: Job) -> int:
        """Give how many rows of the units that are done were rejected."""
        return sum(int(one["rejected"]) for one in self._units(job).values())

    def _units(self, job: Job) -> dict[int, Any]:
        query = f"SELECT unit, document FROM {self.table.cql} WHERE target = %s AND job = %s"
        rows = self._execute(query, (self._target, job.id))
        return {int(unit): json.loads(text) for unit, text in rows if unit != _HEADER and text is not None}

    def claim(self, job: Job, unit: int) -> int:
        """Record that a unit is begun, and give how often it was before: lists are written later each time."""
        rows = self._read(job.id, unit)
        attempt = int(rows[0][0]) + 1 if rows and rows[0][0] is not None else 0
        query = f"INSERT INTO {self.table.cql} (target, job, unit, attempt) VALUES (%s, %s, %s, %s)"
        self._execute(query, (self._target, job.id, unit, attempt))
        return attempt

    def finish_unit(self, job: Job, unit: int, *, rows: int, rejected: int) -> None:
        """Record that all rows of a unit are acknowledged, or rejected and kept as dead letters."""
        query = f"INSERT INTO {self.table.cql} (target, job, unit, document) VALUES (%s, %s, %s, %s)"
        document = {"rows": rows, "rejected": rejected, "at": _now()}
        self._execute(query, (self._target, job.id, unit, json.dumps(document)))

    def finish(self, job: Job, *, rejected: int = 0, dead_letters: str | None = None) -> None:
        """Record that a job is done and the target has the state it leads to; what else was begun counts no more.

        All of it is recorded at once: a target with the state of a job that seems to go on would be stuck.

        Raises:
            ConflictError: another job was begun and finished in the meantime.
        """
        last, begun = self.last(), self._begun()
        own = next((one for one in begun if one.job.id == job.id), None)
        if own is not None and last is not None and not own.is_open and not own.led_to(last):
            msg = (
                f"while this was written to {self._target}, another job was: which of them its rows are of is not known"
            )
            raise ConflictError(msg, hint="lakeward cassandra compare   (tells what differs, and repairs it)")
        state = AppliedState(
            _undefined(job.identity),
            job.change_set,
            datetime.now(UTC),
            rejected,
            dead_letters,
            _time_after(job, last),
            # The table that the rows went to: if it was dropped since, the one of its name does not have them.
            own.table_id if own is not None else None,
        )
        ended = [replace(one, is_open=False, at=_now()) for one in begun if one.is_open]
        self._together([self._state(state), *(self._header(one) for one in ended)])
        for one in ended:
            self._forget_units(one.job)

    def record(self, identity: Mapping[str, Any], change_set: str | None = None) -> None:
        """Record the state that the target has, without the definition of the table that it is of."""
        last, current = self.last(), table_id(self._session, self._name)
        # Its cells are as old as they were.
        timestamp = None if last is None or self._is_other(last.table_id, current) else last.timestamp
        state = AppliedState(
            _undefined(identity), change_set, datetime.now(UTC), timestamp=timestamp, table_id=current
        )  # fmt: skip
        self._together([self._state(state)])

    def forget(self) -> None:
        """Remove all that is recorded of the target; where it is only looked at, nothing of it counts from here on."""
        if self._only_looks:
            self._is_there = False
        self._execute(f"DELETE FROM {self.table.cql} WHERE target = %s", (self._target,))

    def _forget_units(self, job: Job) -> None:
        query = f"DELETE FROM {self.table.cql} WHERE target = %s AND job = %s AND unit >= 0"
        self._execute(query, (self._target, job.id))

    def _read(self, job: str, unit: int) -> list[Any]:
        query = f"SELECT attempt, document FROM {self.table.cql} WHERE target = %s AND job = %s AND unit = %s"
        return list(self._execute(query, (self._target, job, unit)))

    def _state(self, state: AppliedState) -> tuple[Any, ...]:
        return (self._target, _NO_JOB, _HEADER, None, json.dumps(state.to_document(), default=str))

    def _header(self, begun: Begun) -> tuple[Any, ...]:
        return (
            self._target, begun.job.id, _HEADER, begun.attempt, json.dumps(begun.to_document(), default=str)
        )  # fmt: skip

    def _together(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Write rows at once: they are of one partition, of which Cassandra writes all or nothing."""
        from cassandra.query import BatchStatement, BatchType, SimpleStatement

        query = f"INSERT INTO {self.table.cql} (target, job, unit, attempt, document) VALUES (%s, %s, %s, %s, %s)"
        batch = BatchStatement(batch_type=BatchType.UNLOGGED)
        for values in rows:
            batch.add(SimpleStatement(query), values)
        self._run(batch, None)

    def _execute(self, query: str, values: Sequence[Any]) -> Any:
        from cassandra.query import SimpleStatement

        return self._run(SimpleStatement(query), values)

    def _run(self, statement: Any, values: Sequence[Any] | None) -> Any:
        if not self._is_there:
            return []
        from cassandra import ConsistencyLevel, InvalidRequest, Unauthorized

        statement.consistency_level, statement.is_idempotent = ConsistencyLevel.LOCAL_QUORUM, True
        try:
            return call_again(lambda: self._session.execute(statement, values))
        except Unauthorized as error:
            msg = (
                f"this login may not use {self.table}, the record of what was written to {self._target}: {told(error)}"
            )
            hint = f"as an administrator: GRANT SELECT, and GRANT MODIFY, ON {self.table.cql} TO …"
            raise ConfigurationError(msg, hint=hint) from error
        except InvalidRequest as error:
            msg = f"{self.table} cannot keep the record of what was written to {self._target}: {told(error)}"
            hint = "--ledger KEYSPACE.TABLE   (a table that there is not yet; it is made)"
            raise ConfigurationError(msg, hint=hint) from error


def _time_after(job: Job, last: AppliedState | None) -> int:
    """Give the time that later jobs have to be after: no cell of the target is of a later one."""
    if last is None or last.timestamp is None:
        return job.timestamp
    # What follows the state that a repair leaves as it is may be of an export that began before the repair.
    return last.timestamp if job.is_repair else max(last.timestamp, job.timestamp)


def _undefined(identity: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in identity.items() if name != _DEFINITION}


def _now() -> str:
    return datetime.now(UTC).isoformat()
