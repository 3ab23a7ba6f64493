"""Landing files that hold rows of erased keys: found by reading all of them in tasks, and rewritten on request."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakeward import schemas as S
from lakeward.errors import DataError
from lakeward.model import FileClass, LandingFile
from lakeward.pipeline.erase.erased import ErasedKeys, is_erased
from lakeward.pipeline.erase.rewritten import announce
from lakeward.pipeline.erase.rows import forbidden_bad_rows
from lakeward.pipeline.reading import read_records
from lakeward.pipeline.run import finish_interrupted
from lakeward.pipeline.steps import Step
from lakeward.pipeline.workspace import Workspace
from lakeward.sources.base import ReadSpec
from lakeward.sources.dms.limits import Limits
from lakeward.sources.dms.listing import list_files, list_transactions
from lakeward.sources.dms.removal import write_without_rows
from lakeward.sources.storage import content_hash
from lakeward.transforms.columns import column

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame

    from lakeward.pipeline.context import TableContext
    from lakeward.pipeline.erase.erased import Erasure

# Files whose new content is noted, written and taken into the ledger together.
_GROUP = 100
LISTED, REWRITTEN, SHARED, UNREAD = "listed", "rewritten", "shared", "unread"


@dataclass(frozen=True)
class LandingTrace:
    """A landing file that holds erased rows, or may: how many, and what was done about it.

    ``outcome`` is ``listed`` (left as it is), ``rewritten``, ``shared`` (a file of transactions that other tables
    read too: left as it is) or ``unread`` (nothing can be said of it).
    """

    path: str
    rows: int
    outcome: str


def landing_traces(context: TableContext, erasure: Erasure) -> Iterator[LandingTrace]:
    """Read all landing files of the table, a bounded part at a time, and give those that hold erased rows."""
    for files in _groups(context):
        with Workspace() as workspace:
            places, unread = _places(context, workspace, files, erasure)
            yield from (LandingTrace(path, 0, UNREAD) for path in unread)
            shared = {file.path for file in files if file.file_class is FileClass.TRANSACTIONS}
            for path, rows in places.groupBy(S.FILE).count().orderBy(S.FILE).toLocalIterator():
                yield LandingTrace(path, rows, SHARED if path in shared else LISTED)


def rewrite_landing(context: TableContext, erasure: Erasure, traces: Sequence[LandingTrace]) -> list[LandingTrace]:
    """Write the listed files anew without the erased rows, in place, and bring the ledger along.

    Raises:
        DataError: a file changed since it was listed.
    """
    wanted = [one for one in traces if one.outcome == LISTED]
    for start in range(0, len(wanted), _GROUP):
        _rewrite_group(context, erasure, {one.path for one in wanted[start : start + _GROUP]})
    return [replace(one, outcome=REWRITTEN) if one.outcome == LISTED else one for one in traces]


def _rewrite_group(context: TableContext, erasure: Erasure, paths: set[str]) -> None:
    files = [file for file in list_files(context.storage, context.folder, context.settings) if file.path in paths]
    with Workspace() as workspace, tempfile.TemporaryDirectory(prefix="lakeward-") as folder:
        places, _ = _places(context, workspace, files, erasure)
        drafts = {file.path: f"{folder}/{number}" for number, file in enumerate(files)}
        for file in files:
            _write_draft(context, file, places, drafts[file.path])
        announce(context, {path: content_hash(draft) for path, draft in drafts.items()})
        context.reached(Step.ERASE_ANNOUNCED)
        for file in files:
            _require_same(context, file)
            context.permission.require()
            context.storage.replace(file.path, drafts[file.path])
            context.reached(Step.ERASE_REPLACED)
    # Brings the ledger to the new content, as the next run would after a crash.
    finish_interrupted(context)


def _write_draft(context: TableContext, file: LandingFile, places: DataFrame, draft: str) -> None:
    rows = {row[0] for row in places.filter(column(S.FILE) == file.path).select(S.ROW).toLocalIterator()}
    with context.storage.spool(file.path) as (local_path, _):
        write_without_rows(local_path, draft, file.path, rows, context.settings.csv, Limits.of(context.settings))


def _require_same(context: TableContext, file: LandingFile) -> None:
    if context.storage.identity(file.path) != file.identity:
        msg = f"{context.table}: {file.path} changed while the erasure rewrote it; it was left as it is"
        raise DataError(msg, hint=f"lakeward erase {context.table} --resume, once nobody writes it any more")


def _places(
    context: TableContext, workspace: Workspace, files: Sequence[LandingFile], erasure: Erasure
) -> tuple[DataFrame, list[str]]:
    """Give file and physical row of erased rows, kept in Spark, and the files that could not be read."""
    spec = ReadSpec(context.table, context.mirror.columns(), context.settings)
    records, summaries = read_records(context.spark, workspace, context.storage, context.transactions, files, spec)
    keys = ErasedKeys(erasure.salt, dict.fromkeys(erasure.hashes, erasure.at))
    changes = records.filter(column(S.KIND) == S.KIND_CHANGE)
    found = changes.filter(is_erased(changes, spec.key, keys)).select(S.FILE, S.ROW)
    if any(one.bad for one in summaries):
        found = found.unionByName(forbidden_bad_rows(records, spec, keys))
    unread = [one.path for one in summaries if one.problem or one.mismatch or not one.stable]
    return workspace.keep(found.distinct()), unread


def _groups(context: TableContext) -> Iterator[list[LandingFile]]:
    """Give the table's landing files in parts that one batch could hold."""
    group: list[LandingFile] = []
    size = 0
    for file in _files(context):
        full = len(group) >= context.settings.max_files or size + file.identity.size > context.settings.max_bytes
        if group and full:
            yield group
            group, size = [], 0
        group.append(file)
        size += file.identity.size
    if group:
        yield group


def _files(context: TableContext) -> Iterable[LandingFile]:
    yield from list_files(context.storage, context.folder, context.settings)
    if context.config.transactions:
        yield from list_transactions(context.storage, context.config.transactions.strip("/"), context.settings)
