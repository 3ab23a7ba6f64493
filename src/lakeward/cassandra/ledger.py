"""The ledger: the record of what was written to a table, in a small table beside it.

For every target it holds the state that was applied last and, for each job, the number of attempts and the units that
are done. It is in the cluster that is written to, so that it survives the job, and is read and written at LOCAL_QUORUM,
so that it survives the loss of a node too.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lakeward.cassandra.cql import TableName
from lakeward.cassandra.jobs import (
    IMPORT,
    LEADS,
    AppliedState,
    Begun,
    Finished,
    JobEffect,
    JobHistory,
    JobOutcome,
    state_after,
    undefined,
)
from lakeward.cassandra.retry import call_again, error_text
from lakeward.cassandra.tables import deletes_kept, has_rows, is_there, make_table, table_id
from lakeward.errors import ConfigurationError, ConflictError
from lakeward.text import json_object, refusing_damage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from lakeward.cassandra.jobs import Job

LEDGER = "lakeward_applied"
# Rows of a target that are not units: the header of a job and, without a job, the state that was applied last.
_HEADER, _NO_JOB = -1, ""
# A target with rows but without a record may have lists of a forgotten job. An attempt number taken from the clock most
# likely differs from those that the job used.
_FIRST_UNKNOWN, _UNKNOWN = 100, 900


class Ledger:
    """The ledger of one target."""

    def __init__(self, session: Any, target: TableName, table: TableName | None = None) -> None:
        """Take the target and the ledger's own table, which is by default in the keyspace of the target."""
        self._session, self._name, self._target = session, target, str(target)
        self._is_there, self._only_looks = True, False
        self.table = table or TableName(target.keyspace, LEDGER)

    def look(self) -> None:
        """Only read from now on; without a table, nothing is recorded."""
        self._is_there, self._only_looks = is_there(self._session, self.table), True

    def create(self) -> None:
        """Create the table of the ledger if it does not exist.

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
        """Return the state that was applied last; None where nothing is recorded."""
        rows = self._read(_NO_JOB, _HEADER)
        if not rows:
            return None
        with self._reading():
            return AppliedState.from_dict(json_object(rows[0][1]))

    def lost(self) -> str | None:
        """Return why the recorded state of the target is gone; None where it may still be there.

        It is gone where the target was dropped, or has no rows although some were written.
        """
        last, begun = self.last(), self._open_jobs()
        current = table_id(self._session, self._name)
        ids = [last.table_id] if last is not None else [begun_job.table_id for begun_job in begun]
        if any(self._is_other(recorded, current) for recorded in ids):
            return f"{self._target} was dropped since it was last written to, so the record of it is void"
        imports = [begun_job.job for begun_job in begun if begun_job.job.kind == IMPORT]
        is_filled = last.has_rows if last is not None else any(self._has_written(job) for job in imports)
        if not is_filled or self.has_rows():
            return None
        return f"{self._target} is empty, though rows were written to it, so the record of it is void"

    @staticmethod
    def _is_other(recorded: str | None, current: str | None) -> bool:
        return recorded is not None and recorded != current

    def _has_written(self, job: Job) -> bool:
        return any(int(unit["rows"]) > int(unit["rejected"]) for unit in self._units(job).values())

    def under_way(self, kind: str | None = None) -> Job | None:
        """Return the open job that was begun last, optionally of one kind; None where there is none."""
        current = table_id(self._session, self._name)
        begun = [begun_job for begun_job in self._open_jobs() if kind in (None, begun_job.job.kind)]
        there = [begun_job for begun_job in begun if not self._is_other(begun_job.table_id, current)]
        return max(there, key=lambda begun_job: begun_job.at).job if there else None

    def known(self, job_id: str) -> Job | None:
        """Return an open job as it was begun; None where there is none with this id."""
        return next((begun_job.job for begun_job in self._open_jobs() if begun_job.job.id == job_id), None)

    def _open_jobs(self) -> list[Begun]:
        """Return the open jobs, without those killed after their state was recorded."""
        last = self.last()
        return [begun_job for begun_job in self._begun() if begun_job.is_open and not begun_job.led_to(last)]

    def _begun(self) -> list[Begun]:
        query = f"SELECT job, unit, attempt, document FROM {self.table.cql} WHERE target = %s"
        rows = self._execute(query, (self._target,))
        with self._reading():
            return [
                Begun.from_dict({**json_object(text), "attempt": attempt})
                for job, unit, attempt, text in rows
                if unit == _HEADER and job != _NO_JOB
            ]

    def has_rows(self) -> bool:
        """Whether the target has rows."""
        return has_rows(self._session, self._name)

    def history(self) -> JobHistory:
        """Return the jobs that were begun on the target, which show whether a job is written again."""
        current = table_id(self._session, self._name)
        there = [begun_job for begun_job in self._begun() if not self._is_other(begun_job.table_id, current)]
        return JobHistory(there, deletes_kept(self._session, self._name), datetime.now(UTC))

    def begin(self, job: Job, *, anew: bool = False, doubt: str | None = None) -> int:
        """Record that a job begins or is resumed; return the number of its attempt.

        Args:
            job: the job.
            anew: treat none of its units as done.
            doubt: what else is in the target.
        """
        begun, current = self._begun(), table_id(self._session, self._name)
        before = next((begun_job for begun_job in begun if begun_job.job.id == job.id), None)
        if before is not None:
            is_same_work = before.is_open and before.job.units == job.units
            if anew or not is_same_work or self._is_other(before.table_id, current):
                self._forget_units(job)
        attempt = self._next_attempt(job, begun)
        finished = before.finished if before is not None and not self._is_other(before.table_id, current) else None
        header = Begun(job, attempt, True, _now(), current, finished, doubt)
        self._together([self._header(header)])
        return attempt

    def doubt_of(self, job: Job) -> str | None:
        """Return what else was in the target when an open import began; None where nothing is known."""
        return next((begun_job.doubt for begun_job in self._open_jobs() if begun_job.job.id == job.id), None)

    def _next_attempt(self, job: Job, begun: Iterable[Begun]) -> int:
        """Return an attempt number beyond those of all jobs whose lists may have the same timestamps.

        Those are the jobs with the same timestamp and, since imports write cells with their recorded timestamps, for an
        import all other imports.
        """
        known = list(begun)
        jobs = [(begun_job.job, begun_job.attempt) for begun_job in known]
        same = [
            attempt
            for other, attempt in jobs
            if other.timestamp == job.timestamp or other.kind == job.kind == IMPORT or other.id == job.id
        ]
        if not known and self.last() is None and self.has_rows():
            return _FIRST_UNKNOWN + int(time.time()) % _UNKNOWN
        return max(same, default=-1) + 1

    def done(self, job: Job) -> set[int]:
        """Return the units of a job that are done."""
        return set(self._units(job))

    def rejected(self, job: Job) -> int:
        """Return how many rows of the finished units were rejected."""
        return sum(int(unit["rejected"]) for unit in self._units(job).values())

    def _units(self, job: Job) -> dict[int, Any]:
        units = self._read_units(job)
        with self._reading():
            return {unit: json_object(text) for unit, text in units.items() if text is not None}

    def _read_units(self, job: Job) -> dict[int, str | None]:
        """Return the document of each unit that was begun; None for a unit that is not done."""
        query = f"SELECT unit, document FROM {self.table.cql} WHERE target = %s AND job = %s"
        rows = self._execute(query, (self._target, job.id))
        return {int(unit): text for unit, text in rows if unit != _HEADER}

    def _reading(self) -> AbstractContextManager[None]:
        hint = f"inspect its rows for {self._target}; another --ledger KEYSPACE.TABLE starts an empty record"
        return refusing_damage(f"a row of {self.table}", hint=hint)

    def claim(self, job: Job, unit: int) -> int:
        """Record that a unit begins; return how often it began before: lists get a later timestamp each time."""
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

    def finish(
        self, job: Job, outcome: JobOutcome = LEADS, *, rejected: int = 0, dead_letters: str | None = None
    ) -> AppliedState | None:
        """Record that a job is done and the state it led to, and close all other open jobs; return the recorded state.

        All of it is recorded at once: a target that has the state of a job that is still open would be stuck.

        Raises:
            ConflictError: another job was begun and finished in the meantime.
        """
        last, begun = self.last(), self._begun()
        own = next((begun_job for begun_job in begun if begun_job.job.id == job.id), None)
        if own is not None and last is not None and not own.is_open and not own.led_to(last):
            msg = f"another job wrote to {self._target} at the same time: which rows are from which job is not known"
            raise ConflictError(msg, hint="lakeward cassandra compare   (shows what differs, and can repair it)")
        state = state_after(
            last,
            job,
            outcome,
            self._left(job, last, begun),
            at=datetime.now(UTC),
            rejected=rejected,
            dead_letters=dead_letters,
            # The table that the rows were written to: if it was dropped since, its successor does not have them.
            table_id=own.table_id if own is not None else None,
        )
        led = outcome.effect is JobEffect.LEADS and state is not None and state.unknown is None and not job.is_repair
        ended = [replace(begun_job, is_open=False, at=_now()) for begun_job in begun if begun_job.is_open]
        ended = [_finished(begun_job, job, led=led) if begun_job.job.id == job.id else begun_job for begun_job in ended]
        headers = [self._header(begun_job) for begun_job in ended]
        self._together([self._state(state), *headers] if state is not None else headers)
        for begun_job in ended:
            self._forget_units(begun_job.job)
        return state or last

    def _left(self, job: Job, last: AppliedState | None, begun: Iterable[Begun]) -> list[Begun]:
        """Return the other open jobs that have written some of their rows, except replays."""
        history = self.history()
        there = [
            begun_job
            for begun_job in begun
            if begun_job.is_open and begun_job in history.jobs and not begun_job.led_to(last)
        ]
        return [
            begun_job
            for begun_job in there
            if begun_job.job.id != job.id and not history.has_written(begun_job.job) and self._read_units(begun_job.job)
        ]

    def record(self, identity: Mapping[str, Any], change_set: str | None = None, *, assumed: bool = False) -> None:
        """Record the state of the target without writing to it.

        Args:
            identity: the state.
            change_set: the change set without changes that leads to it.
            assumed: a person asserts that the target has this state and nothing else.
        """
        last, current = self.last(), table_id(self._session, self._name)
        if last is not None and self._is_other(last.table_id, current):
            last = None
        # The cells are unchanged: their timestamps stay, and so do surplus and rejected rows.
        state = AppliedState(
            undefined(identity),
            change_set,
            datetime.now(UTC),
            timestamp=last.timestamp if last is not None else None,
            table_id=current,
            repaired=last.repaired if last is not None else None,
        )
        if last is not None and not assumed:
            state = replace(state, rejected=last.rejected, dead_letters=last.dead_letters, doubt=last.doubt)
        self._together([self._state(state)])

    def forget(self) -> None:
        """Remove the record of the target; in a dry run, only ignore it from now on."""
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
        return (self._target, _NO_JOB, _HEADER, None, json.dumps(state.to_dict(), default=str))

    def _header(self, begun: Begun) -> tuple[Any, ...]:
        return (
            self._target, begun.job.id, _HEADER, begun.attempt, json.dumps(begun.to_dict(), default=str)
        )  # fmt: skip

    def _together(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Write rows atomically: they are in one partition."""
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
            what = f"the record of what was written to {self._target}"
            msg = f"this login may not use {self.table}, {what}: {error_text(error)}"
            hint = f"as an administrator: GRANT SELECT, and GRANT MODIFY, ON {self.table.cql} TO …"
            raise ConfigurationError(msg, hint=hint) from error
        except InvalidRequest as error:
            msg = f"{self.table} cannot keep the record of what was written to {self._target}: {error_text(error)}"
            hint = "--ledger KEYSPACE.TABLE   (a table that does not exist yet; it is created)"
            raise ConfigurationError(msg, hint=hint) from error


def _finished(begun: Begun, job: Job, *, led: bool) -> Begun:
    """Return the header of a finished job; if it was written again, the first time counts."""
    before = begun.finished if begun.finished is not None and begun.finished.timestamp == job.timestamp else None
    at, has_led = (before.at, before.led) if before is not None else (_now(), False)
    return replace(begun, finished=Finished(at, job.timestamp, led or has_led))


def _now() -> str:
    return datetime.now(UTC).isoformat()
