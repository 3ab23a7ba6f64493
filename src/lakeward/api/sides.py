"""Snapshots opened by their addresses: without a configuration, unless one of them is in a lake."""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Self

from lakeward.api.opened import OpenedLake, silently
from lakeward.config import Config, load_config
from lakeward.config.loading import DEFAULT_FILE
from lakeward.diffing.inputs.addresses import parse_address
from lakeward.errors import ConfigurationError

if TYPE_CHECKING:
    from types import TracebackType

    from pyspark.sql import SparkSession

    from lakeward.api.opened import During
    from lakeward.diffing.inputs.sides import Side
    from lakeward.pipeline.context import TableContext


class SideDesk:
    """Opens sides for the time of a ``with`` block. Spark starts with the first one.

    Files need no ``lakeward.yaml``; where there is one, it says how S3 is reached and which Spark does the work.
    ``during`` is called with what takes time, as for :class:`lakeward.Lakeward`.
    """

    def __init__(
        self,
        config: str | Path | Config | None = None,
        *,
        spark: SparkSession | None = None,
        during: During | None = None,
    ) -> None:
        """Name the configuration; None takes ``lakeward.yaml`` here, or none at all where there is none."""
        self._named, self._root, self._during = config, spark, during or silently
        self._stack = ExitStack()
        self._session: SparkSession | None = None
        self._lake: OpenedLake | None = None
        self._config: Config | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove temporary folders and close what was opened; Spark stays."""
        self._stack.close()

    @property
    def config(self) -> Config:
        """The configuration, or the defaults in a folder that goes with the block."""
        if self._config is None:
            self._config = self._found_config()
        return self._config

    @property
    def has_configuration(self) -> bool:
        """Whether there is one."""
        if self._named is not None or "LAKEWARD_CONFIG" in os.environ:
            return True
        return Path(DEFAULT_FILE).is_file()

    def _found_config(self) -> Config:
        if isinstance(self._named, Config):
            return self._named
        if self.has_configuration:
            return load_config(self._named)
        folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="lakeward-", ignore_cleanup_errors=True))
        return Config(base=Path(folder))

    @property
    def spark(self) -> SparkSession:
        """A session that counts in UTC and takes names exactly, started at first use."""
        if self._session is None:
            from lakeward.lake.iceberg.session import open_session, table_session

            with self._during("starting Spark"):
                self._root = self._root or open_session(self.config)
            self._session = table_session(self._root)
        return self._session

    def open(
        self,
        address: str,
        *,
        schema: str | None = None,
        format: str | None = None,  # noqa: A002 - the word that the command uses
        incomplete_ok: bool = False,
        root: str | None = None,
    ) -> Side:
        """Open what an address names; see :func:`lakeward.diffing.inputs.opening.open_side`.

        Raises:
            ConfigurationError: it cannot be an address, or is one in a lake and there is no configuration.
            RefusedInputError: what lies there cannot be taken as one whole snapshot.
        """
        parsed = parse_address(address, root)
        if parsed.needs_lake and not self.has_configuration:
            msg = f"{address} is in a lake, and there is no {DEFAULT_FILE} here that says which"
            raise ConfigurationError(msg, hint="--config FILE")
        from lakeward.diffing.inputs.opening import open_side
        from lakeward.pipeline.workspace import Workspace

        return open_side(
            self.spark,
            self.config,
            address,
            schema=schema,
            format=format,
            incomplete_ok=incomplete_ok,
            root=root,
            contexts=self._context if parsed.needs_lake else None,
            workspace=self._stack.enter_context(Workspace()) if parsed.needs_lake else None,
        )

    def _context(self, table: str) -> TableContext:
        if self._lake is None:
            self._lake = self._stack.enter_context(closing(OpenedLake(self.config, spark=self._root)))
        return self._lake.workbench().context(self._lake.table(table), spark=self.spark)
