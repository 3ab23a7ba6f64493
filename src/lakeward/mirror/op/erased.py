"""Keys whose rows were erased, known by salted hashes alone, and the filters that keep the rows from coming back.

The changelog's control rows of erase ops are the truth. A property of the changelog repeats them, so that looking up
erased keys never costs a Spark job.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakeward import schemas as S
from lakeward.column_policy import parse_rule
from lakeward.documents import Record, to_compact_json
from lakeward.formats.base import ReadSpec
from lakeward.formats.dms.quarantined import HAS_KEY, keys_of_raw
from lakeward.iceberg.define import LOGGED_STAMP
from lakeward.model import Operation
from lakeward.spark.marks import in_task
from lakeward.text import json_object, reading_property
from lakeward.transforms.columns import column
from lakeward.transforms.fold import is_from_load

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    from lakeward.column_policy import ColumnRule
    from lakeward.formats.base import FileSummary
    from lakeward.iceberg.cleanup import Stored
    from lakeward.iceberg.metadata import TableMetadata
    from lakeward.iceberg.table import IcebergTable
    from lakeward.mirror.op.context import TableContext
    from lakeward.spark.workspace import Workspace

SALT_PROPERTY = "lakeward.erasure-salt"
ERASED_PROPERTY = "lakeward.erased"
# The erasure that is not finished yet; see UnfinishedErasure.
UNFINISHED_PROPERTY = "lakeward.erasure-unfinished"
# The reason of ops that record the new content of landing files which an erasure rewrote.
REWRITTEN_REASON = "an erasure rewrote landing files"
_SALT_BYTES = 16
_RAW_FIELDS = (S.FILE, S.FILE_TIME, S.ROW, S.RAW)


@dataclass(frozen=True)
class Erasure(Record, if_set=("columns",)):
    """The erasure in an erase op's control row: salted hashes of the keys, the reason, and the time in µs since 1970.

    ``landing``: landing files are to be rewritten too. ``columns`` are the rules by which values of columns are
    replaced, in place of rows of keys.
    """

    salt: str
    hashes: tuple[str, ...]
    reason: str
    at: int
    landing: bool = False
    columns: dict[str, str] | None = None

    @property
    def rules(self) -> dict[str, ColumnRule]:
        """The rules by which values are replaced; none where rows of keys are removed."""
        return {name: parse_rule(text) for name, text in (self.columns or {}).items()}


@dataclass(frozen=True)
class ErasedKeys:
    """All erased keys of a table: the hash of each and the time of its latest erasure in µs since 1970."""

    salt: str
    times: dict[str, int]


@dataclass(frozen=True)
class UnfinishedErasure(Record, required=("removed",), if_set=("begun",)):
    """An erase op of which some steps are still to be done.

    ``landing``: landing files are to be rewritten. ``rewritten`` maps those that are being replaced, and are not in the
    ledger yet, to the hash of their new content. ``removed`` holds by place the number of visible rows, of rows hidden
    by deletes, and of files that were replaced; it is written before each step, so that the receipt is complete
    even after a crash. ``expired`` counts the removed snapshots of changelog and mirror, None while snapshots that
    may hold the rows still exist. ``begun`` is an erasure of values, which is announced before it is logged.
    """

    op: int
    landing: bool = False
    rewritten: Mapping[str, str] = field(default_factory=dict)
    removed: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)
    expired: int | None = None
    begun: Erasure | None = None

    @property
    def needs_lake(self) -> bool:
        """Whether work in changelog, mirror or ledger must precede the next op on the table."""
        return self.expired is None or bool(self.rewritten)

    def to_json(self) -> str:
        """Write as JSON for the property."""
        return to_compact_json(self)


def new_salt() -> str:
    """Return a new salt; the first erasure of a table stores it."""
    return secrets.token_hex(_SALT_BYTES)


def erased_keys(changelog: TableMetadata | None) -> ErasedKeys | None:
    """Return the keys that were erased, None where there are none. Reads metadata alone."""
    text = changelog.property(ERASED_PROPERTY) if changelog else None
    if changelog is None or text is None:
        return None
    with reading_property(ERASED_PROPERTY, of="changelog"):
        times = {str(hashed): int(at) for hashed, at in json_object(text).items()}
    return ErasedKeys(changelog.property(SALT_PROPERTY) or "", times)


def record_erasure(changelog: IcebergTable, erasure: Erasure, unfinished: UnfinishedErasure) -> None:
    """Store an erasure that was logged: from now on files are read without its keys."""
    known = erased_keys(changelog.metadata())
    times = {**(known.times if known else {}), **dict.fromkeys(erasure.hashes, erasure.at)}
    changelog.set_properties(
        {
            SALT_PROPERTY: erasure.salt,
            ERASED_PROPERTY: json.dumps(times, sort_keys=True, separators=(",", ":")),
            UNFINISHED_PROPERTY: unfinished.to_json(),
        }
    )


def unfinished_erasure(changelog: TableMetadata | None) -> UnfinishedErasure | None:
    """Return the unfinished erasure, None where there is none."""
    text = changelog.property(UNFINISHED_PROPERTY) if changelog else None
    if text is None:
        return None
    with reading_property(UNFINISHED_PROPERTY, of="changelog"):
        return UnfinishedErasure.from_dict(json_object(text))


def unlogged_erasure(changelog: TableMetadata | None) -> Erasure | None:
    """Return the erasure of values that a crash left announced and not logged, None where there is none."""
    unfinished, head = unfinished_erasure(changelog), changelog.head() if changelog else None
    if changelog is None or head is None or unfinished is None or unfinished.begun is None:
        return None
    logged = int(changelog.stamp_at(LOGGED_STAMP, head.id) or 0)
    return unfinished.begun if unfinished.op > logged else None


def record_removal(changelog: IcebergTable, place: str, found: Stored) -> None:
    """Store what is about to be removed from a place; nothing found means that it was removed before."""
    unfinished = unfinished_erasure(changelog.metadata())
    if unfinished is None or not found.files:
        return
    removed = {**unfinished.removed, place: (found.rows, found.hidden, len(found.files))}
    changelog.set_properties({UNFINISHED_PROPERTY: replace(unfinished, removed=removed).to_json()})


def key_hash(salt: str, key: Sequence[tuple[str, T.DataType]]) -> Column:
    """Return the salted hash of a row's key; it stays the same when a key column is widened."""
    text = F.concat_ws(",", *[_canonical(name, data_type) for name, data_type in key])
    return F.sha2(F.concat(F.lit(salt), text), 256)


