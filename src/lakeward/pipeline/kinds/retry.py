"""A retry: rows that were set aside go back at their own place in the order, or are given up."""

from __future__ import annotations

from lakeward.model import OpKind
from lakeward.pipeline.kinds.batch import Batch


class Retry(Batch):
    """Repaired rows as changes that come late, or no rows where they are dropped. Otherwise a batch."""

    name = OpKind.RETRY
