"""What was written to a table, kept in a small table beside it.

For every target it holds the state that was applied last and, of each job, how often it was begun and which of its
units are done. It is in the cluster that is written to, so that it survives whatever happens to the job, and is asked
and written at LOCAL_QUORUM, so that it survives the loss of a node too.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lakeward.cassandra.names import TableName
from lakeward.cassandra.retrying import rows_of
from lakeward.errors import ConfigurationError, RetriableError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LEDGER = "lakeward_applied"
# Rows of a target that are no unit: what a job is, and (of no job) the state that was applied last.
_HEADER, _NO_JOB = -1, ""
_DEFINITION = "cassandra"
_OPEN, _DONE = "open", "done"
_PATIENCE_SECONDS, _PAUSE_SECONDS = 120, 0.5


@dataclass(frozen=True)
class Job:
    """Something that is written to a target: ``id`` is that of the change set or of the snapshot.

    ``identity`` is the state that the target has when the job is done; ``timestamp`` is that of its cells, so that a
    job which goes on writes what it wrote before.
    """

    id: str
    kind: str
    units: int
    timestamp: int
    identity: Mapping[str, Any] = field(default_factory=dict, hash=False)
    change_set: str | None = None


@dataclass(frozen=True)
class AppliedState:
    """The state that a target had after the last job: the identity of a snapshot, and what led to it.

    ``timestamp`` is that of its cells, where it was written and not only recorded.
    """

    identity: Mapping[str, Any]
    change_set: str | None
    at: datetime
    rejected: int = 0
    dead_letters: str | None = None
    timestamp: int | None = None


class Ledger:
    """The ledger of one target."""

    def __init__(self, session: Any, target: TableName, table: TableName | None = None) -> None:
        """Name the target and the ledger's own table; by default that is in the target's keyspace."""
        self._session, self._target, self._is_there = session, str(target), True
        self.table = table or TableName(target.keyspace, LEDGER)

    def look(self) -> None:
        """Only read from here on, where there is a table; where there is none, nothing is recorded."""
        query = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = %s AND table_name = %s"
        self._is_there = bool(list(self._execute(query, (self.table.keyspace, self.table.table))))

    def create(self) -> None:
        """Make the ledger's table where there is none yet.

        Raises:
            ConfigurationError: there is no such keyspace, or it may not be written to.
            RetriableError: the table does not become ready.
        """
        from cassandra import InvalidRequest, Unauthorized

        try:
            rows_of(
                self._session,
                f"CREATE TABLE IF NOT EXISTS {self.table.cql} (target text, job text, unit int, attempt int, "
                "document text, PRIMARY KEY (target, job, unit))",
            )
        except (InvalidRequest, Unauthorized) as error:
            msg = f"cannot make {self.table}, the record of what was written to {self._target}: {error}"
            raise ConfigurationError(msg, hint="--ledger KEYSPACE.TABLE   (keeps it elsewhere)") from error
        await_table(self._session, self.table)

    def last(self) -> AppliedState | None:
        """Give the state that was applied last; None where nothing is recorded."""
        rows = self._read(_NO_JOB, _HEADER)
        if not rows:
            return None
        found = json.loads(rows[0][1])
        return AppliedState(
            found["identity"],
            found["change_set"],
            datetime.fromisoformat(found["at"]),
            found["rejected"],
            found["dead_letters"],
            found["timestamp"],
        )

    def under_way(self, kind: str | None = None) -> Job | None:
        """Give the job that was begun last and has not ended, of a kind if one is named."""
        begun = [one for one in self._open_jobs() if kind in (None, one["job"]["kind"])]
        return Job(**max(begun, key=lambda one: str(one["at"]))["job"]) if begun else None

    def _open_jobs(self) -> list[dict[str, Any]]:
        query = f"SELECT job, unit, attempt, document FROM {self.table.cql} WHERE target = %s"
        rows = self._execute(query, (self._target,))
        found = [
            {**json.loads(text), "attempt": attempt}
            for job, unit, attempt, text in rows
            if unit == _HEADER and job != _NO_JOB
        ]
        return [one for one in found if one["status"] == _OPEN]

    def known(self, job_id: str) -> Job | None:
        """Give a job that was begun and has not ended, as it was begun."""
        rows = self._read(job_id, _HEADER)
        found = json.loads(rows[0][1]) if rows else {}
        return Job(**found["job"]) if found.get("status") == _OPEN else None

    def begin(self, job: Job) -> int:
        """Record that a job is begun, or goes on, and give how often it was begun before."""
        rows = self._read(job.id, _HEADER)
        attempt = int(rows[0][0]) + 1 if rows else 0
        before = json.loads(rows[0][1]) if rows else {}
        if before and (before["status"] == _DONE or before["job"]["units"] != job.units):
            self._forget_units(job)
        self._write(job.id, _HEADER, attempt, {"status": _OPEN, "job": _document(job), "at": _now()})
        return attempt

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
        """Record that a job is done and the target has the state it leads to; what else was begun counts no more."""
        last = self.last()
        # A repair leaves the state as it is: what follows that state may be of an export that began before the repair.
        is_same = last is not None and last.timestamp is not None and last.identity == job.identity
        timestamp = last.timestamp if is_same and last is not None else job.timestamp
        self.record(job.identity, job.change_set, rejected=rejected, dead_letters=dead_letters, timestamp=timestamp)
        for one in self._open_jobs():
            ended = Job(**one["job"])
            self._write(ended.id, _HEADER, one["attempt"], {"status": _DONE, "job": one["job"], "at": _now()})
            self._forget_units(ended)

    def record(
        self,
        identity: Mapping[str, Any],
        change_set: str | None = None,
        *,
        rejected: int = 0,
        dead_letters: str | None = None,
        timestamp: int | None = None,
    ) -> None:
        """Record the state that the target has, without the definition of the table that it is of."""
        document = {
            "identity": {name: value for name, value in identity.items() if name != _DEFINITION},
            "change_set": change_set,
            "rejected": rejected,
            "dead_letters": dead_letters,
            "timestamp": timestamp,
            "at": _now(),
        }
        self._write(_NO_JOB, _HEADER, None, document)

    def forget(self) -> None:
        """Remove all that is recorded of the target."""
        self._execute(f"DELETE FROM {self.table.cql} WHERE target = %s", (self._target,))

    def _forget_units(self, job: Job) -> None:
        query = f"DELETE FROM {self.table.cql} WHERE target = %s AND job = %s AND unit >= 0"
        self._execute(query, (self._target, job.id))

    def _read(self, job: str, unit: int) -> list[Any]:
        query = f"SELECT attempt, document FROM {self.table.cql} WHERE target = %s AND job = %s AND unit = %s"
        return list(self._execute(query, (self._target, job, unit)))

    def _write(self, job: str, unit: int, attempt: int | None, document: Mapping[str, Any]) -> None:
        query = f"INSERT INTO {self.table.cql} (target, job, unit, attempt, document) VALUES (%s, %s, %s, %s, %s)"
        self._execute(query, (self._target, job, unit, attempt, json.dumps(document, default=str)))

    def _execute(self, query: str, values: Sequence[Any]) -> Any:
        if not self._is_there:
            return []
        from cassandra import ConsistencyLevel
        from cassandra.query import SimpleStatement

        from lakeward.cassandra.retrying import call_again

        statement = SimpleStatement(query, consistency_level=ConsistencyLevel.LOCAL_QUORUM, is_idempotent=True)
        return call_again(lambda: self._session.execute(statement, values))


def await_table(session: Any, table: TableName) -> None:
    """Wait until a table that was just made can be used: Keyspaces makes them after it has answered.

    Raises:
        RetriableError: it takes too long.
    """
    from cassandra import InvalidRequest

    end = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            rows_of(session, f"SELECT * FROM {table.cql} LIMIT 1")
        except InvalidRequest as error:
            if time.monotonic() > end:
                msg = f"{table} was made, but cannot be read after {_PATIENCE_SECONDS} s: {error}"
                raise RetriableError(msg, hint="the same command again") from error
            time.sleep(_PAUSE_SECONDS)
        else:
            return


def _document(job: Job) -> dict[str, Any]:
    return {
        "id": job.id,
        "kind": job.kind,
        "units": job.units,
        "timestamp": job.timestamp,
        "identity": dict(job.identity),
        "change_set": job.change_set,
    }


def _now() -> str:
    return datetime.now(UTC).isoformat()
