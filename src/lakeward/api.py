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
from lakeward.controller.tables import KnownTable, find_tables, known_tables, require_table, settings_for
from lakeward.errors import ConfigurationError
from lakeward.model import TableId
from lakeward.pipeline.context import RunOptions
from lakeward.sources.storage import open_storage
from lakeward.state.leases import HeldLease, current_owner
from lakeward.state.open import open_state

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from pathlib import Path
    from types import TracebackType

    from pyspark.sql import DataFrame, SparkSession

    from lakeward.controller.runner import TableRunner
    from lakeward.controller.status import TableStatus
    from lakeward.pipeline.context import TableContext
    from lakeward.pipeline.quarantine import BadRow, QuarantineReport
    from lakeward.pipeline.report import OpReport, RunReport, TablePlan


class Lakeward:
    """One configured lake. Spark starts at the first call that needs it; ``close`` lets everything go."""

    def __init__(
        self,
        config: Config,
        *,
        spark: SparkSession | None = None,
        on_step: Callable[[str, str], None] | None = None,
        on_op: Callable[[str, OpReport], None] | None = None,
    ) -> None:
        """Open a configuration that is already read.

        Args:
            config: the configuration.
            spark: a session whose catalog ``lake`` is this lake; without it one is started when needed.
            on_step: hears (table, step) as an op passes its steps.
            on_op: hears (table, report) of every op once it is published.
        """
        self.config = config
        self.storage = open_storage(config.resolve(config.landing))
        self.state = open_state(config.state, config.base)
        self._spark = spark
        self._on_step = on_step
        self._on_op = on_op

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
        """Let go of the state store. The Spark application stays: other lakes may use it."""
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

    def discover(self) -> list[TableId]:
        """Register tables found in landing as inactive; give the new ones."""
        discovery.require_landing(self.config, self.storage)
        return discovery.discover(self.config, self.storage, self.state)

    def set_table(
        self, name: str, *, settings: Mapping[str, Any] | None = None, active: bool | None = None
    ) -> KnownTable:
        """Change a table's settings or activate it.

        Raises:
            ConfigurationError: the table is declared in the configuration file, or a setting does not fit.
        """
        table = TableId.parse(name)
        if settings and table in self.config.declared():
            msg = f"{table} is declared in the configuration file; its settings are changed there"
            raise ConfigurationError(msg, hint=f"edit tables: {table}: in lakeward.yaml")
        before = self.state.find_table(table)
        merged = {**(before.settings if before else {}), **(settings or {})}
        settings_for(self.config, table, {key: value for key, value in merged.items() if value is not None})
        self.state.set_table(table, active=active, settings=dict(settings or {}))
        return self.table(name)

    def run(self, tables: Iterable[str] = (), *, options: RunOptions | None = None, wait: float = 0) -> RunReport:
        """Bring mirrors up to date: all active tables, or those named.

        Args:
            tables: names as ``schema.table``.
            options: decisions for this run.
            wait: seconds to wait for a table that another writer holds.
        """
        discovery.require_landing(self.config, self.storage)
        chosen = find_tables(self.config, self.state, tables)
        return self._runner().run(chosen, options or RunOptions(), wait=wait)

    def plan(self, tables: Iterable[str] = (), *, options: RunOptions | None = None) -> list[TablePlan]:
        """Say what a run would do next, table by table, without writing."""
        discovery.require_landing(self.config, self.storage)
        chosen = find_tables(self.config, self.state, tables)
        return self._runner().plan(chosen, options or RunOptions())

    def status(self, tables: Iterable[str] = ()) -> list[TableStatus]:
        """Say how tables stand: all known ones, or those named."""
        from lakeward.controller.status import table_status

        names = [TableId.parse(name) for name in tables]
        known = self.tables()
        chosen = [require_table(known, name) for name in names] if names else known
        runner = self._runner() if chosen else None
        return [table_status(runner.context(one, RunOptions()), one) for one in chosen if runner]

    def sql(self, query: str) -> DataFrame:
        """Run Spark SQL over the lake; ``sales.product`` is the mirror."""
        return self.spark.sql(query)

    def bad_rows(self, name: str, *, limit: int | None = None) -> Iterator[BadRow]:
        """Give a table's bad rows that wait for a decision."""
        from lakeward.pipeline.quarantine import bad_rows

        return bad_rows(self._runner().context(self.table(name), RunOptions()), limit=limit)

    def retry_bad_rows(
        self, name: str, ids: Collection[str] = (), replacements: Mapping[str, str] | None = None
    ) -> QuarantineReport:
        """Put bad rows back at their own place in the order, as they are under today's settings or as repaired."""
        from lakeward.pipeline.quarantine import retry_rows

        with self._leased(name) as context:
            return retry_rows(context, ids, replacements or {})

    def drop_bad_rows(self, name: str, ids: Collection[str] = ()) -> QuarantineReport:
        """Give bad rows up."""
        from lakeward.pipeline.quarantine import drop_rows

        with self._leased(name) as context:
            return drop_rows(context, ids)

    def rebuild_state(self) -> list[str]:
        """Fill the state store anew from the lake; give the tables found."""
        from lakeward.controller.registry import rebuild_registry
        from lakeward.pipeline.ledger import rebuild

        found = rebuild_registry(self.spark, self.config, self.state)
        runner = self._runner()
        for table in found:
            context = runner.context(self.table(str(table)), RunOptions())
            rebuild(context, context.changelog.require_head().id)
        return [str(table) for table in found]

    def _runner(self) -> TableRunner:
        from lakeward.controller.runner import TableRunner

        return TableRunner(self.config, self.spark, self.storage, self.state, on_step=self._on_step, on_op=self._on_op)

    def _leased(self, name: str) -> _LeasedContext:
        return _LeasedContext(self._runner(), self.table(name), self)


class _LeasedContext:
    """A table's context for the time that its lease is held."""

    def __init__(self, runner: TableRunner, known: KnownTable, lakeward: Lakeward) -> None:
        from lakeward.controller.runner import new_run_id

        self._runner = runner
        self._known = known
        self._lease = HeldLease(lakeward.state, known.table, current_owner(new_run_id()))

    def __enter__(self) -> TableContext:
        return self._runner.context(self._known, RunOptions(), self._lease.__enter__())

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lease.__exit__(error_type, error, trace)
