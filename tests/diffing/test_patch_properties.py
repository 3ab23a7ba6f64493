"""Random tables: applying a diff leads to the current side, its reverse back, and two diffs make one."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from lakeward.diffing.frames.joining import diff
from lakeward.diffing.frames.options import DiffMode, DiffOptions
from lakeward.diffing.frames.patching import compose, patch, reverse
from lakeward.session.sessions import table_session
from tests.diffing.stored import stored
from tests.diffing.tables import Change, changed_again, changes, frame_of, settled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FEW = settings(
    max_examples=2, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    # A table is made from a seed: a smaller seed gives no smaller table.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)  # fmt: skip
TWO_SIDED = (DiffMode.COLUMN_BY_COLUMN, DiffMode.SIDE_BY_SIDE, DiffMode.STRUCTS)


def counted(rows: DataFrame | list[Any], names: list[str] | None = None) -> Counter[Any]:
    """Rows as plain equality sees them: a row that is left alone keeps its zeros and its order of entries."""
    if isinstance(rows, list):
        return Counter(tuple(settled(value) for value in row) for row in rows)
    chosen = rows if names is None else rows.select(*["`" + name.replace("`", "``") + "`" for name in names])
    return Counter(tuple(settled(value) for value in row) for row in chosen.collect())


def names_for(mode: DiffMode) -> DiffOptions:
    """A one-sided diff shows columns under their own names, of which ``diff`` may be one."""
    return DiffOptions(diff_mode=mode, diff_column="what happened", insert_value="new", delete_value="gone")


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    return table_session(spark)


@pytest.mark.parametrize("mode", TWO_SIDED)
@given(change=changes(rows=40), seed=st.integers(0, 2**32))
@FEW
def test_patch_reverse_and_compose_obey_their_laws(
    session: SparkSession, mode: DiffMode, change: Change, seed: int
) -> None:
    options, keys, names = names_for(mode), change.keys, change.schema.names
    later = changed_again(change, seed)
    past, current = change.frames(session)
    last = frame_of(session, later.current, change.schema)
    first = stored(diff(past, current, keys, options))
    second = stored(diff(current, last, keys, options))
    back = stored(reverse(first, keys, options))
    whole = stored(compose(first, second, keys, options))
    assert counted(patch(past, first, keys, options), names) == counted(change.current)
    assert counted(patch(current, back, keys, options), names) == counted(change.past)
    assert counted(whole) == counted(diff(past, last, keys, options))
    assert counted(back) == counted(diff(current, past, keys, options))


@pytest.mark.parametrize("mode", [DiffMode.RIGHT_SIDE, DiffMode.COLUMN_BY_COLUMN, DiffMode.STRUCTS])
@given(change=changes(rows=40))
@FEW
def test_a_sparse_diff_with_its_changes_listed_is_a_patch(
    session: SparkSession, mode: DiffMode, change: Change
) -> None:
    options = DiffOptions(diff_mode=mode, sparse_mode=True, diff_column="what happened", change_column="what changed")
    past, current = change.frames(session)
    found = stored(diff(past, current, change.keys, options))
    assert counted(patch(past, found, change.keys, options), change.schema.names) == counted(change.current)


@given(change=changes(rows=30, nested=False))
@FEW
def test_a_right_side_diff_and_one_without_keys_are_patches(session: SparkSession, change: Change) -> None:
    past, current = change.frames(session)
    right = names_for(DiffMode.RIGHT_SIDE)
    names = change.schema.names
    found = stored(diff(past, current, change.keys, right))
    assert counted(patch(past, found, change.keys, right), names) == counted(change.current)
    whole_rows = stored(diff(past, current, (), right))
    assert counted(patch(past, whole_rows, (), right), names) == counted(change.current)
