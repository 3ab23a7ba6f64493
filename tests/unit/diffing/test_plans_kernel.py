"""The kernel on files written by the test, without Spark."""

from __future__ import annotations

from contextlib import nullcontext

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as T

from lakeward.diffing.frames.alignment import align
from lakeward.diffing.frames.options import DiffOptions
from lakeward.diffing.plans.kernel import Group, Kernel, KernelColumn, compare_in_tasks, is_native, why_not_native
from lakeward.errors import RefusedInputError

_LEFT = {"K": [None, 1, 2, 3], 'a"b': ["n", "same", None, "gone"], "w": [1, 1, 1, 1]}
_RIGHT = {"K": [None, 1, 2, 4], 'a"b': ["N", "same", None, "new"], "w": [1, 1, 2, 1]}
_SCHEMA = pa.schema(
    [
        ("_lw_has_left", pa.bool_()), ("_lw_has_right", pa.bool_()),
        ("_lw_l0", pa.int64()), ("_lw_l1", pa.string()), ("_lw_l2", pa.int64()), ("_lw_l3", pa.list_(pa.int32())),
        ("_lw_r0", pa.int64()), ("_lw_r1", pa.string()), ("_lw_r2", pa.int64()), ("_lw_r3", pa.list_(pa.int32())),
    ]
)  # fmt: skip
_COLUMNS = (
    KernelColumn("K", "K", is_key=True),
    KernelColumn('a"b', 'a"b'),
    KernelColumn("w", "w", left_cast="BIGINT", is_compared=False),
    KernelColumn(None, None, is_compared=False),
)


class _Folder:
    def __init__(self, folder):
        self.folder = folder

    def local(self, path):
        return nullcontext(str(self.folder / path))


def _written(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in files.items():
        table = pa.table({key: pa.array(values) for key, values in rows.items()})
        pq.write_table(table.set_column(2, "w", table["w"].cast(pa.int32())), folder / name)
    return _Folder(folder)


def _pairs(kernel, groups, files):
    batches = compare_in_tasks(kernel, [groups], files, files)([pa.RecordBatch.from_pydict({"id": [0]})])
    found = [row for batch in batches for row in batch.to_pylist()]
    return {(row["_lw_l0"], row["_lw_l1"], row["_lw_r0"], row["_lw_r1"]) for row in found}


def test_keys_are_paired_null_safely_and_only_differences_are_returned(tmp_path):
    # A folder that looks like a partition, or like a pattern, is read as neither.
    files = _written(tmp_path / "K=7" / "it's [1]*", left=_LEFT, right=_RIGHT)

    found = _pairs(Kernel(_COLUMNS, _SCHEMA, whole=False), [Group(("left",), ("right",))], files)

    assert found == {(None, "n", None, "N"), (3, "gone", None, None), (None, None, 4, "new")}


def test_all_pairs_are_returned_on_request_and_a_side_may_have_no_file(tmp_path):
    files = _written(tmp_path, left=_LEFT, right=_RIGHT)
    kernel = Kernel(_COLUMNS, _SCHEMA, whole=True)

    assert len(_pairs(kernel, [Group(("left",), ("right",))], files)) == 5
    assert _pairs(kernel, [Group((), ("right",)), Group(("left",), ())], files) == {
        *[(None, None, key, text) for key, text in zip(_RIGHT["K"], _RIGHT['a"b'], strict=True)],
        *[(key, text, None, None) for key, text in zip(_LEFT["K"], _LEFT['a"b'], strict=True)],
    }


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    files = _written(tmp_path, left=_LEFT)
    (tmp_path / "right").write_bytes((tmp_path / "left").read_bytes()[:-9])

    with pytest.raises(RefusedInputError, match="left and right cannot be compared natively"):
        _pairs(Kernel(_COLUMNS, _SCHEMA, whole=False), [Group(("left",), ("right",))], files)


def _why(left: str, right: str | None = None) -> str | None:
    structs = [T._parse_datatype_json_string(found) for found in (left, right or left)]
    return why_not_native(align(*structs, ["k"], DiffOptions(), evolve=True, case_sensitive=True))


def _struct(**types: T.DataType) -> str:
    return T.StructType([T.StructField(name, kind) for name, kind in types.items()]).json()


def test_types_that_duckdb_does_not_compare_as_spark_does():
    inner = T.StructType([T.StructField("a", T.IntegerType()), T.StructField("A", T.IntegerType())])

    assert _why(_struct(k=T.LongType(), v=T.MapType(T.StringType(), T.ArrayType(T.DoubleType())))) is None
    assert "k is of type double" in str(_why(_struct(k=T.DoubleType())))
    assert "v is of type interval" in str(_why(_struct(k=T.LongType(), v=T.DayTimeIntervalType())))
    assert "v and V differ in upper and lower case" in str(
        _why(_struct(k=T.LongType(), v=T.ByteType(), V=T.ByteType()))
    )
    assert "has different types on the two sides" in str(_why(_struct(k=T.LongType()), _struct(k=T.IntegerType())))
    assert not is_native(inner) and is_native(T.ArrayType(T.DecimalType(38, 2)))
    assert _why(_struct(k=T.LongType(), v=T.FloatType()), _struct(k=T.LongType(), v=T.DoubleType())) is None
    lists = [_struct(k=T.LongType(), v=T.ArrayType(kind)) for kind in (T.IntegerType(), T.LongType())]
    assert "array<int> on one side" in str(_why(*lists))
