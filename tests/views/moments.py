"""Rows of a table as of a moment."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from lakeward.lake import Lakeward
from lakeward.mirror.op.as_of import rows_as_of
from lakeward.mirror.op.checkpoints import parse_moment
from lakeward.spark.workspace import Workspace

if TYPE_CHECKING:
    from lakeward.mirror.op.checkpoints import Moment


def asked(lakeward: Lakeward, table: str, moment: Moment) -> list[dict[str, object]]:
    context = lakeward._opened.workbench().context(lakeward.table(table))
    with Workspace() as workspace:
        return [row.asDict() for row in rows_as_of(context, workspace, moment).rows.collect()]


def moment_of(commit: datetime) -> Moment:
    return parse_moment(commit.isoformat())
