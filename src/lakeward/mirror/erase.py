"""Erasing keys: the op that is logged and carried out, and the landing files that hold the keys' rows.

Landing files are found by reading all of them in Spark tasks, and rewritten on request.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakeward import schemas as S
from lakeward.documents import Document
from lakeward.errors import ConfigurationError, DataError
from lakeward.formats.base import ReadSpec
from lakeward.formats.dms.files import Limits
from lakeward.formats.dms.listing import list_files, list_transactions
from lakeward.formats.dms.removal import write_without_rows
from lakeward.mirror.kinds import handler_of
from lakeward.mirror.kinds.erase import record_new_contents
from lakeward.mirror.op.adopted import lake_beside, list_lake
from lakeward.mirror.op.changelog import OpRecord
from lakeward.mirror.op.effect import OpInput, PreparedOp, capture
from lakeward.mirror.op.erased import ErasedKeys, Erasure, forbidden_bad_rows, is_erased, key_fields, key_hash
from lakeward.mirror.op.ledger import op_record, progress_of
from lakeward.mirror.op.reading import read_records
from lakeward.mirror.op.steps import Step
from lakeward.mirror.run import carry_out, finish_interrupted
from lakeward.model import FileClass, LandingFile, OpKind
from lakeward.spark.workspace import Workspace
from lakeward.storage.landing import content_hash
from lakeward.transforms.columns import column
from lakeward.transforms.fold import is_partial

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from lakeward.mirror.op.context import TableContext
    from lakeward.mirror.op.effect import Bases

# Keys erased by one call: their hashes are stored in one control row and one table property.
MAX_KEYS = 10_000
_OLD, _NEW = f"{S.PREFIX}old", f"{S.PREFIX}new"
# Files whose new content is recorded, written and entered in the ledger together.
_GROUP = 100
LISTED, REWRITTEN, SHARED, UNREAD, FOREIGN = "listed", "rewritten", "shared", "unread", "foreign"


def hashes_of(keys: Sequence[DataFrame], salt: str) -> tuple[str, ...]:
    """Return the salted hashes of keys, each a frame of the key columns in the mirror's types."""
    rows = reduce(DataFrame.unionByName, keys)
    found = rows.select(key_hash(salt, key_fields(rows, rows.columns)).alias("hash")).distinct()
    return tuple(sorted(row[0] for row in found.limit(MAX_KEYS).collect()))


def next_record(context: TableContext, bases: Bases, erasure: Erasure) -> OpRecord:
    """Return the record of the op that would erase keys now.

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
    """Log the erasure and remove the keys' rows from changelog and mirror; return the op's record.

    The caller holds the table's lease and has finished interrupted ops.
    """
    bases = capture(context)
    record = next_record(context, bases, replace(erasure, at=time.time_ns() // 1000))
    with Workspace() as workspace:
        op_input = OpInput(record, bases, bases.columns, None, 0)
        effect = handler_of(record.kind).compute_effect(context, workspace, op_input)
    carry_out(context, PreparedOp(record, bases, bases.columns, (), (), (), None, 0, effect))
    return record


def record_of(context: TableContext, op: int) -> OpRecord:
    """Read the record of an erase op from the changelog."""
    return op_record(context.changelog.read(context.changelog.require_head().id), op)


def with_moved_keys(context: TableContext, salt: str, hashes: Collection[str], moves: str | None) -> tuple[str, ...]:
    """Return the hashes with, if ``moves`` is ``erase``, those of keys that rows of these keys moved to or from.

    Raises:
        ConfigurationError: there are such keys and ``moves`` is not set, or keeping them would leave them with values
            of the erased keys.
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
                raise ConfigurationError(msg, hint="--moves keep erases only the given keys")
    return tuple(sorted(known))


def _links(context: TableContext, salt: str) -> DataFrame:
    """Return the hashes of old and new key of every logged key change, and whether the new row inherits values."""
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
            "it is not known whether these belong to the same subject"
        )
        raise ConfigurationError(msg, hint="--moves erase to erase them too, --moves keep to leave them")
    from_known = links.filter(column("partial") & column(_OLD).isin(*known))
    if from_known.take(1):
        msg = f"{context.table}: another key's row holds values that it took over from the given keys by a key change"
        raise ConfigurationError(msg, hint="--moves erase")


@dataclass(frozen=True)
class LandingTrace(Document):
    """A landing file that holds, or may hold, erased rows: how many, and what was done about it.

    ``outcome`` is ``listed`` (unchanged), ``rewritten``, ``shared`` (a transaction file that other tables read too:
    unchanged), ``foreign`` (another system wrote it: unchanged) or ``unread`` (it could not be read).
    """

    path: str
    rows: int
    outcome: str


