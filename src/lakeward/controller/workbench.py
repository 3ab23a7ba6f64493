"""What work on any table of a lake needs, and the context made from it for one of them."""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lakeward.lake.iceberg.define import changelog_of, mirror_of
from lakeward.lake.iceberg.session import table_session
from lakeward.pipeline.budget import RunBudget
from lakeward.pipeline.context import RunOptions, TableContext, ignore_step
from lakeward.pipeline.reading import TransactionShelf
from lakeward.state.leases import HeldLease, current_owner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from lakeward.config import Config
    from lakeward.controller.tables import KnownTable
    from lakeward.pipeline.context import Permission
    from lakeward.pipeline.steps import Step
    from lakeward.sources.storage import Storage
    from lakeward.state.base import StateStore


def new_run_id() -> str:
    """Give an id that sorts by time."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}"


class NoPermissionNeeded:
    """For what does not write."""

    def require(self) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class Workbench:
    """Configuration, Spark, landing and state of one lake.

    ``on_step`` hears (table, step) of every step passed, from the thread that works on the table; what it raises ends
    the work. ``is_own_session`` says that Spark was started by the lake and not handed to it.
    """

    config: Config
    spark: SparkSession
    storage: Storage
    state: StateStore
    on_step: Callable[[str, Step], None] | None = None
    is_own_session: bool = False

    def context(
        self,
        known: KnownTable,
        permission: Permission | None = None,
        *,
        options: RunOptions | None = None,
        spark: SparkSession | None = None,
        shelf: TransactionShelf | None = None,
        budget: RunBudget | None = None,
        reached: Callable[[Step], None] | None = None,
    ) -> TableContext:
        """Give one table's context; what is not given is the table's own: its session, its shelf, no limits."""
        spark = spark or table_session(self.spark)
        return TableContext(
            table=known.table,
            config=self.config,
            settings=known.settings,
            spark=spark,
            storage=self.storage,
            state=self.state,
            permission=permission or NoPermissionNeeded(),
            mirror=mirror_of(spark, known.table),
            changelog=changelog_of(spark, known.table, known.settings.renames),
            transactions=shelf or TransactionShelf(self.storage),
            budget=budget or RunBudget(),
            options=options or RunOptions(),
            reached=reached or self._listener(str(known.table)),
        )

    @contextmanager
    def leased(self, known: KnownTable) -> Iterator[TableContext]:
        """Give one table's context for the time that its lease is held.

        Raises:
            LeaseHeldError: a live writer has the table.
        """
        owner, seconds = current_owner(new_run_id()), self.config.lease_seconds
        with HeldLease(self.state, known.table, owner, seconds=seconds) as lease:
            yield self.context(known, lease)

    def _listener(self, table: str) -> Callable[[Step], None]:
        on_step = self.on_step
        return (lambda step: on_step(table, step)) if on_step else ignore_step
