"""Columns that are added, dropped, widened or retyped, columns with odd names, and exact types."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tests.spark.readers import arrow_by_pyiceberg, rows_by_pyiceberg
from tests.spark.scene import TABLE, Scene


def decimals(precision: int, *values: str) -> pa.Array:
    return pa.array([Decimal(value) for value in values], pa.decimal128(precision, 2))


def ints(*values: int) -> pa.Array:
    return pa.array(values, pa.int32())


def test_columns_added_dropped_and_widened_within_and_between_batches(scene: Scene) -> None:
    scene.configure({TABLE: {"primary_key": "id"}})
    load = {"id": ints(1, 2, 3), "name": ["a", "b", "c"], "qty": ints(1, 2, 3), "price": decimals(10, "1.00", "2", "3")}
    scene.land_parquet("LOAD00000001.parquet", load)
    scene.run()
    # One batch: a file of the old kind, one with a new column, one where that is wider and qty too, one without name.
    old = {"Op": ["U"], "id": ints(1), "name": ["a2"], "qty": ints(11), "price": decimals(10, "1.10")}
    scene.land_parquet("20240101-000000000.parquet", old)
    scene.land_parquet("20240102-000000000.parquet", {**old, "id": ints(2), "extra": ints(7)})
    wide = {**old, "id": ints(4), "qty": pa.array([2**40]), "extra": pa.array([2**41])}
    scene.land_parquet("20240103-000000000.parquet", wide)
    without_name = {"Op": ["U"], "id": ints(3), "qty": ints(33), "price": decimals(10, "3.30")}
    scene.land_parquet("20240104-000000000.parquet", without_name)
    [op] = scene.run().ops
    assert set(op.schema_changes) == {"widen qty from int to bigint", "add extra bigint"}
    one = Decimal("1.10")
    assert scene.rows() == [
        (1, "a2", 11, one, None), (2, "a2", 11, one, 7), (3, "c", 33, Decimal("3.30"), None),
        (4, "a2", 2**40, one, 2**41),
    ]  # fmt: skip
    # The next batch widens a decimal and drops two columns, which keep their values.
    scene.land_parquet(
        "20240105-000000000.parquet",
        {"Op": ["U", "D"], "id": ints(2, 1), "price": decimals(14, "123456789012.34", "0")},
    )
    [op] = scene.run().ops
    assert op.schema_changes == ("widen price from decimal(10,2) to decimal(14,2)",)
    # A late file of the oldest kind reaches back to a load and changes of other schemas.
    scene.land_parquet("20231231-000000000.parquet", {**old, "id": ints(3), "name": ["late"]})
    assert scene.run().ops[0].late
    expected = [
        (2, "a2", 11, Decimal("123456789012.34"), 7), (3, "late", 33, Decimal("3.30"), None),
        (4, "a2", 2**40, one, 2**41),
    ]  # fmt: skip
    assert scene.rows() == expected
    # Retyped: the batch stops with the exact difference, and so does its good file.
    scene.land_parquet("20240106-000000000.parquet", {"Op": ["U"], "id": ints(2), "name": ["not applied"]})
    scene.land_parquet("20240107-000000000.parquet", {"Op": ["U"], "id": ints(2), "qty": ["many"]})
    message = scene.refused().message or ""
    assert "20240107-000000000.parquet: column qty is string, the table has bigint" in message
    assert scene.rows() == expected


def test_two_files_of_one_batch_that_disagree_on_a_new_columns_type_stop_it(scene: Scene) -> None:
    scene.configure({TABLE: {"primary_key": "id"}})
    scene.land_parquet("20240101-000000000.parquet", {"Op": ["I"], "id": ints(1), "extra": ints(7)})
    scene.land_parquet("20240102-000000000.parquet", {"Op": ["I"], "id": ints(2), "extra": ["seven"]})
    assert "20240102-000000000.parquet: column extra is string, the table has int" in (scene.refused().message or "")
    assert not scene.lakeward.spark.catalog.tableExists(TABLE)


def test_strict_schema_stops_at_any_difference_and_names_it(scene: Scene) -> None:
    scene.configure({TABLE: {"primary_key": "id", "schema": "id int, name string, qty bigint"}})
    good = {"id": ints(1), "name": ["a"], "qty": ints(1)}
    scene.land_parquet("LOAD00000001.parquet", good)
    scene.run()
    for change, difference in (
        ({"extra": ["x"]}, "column extra is not declared"),
        ({"name": None}, "declared column name is missing"),
        ({"qty": ["1"]}, "column qty is string, declared is bigint"),
    ):
        columns = {name: values for name, values in {"Op": ["U"], **good, **change}.items() if values is not None}
        path = scene.land_parquet("20240101-000000000.parquet", columns)
        assert f"sales/product/20240101-000000000.parquet: {difference}" in (scene.refused().message or "")
        path.unlink()
    assert scene.rows() == [(1, "a", 1)]


def test_declared_rename_keeps_values_and_an_undeclared_one_is_a_drop_and_an_add(scene: Scene) -> None:
    scene.configure({TABLE: {"primary_key": "id"}})
    load = {"id": ints(1, 2, 3), "nme": ["a", "b", "c"], "city": ["Rome", "Oslo", "Paris"]}
    scene.land_parquet("LOAD00000001.parquet", load)
    # A change that does not speak of the column, logged under the old name.
    scene.land_parquet("20240105-000000000.parquet", {"Op": ["U"], "id": ints(2), "city": ["Bergen"]})
    scene.run()
    scene.configure({TABLE: {"primary_key": "key", "renames": {"nme": "name", "id": "key"}}})
    changes = {"Op": ["U", "U"], "key": ints(1, 2), "name": ["a2", "b2"], "town": ["Bari", None]}
    scene.land_parquet("20240102-000000000.parquet", changes)
    assert set(scene.run().ops[0].schema_changes) == {"rename id to key", "rename nme to name", "add town string"}
    assert scene.rows() == [(1, "a2", "Rome", "Bari"), (2, "b2", "Bergen", None), (3, "c", "Paris", None)]
    # A late file still has the old names.
    scene.land_parquet("20240101-000000000.parquet", {"Op": ["U", "U"], "id": ints(1, 3), "nme": ["late", "c2"]})
    scene.run()
    assert scene.rows() == [(1, "a2", "Rome", "Bari"), (2, "b2", "Bergen", None), (3, "c2", "Paris", None)]


def test_column_names_stay_as_odd_as_the_source_has_them(scene: Scene) -> None:
    names = [
        "Full Name", "a.b", 'say "x"', "it's", "back`tick", "select", "größe 名", "v", "a,b;{c}", "x=y", "\t",
    ]  # fmt: skip
    keys = ["Key.No", "the `key`"]
    settings: dict[str, Any] = {"primary_key": keys, "partition_by": ["a.b", "bucket(2, Key.No)"], "rewrite_share": 9}
    scene.configure({TABLE: settings})

    def columns(numbers: list[int], text: str, leave: tuple[str, ...] = ()) -> dict[str, Any]:
        values = {name: [f"{text} {name} {n}" for n in numbers] for name in names if name not in leave}
        return {keys[0]: ints(*numbers), keys[1]: [f"k{n}" for n in numbers], **values}

    def row(number: int, *texts: str, added: str | None = None) -> tuple[Any, ...]:
        values = (f"{text} {name} {number}" for text, name in zip(texts, names, strict=True))
        return (number, f"k{number}", *values, added)

    same = len(names) - 1
    scene.land_parquet("LOAD00000001.parquet", columns([1, 2, 3], "load"))
    scene.run()
    # The last name is not spoken of: the fold works column by column.
    scene.land_parquet("20240102-000000000.parquet", {"Op": ["U", "D"], **columns([1, 2], "new", leave=("\t",))})
    old_key = {"BI_Key.No": ints(3), "BI_the `key`": ["k3"]}
    added = {"_odd": ["added"]}
    scene.land_parquet("20240103-000000000.parquet", {"Op": ["U"], **columns([4], "new"), **added, **old_key})
    scene.run()
    # And late, from the changelog.
    scene.land_parquet("20240101-000000000.parquet", {"Op": ["U", "I"], **columns([1, 5], "late")})
    scene.run()
    expected = [
        row(1, *["new"] * same, "late"),
        row(4, *["new"] * len(names), added="added"),
        row(5, *["late"] * len(names)),
    ]
    table = arrow_by_pyiceberg(scene)
    assert table.column_names == [*keys, *names, "_odd"]
    assert rows_by_pyiceberg(scene) == expected == scene.rows()


def test_every_type_that_dms_writes_keeps_its_values_exactly(scene: Scene) -> None:
    early, micros = datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)
    values: dict[str, tuple[pa.DataType, list[Any], list[Any] | None]] = {
        "i1": (pa.int8(), [-128, 127], None),
        "i2": (pa.int16(), [-(2**15), 2**15 - 1], None),
        "i4": (pa.int32(), [-(2**31), 2**31 - 1], None),
        "i8": (pa.int64(), [-(2**63), 2**63 - 1], None),
        "u1": (pa.uint8(), [0, 255], None),
        "u2": (pa.uint16(), [0, 2**16 - 1], None),
        "u4": (pa.uint32(), [0, 2**32 - 1], None),
        "u8": (pa.uint64(), [0, 2**64 - 1], [Decimal(0), Decimal(2**64 - 1)]),
        "numeric": (pa.decimal128(28, 6), [Decimal("-0.000001"), Decimal("1234567890123456789012.123456")], None),
        "money": (pa.decimal128(38, 4), [Decimal("-1.0000"), Decimal("9" * 34 + ".9999")], None),
        "real4": (pa.float32(), [-0.0, 3.4028234663852886e38], None),
        "real8": (pa.float64(), [5e-324, 1.7976931348623157e308], None),
        "flag": (pa.bool_(), [True, False], None),
        "text": (pa.string(), ["", "NULL \0 \n 𝄞 é"], None),
        "bytes": (pa.binary(), [b"", b"\x00\xff\n"], None),
        "day": (pa.date32(), [date(1, 1, 1), date(1582, 10, 10)], None),
        "clock": (pa.time32("ms"), [time(0), time(23, 59, 59, 999000)], ["00:00:00", "23:59:59.999000"]),
        "clock6": (pa.time64("us"), [time(0, 0, 1), time(23, 59, 59, 999999)], ["00:00:01", "23:59:59.999999"]),
        "local": (pa.timestamp("us"), [early, micros], None),
        "millis": (pa.timestamp("ms"), [datetime(1883, 11, 18, 12), datetime(1969, 12, 31, 23, 59, 59, 999000)], None),
        "moment": (pa.timestamp("us", "UTC"), [early.replace(tzinfo=UTC), micros.replace(tzinfo=UTC)], None),
    }

    def columns(keys: list[int], at: list[int | None]) -> dict[str, Any]:
        filled = {
            name: pa.array([None if row is None else given[row] for row in at], kind)
            for name, (kind, given, _) in values.items()
        }
        return {"id": ints(*keys), **filled}

    scene.configure({TABLE: {"primary_key": "id"}})
    scene.land_parquet("LOAD00000001.parquet", columns([1, 2, 3, 5], [0, 1, 0, 1]))
    scene.run()
    scene.land_parquet("20240102-000000000.parquet", {"Op": ["U", "I"], **columns([3, 4], [None, 1])})
    scene.run()
    # Late: through the changelog and the fold as well.
    scene.land_parquet("20240101-000000000.parquet", {"Op": ["U", "U"], **columns([2, 3], [0, 1])})
    scene.run()
    table = arrow_by_pyiceberg(scene).sort_by("id")
    for name, (_, given, stored) in values.items():
        kept = stored or given
        assert table.column(name).to_pylist() == [kept[0], kept[0], None, kept[1], kept[1]], name
    assert math.copysign(1, table.column("real4")[1].as_py()) == -1
