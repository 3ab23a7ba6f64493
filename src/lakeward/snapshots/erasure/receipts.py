"""The receipt of an erasure: what was removed from which place, and what a scan of all of them found afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lakeward.documents import Document
from lakeward.errors import BugError
from lakeward.pipeline.kinds.erase import erasure_of

if TYPE_CHECKING:
    from lakeward.pipeline.context import TableContext
    from lakeward.pipeline.erasing import LandingTrace
    from lakeward.pipeline.records import OpRecord


@dataclass(frozen=True)
class ErasedPlace:
    """One place that holds rows of the table.

    ``rows`` were seen by readers, ``hidden`` ones deleted before and still stored; ``files`` held either.
    ``remaining_rows`` and ``remaining_files`` are what the scan found at the end; None in a dry run.
    """

    place: str
    rows: int
    hidden: int
    files: int
    remaining_rows: int | None = None
    remaining_files: int | None = None

    @property
    def is_clean(self) -> bool:
        """Whether the scan found nothing."""
        return not self.remaining_rows and not self.remaining_files


@dataclass(frozen=True)
class Receipt(Document):
    """What an erasure did. No key is in it, only salted hashes.

    ``bad_rows_untold`` are bad rows in quarantine whose text does not tell their key: they were left.
    """

    table: str
    op: int
    reason: str
    erased_at: str | None
    keys: int
    hashes: tuple[str, ...]
    places: tuple[ErasedPlace, ...]
    snapshots_expired: int
    landing: tuple[LandingTrace, ...]
    bad_rows_untold: int
    proved: bool
    dry_run: bool = False

    def require_clean(self) -> None:
        """Refuse to call an erasure finished that left something behind."""
        if self.proved:
            return
        left = ", ".join(one.place for one in self.places if not one.is_clean)
        msg = f"{self.table}: rows of erased keys are still found in {left}"
        raise BugError(msg, hint=f"lakeward erase {self.table} --resume")


def receipt_of(
    context: TableContext,
    record: OpRecord,
    places: tuple[ErasedPlace, ...],
    landing: tuple[LandingTrace, ...],
    untold: int,
    *,
    expired: int = 0,
    dry_run: bool = False,
) -> Receipt:
    """Put a receipt together."""
    erasure = erasure_of(record)
    return Receipt(
        table=str(context.table),
        op=record.op,
        reason=erasure.reason,
        erased_at=datetime.fromtimestamp(erasure.at / 1e6, UTC).isoformat() if not dry_run else None,
        keys=len(erasure.hashes),
        # Those of a dry run are made with a salt that nobody keeps: they say nothing.
        hashes=() if dry_run else erasure.hashes,
        places=places,
        snapshots_expired=expired,
        landing=landing,
        bad_rows_untold=untold,
        proved=not dry_run and all(one.is_clean for one in places),
        dry_run=dry_run,
    )
