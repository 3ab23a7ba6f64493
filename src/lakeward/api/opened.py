"""One configured lake, opened: configuration, landing, state store, and Spark once it is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from lakeward.arguments import NONE, PATH, TEXT, checked, instance, takes
from lakeward.config import Config, load_config
from lakeward.controller.tables import KnownTable, known_tables, require_table
from lakeward.model import TableId
from lakeward.sources.storage import open_storage
from lakeward.state.open import open_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path
    from types import TracebackType

    from pyspark.sql import SparkSession

    from lakeward.controller.workbench import Workbench
    from lakeward.pipeline.steps import Step

_CONFIG = instance("a Config", Config)


class OpenedLake:
    """What every feature of a lake stands on."""

    def __init__(
        self,
        config: Config,
        *,
        spark: SparkSession | None = None,
        on_step: Callable[[str, Step], None] | None = None,
    ) -> None:
        """Open landing and state store; nothing else is started."""
        self.config: Config = checked("Lakeward", "config", config, _CONFIG)
        self.storage = open_storage(config.resolve(config.landing), config.s3, config.landing_symlinks)
        self.state = open_state(config.state, config.base, config.file_access)
        self._spark = spark
        # Tables that live in a session are of use to whoever brought it, and end with one that is started here.
        self._is_own_session = spark is None
        self._on_step = on_step

    @classmethod
    @takes(path=PATH | NONE)
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

    @takes(name=TEXT)
    def table(self, name: str) -> KnownTable:
        """One table by name."""
        return require_table(self.tables(), TableId.parse(name))

    def _named(self, tables: Iterable[str]) -> list[KnownTable]:
        """Give the named tables, all known ones when none is named."""
        known = self.tables()
        return [require_table(known, TableId.parse(name)) for name in tables] or known

    def _bench(self) -> Workbench:
        from lakeward.controller.workbench import Workbench

        return Workbench(self.config, self.spark, self.storage, self.state, self._on_step, self._is_own_session)
