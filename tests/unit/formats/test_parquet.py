from __future__ import annotations

import gzip
import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from source_helpers import CHANGES_PARQUET, LOAD_PARQUET, Result, land, make_spec, read

from lakeward.columns import Column
from lakeward.config import TableSettings
from lakeward.formats.dms.parquet import parquet_columns
from lakeward.model import OrderBy

if TYPE_CHECKING:
    from pathlib import Path

SEQ = "20240405003052550000000000000000001"
MOMENT = datetime(2024, 1, 2, 3, 4, 5, 678901)


def _read(root: Path, table: pa.Table, ddl: str, name: str = CHANGES_PARQUET, **settings: Any) -> Result:
    return read(root, table, make_spec(ddl, **settings), name)


def _one(values: list[Any], data_type: pa.DataType) -> pa.Table:
    return pa.table({"Op": ["U"] * len(values), "id": pa.array(range(len(values)), pa.int32()),
                     "v": pa.array(values, data_type)})  # fmt: skip


TYPES: list[tuple[pa.DataType, Any, str, Any]] = [
    (pa.bool_(), True, "boolean", True),
    (pa.int8(), -5, "int", -5), (pa.int16(), -5, "int", -5), (pa.int32(), -5, "int", -5),
    (pa.int64(), 2**40, "bigint", 2**40),
    (pa.uint8(), 255, "int", 255), (pa.uint16(), 65535, "int", 65535), (pa.uint32(), 2**32 - 1, "bigint", 2**32 - 1),
    (pa.uint64(), 2**64 - 1, "decimal(20,0)", Decimal(2**64 - 1)),
    (pa.float16(), 1.5, "float", 1.5), (pa.float32(), 1.5, "float", 1.5), (pa.float64(), 1e300, "double", 1e300),
    (pa.string(), "é", "string", "é"), (pa.large_string(), "x", "string", "x"),
    (pa.binary(), b"\xff", "binary", b"\xff"), (pa.large_binary(), b"x", "binary", b"x"),
    (pa.binary(3), b"abc", "binary", b"abc"),
    (pa.decimal128(10, 2), Decimal("1.50"), "decimal(10,2)", Decimal("1.50")),
    (pa.date32(), date(1, 1, 1), "date", date(1, 1, 1)), (pa.date64(), date(1899, 1, 2), "date", date(1899, 1, 2)),
    (pa.timestamp("s"), datetime(2024, 1, 2), "timestamp_ntz", datetime(2024, 1, 2)),
    (pa.timestamp("ms"), datetime(2024, 1, 2, 3), "timestamp_ntz", datetime(2024, 1, 2, 3)),
    (pa.timestamp("us"), MOMENT, "timestamp_ntz", MOMENT), (pa.timestamp("ns"), MOMENT, "timestamp_ntz", MOMENT),
    (pa.timestamp("us", "UTC"), MOMENT, "timestamp", MOMENT.replace(tzinfo=UTC)),
    (pa.timestamp("us", "America/New_York"), MOMENT.replace(tzinfo=UTC), "timestamp", MOMENT.replace(tzinfo=UTC)),
    (pa.time32("ms"), time(1, 2, 3), "string", "01:02:03"),
    (pa.time64("us"), time(1, 2, 3, 5), "string", "01:02:03.000005"),
    (pa.time64("ns"), time(1, 2, 3, 500000), "string", "01:02:03.500000"),
    (pa.dictionary(pa.int32(), pa.string()), "x", "string", "x"),
    (pa.null(), None, "string", None),
]  # fmt: skip


@pytest.mark.parametrize(("file_type", "given", "lake", "value"), TYPES)
def test_types(tmp_path: Path, file_type: pa.DataType, given: Any, lake: str, value: Any) -> None:
    result = _read(tmp_path, _one([given, None], file_type), f"id int, v {lake}")
    assert result.rows == [("U", 0, value), ("U", 1, None)]
    assert result.summary.columns == (("id", "int"), ("v", lake))


