"""Erase keys from every place that Lakeward keeps rows in, and prove by scanning that none is left.

Changelog and mirror are cleaned by the op itself, which any later run finishes. What is made of them follows here:
histories, published files, old snapshots, and on request the landing files. An erasure that was interrupted is known
by a property of the changelog until it is finished.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakeward.errors import ConfigurationError
from lakeward.lake.iceberg.attempt import drop_abandoned
from lakeward.lake.iceberg.define import history_of
from lakeward.lake.iceberg.purge import expire_unreferenced
from lakeward.pipeline.effect import capture
from lakeward.pipeline.erased import (
    SALT_PROPERTY,
    UNFINISHED_PROPERTY,
    Erasure,
    UnfinishedErasure,
    new_salt,
    unfinished_erasure,
)
from lakeward.pipeline.erasing import (
    MAX_KEYS,
    erase_keys,
    hashes_of,
    landing_traces,
    next_record,
    record_of,
    rewrite_landing,
    with_moved_keys,
)
from lakeward.pipeline.kinds.erase import erasure_of
from lakeward.pipeline.run import finish_interrupted
from lakeward.pipeline.steps import Step
from lakeward.snapshots.erasure.copies import clean_history, clean_publications
from lakeward.snapshots.erasure.places import found_places, remaining, untold_bad_rows
from lakeward.snapshots.erasure.receipts import ErasedPlace, Receipt, receipt_of
from lakeward.snapshots.history.row_keys import row_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from lakeward.lake.iceberg.table import IcebergTable
    from lakeward.pipeline.context import TableContext
    from lakeward.pipeline.records import OpRecord


def erase(
    context: TableContext,
    keys: Sequence[Mapping[str, Any]],
    reason: str,
    *,
    landing: bool = False,
    moves: str | None = None,
) -> list[Receipt]:
    """Erase keys and give the receipt; first come those of an erasure that was interrupted, which is finished before.

    The caller holds the table's lease.

    Raises:
        ConfigurationError: a key does not fit the table, or key changes connect it with others.
    """
    earlier = resume(context)
    salt = _known_salt(context) or new_salt()
    hashes = with_moved_keys(context, salt, _hashes(context, keys, salt), moves)
    record = erase_keys(context, Erasure(salt, hashes, reason, 0, landing))
    return [*earlier, _finish(context, record)]


def resume(context: TableContext) -> list[Receipt]:
    """Finish an erasure that was interrupted and give its receipt; nothing where none was."""
    for table in (context.changelog, context.mirror):
        drop_abandoned(table)
    finish_interrupted(context)
    unfinished = unfinished_erasure(context.changelog.look())
    return [_finish(context, record_of(context, unfinished.op))] if unfinished else []


def plan(context: TableContext, keys: Sequence[Mapping[str, Any]], reason: str, *, moves: str | None = None) -> Receipt:
    """Say what an erasure would remove, and change nothing: the hashes are those of a salt that nobody keeps."""
    bases = capture(context)
    salt = new_salt()
    record = next_record(context, bases, Erasure(salt, (), reason, 0))
    hashes = with_moved_keys(context, salt, _hashes(context, keys, salt), moves)
    record = replace(record, erasure=Erasure(salt, hashes, reason, 2**62))
    traces = tuple(landing_traces(context, erasure_of(record)))
    places = tuple(found_places(context, record))
    return receipt_of(context, record, places, traces, untold_bad_rows(context, record), dry_run=True)


def _hashes(context: TableContext, keys: Sequence[Mapping[str, Any]], salt: str) -> tuple[str, ...]:
    if not 1 <= len(keys) <= MAX_KEYS:
        msg = f"{context.table}: {len(keys):,} keys to erase; expected 1 to {MAX_KEYS:,}"
        raise ConfigurationError(msg, hint="--key id=42, or several calls")
    if not context.mirror.exists():
        msg = f"{context.table} has no rows yet: nothing was run, so there is nothing to erase"
        raise ConfigurationError(msg, hint=f"lakeward run {context.table}")
    columns, primary = context.mirror.columns(), context.settings.primary_key
    found = [row_key(context.table, columns, primary, one) for one in keys]
    return hashes_of([one.frame(context.spark) for one in found], salt)


def _known_salt(context: TableContext) -> str | None:
    metadata = context.changelog.look()
    return metadata.property(SALT_PROPERTY) if metadata else None


def _finish(context: TableContext, record: OpRecord) -> Receipt:
    """Clean what is made of changelog and mirror, prove that nothing is left, and close the erasure."""
    clean_history(context, record)
    context.reached(Step.ERASE_HISTORY)
    clean_publications(context, record)
    context.reached(Step.ERASE_PUBLICATIONS)
    expired = sum(expire_unreferenced(table) for table in _tables(context))
    context.reached(Step.ERASE_TIDIED)
    erasure = erasure_of(record)
    traces = list(landing_traces(context, erasure))
    if erasure.landing:
        traces = rewrite_landing(context, erasure, traces)
    context.reached(Step.ERASE_LANDING)
    unfinished = unfinished_erasure(context.changelog.metadata()) or UnfinishedErasure(record.op)
    places, untold = _places(context, record, unfinished), untold_bad_rows(context, record)
    expired += unfinished.expired or 0
    receipt = receipt_of(context, record, places, tuple(traces), untold, expired=expired)
    receipt.require_clean()
    context.permission.require()
    context.changelog.set_properties({UNFINISHED_PROPERTY: None})
    context.reached(Step.ERASE_DONE)
    return receipt


def _places(context: TableContext, record: OpRecord, unfinished: UnfinishedErasure) -> tuple[ErasedPlace, ...]:
    """Give every place that was scanned, with what was removed from it before and what the scan finds now."""
    removed = unfinished.removed
    left = dict(remaining(context, record))
    return tuple(
        ErasedPlace(place, *removed.get(place, (0, 0, 0)), *left.get(place, (0, 0)))
        for place in sorted({*removed, *left})
    )


def _tables(context: TableContext) -> list[IcebergTable]:
    history = history_of(context.spark, context.table)
    return [context.mirror, context.changelog, *([history] if history.exists() else [])]
