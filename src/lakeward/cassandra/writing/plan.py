"""What tasks must know to write a table: small, and without anything that only this process has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward import schemas as S
from lakeward.cassandra.schema import ColumnKind

if TYPE_CHECKING:
    from lakeward.cassandra.budget import BudgetAddress
    from lakeward.cassandra.connecting import ClusterAddress
    from lakeward.cassandra.jobs import Job
    from lakeward.cassandra.keyspaces import WriteLimits
    from lakeward.cassandra.names import TableName
    from lakeward.cassandra.types import CqlType
    from lakeward.cassandra.writing.dead_letters import DeadLetterPlace

INSERTED, CHANGED, DELETED = "I", "C", "D"
# Columns of the frame that tasks get; values are found by position, so that no name of a table's can be in the way.
UNIT, ACTION, CHANGES = f"{S.PREFIX}unit", f"{S.PREFIX}action", f"{S.PREFIX}changes"
KEY, VALUE, WRITTEN, EXPIRY = "k", "v", "w", "e"


@dataclass(frozen=True)
class WriteColumn:
    """A column that is written: the type that its values have where they come from, and the target's."""

    name: str
    kind: ColumnKind
    source: CqlType
    target: CqlType

    @property
    def is_key(self) -> bool:
        """Whether it is part of the primary key."""
        return self.kind in (ColumnKind.PARTITION_KEY, ColumnKind.CLUSTERING)

    @property
    def is_static(self) -> bool:
        """Whether a partition has one value of it."""
        return self.kind is ColumnKind.STATIC

    @property
    def is_list(self) -> bool:
        """Whether writing it twice at one time would double it: its elements have names that the server makes up."""
        return self.target.name == "list" and self.target.is_multi_cell


@dataclass(frozen=True)
class WritePlan:
    """How rows are written: ``columns`` are the partition key, the clustering columns, then all others.

    ``has_static_rows`` tells that a row without a clustering key is the static part of its partition.
    ``is_timed`` is false where the server gives the times: then it takes none from clients.
    ``timestamp`` is that of every cell for which none is recorded; ``attempt`` counts how often the job was begun.
    ``max_rejected`` are rows of the whole job. Without a ``budget`` all is done but the writing.
    """

    address: ClusterAddress
    target: TableName
    columns: tuple[WriteColumn, ...]
    timestamp: int
    limits: WriteLimits
    job: Job
    ledger: TableName
    dead_letters: DeadLetterPlace
    attempt: int = 0
    max_rejected: int = 0
    budget: BudgetAddress | None = None
    has_actions: bool = False
    has_writetimes: bool = False
    has_expiries: bool = False
    has_static_rows: bool = False
    is_timed: bool = True

    @property
    def keys(self) -> tuple[WriteColumn, ...]:
        """The columns of the primary key, in order."""
        return tuple(one for one in self.columns if one.is_key)

    @property
    def partition_key(self) -> tuple[WriteColumn, ...]:
        """The columns of the partition key, in order."""
        return tuple(one for one in self.columns if one.kind is ColumnKind.PARTITION_KEY)

    @property
    def values(self) -> tuple[WriteColumn, ...]:
        """The columns that are no key."""
        return tuple(one for one in self.columns if not one.is_key)

    @property
    def columns_at_once(self) -> int | None:
        """How many values one statement may have; None: any number."""
        return self.limits.columns_with_ttl if self.has_expiries else self.limits.columns
