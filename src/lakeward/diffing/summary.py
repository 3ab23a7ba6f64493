"""How many rows were inserted, changed and deleted, and in which columns: counted in the pass that makes the diff."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from lakeward.diffing.options import DuplicateKeys
from lakeward.diffing.pairs import SURPLUS
from lakeward.diffing.shaping import ACTION, CHANGED, CHANGED_ROW, DELETED, INSERTED, UNCHANGED
from lakeward.documents import Document
from lakeward.transforms.columns import column

if TYPE_CHECKING:
    from pyspark.sql import Column, Row

    from lakeward.diffing.alignment import Alignment
    from lakeward.diffing.options import DiffOptions


@dataclass(frozen=True)
class Summary(Document):
    """Counts of rows.

    ``columns`` says in how many changed rows each column differs, ``duplicates`` how many rows were surplus, as their
    key came before on their side.
    """

    past_rows: int
    current_rows: int
    inserted: int
    changed: int
    deleted: int
    unchanged: int
    columns: Mapping[str, int] = field(default_factory=dict)
    duplicates: int = 0

    @property
    def is_same(self) -> bool:
        """Whether nothing differs."""
        return not (self.inserted or self.changed or self.deleted)


def summary_columns(alignment: Alignment, options: DiffOptions) -> list[Column]:
    """Give aggregates over classified pairs, for ``DataFrame.observe`` or ``agg``; :func:`read_summary` reads them."""
    actions = {"inserted": INSERTED, "changed": CHANGED_ROW, "deleted": DELETED, "unchanged": UNCHANGED}
    is_changed = column(ACTION) == CHANGED_ROW
    surplus = column(SURPLUS) if options.duplicate_keys is DuplicateKeys.REPORT else F.lit(0)
    return [
        *(F.count(F.when(column(ACTION) == label, F.lit(1))).alias(name) for name, label in actions.items()),
        *(
            F.count(F.when(is_changed & F.array_contains(column(CHANGED), one.name), F.lit(1))).alias(_counter(at))
            for at, one in enumerate(alignment.compared)
        ),
        F.coalesce(F.sum(surplus), F.lit(0)).cast("bigint").alias("duplicates"),
    ]


def read_summary(
    found: Row | Mapping[str, Any], alignment: Alignment, *, past_rows: int | None, current_rows: int | None
) -> Summary:
    """Read what was counted.

    A side's rows are None where all pairs were there to be counted; where equal ones had been left out, both must be
    given, and the unchanged rows are what remains of them.
    """
    counts = found if isinstance(found, Mapping) else found.asDict()
    inserted, changed, deleted = counts["inserted"], counts["changed"], counts["deleted"]
    unchanged = counts["unchanged"] if past_rows is None else past_rows - changed - deleted
    return Summary(
        past_rows=unchanged + changed + deleted,
        current_rows=unchanged + changed + inserted if current_rows is None else current_rows,
        inserted=inserted,
        changed=changed,
        deleted=deleted,
        unchanged=unchanged,
        columns={one.name: counts[_counter(at)] for at, one in enumerate(alignment.compared)},
        duplicates=counts["duplicates"],
    )


def _counter(position: int) -> str:
    """Name a column's counter by its position: a name may hold anything."""
    return f"column_{position}"