def key_fields(frame: DataFrame, key: Iterable[str]) -> list[tuple[str, T.DataType]]:
    """Return a frame's key columns with their types."""
    return [(name, frame.schema[name].dataType) for name in key]


def is_erased_key(frame: DataFrame, key: Sequence[str], salt: str, hashes: Iterable[str]) -> Column:
    """Return the condition for rows whose key has one of the hashes."""
    return key_hash(salt, key_fields(frame, key)).isin(*hashes)


def is_erased(frame: DataFrame, key: Sequence[str], keys: ErasedKeys) -> Column:
    """Return the condition for rows of files that an erasure excludes: every reader of landing files leaves them out.

    A change that was committed after the erasure is a new row and stays. The commit times of a load's rows, and of
    changes without one, are unknown: these are always left out.
    """
    own = key_hash(keys.salt, key_fields(frame, key))
    times = F.from_json(F.lit(json.dumps(keys.times)), "map<string,bigint>")
    no_later = column(S.COMMIT_TIME).isNull() | (F.unix_micros(column(S.COMMIT_TIME)) <= times[own])
    return F.when(own.isin(*keys.times), is_from_load() | no_later).otherwise(F.lit(False))


def _canonical(name: str, data_type: T.DataType) -> Column:
    """Return a key column as length-prefixed text, so that columns cannot be confused; ``-`` for null."""
    value = column(name)
    if isinstance(data_type, T.TimestampType):
        text = F.unix_micros(value).cast("string")
    elif isinstance(data_type, T.BinaryType):
        text = F.hex(value)
    elif isinstance(data_type, T.FloatType):
        text = value.cast("double").cast("string")
    else:
        text = value.cast("string")
    return F.coalesce(F.concat(F.length(text).cast("string"), F.lit(":"), text), F.lit("-"))


def without_erased(
    workspace: Workspace,
    records: DataFrame,
    summaries: Sequence[FileSummary],
    spec: ReadSpec,
    erased: ErasedKeys | None,
) -> tuple[DataFrame, list[FileSummary]]:
    """Return records just read, and the files' summaries, without rows of erased keys.

    Everything that reads landing files calls this. Without erasures nothing changes.
    """
    if erased is None or not spec.key:
        return records, list(summaries)
    forbidden = (column(S.KIND) == S.KIND_CHANGE) & is_erased(records, spec.key, erased)
    gone = _counted(workspace, records, forbidden)
    kept = records.filter(~forbidden)
    bad: dict[str, int] = {}
    if any(summary.bad for summary in summaries):
        named = workspace.keep(forbidden_bad_rows(records, spec, erased))
        bad = {row[0]: row[1] for row in named.groupBy(S.FILE).count().toLocalIterator()}
        if bad:
            kept = _joined(kept, named, S.KIND_BAD, "left_anti")
    return kept, [_without(summary, gone.get(summary.path), bad.get(summary.path, 0)) for summary in summaries]


