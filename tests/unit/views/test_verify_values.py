"""Key ranges, types that can be compared, and the columns of an op's day, without Spark."""

import pytest
from pyspark.sql import types as T

from lakeward import Lakeward
from lakeward.columns import Column
from lakeward.config import parse_config
from lakeward.errors import ConfigurationError
from lakeward.views.verification.against import comparable_type, is_lossless, shown_location
from lakeward.views.verification.recompute import OpColumns, _spans
from lakeward.views.verification.report import (
    Against,
    Basis,
    KeyRange,
    TableVerification,
    Verdict,
    VerifyOptions,
    VerifyReport,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id=1..1000", KeyRange("id", "1", "1000")),
        ("id=..5", KeyRange("id", None, "5")),
        ("day=2024-01-01..", KeyRange("day", "2024-01-01", None)),
    ],
)
def test_key_ranges(text, expected):
    assert KeyRange.parse(text) == expected
    assert str(expected) == text


@pytest.mark.parametrize("text", ["id", "id=", "id=..", "id=5", "=1..2"])
def test_texts_that_are_not_key_ranges(text):
    with pytest.raises(ConfigurationError, match="is not a key range"):
        KeyRange.parse(text)


def test_a_part_is_described_in_words():
    assert VerifyOptions().part is None
    assert VerifyOptions(Basis.FILES, 0.01, (KeyRange("id", "1", None),)).part == (
        "a sample of 1.0000% of the keys, keys with id=1.."
    )


DECIMAL = T.DecimalType(10, 2)


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        (T.ShortType(), T.IntegerType()),
        (T.IntegerType(), T.LongType()),
        (T.LongType(), T.DecimalType(20, 0)),
        (T.FloatType(), T.DoubleType()),
        (DECIMAL, T.DecimalType(38, 18)),
        (T.DateType(), T.TimestampNTZType()),
        (T.BooleanType(), T.IntegerType()),
    ],
)
def test_the_wider_type_is_compared_in(narrow, wide):
    assert is_lossless(narrow, wide) and not is_lossless(wide, narrow)
    assert comparable_type(narrow, wide) == comparable_type(wide, narrow) == wide


@pytest.mark.parametrize(
    ("mirror", "other"),
    [
        (T.IntegerType(), T.StringType()),
        (T.LongType(), T.DoubleType()),
        (DECIMAL, T.DoubleType()),
        (DECIMAL, T.DecimalType(9, 4)),
        (T.DateType(), T.TimestampType()),
        (T.BinaryType(), T.StringType()),
        (T.LongType(), T.DecimalType(19, 1)),
    ],
)
def test_types_without_a_common_type(mirror, other):
    assert comparable_type(mirror, other) is None


def test_instants_and_times_without_zone_are_compared_as_the_mirror_has_them():
    assert comparable_type(T.TimestampNTZType(), T.TimestampType()) == T.TimestampNTZType()
    assert comparable_type(T.TimestampType(), T.TimestampNTZType()) == T.TimestampType()


FIRST, SECOND = (Column("id", "int"),), (Column("id", "int"), Column("name", "string"))


def test_ops_between_two_of_the_same_columns_had_them_too():
    spans = _spans({3: FIRST, 7: SECOND, 9: SECOND}, FIRST)
    assert spans == [OpColumns(0, 3, FIRST), OpColumns(7, 9, SECOND)]


def test_ops_before_the_oldest_that_is_kept_are_not_guessed():
    assert _spans({7: SECOND}, FIRST) == [OpColumns(0, 0, FIRST), OpColumns(7, 7, SECOND)]
    assert _spans({7: FIRST}, FIRST) == [OpColumns(0, 7, FIRST)]


def test_options_of_drivers_after_the_name_are_not_shown():
    assert shown_location(Against("jdbc:postgresql://host/shop?user=me")) == "jdbc:postgresql://host/shop"
    assert shown_location(Against("jdbc:sqlserver://host;database=x")) == "jdbc:sqlserver://host"
    assert shown_location(Against("s3://bucket/a?b")) == "s3://bucket/a?b"


@pytest.mark.parametrize(
    "address",
    [
        "jdbc:oracle:thin:scott/tiger@//db/orcl",
        "jdbc:oracle:thin:scott/ti/g:er@db:1521:orcl",
        "jdbc:oracle:oci:scott/tiger@",
        "jdbc:mysql://u:p@host/shop",
        "jdbc:mysql://u:p/w@host/shop",
        "jdbc:mysql://first:3306,u:p@second/shop",
        "jdbc:mysql://address=(host=db)(password=p)/shop",
        "jdbc:sqlserver://host:1433;user=me;Password = p",
        "jdbc:redshift:iam://c:eu-west-1/db?SecretAccessKey=p",
    ],
)
def test_an_address_with_a_password_is_refused_before_anything_names_it(address):
    with pytest.raises(ConfigurationError, match="holds a password") as refused:
        Against(address)
    assert address not in str(refused.value) and "LAKEWARD_AGAINST_PASSWORD" in (refused.value.hint or "")


@pytest.mark.parametrize(
    "address",
    [
        "jdbc:oracle:thin:@//db:1521/orcl",
        "jdbc:oracle:thin:scott@//db:1521/orcl",
        "jdbc:oracle:thin:/@db",
        "jdbc:postgresql://host:5432/shop?user=me@shop&ssl=true",
        "jdbc:sqlserver://host:1433;databaseName=shop;user=me@host",
        "jdbc:mysql://me@host:3306/shop",
        "jdbc:sqlite:data/me@host/shop.db",
        "s3://bucket/a:b@c",
    ],
)
def test_an_address_without_a_password_is_taken(address):
    assert Against(address).location == address


def test_the_worst_table_decides_the_exit_code():
    tables = [TableVerification("a.b", Verdict.CLEAN), TableVerification("a.c", Verdict.DIFFERENT, exit_code=1)]
    assert VerifyReport(tuple(tables)).exit_code == 1
    failed = TableVerification("a.d", Verdict.FAILED, exit_code=3)
    assert VerifyReport((*tables, failed)).exit_code == 3
    assert VerifyReport().exit_code == 0
    assert VerifyReport(tuple(tables)).table("a.c").differences == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"basis": "mirror"}, "unknown basis 'mirror'; expected auto, files, changelog"),
        ({"sample": 0}, "more than 0 and at most 1"),
        ({"key_ranges": ["id"]}, "is not a key range"),
        ({"cut_off": "2024-01-01"}, "--changed-at need --against"),
        ({"against": "./copy", "changed_at": "x"}, "--changed-at needs --cut-off"),
        ({"against": "./copy"}, "2 tables would be compared with it"),
        ({"against": "jdbc:x:y", "against_table": "t"}, "2 tables would be compared with it"),
        ({"against": "./copy", "cut_off": "yesterday"}, "is not a moment"),
    ],
)
def test_contradictory_options_are_refused_before_anything_is_read(tmp_path, options, message):
    config = parse_config({"tables": {"sales.product": {}, "sales.customer": {}}}, base=tmp_path)
    with Lakeward(config) as lake, pytest.raises(ConfigurationError, match=message):
        lake.verify(["sales.product", "sales.customer"], **options)
