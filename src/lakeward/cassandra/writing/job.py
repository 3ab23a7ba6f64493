"""A job that writes a table: begun or taken up in the ledger, written by tasks within one budget, and recorded."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from lakeward.cassandra.budget import BudgetServer, Limits
from lakeward.cassandra.effects import LEADS
from lakeward.cassandra.writing.frames import spread
from lakeward.cassandra.writing.results import Status, Written
from lakeward.cassandra.writing.task import RESULT, writing_task
from lakeward.diffing.inputs.faults import input_errors
from lakeward.diffing.refusals import refusals
from lakeward.errors import DataError, RetriableError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakeward.cassandra.effects import Outcome
    from lakeward.cassandra.ledger import Ledger
    from lakeward.cassandra.progress import Tell
    from lakeward.cassandra.writing.frames import Parts
    from lakeward.cassandra.writing.plan import WritePlan

# So many rejected rows are a case for a person, and more of them do not help.
_MAX_REJECTED, _MAX_REJECTED_SHARE = 1_000, 0.01
# What a task sends in a second to a cluster that is not busy, taken low: estimates should not disappoint.
_REQUESTS_PER_SECOND = 2_000.0
_SUMS = ("upserted", "deleted", "expired", "rejected", "requests", "units")


@dataclass(frozen=True)
class Load:
    """All that is known before the first row is read; the plan's attempt and budget are filled in later.

    ``source`` is what the rows are called in messages, ``outcome`` what the target holds afterwards.
    """

    source: str
    frame: DataFrame
    parts: Parts
    plan: WritePlan
    rows: int | None
    limits: Limits
    tasks: int | None = None
    max_rejected: int | None = None
    warnings: tuple[str, ...] = ()
    outcome: Outcome = LEADS

    def warned(self, told: tuple[str, ...]) -> Load:
        """Add what a person should know."""
        return replace(self, warnings=(*self.warnings, *told))

    @property
    def allowed_rejected(self) -> int:
        """How many rows may be rejected before the job ends."""
        if self.max_rejected is not None:
            return self.max_rejected
        return max(_MAX_REJECTED, int((self.rows or 0) * _MAX_REJECTED_SHARE))


def write_load(load: Load, ledger: Ledger, tell: Tell | None = None, *, anew: bool = False) -> Written:
    """Write what a load holds, or what an interrupted attempt at it left to write, and record the state it leads to.

    With ``anew`` all of it is written, whatever an interrupted attempt did.

    Raises:
        DataError: too many rows are rejected, or the server refuses all.
        RetriableError: the cluster does not answer; the same call goes on where this one ended.
    """
    began = time.monotonic()
    attempt = ledger.begin(load.plan.job, anew=anew, doubt=load.outcome.why)
    done, rejected_before = ledger.done(load.plan.job), ledger.rejected(load.plan.job)
    expected = None if load.rows is None else round(load.rows * (1 - len(done) / load.plan.job.units))
    if done and tell is not None:
        tell(f"going on with an interrupted attempt: {len(done):,} of {load.plan.job.units:,} units are done")
    host = load.frame.sparkSession.conf.get("spark.driver.host", "localhost")
    with BudgetServer(
        load.limits, host=str(host), tell=tell, expected_rows=expected, rejected=rejected_before
    ) as budget:
        found = _run(replace(load, plan=replace(load.plan, attempt=attempt, budget=budget.address)), done)
    found["rejected"] = rejected = int(found["rejected"]) + rejected_before
    folder = load.plan.dead_letters.folder if rejected else None
    _require_success(found, folder)
    ledger.finish(load.plan.job, load.outcome, rejected=rejected, dead_letters=folder)
    return _written(load, found, time.monotonic() - began, folder, len(done))


def estimate_load(load: Load, ledger: Ledger, *, anew: bool = False) -> Written:
    """Say what writing a load, or the rest of it, would do and cost: all is done but the writing."""
    job = load.plan.job
    done = ledger.done(job) if ledger.known(job.id) is not None and not anew else set()
    found = _run(load, done)
    _require_success(found, None)
    limits, rows = load.limits, int(found["upserted"]) + int(found["deleted"])
    amounts = (rows, found["units"], found["requests"])
    rates = (limits.rows_per_second, limits.write_units, limits.requests_per_second)
    seconds = [amount / rate for amount, rate in zip(amounts, rates, strict=True) if rate]
    # Also at a generous limit nothing is sent faster than tasks can.
    seconds.append(found["requests"] / (_REQUESTS_PER_SECOND * _tasks(load)))
    written = _written(load, found, 0.0, None, len(done))
    return replace(written, status=Status.DRY_RUN, seconds=max(seconds))


def _run(load: Load, done: set[int]) -> dict[str, Any]:
    plan = load.plan
    plan = replace(plan, max_rejected=load.allowed_rejected)
    rows = spread(
        load.frame,
        load.parts,
        units=plan.job.units,
        done=done,
        tasks=_tasks(load),
        chunk=max(plan.limits.batch_rows, 1),
    )
    results = rows.mapInArrow(writing_task(plan), RESULT)
    sums = [F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in _SUMS]
    told = [F.max(name).alias(name) for name in ("failure", "is_retriable")]
    with refusals(hint="make the change set again"), input_errors(load.source):
        whole = results.agg(*sums, *told).first()
    assert whole is not None
    return whole.asDict()


def _tasks(load: Load) -> int:
    return min(load.tasks or load.frame.sparkSession.sparkContext.defaultParallelism, load.plan.job.units)


def _require_success(found: dict[str, Any], folder: str | None) -> None:
    if found["failure"] is None:
        return
    message, _, hint = str(found["failure"]).partition("\nTry: ")
    written = f"; {found['upserted'] + found['deleted']:,} rows were written"
    letters = f", {found['rejected']:,} rejected ones are in {folder}" if folder else ""
    kind = RetriableError if found["is_retriable"] else DataError
    raise kind(message + written + letters, hint=hint or "the same command goes on where this one ended")


def _written(load: Load, found: dict[str, Any], seconds: float, folder: str | None, resumed: int) -> Written:
    return Written(
        into=str(load.plan.target),
        status=Status.REJECTED if found["rejected"] else Status.DONE,
        upserted=int(found["upserted"]),
        deleted=int(found["deleted"]),
        skipped_expired=int(found["expired"]),
        rejected=int(found["rejected"]),
        dead_letters=folder,
        units=round(float(found["units"]), 1),
        seconds=round(seconds, 3),
        timestamp=load.plan.timestamp,
        resumed=resumed,
        warnings=load.warnings,
    )
