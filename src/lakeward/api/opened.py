"""An opened lake: configuration, landing files, state store, and Spark once it is needed."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from lakeward.controller.tables import KnownTable, find_tables, known_tables, require_table
from lakeward.model import TableId
from lakeward.sources.storage import open_storage
from lakeward.state.open import open_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

    from lakeward.config import Config
    from lakeward.controller.workbench import Workbench
    from lakeward.pipeline.context import TableContext
    from lakeward.pipeline.steps import Step

    During = Callable[[str], AbstractContextManager[None]]


def silently(_message: str) -> AbstractContextManager[None]:
    """Announce nothing; the default for ``during``."""
    return nullcontext()


class OpenedLake:
    """What every part of :class:`lakeward.Lakeward` works with."""

    def __init__(
        self,
        config: Config,
        *,
        spark: SparkSession | None = None,
        on_step: Callable[[str, Step], None] | None = None,
        during: During = silently,
    ) -> None:
        """Open landing and state store; nothing else is started.

        Args:
            config: the configuration.
            spark: a session whose catalog ``lake`` is this lake; without it one is started when needed.
            on_step: called with (table, step) as an op passes its steps.
            during: called with what takes time, such as starting Spark; returns a context manager around it.
        """
        self.config = config
        self.storage = open_storage(config.resolve(config.landing), config.s3, config.landing_symlinks)
        self.state = open_state(config.state, config.base, config.file_access)
        self._spark = spark
        # Tables that live in a session are of use to whoever brought it, and end with one that is started here.
        self._is_own_session = spark is None
        self._on_step = on_step
        self._during = during

    def close(self) -> None:
        """Close the state store. The Spark application stays: other lakes may use it."""
        self.state.close()

    @property
    def spark(self) -> SparkSession:
        """The Spark session, started at first use."""
        if self._spark is None:
            from lakeward.lake.iceberg.session import open_session

            with self._during("starting Spark"):
                self._spark = open_session(self.config)
        return self._spark

    def has_spark(self) -> bool:
        """Whether the Spark application was started and still runs."""
        from lakeward.lake.iceberg.session import is_alive

        return self._spark is not None and is_alive(self._spark)

    def tables(self) -> list[KnownTable]:
        """Return all tables that are declared or registered."""
        return known_tables(self.config, self.state)

    def table(self, name: str) -> KnownTable:
        """Return a table by name.

        Raises:
            ConfigurationError: there is no such table.
        """
        return require_table(self.tables(), TableId.parse(name))

    def named(self, names: Iterable[str]) -> list[KnownTable]:
        """Return the named tables, all known ones when none is named."""
        known = self.tables()
        return [require_table(known, TableId.parse(name)) for name in names] or known

    def active(self, names: Iterable[str]) -> list[KnownTable]:
        """Return the named tables, all active ones when none is named.

        Raises:
            ConfigurationError: a named table is unknown or inactive.
        """
        return find_tables(self.config, self.state, names)

    def workbench(self) -> Workbench:
        """Return what work on any table needs; Spark is started for it."""
        from lakeward.controller.workbench import Workbench

        return Workbench(self.config, self.spark, self.storage, self.state, self._on_step, self._is_own_session)

    def context(self, name: str) -> TableContext:
        """Return what reading a table needs."""
        return self.workbench().context(self.table(name))

    def leased(self, name: str) -> AbstractContextManager[TableContext]:
        """Hold a table for writing until the block ends.

        Raises:
            ConflictError: another writer holds it.
        """
        return self.workbench().leased(self.table(name))
