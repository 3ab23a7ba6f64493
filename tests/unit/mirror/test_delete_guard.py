"""The delete guard: one rule for batches, loads, comparisons and change sets, and what each refusal states."""

from __future__ import annotations

import pytest

from lakeward.delete_guard import (
    GUARDED_ROWS,
    Removal,
    batch_refusal,
    change_set_refusal,
    comparison_refusal,
    load_refusal,
)
from lakeward.model import TableId

TABLE = TableId("shop", "orders")
LARGE = Removal(600, 1_000, 0.5)


@pytest.mark.parametrize(
    ("removed", "rows", "too_large", "refused"),
    [
        (500, 1_000, False, False),
        (501, 1_000, True, True),
        (501, GUARDED_ROWS - 1, True, False),
        (0, 0, False, False),
    ],
)
def test_only_a_larger_share_of_a_large_table_is_refused(
    removed: int, rows: int, too_large: bool, refused: bool
) -> None:
    removal = Removal(removed, rows, 0.5)
    assert (removal.is_too_large, removal.is_refused) == (too_large, refused)


def test_a_share_at_its_limit_is_allowed_despite_rounding_of_its_complement() -> None:
    assert not Removal(700, 1_000, 0.7).is_refused


def test_a_table_without_rows_cannot_lose_all_of_them() -> None:
    assert Removal(3, 3, 1.0).removes_all
    assert not Removal(2, 3, 1.0).removes_all
    assert not Removal(0, 0, 1.0).removes_all
    assert Removal(0, 0, 1.0).share == 0


def test_every_refusal_states_what_was_found_what_is_allowed_and_the_next_command() -> None:
    batch = batch_refusal(TABLE, LARGE, "rewrite (many keys), 1 row written")
    assert batch.message == (
        "shop.orders: this batch would delete 600 of 1,000 rows (60%), more than max_delete_share 50%; "
        "plan: rewrite (many keys), 1 row written"
    )
    load = load_refusal(TABLE, LARGE)
    assert load.message == (
        "shop.orders: this load would replace 1,000 rows by 400, 60% fewer; allowed are 50% (max_delete_share), and "
        "never all of them"
    )
    assert batch.hint == load.hint == "lakeward run shop.orders --allow-deletes"
    comparison = comparison_refusal(LARGE, "b.csv")
    assert comparison.message == (
        "600 of 1,000 rows would be deleted, 60% where 50% are allowed: the current side may be incomplete; nothing "
        "was written"
    )
    assert comparison.hint == "check b.csv, then allow it: --max-delete-share 1"
    change_set = change_set_refusal(LARGE, "c/1")
    assert change_set.message == (
        "c/1 would delete 600 of 1,000 rows, 60% where 50% are allowed: its current side may be incomplete; nothing "
        "was written"
    )
    assert change_set.hint == "check the current export, then allow it: --max-delete-share 1"
