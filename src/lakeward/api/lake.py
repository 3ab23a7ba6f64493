"""The library's front door: open a configuration, then discover, plan, run, query.

from lakeward import Lakeward

with Lakeward.open("lakeward.yaml") as lake:
    report = lake.run()

What needs Spark is imported by the methods that need it: listing tables shall not cost seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.api.registry import TableRegistry
from lakeward.arguments import (
    FLAG,
    MAPPING,
    NONE,
    NUMBER,
    OPTIONAL_TEXT,
    OPTIONAL_WHOLE,
    TEXT,
    TEXTS,
    WHOLE,
    instance,
    takes,
)  # fmt: skip
from lakeward.controller import discovery
from lakeward.controller.reporting import Reporting
from lakeward.controller.tables import find_tables
from lakeward.model import TableId
from lakeward.pipeline.context import RunOptions

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from lakeward.api.erasure import Erasing
    from lakeward.api.history import History
    from lakeward.api.maintenance import Maintain
    from lakeward.api.snapshots import Snapshots
    from lakeward.api.undoing import Undo
    from lakeward.api.verification import Verification
    from lakeward.config import Config
    from lakeward.config.watching import WatchSettings
    from lakeward.controller.history import RunDetail, RunSummary
    from lakeward.controller.metrics import Metrics
    from lakeward.controller.observers import Observer
    from lakeward.controller.status import TableStatus
    from lakeward.controller.triggers.watcher import RunObserver, Watcher
    from lakeward.pipeline.quarantine import BadRow, QuarantineReport
    from lakeward.pipeline.report import RunReport, TablePlan
    from lakeward.pipeline.steps import Step

_OPTIONS = instance("RunOptions", RunOptions) | NONE


class Lakeward(TableRegistry):
    """One configured lake. Spark starts at the first call that needs it; ``close`` lets everything go."""

    def __init__(
        self,
        config: Config,
        *,
        spark: SparkSession | None = None,
        on_step: Callable[[str, Step], None] | None = None,
        observers: Iterable[Observer] = (),
    ) -> None:
        """Open a configuration that is already read.

        Args:
            config: the configuration.
            spark: a session whose catalog ``lake`` is this lake; without it one is started when needed.
            on_step: called with (table, step) as an op passes its steps, from the thread that works on the table.
            observers: hear of runs, tables and ops.
        """
        super().__init__(config, spark=spark, on_step=on_step)
        self._observers = tuple(observers)
        self._reporting = Reporting(config, self.state, self.status)

    def close(self) -> None:
        """Let go of the state store and the metrics' port. The Spark application stays: other lakes may use it."""
        self._reporting.close()
        super().close()

    @takes(tables=TEXTS, options=_OPTIONS, wait=NUMBER, parallel=OPTIONAL_WHOLE)
    def run(
        self,
        tables: Iterable[str] = (),
        *,
        options: RunOptions | None = None,
        wait: float = 0,
        parallel: int | None = None,
        stop: threading.Event | None = None,
        observers: Iterable[Observer] = (),
    ) -> RunReport:
        """Bring mirrors up to date: all active tables, or those named.

        Args:
            tables: names as ``schema.table``.
            options: decisions for this run.
            wait: seconds to wait for a table that another writer holds.
            parallel: tables that run at one time; default as configured.
            stop: set from another thread, it ends the run as Ctrl-C would, with KeyboardInterrupt.
            observers: hear of this run, after those that hear of every one.
        """
        from lakeward.controller.observers import fan_out
        from lakeward.controller.runner import run_tables

        discovery.require_landing(self.config, self.storage)
        chosen = find_tables(self.config, self.state, tables)
        observer = fan_out((*self._reporting.observers(), *self._observers, *observers))
        chosen_options = options or RunOptions()
        return run_tables(self._bench(), chosen, chosen_options, observer, wait=wait, parallel=parallel, stop=stop)

    @takes(tables=TEXTS)
    def watch(
        self,
        tables: Iterable[str] = (),
        *,
        settings: WatchSettings | None = None,
        observers: Sequence[RunObserver] = (),
    ) -> Watcher:
        """Give a watcher that runs tables as files land: call its ``run``, which goes on until ``stop``, or ``once``.

        Args:
            tables: names as ``schema.table``; none: all active ones, also those activated later.
            settings: how to watch; default as configured.
            observers: hear of every run through ``run_finished(report)``.
        """
        from lakeward.controller.triggers.open import open_watcher

        return open_watcher(self, tables, settings or self.config.watch, observers)

    def count_poison(self) -> None:
        """Count a message of the watched queue that could not be read, for metrics."""
        self._reporting.count_poison()

    def has_spark(self) -> bool:
        """Tell whether the Spark application was started and still runs."""
        from lakeward.lake.iceberg.session import is_alive

        return self._spark is not None and is_alive(self._spark)

    @takes(tables=TEXTS, options=_OPTIONS)
    def plan(self, tables: Iterable[str] = (), *, options: RunOptions | None = None) -> list[TablePlan]:
        """Say what a run would do next, table by table, without writing."""
        from lakeward.controller.planning import plan_tables

        discovery.require_landing(self.config, self.storage)
        chosen = find_tables(self.config, self.state, tables)
        return plan_tables(self._bench(), chosen, options or RunOptions())

    @takes(tables=TEXTS)
    def status(self, tables: Iterable[str] = ()) -> list[TableStatus]:
        """Say how tables stand: all known ones, or those named."""
        from lakeward.controller.status import table_statuses

        chosen = self._named(tables)
        return table_statuses(self._bench(), chosen) if chosen else []

    @takes(table=OPTIONAL_TEXT, limit=WHOLE)
    def runs(self, table: str | None = None, *, limit: int = 20) -> list[RunSummary]:
        """Give the newest runs, newest first: all, or those of one table and of them its part alone."""
        from lakeward.controller.history import list_runs

        return list_runs(self.state, TableId.parse(table) if table else None, limit=limit)

    @takes(run_id=TEXT, table=OPTIONAL_TEXT)
    def run_detail(self, run_id: str, table: str | None = None) -> RunDetail:
        """Give one run with the reports of its tables, or of one of them."""
        from lakeward.controller.history import run_detail

        return run_detail(self.state, run_id, TableId.parse(table) if table else None)

    @property
    def metrics(self) -> Metrics:
        """Figures of this lake for Prometheus. Once asked for, or with ``metrics: file:``, every run is taken in."""
        return self._reporting.metrics

    @property
    def history(self) -> History:
        """What happened to rows: the history of one, versions with their times, the feed of changes."""
        from lakeward.api.history import History

        return History(self._bench, self.table, self.tables)

    @property
    def snapshots(self) -> Snapshots:
        """Versions of tables as of a moment: create, read, list, refresh, drop."""
        from lakeward.api.snapshots import Snapshots

        return Snapshots(self._bench, lambda names: find_tables(self.config, self.state, names), self._named)

    @takes(query=TEXT, allow_writes=FLAG)
    def sql(self, query: str, *, allow_writes: bool = False) -> DataFrame:
        """Run Spark SQL over the lake; ``sales.product`` is the mirror.

        Raises:
            ConfigurationError: the statement does more than read the lake, and ``allow_writes`` is not given.
        """
        from lakeward.lake.iceberg.statements import read_only

        return self.spark.sql(query) if allow_writes else read_only(self.spark, query)

    @takes(name=TEXT, limit=OPTIONAL_WHOLE)
    def bad_rows(self, name: str, *, limit: int | None = None) -> Iterator[BadRow]:
        """Give a table's bad rows that wait for a decision."""
        from lakeward.pipeline.quarantine import bad_rows

        return bad_rows(self._bench().context(self.table(name)), limit=limit)

    @takes(name=TEXT, ids=TEXTS, replacements=MAPPING | NONE)
    def retry_bad_rows(
        self, name: str, ids: Collection[str] = (), replacements: Mapping[str, str] | None = None
    ) -> QuarantineReport:
        """Put bad rows back at their own place in the order, as they are under today's settings or as repaired."""
        from lakeward.pipeline.quarantine import retry_rows

        with self._bench().leased(self.table(name)) as context:
            return retry_rows(context, ids, replacements or {})

    @takes(name=TEXT, ids=TEXTS)
    def drop_bad_rows(self, name: str, ids: Collection[str] = ()) -> QuarantineReport:
        """Give bad rows up."""
        from lakeward.pipeline.quarantine import drop_rows

        with self._bench().leased(self.table(name)) as context:
            return drop_rows(context, ids)

    @property
    def verify(self) -> Verification:
        """Compute mirrors again and compare them row for row: ``lake.verify(["sales.product"])``."""
        from lakeward.api.verification import Verification

        return Verification(
            self._bench, lambda names: self._named(names) if names else find_tables(self.config, self.state, ())
        )

    @property
    def undo(self) -> Undo:
        """Take ops back: ``lake.undo("sales.product", to_op=41)``; ``lake.undo.plan`` says what it would do."""
        from lakeward.api.undoing import Undo
        from lakeward.controller.files import landing_path

        return Undo(self._bench, self.table, lambda name: landing_path(self, name))

    @property
    def erase(self) -> Erasing:
        """Erase keys everywhere, with a receipt: ``lake.erase("sales.customer", [{"id": 42}], reason="…")``."""
        from lakeward.api.erasure import Erasing

        return Erasing(self._bench, self.table)

    @property
    def maintain(self) -> Maintain:
        """Compact, cluster, expire, clear: ``lake.maintain(["sales.product"], max_seconds=60)``."""
        from lakeward.api.maintenance import Maintain

        return Maintain(self._bench, self.tables, lambda names: find_tables(self.config, self.state, names))

    def rebuild_state(self) -> list[str]:
        """Fill the state store anew from the lake; give the tables found."""
        from lakeward.controller.registry import rebuild_registry
        from lakeward.pipeline.ledger import rebuild

        found = rebuild_registry(self.spark, self.config, self.state)
        bench = self._bench()
        for table in found:
            context = bench.context(self.table(str(table)))
            rebuild(context, context.changelog.require_head().id)
        return [str(table) for table in found]
