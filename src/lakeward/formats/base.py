"""The interface of the pipeline to an input format: how to read a table's files, and what each file holds."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.column_policy import ColumnPolicy, as_read, dropped
from lakeward.config.policy import policy_of
from lakeward.documents import Record, to_compact_json
from lakeward.model import FileClass, FileIdentity, OrderBy, Place

if TYPE_CHECKING:
    from lakeward.columns import Column
    from lakeward.config import TableSettings
    from lakeward.model import TableId


_FROM_SETTINGS = ColumnPolicy()


@dataclass(frozen=True)
class ReadSpec:
    """Everything a task needs to turn a landing file into typed, placed records. Pickled into Spark tasks.

    ``columns`` is the table's schema for this op, as the lake stores it, without metadata columns: those are in no
    file, and leaving them out here lets nobody forget it. ``order_by`` is None until the generation's first change file
    has fixed it: until then each file uses the best order column it has and names it in its summary. ``policy`` is that
    of the settings unless it is given: whoever reads files obeys it, and a missing key raises ConfigurationError here,
    before anything is read.
    """

    table: TableId
    columns: tuple[Column, ...]
    settings: TableSettings
    order_by: OrderBy | None = None
    policy: ColumnPolicy = _FROM_SETTINGS

    def __post_init__(self) -> None:
        """Take the policy from the settings; in a task the spec arrives with its policy, and this is not called."""
        own = self.settings.metadata_columns.listed
        object.__setattr__(self, "columns", tuple(column for column in self.columns if column.name not in own))
        if self.policy is _FROM_SETTINGS:
            object.__setattr__(self, "policy", policy_of(self.settings))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns that files may have: the lake's, and those that a rule drops."""
        return (*(column.name for column in self.columns), *dropped(self.policy.rules))

    @property
    def read_columns(self) -> tuple[Column, ...]:
        """The columns with the types that their values are parsed as."""
        return as_read(self.columns, self.policy.rules)

    @property
    def hides_values(self) -> bool:
        """Whether no message and no bad row may show a value: of a table with rules, whatever the column.

        A row that was shifted by a field has a value to be protected in the place of another.
        """
        return bool(self.policy.rules)

    @property
    def key(self) -> tuple[str, ...]:
        """Key columns; empty for an insert-only table."""
        return self.settings.primary_key


@dataclass(frozen=True)
class FileSummary(Record, required=("order_by", "first", "last", "columns")):
    """The facts that a task found in one file, emitted as the file's own record.

    ``columns`` are the source columns the file names, without metadata columns; None where it names none
    (headerless CSV). With ``mismatch`` they do not fit the spec and no rows were emitted: the schema must
    evolve or the table stops. ``problem`` is why the whole file cannot be used. ``stable`` is false when
    the file's identity differed from the listing's before or after reading: the file is left out of the op.
    ``null_images`` counts updates that change a key if NULL in their before images is a value.
    ``ignored`` counts updates and deletes of a table without a key that were left out by ``without_key: inserts``, and
    ``erased`` rows that were left out because their key was erased; no other number includes either.
    ``first`` and ``last`` are the smallest and greatest place of a change in the file. ``oldest_commit`` and
    ``newest_commit`` are the earliest and latest time in the timestamp column, in microseconds since 1970: commit times
    of changes, the time of loading of load rows. The earliest is known only where every row has one.
    """

    path: str
    file_class: FileClass
    time: str
    identity: FileIdentity
    content_hash: str
    rows: int = 0
    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    moves: int = 0
    bad: int = 0
    erased: int = 0
    ignored: int = 0
    partial: int = 0
    null_images: int = 0
    stable: bool = True
    mismatch: bool = False
    problem: str | None = None
    order_by: OrderBy | None = None
    first: Place | None = None
    last: Place | None = None
    newest_commit: int | None = None
    oldest_commit: int | None = None
    columns: tuple[tuple[str, str], ...] | None = None

    def to_json(self) -> str:
        """Write as JSON for the record's detail column."""
        return to_compact_json(self)

    @classmethod
    def from_json(cls, text: str) -> FileSummary:
        """Read what :meth:`to_json` wrote."""
        return cls.from_dict(json.loads(text))
