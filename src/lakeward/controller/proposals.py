"""What a new table's own files propose for its settings: a key that is unique in the load, the commit time's column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.controller.samples import take_sample
from lakeward.documents import Document
from lakeward.pipeline.key_check import unique_key
from lakeward.sources.base import ReadSpec
from lakeward.sources.dms.peek import peek

if TYPE_CHECKING:
    from lakeward.controller.tables import KnownTable
    from lakeward.sources.storage import Storage

# A load up to this size is read for a proposal.
READ_BYTES = 8 << 20


@dataclass(frozen=True)
class Proposal(Document):
    """Settings for a person to look at; empty where the files do not tell."""

    primary_key: tuple[str, ...] = ()
    timestamp_column: str | None = None


def propose(storage: Storage, known: KnownTable) -> Proposal:
    """Look at a table's files for settings; nothing is proposed where they do not name their columns and types."""
    sample = take_sample(storage, known)
    first = [peek(storage, file, ReadSpec(known.table, (), known.settings)) for file in sample.looked_at]
    tips = [tip for one in first for tip in one.suggestions if tip.setting == "timestamp_column"]
    timestamp = tips[0].column if tips else known.settings.timestamp_column
    settings = known.settings.model_copy(update={"timestamp_column": timestamp, "primary_key": ()})
    spec = ReadSpec(known.table, (), settings)
    columns = next((one.columns for file in sample.looked_at if (one := peek(storage, file, spec)).tells_types), None)
    if not columns or sample.load_bytes > READ_BYTES:
        return Proposal((), timestamp)
    return Proposal(unique_key(storage, sample.loads, ReadSpec(known.table, columns, settings)), timestamp)
