"""A job that writes rows into a table: begun or resumed in the ledger, written by tasks within one budget, recorded.

Imports and applied change sets differ in the rows they write (:class:`WriteRows`) and in what they decide beforehand.
Both then build a :class:`WriteJob` and run it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from lakeward.cassandra import guards
from lakeward.cassandra.budget import RateLimits
from lakeward.cassandra.budget_server import BudgetServer
from lakeward.cassandra.clusters import limits_for
from lakeward.cassandra.connection import with_nodes
from lakeward.cassandra.keyspaces import limits_of
from lakeward.cassandra.ledger import Ledger
from lakeward.cassandra.tables import require_writable
from lakeward.cassandra.write_frames import Parts, split_key, spread
from lakeward.cassandra.write_plan import WritePlan, WriteReport, WriteStatus, place_for
from lakeward.cassandra.write_task import RESULT, writing_task
from lakeward.diffing.frames.refusals import input_errors, refusals
from lakeward.errors import DataError, RetriableError
from lakeward.spark.marks import in_task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from lakeward.cassandra.budget import OnProgress
    from lakeward.cassandra.connection import ClusterAddress
    from lakeward.cassandra.cql import TableName
    from lakeward.cassandra.jobs import JobDecision
    from lakeward.cassandra.schema import TableSchema
    from lakeward.cassandra.write_frames import Matched
    from lakeward.config import Config

# With more rejected rows a person must inspect the reasons.
_MAX_REJECTED, _MAX_REJECTED_SHARE = 1_000, 0.01
# A conservative rate of a task for a cluster that is not busy, used in estimates.
_REQUESTS_PER_SECOND = 2_000.0
_SUMS = ("upserted", "deleted", "expired", "rejected", "requests", "units")


@dataclass(frozen=True)
class WriteRequest:
    """What to write into which table, and how.

    source: where the rows are: the snapshot or the change set.
    timestamp: ``snapshot``: the time that the source has; ``now``; or microseconds since 1970.
    force: write all of it, whatever the record of the target says.
    max_rejected: stop if more rows are rejected; None: 1,000, or 1 % of the rows if that is more.
    """

    source: str
    into: TableName
    timestamp: str = guards.SNAPSHOT_TIME
    limits: RateLimits = field(default_factory=RateLimits)
    ledger: TableName | None = None
    dead_letters: str | None = None
    tasks: int | None = None
    max_rejected: int | None = None
    dry_run: bool = False
    force: bool = False


@dataclass(frozen=True)
class WriteTarget:
    """The table to write: its definition, its ledger, and the session for both."""

    session: Any
    address: ClusterAddress
    schema: TableSchema
    ledger: Ledger

    @classmethod
    def open(cls, session: Any, address: ClusterAddress, schema: TableSchema, request: WriteRequest) -> WriteTarget:
        """Open the ledger, creating it unless this is a dry run.

        Raises:
            ConfigurationError: the login may not write the table.
        """
        ledger = Ledger(session, request.into, request.ledger)
        if request.dry_run:
            ledger.look()
        else:
            require_writable(session, schema)
            ledger.create()
        return cls(session, address, schema, ledger)

    def unchanged(self) -> WriteReport:
        """Return the report of a job that has nothing to do."""
        last = self.ledger.last()
        return WriteReport(str(self.schema.name), WriteStatus.NOTHING_TO_DO, warnings=guards.rejected_warnings(last))


@dataclass(frozen=True)
class WriteRows:
    """The rows of a job, and how their columns become the target's.

    label: their name in messages.
    location: where they are stored.
    columns: the columns to write, each with the expression that yields its values.
    count: how many rows there are, None if unknown.
    writetimes, expiries: the recorded times of every value, or none at all.
    ttl: the TTL of every value, 0 for values that stay; None: the recorded one.
    action, changes: of a change set: what is done with a row, and which of its columns changed.
    has_static_rows: whether a row without a clustering key is the static part of its partition.
    """

    label: str
    location: str
    frame: DataFrame
    columns: Sequence[Matched]
    count: int | None
    has_static_rows: bool
    writetimes: Sequence[Column] = ()
    expiries: Sequence[Column] = ()
    ttl: int | None = None
    action: Column | None = None
    changes: Column | None = None

    @property
    def parts(self) -> Parts:
        """The expressions for what tasks need of a row."""
        return Parts(*split_key(self.columns), self.writetimes, self.expiries, self.action, self.changes)


@dataclass(frozen=True)
class WriteJob:
    """A job that writes rows into a table; the plan's attempt and budget are set when it runs."""

    rows: WriteRows
    plan: WritePlan
    ledger: Ledger
    request: WriteRequest
    decision: JobDecision
    limits: RateLimits

    @classmethod
    def build(
        cls, target: WriteTarget, request: WriteRequest, decision: JobDecision, rows: WriteRows, config: Config
    ) -> WriteJob:
        """Plan the writes.

        Raises:
            RefusedInputError: the target does not accept the times at which cells are to be written.
            ConfigurationError: rejected rows could not be kept.
        """
        job, limits = decision.job, limits_of(target.address.settings)
        guards.require_accepted_timestamp(job.timestamp, limits, rows.label)
        expires = bool(rows.expiries) or bool(rows.ttl)
        plan = WritePlan(
            address=with_nodes(target.address, target.session),
            target=request.into,
            columns=tuple(pair.column for pair in rows.columns),
            timestamp=job.timestamp,
            limits=limits,
            job=job,
            ledger=target.ledger.table,
            dead_letters=place_for(rows.frame.sparkSession, config, request.dead_letters, rows.location, job),
            has_actions=rows.action is not None,
            has_writetimes=bool(rows.writetimes),
            has_expiries=bool(rows.expiries),
            ttl=rows.ttl,
            is_timed=guards.takes_timestamps(target.session, limits, request.into, request.timestamp, expires=expires),
            has_static_rows=rows.has_static_rows,
        )
        return cls(rows, plan, target.ledger, request, decision, limits_for(target.address, request.limits))

    def run(self, on_progress: OnProgress | None = None) -> WriteReport:
        """Write the rows and record the state they lead to; a dry run only estimates it.

        Raises:
            DataError: too many rows are rejected, or the server refuses all.
            RetriableError: the cluster does not answer; the same call resumes where this one ended.
        """
        return self.estimate() if self.request.dry_run else self._write(on_progress)

    def estimate(self) -> WriteReport:
        """Return what writing the remaining rows would do and cost: everything is done except the writing."""
        job = self.plan.job
        done = self.ledger.done(job) if self.ledger.known(job.id) is not None and not self.request.force else set()
        found = self._run_tasks(self.plan, done)
        _require_success(found, None)
        limits, rows = self.limits, int(found["upserted"]) + int(found["deleted"])
        amounts = (rows, found["units"], found["requests"])
        rates = (limits.rows_per_second, limits.write_units, limits.requests_per_second)
        seconds = [amount / rate for amount, rate in zip(amounts, rates, strict=True) if rate]
        # Whatever the limit, tasks cannot send faster than this.
        seconds.append(found["requests"] / (_REQUESTS_PER_SECOND * self._tasks))
        written = self._report(found, 0.0, None, len(done))
        return replace(written, status=WriteStatus.DRY_RUN, seconds=max(seconds))

    def _write(self, on_progress: OnProgress | None) -> WriteReport:
        """Write the rows that an interrupted attempt did not write; with ``force`` all of them."""
        began, job = time.monotonic(), self.plan.job
        attempt = self.ledger.begin(job, anew=self.request.force, doubt=self.decision.outcome.why)
        done, rejected_before = self.ledger.done(job), self.ledger.rejected(job)
        expected = None if self.rows.count is None else round(self.rows.count * (1 - len(done) / job.units))
        if done and on_progress is not None:
            on_progress(f"resuming an interrupted attempt: {len(done):,} of {job.units:,} units are done")
        host = str(self.rows.frame.sparkSession.conf.get("spark.driver.host", "localhost"))
        with BudgetServer(
            self.limits, host=host, on_progress=on_progress, expected_rows=expected, rejected=rejected_before
        ) as budget:
            found = self._run_tasks(replace(self.plan, attempt=attempt, budget=budget.address), done)
        found["rejected"] = rejected = int(found["rejected"]) + rejected_before
        folder = self.plan.dead_letters.folder if rejected else None
        _require_success(found, folder)
        self.ledger.finish(job, self.decision.outcome, rejected=rejected, dead_letters=folder)
        return self._report(found, time.monotonic() - began, folder, len(done))

    def _run_tasks(self, plan: WritePlan, done: set[int]) -> dict[str, Any]:
        plan = replace(plan, max_rejected=self._allowed_rejected)
        rows = spread(
            self.rows.frame,
            self.rows.parts,
            units=plan.job.units,
            done=done,
            tasks=self._tasks,
            chunk=max(plan.limits.batch_rows, 1),
        )
        results = rows.mapInArrow(in_task(writing_task(plan)), RESULT)
        sums = [F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in _SUMS]
        failures = [F.max(name).alias(name) for name in ("failure", "is_retriable")]
        with refusals(hint="make the change set again"), input_errors(self.rows.label):
            whole = results.agg(*sums, *failures).first()
        assert whole is not None
        return whole.asDict()

    @property
    def _tasks(self) -> int:
        available = self.rows.frame.sparkSession.sparkContext.defaultParallelism
        return min(self.request.tasks or available, self.plan.job.units)

    @property
    def _allowed_rejected(self) -> int:
        """The number of rows that may be rejected before the job ends."""
        if self.request.max_rejected is not None:
            return self.request.max_rejected
        return max(_MAX_REJECTED, int((self.rows.count or 0) * _MAX_REJECTED_SHARE))

    def _report(self, found: dict[str, Any], seconds: float, folder: str | None, resumed: int) -> WriteReport:
        return WriteReport(
            into=str(self.plan.target),
            status=WriteStatus.REJECTED if found["rejected"] else WriteStatus.DONE,
            upserted=int(found["upserted"]),
            deleted=int(found["deleted"]),
            skipped_expired=int(found["expired"]),
            rejected=int(found["rejected"]),
            dead_letters=folder,
            units=round(float(found["units"]), 1),
            seconds=round(seconds, 3),
            timestamp=self.plan.timestamp,
            resumed=resumed,
            warnings=self.decision.warnings,
        )


def _require_success(found: dict[str, Any], folder: str | None) -> None:
    if found["failure"] is None:
        return
    message, _, hint = str(found["failure"]).partition("\nTry: ")
    written = f"; {found['upserted'] + found['deleted']:,} rows were written"
    letters = f", {found['rejected']:,} rejected ones are in {folder}" if folder else ""
    kind = RetriableError if found["is_retriable"] else DataError
    raise kind(message + written + letters, hint=hint or "the same command resumes where this one ended")
