"""The erase op: which keys, by which hashes, logged first and then carried out like every other op."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakeward import schemas as S
from lakeward.errors import ConfigurationError
from lakeward.model import OpKind
from lakeward.pipeline.effect import OpInput, Prepared, capture
from lakeward.pipeline.erase.erased import Erasure, key_fields, key_hash
from lakeward.pipeline.kinds import kind_of
from lakeward.pipeline.ledger import op_record, progress_of
from lakeward.pipeline.records import OpRecord
from lakeward.pipeline.run import carry_out
from lakeward.pipeline.workspace import Workspace
from lakeward.transforms.columns import column
from lakeward.transforms.fold import is_partial

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from lakeward.pipeline.context import TableContext
    from lakeward.pipeline.effect import Bases

# Keys erased by one call: their hashes travel in one control row and one table property.
MAX_KEYS = 10_000
_OLD, _NEW = f"{S.PREFIX}old", f"{S.PREFIX}new"


def hashes_of(keys: Sequence[DataFrame], salt: str) -> tuple[str, ...]:
    """Give the salted hashes of keys, each a frame of the key columns in the mirror's types."""
    rows = reduce(DataFrame.unionByName, keys)
    found = rows.select(key_hash(salt, key_fields(rows, rows.columns)).alias("hash")).distinct()
    return tuple(sorted(row[0] for row in found.limit(MAX_KEYS).collect()))


def next_record(context: TableContext, bases: Bases, erasure: Erasure) -> OpRecord:
    """Give the record of the op that would erase keys now.

    Raises:
        ConfigurationError: the table never had rows.
    """
    progress = progress_of(context, bases)
    if progress.generation is None:
        msg = f"{context.table} has no rows yet: nothing was run, so there is nothing to erase"
        raise ConfigurationError(msg, hint=f"lakeward run {context.table}")
    following = replace(progress, op=progress.op + 1)
    return OpRecord(following.op, OpKind.ERASE, progress.generation.number, following, erasure=erasure)


def erase_keys(context: TableContext, erasure: Erasure) -> OpRecord:
    """Log the erasure and take the keys' rows out of changelog and mirror; give the op's record.

    The caller holds the table's lease and has finished what was interrupted.
    """
    bases = capture(context)
    record = next_record(context, bases, replace(erasure, at=time.time_ns() // 1000))
    with Workspace() as workspace:
        given = OpInput(record, bases, bases.columns, None, 0)
        effect = kind_of(record.kind).work_out(context, workspace, given)
    carry_out(context, Prepared(record, bases, bases.columns, (), (), (), None, 0, effect))
    return record


def record_of(context: TableContext, op: int) -> OpRecord:
    """Read the record of an erase op from the changelog."""
    return op_record(context.changelog.read(context.changelog.require_head().id), op)


def with_moved_keys(context: TableContext, salt: str, hashes: Collection[str], moves: str | None) -> tuple[str, ...]:
    """Add keys that rows of these keys moved to or came from, as ``moves`` says: ``erase`` or ``keep`` them.

    Raises:
        ConfigurationError: there are such keys and nobody decided, or keeping them would leave them with values of
            the erased ones.
    """
    with Workspace() as workspace:
        links = workspace.keep(_links(context, salt))
        known = {*hashes}
        while found := _linked(links, known) - known:
            if moves != "erase":
                _require_separate(context, links, known, len(found), moves)
                return tuple(sorted(hashes))
            known |= found
            if len(known) > MAX_KEYS:
                msg = f"{context.table}: key changes connect the keys given with more than {MAX_KEYS:,} others"
                raise ConfigurationError(msg, hint="--moves keep erases the given keys alone")
    return tuple(sorted(known))


def _links(context: TableContext, salt: str) -> DataFrame:
    """Give the hashes of old and new key of every logged key change, and whether the new row takes values over."""
    log = context.changelog.read(context.changelog.require_head().id)
    changes = log.filter(column(S.KIND) == S.KIND_CHANGE)
    own = key_hash(salt, key_fields(changes, context.settings.primary_key))
    move = [S.OP, S.FILE, S.ROW]
    here = changes.filter(column(S.STEP) == S.STEP_MOVED_HERE)
    here = here.select(*move, own.alias(_NEW), is_partial().alias("partial"))
    away = changes.filter((column(S.STEP) == S.STEP_MOVED_AWAY) & (column(S.OPERATION) == "D"))
    return here.join(away.select(*move, own.alias(_OLD)), move).select(_OLD, _NEW, "partial")


def _linked(links: DataFrame, known: Collection[str]) -> set[str]:
    touching = links.filter(column(_OLD).isin(*known) | column(_NEW).isin(*known))
    pairs = touching.select(F.explode(F.array(_OLD, _NEW)).alias("hash")).distinct()
    return {row[0] for row in pairs.limit(MAX_KEYS + 1).collect()}


def _require_separate(
    context: TableContext, links: DataFrame, known: Collection[str], others: int, moves: str | None
) -> None:
    if moves is None:
        msg = (
            f"{context.table}: rows of the given keys moved to or came from {others:,} other keys by key changes; "
            "it is not known whether these are of the same subject"
        )
        raise ConfigurationError(msg, hint="--moves erase to erase them too, --moves keep to leave them")
    from_known = links.filter(column("partial") & column(_OLD).isin(*known))
    if from_known.take(1):
        msg = f"{context.table}: another key's row holds values that it took over from the given keys by a key change"
        raise ConfigurationError(msg, hint="--moves erase")
