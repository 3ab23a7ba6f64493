"""Repair columns that contradict the settings: names that cannot be read, or a commit time stored as data.

Only the metadata of mirror, changelog and history changes: no row is read, so that tables can be repaired that cannot
be read. A repair of columns is not an op: rows stay as they are, and every step is idempotent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakeward.documents import Document
from lakeward.errors import ConfigurationError
from lakeward.iceberg.define import history_of, rename_everywhere
from lakeward.mirror.op.effect import bases_of
from lakeward.mirror.op.metadata_columns import source_columns
from lakeward.mirror.op.schema import require_readable_names
from lakeward.mirror.op.settings import captured_columns, keep_settings, settings_problems

if TYPE_CHECKING:
    from lakeward.mirror.op.context import TableContext


@dataclass(frozen=True)
class ColumnsRepair(Document):
    """The repair of a table's columns: ``renamed`` maps old names to new, ``dropped`` columns are removed."""

    table: str
    renamed: dict[str, str]
    dropped: tuple[str, ...]


def plan_columns_repair(context: TableContext) -> ColumnsRepair:
    """Return what a repair would do; nothing is written.

    Raises:
        ConfigurationError: the settings are incomplete, or do not fit the columns that would remain.
    """
    mirror = context.mirror.find_metadata()
    if mirror is None or mirror.head() is None:
        msg = f"{context.table} has no mirror yet: there is nothing to repair"
        raise ConfigurationError(msg, hint=f"lakeward run {context.table}")
    present = mirror.columns()
    dropped = captured_columns(present, context.settings)
    names = {column.name for column in present}
    renames = context.settings.renames
    renamed = {old: new for old, new in renames.items() if old in names and new not in names}
    after = [
        replace(column, name=renamed.get(column.name, column.name)) for column in present if column.name not in dropped
    ]
    require_readable_names(context.table, after, context.settings)
    if problem := next(settings_problems(source_columns(after, context.settings), context.settings), None):
        msg = f"{context.table}: after the repair {problem.message}"
        raise ConfigurationError(msg, hint=f"correct {problem.setting} of {context.table} first")
    return ColumnsRepair(str(context.table), renamed, dropped)


def repair_columns(context: TableContext) -> ColumnsRepair:
    """Perform the repair; the context holds the table's lease.

    The mirror comes last: as long as it has the old columns, an interrupted repair is planned again.

    Raises:
        ConfigurationError: as for the plan.
        ConflictError: another writer committed first.
    """
    plan = plan_columns_repair(context)
    before = context.mirror.columns()
    history = history_of(context.spark, context.table)
    tables = [*([history] if history.exists() else []), context.changelog, context.mirror]
    if plan.renamed or plan.dropped:
        for table in tables:
            context.permission.require()
            rename_everywhere(table, plan.renamed, plan.dropped)
        after = [replace(column, name=plan.renamed.get(column.name, column.name)) for column in before]
        keep_settings(context, bases_of(None, context.mirror.find_metadata()).properties, after)
    return plan
