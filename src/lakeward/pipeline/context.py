"""What every step of an op on one table needs at hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from lakeward.arguments import FLAG, OPTIONAL_NUMBER, OPTIONAL_TEXT, OPTIONAL_WHOLE, TEXTS, check_fields
from lakeward.sources.dms.listing import table_folder
from lakeward.spark.settings import session_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

    from lakeward.config import Config, TableSettings
    from lakeward.lake.iceberg.table import IcebergTable
    from lakeward.model import TableId
    from lakeward.pipeline.budget import RunBudget
    from lakeward.pipeline.reading import TransactionShelf
    from lakeward.pipeline.steps import Step
    from lakeward.sources.storage import Storage
    from lakeward.state.base import StateStore


class Permission(Protocol):
    """The right to write a table."""

    def require(self) -> None:
        """Raise ConflictError when the right was lost."""


@dataclass(frozen=True)
class RunOptions:
    """What a user may decide for one run.

    ``files`` restricts the run to these landing paths. ``cut`` is the name time from which change files belong to
    a reload. ``same_load`` says that load parts with a new time and the old content were only copied again, ``reload``
    that the source was loaded again. ``keep_parts`` belong to the load that is taken, ``drop_parts`` do not.
    ``accept_changed`` names consumed files whose new content is to be ignored. ``max_files`` and ``max_bytes`` limit
    what the run takes in over all its tables; ``time_limit`` replaces every table's own, ``attempts`` the configured
    number of further attempts after passing faults.
    """

    allow_deletes: bool = False
    files: frozenset[str] = frozenset()
    cut: str | None = None
    same_load: bool = False
    reload: bool = False
    keep_parts: frozenset[str] = frozenset()
    drop_parts: frozenset[str] = frozenset()
    accept_changed: frozenset[str] = frozenset()
    max_files: int | None = None
    max_bytes: int | None = None
    time_limit: float | None = None
    attempts: int | None = None

    def __post_init__(self) -> None:
        """Refuse what would fail, or pass for another choice, only once tables are run."""
        check_fields(self, allow_deletes=FLAG, same_load=FLAG, reload=FLAG, cut=OPTIONAL_TEXT)
        check_fields(self, **dict.fromkeys(("files", "keep_parts", "drop_parts", "accept_changed"), TEXTS))
        check_fields(self, **dict.fromkeys(("max_files", "max_bytes", "attempts"), OPTIONAL_WHOLE))
        check_fields(self, time_limit=OPTIONAL_NUMBER)


def ignore_step(_step: Step) -> None:
    """Do nothing: the default listener."""


@dataclass(frozen=True)
class TableContext:
    """One table under its lease, with its own Spark session.

    ``reached`` is called with every step as it is passed: progress for people, crash points for tests.
    """

    table: TableId
    config: Config
    settings: TableSettings
    spark: SparkSession
    storage: Storage
    state: StateStore
    permission: Permission
    mirror: IcebergTable
    changelog: IcebergTable
    transactions: TransactionShelf
    budget: RunBudget
    options: RunOptions = RunOptions()
    reached: Callable[[Step], None] = field(default=ignore_step)

    def adapt_plans(self, *, wanted: bool) -> None:
        """Let Spark re-plan queries while they run, or not: it pays for shuffles and only costs without them."""
        self.spark.conf.set("spark.sql.adaptive.enabled", str(wanted).lower())

    def spark_settings(self, settings: Mapping[str, str]) -> AbstractContextManager[None]:
        """Set Spark settings for one statement and put back what was there."""
        return session_settings(self.spark, settings)

    @property
    def folder(self) -> str:
        """The table's folder under landing."""
        return table_folder(self.table, self.settings)