def landing_traces(context: TableContext, erasure: Erasure) -> Iterator[LandingTrace]:
    """Yield the landing files that hold erased rows, reading all files of the table, a bounded part at a time."""
    for files in _groups(context):
        with Workspace() as workspace:
            places, unread = _places(context, workspace, files, erasure)
            yield from (LandingTrace(path, 0, UNREAD) for path in unread)
            shared = {file.path for file in files if file.file_class is FileClass.TRANSACTIONS}
            for path, rows in places.groupBy(S.FILE).count().orderBy(S.FILE).toLocalIterator():
                is_foreign = context.storage.below_lake(path) is not None
                yield LandingTrace(path, rows, SHARED if path in shared else FOREIGN if is_foreign else LISTED)


def rewrite_landing(context: TableContext, erasure: Erasure, traces: Sequence[LandingTrace]) -> list[LandingTrace]:
    """Rewrite the listed files in place without the erased rows, update the ledger and return the new outcomes.

    Raises:
        DataError: a file changed since it was listed.
    """
    wanted = [trace for trace in traces if trace.outcome == LISTED]
    for start in range(0, len(wanted), _GROUP):
        _rewrite_group(context, erasure, {trace.path for trace in wanted[start : start + _GROUP]})
    return [replace(trace, outcome=REWRITTEN) if trace.outcome == LISTED else trace for trace in traces]


def _rewrite_group(context: TableContext, erasure: Erasure, paths: set[str]) -> None:
    files = [file for file in list_files(context.storage, context.folder, context.settings) if file.path in paths]
    with Workspace() as workspace, tempfile.TemporaryDirectory(prefix="lakeward-") as folder:
        places, _ = _places(context, workspace, files, erasure)
        drafts = {file.path: f"{folder}/{number}" for number, file in enumerate(files)}
        for file in files:
            _write_draft(context, file, places, drafts[file.path])
        record_new_contents(context, {path: content_hash(draft) for path, draft in drafts.items()})
        context.reached(Step.ERASE_ANNOUNCED)
        for file in files:
            _require_same(context, file)
            context.permission.require()
            context.storage.replace(file.path, drafts[file.path])
            context.reached(Step.ERASE_REPLACED)
    # Records the new content in the ledger, as the next run would after a crash.
    finish_interrupted(context)


def _write_draft(context: TableContext, file: LandingFile, places: DataFrame, draft: str) -> None:
    rows = {row[0] for row in places.filter(column(S.FILE) == file.path).select(S.ROW).toLocalIterator()}
    with context.storage.spool(file.path) as (local_path, _):
        write_without_rows(local_path, draft, file.path, rows, context.settings.csv, Limits.of(context.settings))


def _require_same(context: TableContext, file: LandingFile) -> None:
    if context.storage.identity(file.path) != file.identity:
        msg = f"{context.table}: {file.path} changed while the erasure rewrote it; it was left as it is"
        raise DataError(msg, hint=f"lakeward erase {context.table} --resume, once it is no longer being written")


def _places(
    context: TableContext, workspace: Workspace, files: Sequence[LandingFile], erasure: Erasure
) -> tuple[DataFrame, list[str]]:
    """Return file and physical row of erased rows, kept in Spark, and the files that could not be read."""
    spec = ReadSpec(context.table, context.mirror.columns(), context.settings)
    records, summaries = read_records(context.spark, workspace, context.storage, context.transactions, files, spec)
    keys = ErasedKeys(erasure.salt, dict.fromkeys(erasure.hashes, erasure.at))
    changes = records.filter(column(S.KIND) == S.KIND_CHANGE)
    found = changes.filter(is_erased(changes, spec.key, keys)).select(S.FILE, S.ROW)
    if any(summary.bad for summary in summaries):
        found = found.unionByName(forbidden_bad_rows(records, spec, keys))
    unread = [summary.path for summary in summaries if summary.problem or summary.mismatch or not summary.stable]
    return workspace.keep(found.distinct()), unread


def _groups(context: TableContext) -> Iterator[list[LandingFile]]:
    """Yield the table's landing files in groups of the size of a batch."""
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
    if context.settings.adopt is not None and lake_beside(context.storage).lake.exists(""):
        lake = list_lake(lake_beside(context.storage).lake, context.settings.adopt)
        yield from (*lake.files, *lake.left_out)
    if context.config.transactions:
        yield from list_transactions(context.storage, context.config.transactions.strip("/"), context.settings)