def test_int96(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    table = _one([MOMENT], pa.timestamp("us"))
    pq.write_table(table, path, use_deprecated_int96_timestamps=True)
    result = read(tmp_path, path.read_bytes(), make_spec("id int, v timestamp_ntz"), CHANGES_PARQUET)
    assert result.rows == [("U", 0, MOMENT)]


@pytest.mark.parametrize(
    ("file_type", "given", "declared", "value"),
    [
        (pa.int32(), 5, "bigint", 5),
        (pa.uint8(), 5, "bigint", 5),
        (pa.float32(), 1.5, "double", 1.5),
        (pa.decimal128(5, 2), Decimal("1.25"), "decimal(10,2)", Decimal("1.25")),
        (pa.timestamp("ms"), datetime(2024, 1, 2), "timestamp", datetime(2024, 1, 2, tzinfo=UTC)),
        (pa.timestamp("ms", "Asia/Tokyo"), datetime(2024, 1, 2, tzinfo=UTC), "timestamp_ntz", datetime(2024, 1, 2)),
        (pa.null(), None, "decimal(3,1)", None),
        (pa.string(), "1:02:03".zfill(8), "time", "01:02:03"),
        (pa.int16(), 127, "tinyint", 127),
        (pa.uint64(), 2**64 - 1, "ubigint", Decimal(2**64 - 1)),
    ],
)
def test_a_type_that_widens_safely_is_cast(
    tmp_path: Path, file_type: pa.DataType, given: Any, declared: str, value: Any
) -> None:
    result = _read(tmp_path, _one([given], file_type), f"id int, v {declared}")
    assert result.rows == [("U", 0, value)]


@pytest.mark.parametrize(
    ("file_type", "given", "declared"),
    [
        (pa.int64(), 5, "int"),
        (pa.string(), "5", "int"),
        (pa.string(), "5", "timestamp"),
        (pa.int32(), 5, "string"),
        (pa.float64(), 1.0, "float"),
        (pa.decimal128(10, 3), Decimal("1.250"), "decimal(10,2)"),
        (pa.decimal128(12, 2), Decimal("1.25"), "decimal(10,2)"),
        (pa.date32(), date(2024, 1, 1), "timestamp"),
        (pa.int32(), 5, "double"),
    ],
)
def test_a_type_that_does_not_widen_is_a_mismatch(
    tmp_path: Path, file_type: pa.DataType, given: Any, declared: str
) -> None:
    result = _read(tmp_path, _one([given], file_type), f"id int, v {declared}")
    assert (result.summary.mismatch, result.summary.problem, result.batches) == (True, None, [])


@pytest.mark.parametrize(
    ("values", "file_type", "declared", "bad"),
    [
        ([1, 70000, None, -32769], pa.int32(), "smallint", [2, 4]),
        ([255, 256, -1], pa.int32(), "utinyint", [2, 3]),
        ([0, -1], pa.int64(), "uint", [2]),
        ([1000, 1001, 1999], pa.timestamp("ns"), "timestamp_ntz", [2, 3]),
        ([0, 2932896, 2932897, -719163], pa.date32(), "date", [3, 4]),
        ([0, 253402300800, -62135596801], pa.timestamp("s"), "timestamp", [2, 3]),
        ([1000, 1001], pa.time64("ns"), "string", [2]),
        (["01:02:03", "25:00:00"], pa.string(), "time", [2]),
    ],
)
def test_values_that_do_not_fit_are_bad_rows(
    tmp_path: Path, values: list[Any], file_type: pa.DataType, declared: str, bad: list[int]
) -> None:
    result = _read(tmp_path, _one(values, file_type), f"id int, v {declared}")
    assert result.bad_numbers == bad
    assert len(result.records) == len(values) - len(bad)
    assert all(column == "v" and value is not None for _, column, value in result.faults)


@pytest.mark.parametrize(
    "strange",
    [pa.list_(pa.int32()), pa.struct([("a", pa.int32())]), pa.map_(pa.string(), pa.string()), pa.decimal256(40, 0)],
)
def test_types_that_the_lake_lacks_are_a_problem(tmp_path: Path, strange: pa.DataType) -> None:
    table = pa.table({"id": pa.array([1], pa.int32()), "deep": pa.array([None], strange)})
    result = _read(tmp_path, table, "id int", LOAD_PARQUET)
    assert result.summary.problem is not None
    assert "'deep'" in result.summary.problem
    assert result.batches == []


def test_a_new_column_is_a_mismatch_that_names_itself(tmp_path: Path) -> None:
    result = _read(tmp_path, _one(["x"], pa.string()), "id int")
    assert result.summary.mismatch
    assert result.summary.columns == (("id", "int"), ("v", "string"))


def test_missing_columns(tmp_path: Path) -> None:
    table = _one(["x"], pa.string())
    (record,) = _read(tmp_path, table, "id int, v string, w date").records
    assert (record["w"], record["_lw_unchanged"]) == (None, ["w"])
    (record,) = _read(tmp_path, table, "id int, v string, w date", absent_columns="null").records
    assert record["_lw_unchanged"] is None
    ddl = "id int, v string, w date"
    assert _read(tmp_path, table, ddl, schema=ddl).summary.mismatch
    assert not _read(tmp_path, table, ddl, schema=ddl, schema_mode="evolve").summary.mismatch
    problem = _read(tmp_path, table, "key int, id int, v string", primary_key=["key"]).summary.problem
    assert problem == "the file has no column key, which the key needs"


def test_metadata_columns_and_their_types(tmp_path: Path) -> None:
    for sequences in (pa.array([SEQ]), pa.array([Decimal(SEQ)], pa.decimal128(38, 0)), pa.array([int(SEQ) % 2**62]),
                      pa.array([Decimal(SEQ[:30])], pa.decimal128(38, 2))):  # fmt: skip
        for times in (pa.array([str(MOMENT)]), pa.array([MOMENT]), pa.array([MOMENT], pa.timestamp("us", "UTC"))):
            table = pa.table({"Op": ["U"], "ts": times, "id": pa.array([2], pa.int32()), "AR_H_CHANGE_SEQ": sequences,
                              "BI_id": pa.array([1], pa.int32())})  # fmt: skip
            result = _read(tmp_path, table, "id int", timestamp_column="ts")
            assert result.rows == [("D", 1), ("U", 2)]
            assert result.records[0]["_lw_sequence"] == str(sequences[0].as_py()).removesuffix(".00").zfill(38)
            assert result.records[0]["_lw_commit_time"] == MOMENT.replace(tzinfo=UTC)
            assert result.summary.columns == (("id", "int"),)
            by_time = read(tmp_path, table, make_spec("id int", OrderBy.TIMESTAMP, timestamp_column="ts"),
                           CHANGES_PARQUET)  # fmt: skip
            assert by_time.records[0]["_lw_sequence"] == str(MOMENT)


def test_metadata_that_does_not_fit_is_bad(tmp_path: Path) -> None:
    table = pa.table({"Op": ["U", None, "U"], "ts": ["x", None, None], "id": pa.array([1, 2, 3], pa.int32()),
                      "AR_H_CHANGE_SEQ": ["1", "2", None]})  # fmt: skip
    result = _read(tmp_path, table, "id int", timestamp_column="ts")
    assert result.faults == [(1, "ts", "x"), (2, "Op", None), (3, "AR_H_CHANGE_SEQ", None)]


def test_an_order_column_that_is_also_declared_stays(tmp_path: Path) -> None:
    table = pa.table({"Op": ["U"], "ts": pa.array([MOMENT]), "id": pa.array([2], pa.int32())})
    result = _read(tmp_path, table, "id int, ts timestamp_ntz", timestamp_column="ts")
    assert result.rows == [("U", 2, MOMENT)]
    assert result.summary.columns == (("ts", "timestamp_ntz"), ("id", "int"))
    assert result.summary.order_by is OrderBy.TIMESTAMP


def test_loads(tmp_path: Path) -> None:
    plain = pa.table({"id": pa.array([1, 2], pa.int32())})
    assert _read(tmp_path, plain, "id int", LOAD_PARQUET).rows == [("I", 1), ("I", 2)]
    marked = pa.table({"Op": ["I", "D"], "id": pa.array([1, 2], pa.int32())})
    result = _read(tmp_path, marked, "id int", LOAD_PARQUET)
    assert (result.rows, result.faults) == ([("I", 1)], [(2, "Op", "D")])


def test_renames(tmp_path: Path) -> None:
    table = _one(["x"], pa.string())
    result = _read(tmp_path, table, "id int, label string", renames={"v": "label"})
    assert result.rows == [("U", 0, "x")]
    assert result.summary.columns == (("id", "int"), ("label", "string"))


def test_null_means_unchanged(tmp_path: Path) -> None:
    result = _read(tmp_path, _one([None, "x"], pa.string()), "id int, v string", null_means_unchanged=["v"])
    assert [record["_lw_unchanged"] for record in result.records] == [["v"], None]


def test_gzip_around_parquet(tmp_path: Path) -> None:
    land(tmp_path, _one(["x"], pa.string()), "plain.parquet")
    packed = gzip.compress((tmp_path / "sales/product/plain.parquet").read_bytes())
    for name in (CHANGES_PARQUET, CHANGES_PARQUET + ".gz"):
        assert read(tmp_path, packed, make_spec("id int, v string"), name).rows == [("U", 0, "x")]
    result = read(tmp_path, packed[:-20], make_spec("id int, v string"), CHANGES_PARQUET)
    assert result.summary.problem is not None


@pytest.mark.parametrize("content", [b"", b"PAR1", b"not parquet at all", b"PAR1" + bytes(100) + b"PAR1"])
def test_a_file_that_is_not_parquet_is_a_problem(tmp_path: Path, content: bytes) -> None:
    result = read(tmp_path, content, make_spec(), CHANGES_PARQUET)
    assert result.summary.problem is not None
    assert "cannot be read as parquet" in result.summary.problem
    assert result.batches == []


def test_damage_inside_a_parquet_file_is_a_problem(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(_one([f"value {i}" for i in range(1000)], pa.string()), path, compression="gzip")
    content = bytearray(path.read_bytes())
    content[200:1200] = bytes(1000)
    result = read(tmp_path, bytes(content), make_spec("id int, v string"), CHANGES_PARQUET)
    assert result.summary.problem is not None


def test_row_numbers_run_over_row_groups_and_batches(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    count = 140_000
    table = pa.table({"Op": pa.repeat("U", count), "id": pa.array(range(count), pa.int32())})
    pq.write_table(table, path, row_group_size=30_000)
    result = read(tmp_path, path.read_bytes(), make_spec("id int"), CHANGES_PARQUET)
    rows = [row for batch in result.batches for row in batch.column("_lw_row").to_pylist()]
    ids = [value for batch in result.batches for value in batch.column("id").to_pylist()]
    assert rows == [value + 1 for value in ids] == list(range(1, count + 1))


def test_an_empty_parquet_file_has_no_rows(tmp_path: Path) -> None:
    result = _read(tmp_path, _one([], pa.string()), "id int, v string")
    assert (result.summary.rows, result.summary.problem, result.summary.order_by) == (0, None, OrderBy.NONE)


def test_bad_rows_keep_all_their_fields_as_json(tmp_path: Path) -> None:
    table = pa.table({"Op": ["U"], "id": pa.array([70000], pa.int32()), "b": [b"\xff"], "t": pa.array([MOMENT]),
                      "d": pa.array([Decimal("1.50")]), "n": pa.array([None], pa.string()), "f": [0.1]})  # fmt: skip
    ddl = "id smallint, b binary, t timestamp, d decimal(3,2), n string, f double"
    (bad,) = _read(tmp_path, table, ddl).bad
    assert json.loads(bad["_lw_raw"]) == {
        "Op": "U", "id": "70000", "b": "ff", "t": "2024-01-02 03:04:05.678901", "d": "1.50", "n": None, "f": "0.1",
    }  # fmt: skip


def test_reserved_and_repeated_names(tmp_path: Path) -> None:
    table = pa.table({"id": pa.array([1], pa.int32()), "_lw_row": [1]})
    # As any column that the table does not have: the pipeline refuses the name, and names the setting that helps.
    summary = _read(tmp_path, table, "id int", LOAD_PARQUET).summary
    assert summary.mismatch and ("_lw_row", "bigint") in (summary.columns or ())
    table = pa.table([pa.array([1], pa.int32()), pa.array([1], pa.int32())], names=["id", "id"])
    problem = _read(tmp_path, table, "id int", LOAD_PARQUET).summary.problem
    assert problem == "the file names columns more than once: id"


def test_parquet_columns(tmp_path: Path) -> None:
    table = pa.table({"Op": ["U"], "ts": ["x"], "id": pa.array([1], pa.uint64()), "name": ["a"],
                      "AR_H_CHANGE_SEQ": ["1"], "BI_id": pa.array([1], pa.uint64()), "BI_other": ["x"]})  # fmt: skip
    path = str(tmp_path / land(tmp_path, table, CHANGES_PARQUET))
    settings = TableSettings.model_validate({"timestamp_column": "ts", "renames": {"name": "label"}})
    expected = (Column("id", "decimal(20,0)"), Column("label", "string"), Column("BI_other", "string"))
    assert parquet_columns(path, settings) == expected
    declared = TableSettings.model_validate({"timestamp_column": "ts", "schema": "id ubigint, ts string"})
    assert Column("ts", "string") in parquet_columns(path, declared)
