"""spark-extension itself: its Scala classes, called by Lakeward's options, and its Python package.

The Python classes lack some comparators.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from lakeward.diffing.frames.comparators import Comparator, Duration, Epsilon, Equality, MapEntries, Whitespace
from lakeward.diffing.frames.options import DiffMode

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from pyspark.sql import SparkSession

    from lakeward.diffing.frames.options import DiffOptions

_MODES = {
    DiffMode.COLUMN_BY_COLUMN: "ColumnByColumn",
    DiffMode.SIDE_BY_SIDE: "SideBySide",
    DiffMode.LEFT_SIDE: "LeftSide",
    DiffMode.RIGHT_SIDE: "RightSide",
}

# What importing either package adds to Spark's DataFrame.
METHODS = ("diff", "diffwith", "diff_with_options", "diffwith_with_options")


def python_package() -> ModuleType:
    """Return spark-extension's Python package, and leave DataFrame the methods that it had before."""
    before = {name: vars(DataFrame)[name] for name in METHODS if name in vars(DataFrame)}
    package = import_module("gresearch.spark.diff")
    for name in METHODS:
        if name in before:
            setattr(DataFrame, name, before[name])
        elif name in vars(DataFrame):
            delattr(DataFrame, name)
    return package


def extension_diff(past: DataFrame, current: DataFrame, keys: Sequence[str], options: DiffOptions) -> DataFrame:
    """Return spark-extension's diff, without unchanged rows unless the options include them."""
    spark = past.sparkSession
    differ = _package(spark).Differ(_options(spark, past, options))
    java = differ.diff(past._jdf, current._jdf, _texts(spark, keys), _texts(spark, options.ignore_columns))
    found = DataFrame(java, spark)
    if options.include_unchanged:
        return found
    return found.filter(found[f"`{options.diff_column}`"] != options.nochange_value)


def _options(spark: SparkSession, past: DataFrame, options: DiffOptions) -> Any:
    package = _package(spark)
    java = (
        package.DiffOptions()
        .withDiffColumn(options.diff_column)
        # Each step is checked: what is to be swapped must not be equal in between.
        .withLeftColumnPrefix("between")
        .withRightColumnPrefix(options.right_column_prefix)
        .withLeftColumnPrefix(options.left_column_prefix)
    )
    labels = ("Insert", "Change", "Delete", "Nochange")
    for name in labels:
        java = getattr(java, f"with{name}DiffValue")(f"between {name}")
    for name in labels:
        java = getattr(java, f"with{name}DiffValue")(getattr(options, f"{name.lower()}_value"))
    if options.change_column is not None:
        java = java.withChangeColumn(options.change_column)
    mode = package.DiffMode.withNameOption(_MODES[options.diff_mode]).get()
    java = java.withDiffMode(mode).withSparseMode(options.sparse_mode)
    if options.default_comparator is not None:
        java = java.withDefaultComparator(_comparator(spark, options.default_comparator, None))
    for name, comparator in options.column_comparators.items():
        made = _comparator(spark, comparator, past.schema[name].dataType)
        java = java.withComparator(made, name, _array(spark, "java.lang.String"))
    for text, comparator in options.type_comparators.items():
        made, data_type = _comparator(spark, comparator, None), _type(spark, text)
        java = java.withComparator(made, data_type, _array(spark, "org.apache.spark.sql.types.DataType"))
    return java


def _comparator(spark: SparkSession, comparator: Comparator, data_type: Any) -> Any:
    makers = _package(spark).DiffComparators
    if isinstance(comparator, Epsilon):
        made = makers.epsilon(comparator.epsilon)
        made = made.asRelative() if comparator.relative else made.asAbsolute()
        return made.asInclusive() if comparator.inclusive else made.asExclusive()
    if isinstance(comparator, Duration):
        made = makers.duration(spark._jvm.java.time.Duration.ofMillis(int(comparator.limit.total_seconds() * 1000)))
        return made.asInclusive() if comparator.inclusive else made.asExclusive()
    if isinstance(comparator, Whitespace):
        return makers.string(True)
    if isinstance(comparator, MapEntries):
        key, value = (_type(spark, part.simpleString()) for part in (data_type.keyType, data_type.valueType))
        return makers.map(key, value, comparator.ordered)
    assert isinstance(comparator, Equality)
    return makers.nullSafeEqual()


def _package(spark: SparkSession) -> Any:
    return spark._jvm.uk.co.gresearch.spark.diff  # type: ignore[union-attr]


def _type(spark: SparkSession, text: str) -> Any:
    return spark._jvm.org.apache.spark.sql.types.DataType.fromDDL(text)  # type: ignore[union-attr]


def _texts(spark: SparkSession, texts: Sequence[str]) -> Any:
    found = spark._jvm.java.util.ArrayList()  # type: ignore[union-attr]
    for text in texts:
        found.add(text)
    return found


def _array(spark: SparkSession, java_class: str) -> Any:
    """Return an empty Java array: the rest of a list of arguments."""
    gateway = spark.sparkContext._gateway
    found: Any = gateway.jvm  # type: ignore[union-attr]
    for part in java_class.split("."):
        found = getattr(found, part)
    return gateway.new_array(found, 0)  # type: ignore[union-attr]
