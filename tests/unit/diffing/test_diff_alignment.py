"""Two schemas aligned to one, without a JVM: types that fit, what is reported, what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from lakeward.diffing.frames.alignment import align, common_type, is_same
from lakeward.diffing.frames.comparators import Bitwise, Epsilon, Equality, MapEntries, Whitespace
from lakeward.diffing.frames.options import (
    DiffMode,
    DiffOptions,
    DuplicateKeys,
    column_names,
    value_columns,
    with_free_names,
)
from lakeward.errors import ConfigurationError, RefusedInputError
from lakeward.transforms.compare import uncomparable_part

INT, LONG, TEXT, DOUBLE = IntegerType(), LongType(), StringType(), DoubleType()


def schema(**types: DataType) -> StructType:
    return StructType([StructField(name, data_type) for name, data_type in types.items()])


@pytest.mark.parametrize(
    ("left", "right", "common"),
    [
        (ByteType(), ShortType(), ShortType()),
        (INT, LONG, LONG),
        (FloatType(), DOUBLE, DOUBLE),
        (INT, DOUBLE, DOUBLE),
        (INT, FloatType(), DOUBLE),
        (ShortType(), FloatType(), FloatType()),
        (LONG, DOUBLE, None),
        (DecimalType(10, 2), DecimalType(12, 4), DecimalType(12, 4)),
        (DecimalType(10, 2), DecimalType(10, 4), DecimalType(12, 4)),
        (DecimalType(38, 0), DecimalType(38, 10), None),
        (LONG, DecimalType(10, 2), DecimalType(21, 2)),
        (DecimalType(10, 2), DOUBLE, None),
        (DateType(), TimestampType(), None),
        (INT, TEXT, None),
        (NullType(), TEXT, TEXT),
        (ArrayType(INT, containsNull=False), ArrayType(LONG), ArrayType(LONG)),
        (MapType(TEXT, INT), MapType(TEXT, LONG), MapType(TEXT, LONG)),
        (MapType(TEXT, INT), MapType(INT, INT), None),
        (schema(a=INT, b=TEXT), schema(a=LONG, b=TEXT), schema(a=LONG, b=TEXT)),
        (schema(a=INT), schema(b=INT), None),
        (schema(a=INT), schema(a=INT, b=INT), None),
    ],
)
def test_types_widen_where_no_value_is_lost(left: DataType, right: DataType, common: DataType | None) -> None:
    assert common_type(left, right) == common
    assert common_type(right, left) == common


def test_structs_are_aligned_on_all_their_fields_on_request() -> None:
    left, right = ArrayType(schema(a=INT, b=TEXT)), ArrayType(schema(c=DOUBLE, a=LONG))
    assert common_type(left, right, fields_differ=True) == ArrayType(schema(a=LONG, b=TEXT, c=DOUBLE))
    assert common_type(schema(a=INT), schema(b=INT), fields_differ=True) is None
    assert common_type(schema(a=INT, b=INT), schema(a=TEXT, b=INT), fields_differ=True) is None
    found = align(schema(id=INT, v=left), schema(id=INT, v=right), ["id"], DiffOptions(), evolve=True)
    assert "is compared as array<struct<a:bigint,b:string,c:double>>" in found.differences[0]
    with pytest.raises(RefusedInputError, match="no type holds the values of both"):
        align(schema(id=schema(a=INT)), schema(id=schema(a=INT, b=INT)), ["id"], DiffOptions(), evolve=True)


def test_nullability_does_not_make_another_type() -> None:
    inner = StructType([StructField("a", INT, nullable=False)])
    assert is_same(ArrayType(inner, containsNull=False), ArrayType(schema(a=INT)))
    assert not is_same(ArrayType(INT), ArrayType(LONG))


def test_columns_are_in_the_order_of_keys_past_and_new_ones() -> None:
    found = align(
        schema(a=INT, id=INT, gone=TEXT, b=INT), schema(new=TEXT, b=LONG, ID=INT, a=INT), ["ID"], DiffOptions(),
        evolve=True,
    )  # fmt: skip
    assert [column.name for column in found.columns] == ["ID", "a", "gone", "b", "new"]
    assert found.differences == (
        "column 'gone' is gone (string)",
        "column 'b' changed from int to bigint and is compared as bigint",
        "column 'new' is new (string)",
    )
    assert [column.in_left for column in found.columns] == ["id", "a", "gone", "b", None]
    assert [column.in_right for column in found.columns] == ["ID", "a", None, "b", "new"]


def names(mode: DiffMode, **settings: Any) -> list[str]:
    left, right = schema(a=INT, id=INT, gone=TEXT, B=INT), schema(new=TEXT, b=INT, id=INT, a=INT)
    options = DiffOptions(diff_mode=mode, **settings)
    return [column.name for column in value_columns(align(left, right, ["id"], options, evolve=True), options)]


def test_each_side_shows_the_columns_that_it_has_as_it_spells_them() -> None:
    assert names(DiffMode.COLUMN_BY_COLUMN) == ["left_a", "right_a", "left_gone", "left_B", "right_b", "right_new"]
    assert names(DiffMode.SIDE_BY_SIDE) == ["left_a", "left_gone", "left_B", "right_new", "right_b", "right_a"]
    assert names(DiffMode.LEFT_SIDE) == ["a", "gone", "B"]
    assert names(DiffMode.RIGHT_SIDE) == ["a", "b", "new"]
    assert names(DiffMode.STRUCTS) == []


def test_ignored_columns_come_last_in_the_order_they_were_named() -> None:
    ignored = {"ignore_columns": ("new", "A")}
    found = names(DiffMode.COLUMN_BY_COLUMN, **ignored)
    assert found == ["left_gone", "left_B", "right_b", "right_new", "left_a", "right_a"]
    assert names(DiffMode.RIGHT_SIDE, **ignored) == ["b", "new", "a"]


def test_a_columns_comparator_precedes_that_of_its_type_and_the_default() -> None:
    sides = schema(id=INT, a=DOUBLE, b=DOUBLE, c=FloatType(), t=TEXT, d=DecimalType(10, 2), m=MapType(TEXT, INT))
    options = DiffOptions(
        column_comparators={"A": Bitwise()},
        type_comparators={"Double": Epsilon(0.5), "decimal": Epsilon(0.25), "map": MapEntries(ordered=True)},
        default_comparator=Epsilon(0.125),
    )
    found = {column.name: column.comparator for column in align(sides, sides, ["id"], options, evolve=False).columns}
    assert found == {
        "id": Equality(), "a": Bitwise(), "b": Epsilon(0.5), "c": Epsilon(0.125), "t": Equality(),
        "d": Epsilon(0.25), "m": MapEntries(ordered=True),
    }  # fmt: skip


def test_names_are_case_sensitive_in_a_case_sensitive_session() -> None:
    both = schema(id=INT, a=INT, A=TEXT)
    with pytest.raises(RefusedInputError, match="past side has more than one column called 'a'"):
        align(both, both, ["id"], DiffOptions(), evolve=False)
    found = align(both, both, ["id"], DiffOptions(), evolve=False, case_sensitive=True)
    assert [column.name for column in found.columns] == ["id", "a", "A"]


@pytest.mark.parametrize(
    ("mode", "keys", "values", "expected"),
    [
        (DiffMode.COLUMN_BY_COLUMN, ["id"], ["diff", "left", "a"], ("diff", "left", "right")),
        (DiffMode.COLUMN_BY_COLUMN, ["Diff"], ["a"], ("_lw_diff", "left", "right")),
        (DiffMode.SIDE_BY_SIDE, ["left", "left_x"], ["x"], ("diff", "_lw_left", "right")),
        (DiffMode.STRUCTS, ["left", "right_x", "diff"], ["x"], ("_lw_diff", "_lw_left", "right")),
        (DiffMode.RIGHT_SIDE, ["left_x"], ["x", "diff"], ("_lw_diff", "left", "right")),
        (DiffMode.STRUCTS, [], ["left", "diff"], ("_lw_diff", "_lw_left", "right")),
    ],
)
def test_the_diffs_own_columns_get_names_that_are_free(
    mode: DiffMode, keys: list[str], values: list[str], expected: tuple[str, ...]
) -> None:
    sides = schema(**dict.fromkeys([*keys, *values], INT))
    found = with_free_names(DiffOptions(diff_mode=mode), keys, sides.names)
    assert (found.diff_column, found.left_column_prefix, found.right_column_prefix) == expected
    align(sides, sides, keys, found, evolve=False)


def test_values_that_are_ignored_have_names_too_where_all_others_are_keys() -> None:
    sides, options = schema(x=INT, left_x=INT), DiffOptions(ignore_columns=("x",))
    found = with_free_names(options, (), sides.names)
    assert [column.name for column in value_columns(align(sides, sides, (), found, evolve=False), found)] == [
        "_lw_left_x", "right_x"
    ]  # fmt: skip


def test_an_ignored_column_of_two_types_is_shown_in_each_sides_own() -> None:
    sides = schema(id=INT, a=INT, v=schema(a=INT)), schema(id=INT, a=LONG, v=TEXT)
    _, a, v = align(*sides, ["id"], DiffOptions(ignore_columns=("v",)), evolve=True).columns
    assert [found.shown_type(is_left=is_left) for found in (a, v) for is_left in (True, False)] == [
        LONG, LONG, schema(a=INT), TEXT
    ]  # fmt: skip


SIDE = schema(id=INT, a=INT)


@pytest.mark.parametrize(
    ("left", "right", "keys", "settings", "says"),
    [
        (SIDE, schema(id=INT, a=TEXT), ["id"], {"evolve": True}, "'a' is int on the past side and string on the"),
        (SIDE, schema(id=INT, a=LONG), ["id"], {}, r"only one side has: a int \(past\), a bigint \(current\)"),
        (SIDE, schema(key=INT, a=INT), ["id"], {"evolve": True}, "current side has no key column 'id'; it has 'key'"),
        (SIDE, SIDE, ["id", "ID"], {}, "key column 'id' is named more than once"),
        (SIDE, SIDE, ["id"], {"ignore_columns": ("id",)}, "'id' is both a key column and ignored"),
        (SIDE, SIDE, ["id"], {"column_comparators": {"b": Equality()}}, "comparator is given for column 'b'"),
        (SIDE, SIDE, ["id"], {"type_comparators": {"number": Equality()}}, "type 'number', which does not exist"),
        (SIDE, SIDE, ["id"], {"column_comparators": {"a": Whitespace()}}, "whitespace cannot compare column 'a'"),
        (SIDE, SIDE, ["id"], {"diff_mode": DiffMode.STRUCTS, "left_column_prefix": "ID"}, "more than one column"),
        (SIDE, SIDE, ["id"], {"diff_mode": DiffMode.STRUCTS, "diff_column": "left"}, "so is a value column"),
        (schema(id=INT, b_c=INT, c=INT), schema(id=INT, b_c=INT, c=INT), ["id"],
         {"left_column_prefix": "a", "right_column_prefix": "a_b"}, "more than one column is called 'a_b_c'"),
        (SIDE, SIDE, ["id"], {"change_column": ""}, "need a name"),
    ],
)  # fmt: skip
def test_columns_that_cannot_be_compared_are_refused_by_name(
    left: StructType, right: StructType, keys: list[str], settings: dict[str, Any], says: str
) -> None:
    options = DiffOptions(**settings)
    with pytest.raises((ConfigurationError, RefusedInputError), match=says) as caught:
        align(left, right, keys, options, evolve=options.evolve)
    assert caught.value.exit_code == 2


def test_types_that_cannot_be_compared_may_only_be_ignored() -> None:
    class VariantType(DataType):
        """As Spark 4 has it."""

    odd = schema(id=INT, v=ArrayType(VariantType()))
    assert uncomparable_part(odd) == "variant"
    with pytest.raises(RefusedInputError, match="'v' holds values of type variant"):
        align(odd, odd, ["id"], DiffOptions(), evolve=False)
    found = align(odd, schema(id=INT, v=INT), ["id"], DiffOptions(ignore_columns=("v",)), evolve=False)
    assert not found.values[0].has_one_type
    assert found.differences == ("column 'v' changed from array<variant> to int and is not compared",)


def test_choices_may_be_texts_and_unknown_ones_are_refused() -> None:
    options = DiffOptions(diff_mode="side-by-side", duplicate_keys="report", ignore_columns="note")  # type: ignore[arg-type]
    assert (options.diff_mode, options.duplicate_keys) == (DiffMode.SIDE_BY_SIDE, DuplicateKeys.REPORT)
    assert options.ignore_columns == ("note",)
    with pytest.raises(ConfigurationError, match="diff_mode cannot be 'sideways'; it is one of column-by-column, side"):
        DiffOptions(diff_mode="sideways")  # type: ignore[arg-type]
    assert (column_names("id"), column_names(["id", "day"])) == (("id",), ("id", "day"))
