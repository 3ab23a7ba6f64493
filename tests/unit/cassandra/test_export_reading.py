"""Requests, and how answers become batches, without a server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from cassandra import OperationTimedOut

from lakeward.cassandra import export
from lakeward.cassandra.cql import TableName, parse_cql_type
from lakeward.cassandra.read_plan import ReadPlan, require_condition
from lakeward.cassandra.reading import BatchMaker
from lakeward.cassandra.schema import ColumnKind, CqlColumn, TableSchema
from lakeward.errors import ConfigurationError, DataError, RetriableError

_UDTS = {"place": (("street", "text"), ("number", "int"))}
_NOW = 1_000_000


def _schema(**columns: tuple[str, ColumnKind]) -> TableSchema:
    found = [
        CqlColumn(name, parse_cql_type(text, _UDTS), kind, number)
        for number, (name, (text, kind)) in enumerate(columns.items())
    ]
    return TableSchema(TableName("Sales", "t"), tuple(found), _UDTS)


_STATIC_TABLE = _schema(
    p=("double", ColumnKind.PARTITION_KEY),
    c=("int", ColumnKind.CLUSTERING),
    s=("text", ColumnKind.STATIC),
    v=("int", ColumnKind.REGULAR),
)


def _plan(schema: TableSchema, **settings: Any) -> ReadPlan:
    return ReadPlan(cast("Any", None), schema, **settings)


def test_a_query_reads_a_range_of_tokens_with_names_as_they_are() -> None:
    assert _plan(_STATIC_TABLE).statement == (
        'SELECT "p", "c", "s", "v" FROM "Sales"."t" WHERE token("p") > ? AND token("p") <= ?'
    )
    assert _plan(_STATIC_TABLE, columns=("v",), where="v > 3", writetime=True).statement == (
        'SELECT "p", "c", "v", writetime("v") FROM "Sales"."t" WHERE token("p") > ? AND token("p") <= ? '
        "AND v > 3 ALLOW FILTERING"
    )


@pytest.mark.parametrize(
    "where", ["v = 1 LIMIT 3", "v = 1 allow  filtering", "v = 1; DROP TABLE x", "v > 1 order by c"]
)
def test_text_that_is_more_than_a_condition_is_refused(where: str) -> None:
    with pytest.raises(ConfigurationError, match="not part of a condition"):
        require_condition(where)


@pytest.mark.parametrize("where", [None, "t = 'LIMIT; --'", '"Limit" > 3 AND limits = 4'])
def test_words_in_texts_and_names_are_part_of_a_condition(where: str | None) -> None:
    require_condition(where)


def test_static_values_are_a_separate_row_once_per_partition_across_pages() -> None:
    maker = BatchMaker(_plan(_STATIC_TABLE))
    nan = float("nan")

    first = maker.batch([(1.0, 1, "one", 10), (1.0, 2, "one", None), (nan, 1, "two", 30)], _NOW)
    # NaN is not equal to itself in Python, but is one partition; -0.0 and 0.0 are two.
    second = maker.batch([(float("nan"), 2, "two", 40), (0.0, 1, None, 5), (-0.0, None, "alone", None)], _NOW)

    assert _rows(first) == {
        ("1.0", None, "one", None),
        ("1.0", 1, None, 10),
        ("1.0", 2, None, None),
        ('"nan"', None, "two", None),
        ('"nan"', 1, None, 30),
    }
    assert _rows(second) == {('"nan"', 2, None, 40), ("0.0", 1, None, 5), ("-0.0", None, "alone", None)}


def test_without_the_static_columns_their_rows_are_left_out() -> None:
    maker = BatchMaker(_plan(_STATIC_TABLE, columns=("v",)))

    assert _rows(maker.batch([(1.0, 1, 10), (2.0, None, None)], _NOW)) == {("1.0", 1, 10)}


def test_a_range_without_rows_has_the_columns_as_well() -> None:
    batch = BatchMaker(_plan(_STATIC_TABLE, writetime=True)).batch([], _NOW)

    assert batch.num_rows == 0
    assert batch.schema.names == ["p", "c", "s", "v", "_lw_writetime_s", "_lw_writetime_v"]


_TIMED = _schema(
    p=("int", ColumnKind.PARTITION_KEY),
    l=("list<int>", ColumnKind.REGULAR),
    u=("place", ColumnKind.REGULAR),
    v=("int", ColumnKind.REGULAR),
)


def test_the_remaining_time_of_values_becomes_the_second_in_which_they_expire() -> None:
    plan = _plan(_TIMED, writetime=True, ttl=True)
    rows = [
        (1, [1, 2], ("x", None), 5, 70, 71, 72, [100, 200], [300, None], 400),
        (2, [1, 2], ("x", 7), 5, 80, 81, 82, [100, None], [300, None], None),
        (3, None, None, None, None, None, None, None, None, None),
    ]

    batch = BatchMaker(plan).batch(rows, _NOW)

    assert plan.needs_slow_reader
    assert batch.column("_lw_writetime_l").to_pylist() == [70, 80, None]
    # One element that stays keeps the list; a field without a value keeps nothing.
    assert batch.column("_lw_expires_l").to_pylist() == [_NOW + 200, None, None]
    assert batch.column("_lw_expires_u").to_pylist() == [_NOW + 300, None, None]
    assert batch.column("_lw_expires_v").to_pylist() == [_NOW + 400, None, None]


def test_collections_without_times_of_the_server_get_the_latest_of_the_row() -> None:
    plan = _plan(_TIMED, writetime=True, ttl=True, element_times=False)
    rows = [(1, [1], None, 5, 70, 100), (2, None, ("x", 1), None, None, None)]

    batch = BatchMaker(plan).batch(rows, _NOW)

    assert plan.statement.startswith('SELECT "p", "l", "u", "v", writetime("v"), ttl("v") FROM')
    assert not plan.needs_slow_reader
    assert batch.column("_lw_writetime_l").to_pylist() == [70, None]
    assert batch.column("_lw_expires_l").to_pylist() == [_NOW + 100, None]
    assert batch.column("_lw_writetime_u").to_pylist() == [None, None]


def test_a_collection_in_a_row_with_a_value_that_never_expires_does_not_expire() -> None:
    schema = _schema(
        p=("int", ColumnKind.PARTITION_KEY),
        a=("text", ColumnKind.REGULAR),
        b=("text", ColumnKind.REGULAR),
        tags=("list<text>", ColumnKind.REGULAR),
    )
    plan = _plan(schema, ttl=True, element_times=False)
    # a, b and tags; when a and b were written; what they have left.
    rows = [
        (1, "x", "y", ["t"], 7, 8, None, 100),
        (2, "x", "y", ["t"], 7, 8, 50, 100),
        (3, None, "y", ["t"], None, 8, None, 100),
    ]

    batch = BatchMaker(plan).batch(rows, _NOW)

    assert batch.column("_lw_expires_tags").to_pylist() == [None, _NOW + 100, _NOW + 100]
    assert batch.column("_lw_writetime_tags").to_pylist() == [8, 8, 8]


def test_unavailable_times_of_frozen_collections_are_not_selected() -> None:
    schema = _schema(
        p=("frozen<list<int>>", ColumnKind.PARTITION_KEY),
        f=("frozen<set<int>>", ColumnKind.REGULAR),
        t=("tuple<int>", ColumnKind.REGULAR),
    )
    plan = _plan(schema, writetime=True, element_times=False, frozen_times=False)

    assert plan.statement.startswith('SELECT "p", "f", "t", writetime("t") FROM')
    batch = BatchMaker(plan).batch([([1], [2], (3,), 70)], _NOW)
    assert batch.column("_lw_writetime_f").to_pylist() == [70]


@pytest.mark.parametrize(
    ("server", "element", "frozen"),
    [
        ("3.0.27", False, False),
        ("3.11.2", False, False),
        ("3.11.14", False, True),
        ("4.0.4", False, False),
        ("4.0.11", False, True),
        ("4.1-beta1", False, True),
        ("5.0.8", True, True),
        ("5.0-rc1", True, True),
    ],
)
def test_which_servers_expose_the_times_of_collections(server: str, element: bool, frozen: bool) -> None:
    version = export._version(server)
    assert (version >= export._ELEMENT_TIMES_SINCE, export._has_frozen_times(version)) == (element, frozen)


def test_columns_that_are_named_like_those_of_times_are_refused() -> None:
    schema = _schema(
        p=("int", ColumnKind.PARTITION_KEY),
        v=("int", ColumnKind.REGULAR),
        _lw_writetime_v=("bigint", ColumnKind.REGULAR),
    )
    with pytest.raises(ConfigurationError, match="_lw_writetime_v") as refused:
        export._require_names(_plan(schema))
    assert "--columns" in str(refused.value.hint)
    export._require_names(_plan(schema, columns=("v",)))


class _Preparing:
    """A session that prepares a statement with so many open values, after it was silent a few times."""

    def __init__(self, values: int, silent: int = 0) -> None:
        self.values, self.silent = values, silent

    def prepare(self, _: str) -> Any:
        if self.silent:
            self.silent -= 1
            raise OperationTimedOut
        return SimpleNamespace(column_metadata=[None] * self.values)


def test_a_query_is_prepared_again_where_no_answer_came(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakeward.cassandra.retry.FIRST_PAUSE_SECONDS", 0.0)
    assert len(_plan(_STATIC_TABLE).prepare(cast("Any", _Preparing(2, silent=3))).column_metadata) == 2
    with pytest.raises(RetriableError, match="preparing the query failed 12 times"):
        _plan(_STATIC_TABLE).prepare(cast("Any", _Preparing(2, silent=99)))


def test_a_condition_with_an_unbound_value_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="has an unbound value"):
        _plan(_STATIC_TABLE, where="v = ?").prepare(cast("Any", _Preparing(3)))


def _rows(batch: Any) -> set[tuple[Any, ...]]:
    found = [tuple(row.values()) for row in batch.to_pylist()]
    assert len(found) == len(set(found))
    return set(found)


@pytest.mark.parametrize(
    ("schema", "row", "named"),
    [
        (_STATIC_TABLE, (None, 1, None, 1), "in p:"),
        # Without a regular value it would be the static part of the partition.
        (_STATIC_TABLE, (1.0, None, "static", 7), "in c:"),
        (_schema(p=("int", ColumnKind.PARTITION_KEY), c=("int", ColumnKind.CLUSTERING)), (1, None), "in c:"),
    ],
)
def test_a_key_of_no_bytes_is_refused_and_not_lost(schema: TableSchema, row: tuple[Any, ...], named: str) -> None:
    with pytest.raises(DataError, match="rows whose key is empty") as refused:
        BatchMaker(_plan(schema)).batch([row], _NOW)
    assert named in refused.value.message
