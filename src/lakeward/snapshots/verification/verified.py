"""How far a mirror was verified: kept as one of its properties, so that it goes with the lake."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.documents import to_compact_json
from lakeward.pipeline.checkpoints import is_undone
from lakeward.reading_back import json_object, reading_property
from lakeward.snapshots.verification.report import Verified

if TYPE_CHECKING:
    from lakeward.lake.iceberg.metadata import TableMetadata
    from lakeward.lake.iceberg.table import IcebergTable
    from lakeward.model import Progress

VERIFIED_PROPERTY = "lakeward.verified"


def last_verified(mirror: TableMetadata, progress: Progress) -> Verified | None:
    """Give the last complete verification that found nothing, None where its op no longer stands."""
    text = mirror.property(VERIFIED_PROPERTY)
    found = _read(text) if text else None
    return None if found is None or is_undone(found.op, progress.undone) else found


def _read(text: str) -> Verified:
    with reading_property(VERIFIED_PROPERTY, of="mirror"):
        return Verified.from_dict(json_object(text))


def record_verified(mirror: IcebergTable, verified: Verified, before: Verified | None) -> Verified:
    """Keep a verification, unless one of a later op was kept meanwhile; give the one that is on record."""
    if before is not None and before.op > verified.op:
        return before
    mirror.set_properties({VERIFIED_PROPERTY: to_compact_json(verified)})
    return verified


def forget_verified(mirror: IcebergTable) -> None:
    """Take the record back: the mirror was found to be wrong."""
    mirror.set_properties({VERIFIED_PROPERTY: None})
