"""Whether a load's rows have the key that is set: no key twice, and how many hold a NULL.

A small load is read here, holding eight bytes per row; a large one by the tasks of Spark.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from lakeward import schemas as S
from lakeward.sources.base import FileSummary
from lakeward.sources.dms.reader import read_file
from lakeward.spark.marks import in_task

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from lakeward.datatypes import Column
    from lakeward.model import LandingFile
    from lakeward.sources.base import ReadSpec
    from lakeward.sources.storage import Storage

    Hashes = np.ndarray[tuple[int], np.dtype[np.uint64]]

_EXAMPLES = 5
# Types that nobody makes a key of, and how many columns are tried, alone and in pairs.
_NO_KEYS = ("float", "double", "boolean")
_LIKELY, _PAIRED = 24, 6
# Keys looked at again by value: with more of them nobody asks whether two hashes met by chance.
_VERIFIED = 1000


@dataclass
class KeyReport:
    """What the load's rows say of the key.

    ``examples`` are keys that come more than once, with how often. ``unread`` parts have other columns than the spec,
    which a run would evolve to.
    """

    rows: int = 0
    bad: int = 0
    nulls: dict[str, int] = field(default_factory=dict)
    repeated: int = 0
    examples: list[tuple[dict[str, Any], int]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)


def check_keys(storage: Storage, parts: Sequence[LandingFile], spec: ReadSpec) -> KeyReport:
    """Read the load here. Parts that changed meanwhile or do not fit give problems and no rows to rely on."""
    report = KeyReport(nulls=dict.fromkeys(spec.key, 0))
    hashes = [_hashes(keys) for keys in _keys(storage, parts, spec, report)]
    found, times = np.unique(np.concatenate([*hashes, np.empty(0, np.uint64)]), return_counts=True)
    suspects = found[times > 1]
    if len(suspects):
        again = _by_value(storage, parts, spec, suspects[:_VERIFIED])
        repeated = [(key, count) for key, count in again.most_common() if count > 1]
        # Of suspects not looked at again each is a key that comes twice.
        report.repeated = len(repeated) + max(0, len(suspects) - _VERIFIED)
        report.examples = [(_named(spec, key), count) for key, count in repeated[:_EXAMPLES]]
    return report


def check_keys_with_spark(
    spark: SparkSession, storage: Storage, parts: Sequence[LandingFile], spec: ReadSpec
) -> KeyReport:
    """Read the load by Spark's tasks, one per part."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    from lakeward.lake.iceberg.session import table_session
    from lakeward.pipeline.workspace import Workspace
    from lakeward.transforms.columns import column, columns

    kept = [S.KIND, S.DETAIL, *spec.key]
    files = list(parts)

    def read(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from (records.select(kept) for records in read_file(storage, files[number], spec))

    whole = S.record_struct(spec.columns)
    struct = StructType([whole[name] for name in kept])
    times = f"{S.PREFIX}times"
    numbers = table_session(spark).range(0, len(files), 1, len(files))
    with Workspace() as workspace:
        records = workspace.keep(numbers.mapInArrow(in_task(read), struct))
        report = KeyReport()
        for row in records.filter(column(S.KIND) == S.KIND_FILE).select(S.DETAIL).collect():
            _note(report, FileSummary.from_json(row[0]))
        rows = records.filter(column(S.KIND) == S.KIND_CHANGE)
        nulls = rows.agg(*[F.count_if(column(name).isNull()).alias(name) for name in spec.key]).collect()[0]
        report.nulls = dict(zip(spec.key, nulls, strict=True))
        repeated = rows.groupBy(*columns(spec.key)).agg(F.count(F.lit(1)).alias(times)).filter(column(times) > 1)
        report.repeated = repeated.count()
        shown = repeated.orderBy(column(times).desc()).limit(_EXAMPLES).collect() if report.repeated else []
        report.examples = [(_named(spec, tuple(row)[:-1]), row[-1]) for row in shown]
    return report


def unique_key(storage: Storage, parts: Sequence[LandingFile], spec: ReadSpec) -> tuple[str, ...]:
    """Return columns whose values come once in the load and are never NULL, the likeliest key first; () where none do.

    One column if any will do, else two of the first few. The load is read here, holding eight bytes per value.
    """
    likely = sorted(
        (one for one in spec.columns if one.lake_type not in _NO_KEYS),
        key=lambda one: (_rank(one, spec.table.name), spec.columns.index(one)),
    )[:_LIKELY]
    batches = [records.filter(pc.equal(records.column(S.KIND), S.KIND_CHANGE)).select([one.name for one in likely])
               for part in parts for records in read_file(storage, part, spec)]  # fmt: skip
    rows = pa.Table.from_batches(batches) if batches else None
    if rows is None or not rows.num_rows:
        return ()
    candidates = [one.name for one in likely if not rows.column(one.name).null_count]
    pairs = combinations(sorted(candidates[:_PAIRED], key=[one.name for one in spec.columns].index), 2)
    for names in (*((name,) for name in candidates), *pairs):
        hashes = np.concatenate([_hashes(batch) for batch in rows.select(list(names)).to_batches()])
        if len(np.unique(hashes)) == rows.num_rows:
            return names
    return ()


def _rank(column: Column, table: str) -> int:
    """Place a column by what keys are usually named; times and bytes come last."""
    name, own = column.name.lower(), table.lower()
    if name in ("id", f"{own}_id", f"{own}id", f"id_{own}"):
        return 0
    if column.lake_type.startswith(("timestamp", "date", "binary")):
        return 3
    return 1 if name.endswith(("id", "key", "code", "no", "nr", "number")) else 2


def describe_keys(examples: Sequence[tuple[dict[str, Any], int]]) -> str:
    """Write example keys for eyes."""
    return "; ".join(f"{json.dumps(key, default=str, ensure_ascii=False)} {count} times" for key, count in examples)


def _keys(
    storage: Storage, parts: Sequence[LandingFile], spec: ReadSpec, report: KeyReport | None = None
) -> Iterator[pa.RecordBatch]:
    """Give the key columns of every good row; what the files say of themselves goes into the report."""
    for part in parts:
        for records in read_file(storage, part, spec):
            kinds = records.column(S.KIND)
            if kinds[0].as_py() == S.KIND_FILE:
                if report is not None:
                    _note(report, FileSummary.from_json(records.column(S.DETAIL)[0].as_py()))
                continue
            keys = records.filter(pc.equal(kinds, S.KIND_CHANGE)).select(list(spec.key))
            if report is not None:
                for name in spec.key:
                    report.nulls[name] += keys.column(name).null_count
            yield keys


def _note(report: KeyReport, summary: FileSummary) -> None:
    report.rows += summary.rows
    report.bad += summary.bad
    if not summary.stable:
        report.problems.append(f"{summary.path} is still being written")
    elif summary.problem:
        report.problems.append(f"{summary.path}: {summary.problem}")
    elif summary.mismatch:
        report.unread.append(summary.path)


def _hashes(keys: pa.RecordBatch) -> Hashes:
    """Hash each key; equal keys have equal hashes, whatever their types."""
    texts = {str(place): _plain(array) for place, array in enumerate(keys.columns)}
    hashed: Hashes = pd.util.hash_pandas_object(pd.DataFrame(texts), index=False).to_numpy()
    return hashed


def _plain(array: pa.Array) -> np.ndarray[Any, Any]:
    as_text = array if pa.types.is_binary(array.type) else array.cast(pa.string())
    return np.asarray(as_text.to_numpy(zero_copy_only=False), dtype=object)


def _by_value(
    storage: Storage, parts: Sequence[LandingFile], spec: ReadSpec, suspects: Hashes
) -> Counter[tuple[Any, ...]]:
    """Count the keys behind suspicious hashes by their values."""
    counts: Counter[tuple[Any, ...]] = Counter()
    for keys in _keys(storage, parts, spec):
        chosen = keys.filter(pa.array(np.isin(_hashes(keys), suspects)))
        counts.update(tuple(row.values()) for row in chosen.to_pylist())
    return counts


def _named(spec: ReadSpec, key: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(spec.key, key, strict=True))
