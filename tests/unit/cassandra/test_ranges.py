"""The ring cut into ranges: whatever the tokens and the number of cuts, each token is in exactly one of them."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeward.cassandra.cql import TableName
from lakeward.cassandra.read_plan import (
    MURMUR3,
    RANDOM,
    Partitioner,
    TokenRange,
    cut,
    estimated_size,
    grouped,
    partitioner_of,
)
from lakeward.errors import ConfigurationError

_HOSTS = st.lists(st.sampled_from(["10.0.0.1", "10.0.0.2", "10.0.0.3"]), min_size=1, max_size=3, unique=True)


@st.composite
def _rings(draw: st.DrawFn) -> tuple[TokenRange, dict[int, tuple[str, ...]]]:
    ring = draw(st.sampled_from([MURMUR3, RANDOM])).ring
    # The ends of the ring can be tokens of nodes too.
    edges = st.sampled_from([ring.start, ring.start + 1, ring.end - 1, ring.end])
    tokens = st.one_of(st.integers(ring.start, ring.end), edges)
    return ring, draw(st.dictionaries(tokens, _HOSTS.map(tuple), max_size=60))


@given(_rings(), st.integers(1, 300))
def test_every_token_is_in_exactly_one_range(made: tuple[TokenRange, dict[int, tuple[str, ...]]], splits: int) -> None:
    ring, owners = made

    found = sorted(cut(ring, owners, splits))

    assert found[0].start == ring.start
    assert found[-1].end == ring.end
    assert all(entry.width > 0 for entry in found)
    assert all(before.end == behind.start for before, behind in pairwise(found))


@given(_rings(), st.integers(1, 300))
def test_there_are_about_as_many_ranges_as_requested(
    made: tuple[TokenRange, dict[int, tuple[str, ...]]], splits: int
) -> None:
    ring, owners = made

    found = cut(ring, owners, splits)

    # Each piece of the ring has one part more or less than its share.
    assert splits / 2 - 1 <= len(found) <= 3 * splits + 2


@given(_rings(), st.integers(1, 300), st.integers(1, 50))
def test_groups_hold_every_range_once_and_in_order(
    made: tuple[TokenRange, dict[int, tuple[str, ...]]], splits: int, groups: int
) -> None:
    ranges = cut(*made, splits)

    found = grouped(ranges, groups)

    assert [part for group in found for part in group] == ranges
    assert len(found) <= groups
    assert all(found)


def test_neighbours_of_the_same_replicas_are_one_range_and_the_last_goes_around_the_end() -> None:
    owners = {-50: ("a",), 0: ("a",), 50: ("b",), 100: ("c",)}

    found = cut(TokenRange(-1000, 1000), owners, 2)

    # Tokens after 100 belong to the first node, and so do tokens before 0.
    assert TokenRange(-1000, 0) in found
    assert TokenRange(100, 1000) in found
    assert {TokenRange(0, 50), TokenRange(50, 100)} <= set(found)


def test_ranges_of_one_replica_are_grouped() -> None:
    owners = {token: ("a",) if number % 2 else ("b",) for number, token in enumerate(range(-900, 1000, 100))}

    found = cut(TokenRange(-1000, 1000), owners, 20)

    of = [number % 2 for number, token in enumerate(sorted(owners)) for entry in found if entry.end == token]
    first = [owners.get(entry.end, owners[-900])[0] for entry in found]
    assert first == sorted(first)
    assert set(of) == {0, 1}


def test_many_tiny_ranges_are_joined_to_the_requested_number() -> None:
    owners = {token: (str(token % 7),) for token in range(-10_000, 10_000, 10)}

    assert 4 <= len(cut(TokenRange(-10_001, 10_001), owners, 8)) <= 16


def test_another_partitioner_is_refused_with_a_remedy() -> None:
    session = _session("com.amazonaws.cassandra.DefaultPartitioner")

    with pytest.raises(ConfigurationError, match="DefaultPartitioner"):
        partitioner_of(session)


@pytest.mark.parametrize("partitioner", [MURMUR3, RANDOM])
def test_known_partitioners_are_recognised_by_their_class(partitioner: Partitioner) -> None:
    assert partitioner_of(_session(f"org.apache.cassandra.dht.{partitioner.name}")) == partitioner


def test_the_size_of_a_table_is_estimated_from_the_share_of_the_ring_that_a_node_reports() -> None:
    quarter = MURMUR3.ring.width // 4
    rows = [(str(2**62), str(2**62 + quarter), 100, 1000), (str(2**63 - 1 - quarter // 2), str(-(2**63)), 0, 0)]
    session = cast("Any", SimpleNamespace(execute=lambda *_: rows))

    found = estimated_size(session, TableName("k", "t"), MURMUR3)

    assert found is not None
    assert found[0] == pytest.approx(100 / 0.375, rel=0.01)
    assert found[1] == pytest.approx(100_000 / 0.375, rel=0.01)
    assert estimated_size(cast("Any", SimpleNamespace(execute=lambda *_: [])), TableName("k", "t"), MURMUR3) is None


def _session(partitioner: str) -> Any:
    return SimpleNamespace(
        cluster=SimpleNamespace(metadata=SimpleNamespace(partitioner=partitioner, cluster_name="test"))
    )
