"""The library's lake as commands use it: starting Spark is told, and Ctrl-C stays with the command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.api import Lakeward
from lakeward.cli.process import keep_interrupts, raise_if_interrupted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakeward.cli.progress import Progress
    from lakeward.config import Config
    from lakeward.pipeline.steps import Step


class CommandLake(Lakeward):
    """A lake whose work is shown as progress."""

    def __init__(self, config: Config, *, progress: Progress) -> None:
        super().__init__(config, on_step=self._hear_step, observers=[progress])
        self._progress = progress

    def _hear_step(self, table: str, step: Step) -> None:
        raise_if_interrupted()
        self._progress.on_step(table, step)

    @property
    def spark(self) -> SparkSession:
        """The Spark session, started at first use."""
        if self._spark is None:
            with self._progress.during("starting Spark"), keep_interrupts():
                return super().spark
        return super().spark
