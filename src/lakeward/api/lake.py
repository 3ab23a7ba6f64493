"""The library's front door: open a configuration, then discover, plan, run, query.

from lakeward import Lakeward

with Lakeward.open("lakeward.yaml") as lake:
    report = lake.run()

What needs Spark is imported by the methods that need it: listing tables shall not cost seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from lakeward.config import Config, load_config
from lakeward.controller import discovery
from lakeward.controller.reporting import Reporting
from lakeward.controller.tables import KnownTable, find_tables, known_tables, require_table, settings_for
from lakeward.errors import ConfigurationError
from lakeward.model import TableId
from lakeward.pipeline.context import RunOptions
from lakeward.sources.storage import open_storage
from lakeward.state.open import open_state

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from pyspark.sql import DataFrame, SparkSession

    from lakeward.config.watching import WatchSettings
    from lakeward.controller.history import RunDetail, RunSummary
    from lakeward.controller.metrics import Metrics
    from lakeward.controller.observers import Observer
    from lakeward.controller.status import TableStatus
    from lakeward.controller.takeover import ImportedTable
    from lakeward.controller.triggers.watcher import RunObserver, Watcher
    from lakeward.controller.validation import Finding
    from lakeward.controller.workbench import Workbench
    from lakeward.pipeline.quarantine import BadRow, QuarantineReport
    from lakeward.pipeline.report import RunReport, TablePlan


class Lakeward:
    """One configured lake. Spark starts at the first call that needs it; ``close`` lets everything go."""

    def __init__(
        self,
        config: Config,
        *,
        spark: SparkSession | None = None,
        on_step: Callable[[str, str], None] | None = None,
        observers: Iterable[Observer] = (),
    ) -> None:
        """Open a configuration that is already read.

        Args:
            config: the configuration.
            spark: a session whose catalog ``lake`` is this lake; without it one is started when needed.
            on_step: hears (table, step) as an op passes its steps, from the thread that works on the table.
            observers: hear of runs, tables and ops.
        """
        self.config = config
        self.storage = open_storage(config.resolve(config.landing), config.s3)
        self.state = open_state(config.state, config.base)
        self._spark = spark
        self._on_step = on_step
        self._observers = tuple(observers)
        self._reporting = Reporting(config, self.state, self.status)

    @classmethod
    def open(cls, path: str | Path | None = None, **options: Any) -> Self:
        """Open ``lakeward.yaml`` or the file given; options as for the constructor."""
        return cls(load_config(path), **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the state store and the metrics' port. The Spark application stays: other lakes may use it."""
        self._reporting.close()
        self.state.close()

    @property
    def spark(self) -> SparkSession:
        """The Spark session, started at first use."""
        if self._spark is None:
            from lakeward.lake.iceberg.session import open_session

            self._spark = open_session(self.config)
        return self._spark

    def tables(self) -> list[KnownTable]:
        """All tables that are declared or registered."""
        return known_tables(self.config, self.state)

    def table(self, name: str) -> KnownTable:
        """One table by name."""
        return require_table(self.tables(), TableId.parse(name))

    def discover(self, *, read_transactions: bool = False) -> discovery.Discovery:
        """Register tables found in landing as inactive; say which are new and what was left out.

        Args:
            read_transactions: look into transaction files too, for tables that have no folder.
        """
        discovery.require_landing(self.config, self.storage)
        return discovery.discover(self.config, self.storage, self.state, read_transactions=read_transactions)

    def check_tables(self, tables: Iterable[str] = (), *, check_data: bool = True) -> list[Finding]:
        """Hold the settings of tables against their files: all known ones, or those named.

        Args:
            tables: names as ``schema.table``.
            check_data: read the loads for keys that come twice; Spark starts where one is large.
        """
        return [one for table in self._named(tables) for one in self._findings(table, check_data=check_data)]

    def set_table(
        self,
        name: str,
        *,
        settings: Mapping[str, Any] | None = None,
        active: bool | None = None,
        force: bool = False,
        check_data: bool = True,
        on_finding: Callable[[Finding], None] | None = None,
    ) -> KnownTable:
        """Change a table's settings or activate it; a table is activated only if its settings fit its files.

        Args:
            name: the table as ``schema.table``.
            settings: what to set; None goes back to the default.
            active: take part in runs, or no longer.
            force: activate whatever is found.
            check_data: read the load for keys that come twice.
            on_finding: hears what was found before activation.

        Raises:
            ConfigurationError: the table is declared in the configuration file, or a setting does not fit.
        """
        table = TableId.parse(name)
        if settings and table in self.config.declared():
            msg = f"{table} is declared in the configuration file; its settings are changed there"
            raise ConfigurationError(msg, hint=f"edit tables: {table}: in lakeward.yaml")
        before = self.state.find_table(table)
        merged = {**(before.settings if before else {}), **(settings or {})}
        complete = settings_for(self.config, table, {key: one for key, one in merged.items() if one is not None})
        if active:
            from lakeward.controller.validation import require_fitting

            declared = self.config.declared().get(table)
            proposed = KnownTable(table, declared or complete, active=True, declared=declared is not None)
            findings = self._findings(proposed, check_data=check_data)
            require_fitting(proposed, findings, force=force, on_finding=on_finding)
        self.state.set_table(table, active=active, settings=dict(settings or {}))
        return self.table(name)

    def import_walkthrough(
        self, dynamodb: str, *, region: str | None = None, endpoint: str | None = None, dry_run: bool = False
    ) -> list[ImportedTable]:
        """Take over the tables of a DMS walkthrough deployment, settings only; say what became of each item."""
        from lakeward.controller.takeover import take_over
        from lakeward.controller.walkthrough_items import scan_items

        items = scan_items(dynamodb, region=region, endpoint=endpoint)
        return list(take_over(items, self.config, self.storage, self.state, dry_run=dry_run))

    def _named(self, tables: Iterable[str]) -> list[KnownTable]:
        """Give the named tables, all known ones when none is named."""
        known = self.tables()
        return [require_table(known, TableId.parse(name)) for name in tables] or known

    def _findings(self, table: KnownTable, *, check_data: bool) -> list[Finding]:
        from lakeward.controller.validation import SettingsCheck

        check = SettingsCheck(table, self.config, self.storage, check_data=check_data, spark=lambda: self.spark)
        return check.findings()

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

    def has_spark(self) -> bool:
        """Tell whether the Spark application was started and still runs."""
        from lakeward.lake.iceberg.session import is_alive

        return self._spark is not None and is_alive(self._spark)

    def plan(self, tables: Iterable[str] = (), *, options: RunOptions | None = None) -> list[TablePlan]:
        """Say what a run would do next, table by table, without writing."""
        from lakeward.controller.planning import plan_tables

        discovery.require_landing(self.config, self.storage)
        chosen = find_tables(self.config, self.state, tables)
        return plan_tables(self._bench(), chosen, options or RunOptions())

    def status(self, tables: Iterable[str] = ()) -> list[TableStatus]:
        """Say how tables stand: all known ones, or those named."""
        from lakeward.controller.status import table_statuses

        chosen = self._named(tables)
        return table_statuses(self._bench(), chosen) if chosen else []

    def runs(self, table: str | None = None, *, limit: int = 20) -> list[RunSummary]:
        """Give the newest runs, newest first: all, or those of one table and of them its part alone."""
        from lakeward.controller.history import list_runs

        return list_runs(self.state, TableId.parse(table) if table else None, limit=limit)

    def run_detail(self, run_id: str, table: str | None = None) -> RunDetail:
        """Give one run with the reports of its tables, or of one of them."""
        from lakeward.controller.history import run_detail

        return run_detail(self.state, run_id, TableId.parse(table) if table else None)

    @property
    def metrics(self) -> Metrics:
        """Figures of this lake for Prometheus. Once asked for, or with ``metrics: file:``, every run is taken in."""
        return self._reporting.metrics

    def sql(self, query: str, *, allow_writes: bool = False) -> DataFrame:
        """Run Spark SQL over the lake; ``sales.product`` is the mirror.

        Raises:
            ConfigurationError: the statement does more than read, and ``allow_writes`` is not given.
        """
        if not allow_writes:
            from lakeward.lake.iceberg.statements import require_read_only

            require_read_only(self.spark, query)
        return self.spark.sql(query)

    def bad_rows(self, name: str, *, limit: int | None = None) -> Iterator[BadRow]:
        """Give a table's bad rows that wait for a decision."""
        from lakeward.pipeline.quarantine import bad_rows

        return bad_rows(self._bench().context(self.table(name)), limit=limit)

    def retry_bad_rows(
        self, name: str, ids: Collection[str] = (), replacements: Mapping[str, str] | None = None
    ) -> QuarantineReport:
        """Put bad rows back at their own place in the order, as they are under today's settings or as repaired."""
        from lakeward.pipeline.quarantine import retry_rows

        with self._bench().leased(self.table(name)) as context:
            return retry_rows(context, ids, replacements or {})

    def drop_bad_rows(self, name: str, ids: Collection[str] = ()) -> QuarantineReport:
        """Give bad rows up."""
        from lakeward.pipeline.quarantine import drop_rows

        with self._bench().leased(self.table(name)) as context:
            return drop_rows(context, ids)

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

    def _bench(self) -> Workbench:
        from lakeward.controller.workbench import Workbench

        return Workbench(self.config, self.spark, self.storage, self.state, self._on_step)
