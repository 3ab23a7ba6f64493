"""Bad rows that were set aside and that belong to a key, as far as their text tells it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from lakeward import schemas as S
from lakeward.model import Generation
from lakeward.pipeline.ledger import bad_row_details
from lakeward.pipeline.open_rows import is_named
from lakeward.pipeline.records import REBUILD
from lakeward.reading_back import json_object, refusing_damage
from lakeward.sources.base import ReadSpec
from lakeward.sources.dms.raw import raw_values
from lakeward.transforms.columns import column
from lakeward.transforms.standing import is_standing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column, Row

    from lakeward.snapshots.history.row_keys import RowKey
    from lakeward.snapshots.history.story import Story


@dataclass(frozen=True)
class SetAside:
    """A bad row of the key: where it is, what is wrong with it, and what was decided."""

    op: int
    generation: int
    file_time: str
    file: str
    row: int
    reason: str
    raw: str


def set_aside(story: Story, key: RowKey, *, limit: int) -> list[SetAside]:
    """Give the bad rows whose text holds the key, in file and row order."""
    bad = story.log.filter((column(S.KIND) == S.KIND_BAD) & _may_hold(key))
    ordered = bad.select(S.OP, S.GENERATION, S.FILE_TIME, S.FILE, S.ROW, S.DETAIL, S.RAW).orderBy(
        S.GENERATION, S.FILE_TIME, S.FILE, S.ROW, S.OP
    )
    found = []
    for row in ordered.toLocalIterator():
        if key.is_text(_texts(story, row), story.context.settings.csv.binary):
            found.append(row)
        if len(found) == limit:
            break
    decided = _decisions(story, found)
    return [_set_aside(row, decided.get((row[S.FILE], row[S.ROW]))) for row in found]


def _may_hold(key: RowKey) -> Column:
    """Leave rows out whose text cannot hold the key, where its values have one way to be written."""
    condition = F.lit(True)
    for value in key.values.values():
        if value.is_valid and (pa.types.is_string(value.type) or pa.types.is_integer(value.type)):
            # Quotes are doubled and some characters escaped: only plain text is looked for.
            text = str(value.as_py()).lstrip("-")
            if text.isalnum() and text.isascii():
                condition &= column(S.RAW).contains(text)
    return condition


def _texts(story: Story, row: Row) -> dict[str, str | None]:
    settings, generations = story.context.settings, story.progress.generations
    generation = next((one for one in generations if one.number == row[S.GENERATION]), Generation(row[S.GENERATION]))
    spec = ReadSpec(story.context.table, story.bases.columns, settings, generation.order_by)
    return raw_values(row[S.RAW], row[S.FILE], spec, load=not row[S.FILE_TIME])


def _decisions(story: Story, rows: Iterable[Row]) -> dict[tuple[str, int], str]:
    """Give what became of bad rows that someone decided on."""
    ids = {f"{row[S.FILE]}:{row[S.ROW]}" for row in rows}
    if not ids:
        return {}
    control = (column(S.KIND) == S.KIND_CONTROL) & column(S.FILE).isNotNull() & is_standing(story.progress.undone)
    found = story.log.filter(control & is_named(ids)).select(S.OP, S.FILE, S.ROW, S.DETAIL).orderBy(S.OP)
    return {(row[S.FILE], row[S.ROW]): _decision(row) for row in found.toLocalIterator()}


def _decision(row: Row) -> str:
    done = {"retried": "put back", "dropped": "dropped"}
    with refusing_damage("a control row of the changelog", hint=REBUILD):
        outcome = json_object(row[S.DETAIL])["resolved"]
    return f"{done.get(outcome, outcome)} by op {row[S.OP]}"


def _set_aside(row: Row, decision: str | None) -> SetAside:
    fault, name, value = bad_row_details(row[S.DETAIL])
    where = f"{name} {value!r}: " if name is not None else ""
    reason = f"{where}{fault}" + (f"; {decision}" if decision else "")
    return SetAside(row[S.OP], row[S.GENERATION], row[S.FILE_TIME] or "", row[S.FILE], row[S.ROW], reason, row[S.RAW])