def bad_rows_of_keys(context: TableContext, bad: DataFrame, salt: str, hashes: Iterable[str]) -> DataFrame:
    """Return file and row of those logged bad rows whose text holds one of the keys."""
    keys = keys_of_bad_rows(context, bad)
    own = is_erased_key(keys, context.settings.primary_key, salt, hashes)
    return keys.filter(column(HAS_KEY) & own).select(S.FILE, S.ROW).distinct()


def keys_of_bad_rows(context: TableContext, bad: DataFrame) -> DataFrame:
    """Return the keys that logged bad rows' texts hold: two where a key changed, none where the text has no key."""
    return _keys(bad, ReadSpec(context.table, context.mirror.columns(), context.settings))


def forbidden_bad_rows(records: DataFrame, spec: ReadSpec, erased: ErasedKeys) -> DataFrame:
    """Return file and row of those bad rows just read that an erasure excludes."""
    keys = _keys(records.filter(column(S.KIND) == S.KIND_BAD), spec)
    return keys.filter(column(HAS_KEY) & is_erased(keys, spec.key, erased)).select(S.FILE, S.ROW).distinct()


def _keys(bad: DataFrame, spec: ReadSpec) -> DataFrame:
    own = [field for field in spec.columns if field.name in spec.key]
    fields = [
        T.StructField(S.FILE, T.StringType()),
        T.StructField(S.FILE_TIME, T.StringType()),
        T.StructField(S.ROW, T.LongType()),
        T.StructField(S.COMMIT_TIME, T.TimestampType()),
        T.StructField(HAS_KEY, T.BooleanType()),
        *S.table_struct(own).fields,
    ]

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return (keys_of_raw(batch, spec) for batch in batches)

    return bad.select(*_RAW_FIELDS).mapInArrow(in_task(read), T.StructType(fields))


def _counted(workspace: Workspace, records: DataFrame, forbidden: Column) -> dict[str, dict[str, int]]:
    """Return, by file, the counts of rows left out, by operation, and of key changes left out in part.

    A key change is one row and two records; where one of them stays, the row stays.
    """
    rows = workspace.keep(records.filter(forbidden).select(S.FILE, S.ROW).distinct())
    if not rows.take(1):
        return {}
    needed = records.select(S.KIND, S.FILE, S.ROW, S.STEP, S.OPERATION, forbidden.alias("gone"))
    by_row = (
        _joined(needed, rows, S.KIND_CHANGE, "left_semi")
        .groupBy(S.FILE, S.ROW)
        .agg(
            F.count(F.lit(1)).alias("all"),
            _sum(column("gone")).alias("left_out"),
            F.max_by(column(S.OPERATION), column(S.STEP)).alias("does"),
        )
    )
    is_whole = column("all") == column("left_out")
    by_file = by_row.groupBy(S.FILE).agg(
        _sum(column("all") > 1).alias("moves"),
        _sum(is_whole).alias("rows"),
        *[_sum(is_whole & (column("does") == operation.value)).alias(operation.value) for operation in Operation],
    )
    return {row[S.FILE]: row.asDict() for row in by_file.toLocalIterator()}


def _without(summary: FileSummary, gone: dict[str, int] | None, bad: int) -> FileSummary:
    found = gone or {}
    rows = found.get("rows", 0) + bad
    if not rows and not found:
        return summary
    return replace(
        summary,
        rows=summary.rows - rows,
        inserts=summary.inserts - found.get(Operation.INSERT.value, 0),
        updates=summary.updates - found.get(Operation.UPDATE.value, 0),
        deletes=summary.deletes - found.get(Operation.DELETE.value, 0),
        moves=summary.moves - found.get("moves", 0),
        bad=summary.bad - bad,
        erased=rows,
    )


def _sum(condition: Column) -> Column:
    return F.sum(condition.cast("long"))


def _joined(records: DataFrame, rows: DataFrame, kind: str, how: str) -> DataFrame:
    """Join records of a kind with the rows they belong to, semi or anti, without reordering columns."""
    file, row = f"{S.PREFIX}of_file", f"{S.PREFIX}of_row"
    named = rows.select(column(S.FILE).alias(file), column(S.ROW).alias(row))
    is_named = (column(S.KIND) == kind) & (column(S.FILE) == column(file)) & (column(S.ROW) == column(row))
    return records.join(F.broadcast(named), is_named, how)
