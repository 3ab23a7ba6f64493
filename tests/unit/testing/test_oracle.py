"""The oracle against two other definitions of the fold: applying changes one by one, and looking back per column."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeward.model import Operation, Place
from lakeward.testing.oracle import ModelChange, Truth, fold, fold_by_rule, fold_keyless, move
from lakeward.testing.replication.strategies import COLUMNS, KEY, arrivals, batches, histories, split_file

MANY = settings(max_examples=150, deadline=None)


def fold_files(history, files):
    changes = [change for file in files for change in file.changes]
    return fold(changes, history.columns, history.key, history.load)


def at(row, sequence=""):
    return Place(sequence, "20240101000000000000", "shop/product/a.csv", row)


def apply_one_by_one(history):
    truth = Truth(history.columns, history.key)
    for row in history.load:
        truth.insert(row)
    departures = {(change.place.file, change.place.row) for change in history.changes if change.moved_from is not None}
    for change in history.changes:
        if change.moved_from is not None:
            truth.delete(change.key)
            truth.change_key(change.moved_from, change.key, change.set_values)
        elif change.operation is not Operation.DELETE:
            truth.update(change.key, change.set_values)
        elif (change.place.file, change.place.row) not in departures:
            truth.delete(change.key)
    return truth.by_key


def look_back(history, key, column, before):
    """The value of a column just before a place among the changes, from the last change that contains it."""
    for number in range(before - 1, -1, -1):
        change = history.changes[number]
        if change.key != key:
            continue
        if change.operation is Operation.DELETE:
            return None
        if column not in change.unchanged:
            return change.values[column]
        if change.moved_from is not None:
            return look_back(history, change.moved_from, column, number - 1)
    return next((row[column] for row in history.load if (row["id"],) == key), None)


def exists(history, key):
    own = [change for change in history.changes if change.key == key]
    return own[-1].operation is not Operation.DELETE if own else any((row["id"],) == key for row in history.load)


@MANY
@given(histories())
def test_fold_equals_applying_changes_one_by_one(history):
    assert fold_files(history, history.files) == apply_one_by_one(history)


@MANY
@given(histories())
def test_fold_equals_looking_back_per_column(history):
    keys = {(row["id"],) for row in history.load} | {change.key for change in history.changes}
    end = len(history.changes)
    expected = {
        key: {name: key[0] if name in KEY else look_back(history, key, name, end) for name in COLUMNS}
        for key in keys
        if exists(history, key)
    }
    assert fold_files(history, history.files) == expected


@MANY
@given(histories(), st.data())
def test_any_arrival_with_any_repeats_ends_in_the_same_rows(history, data):
    arrived = data.draw(arrivals(history.files))
    cut = data.draw(batches(arrived))
    assert [file for batch in cut for file in batch] == arrived
    assert fold_files(history, arrived) == fold_files(history, history.files)


@MANY
@given(histories(), st.data())
def test_a_split_file_ends_in_the_same_rows(history, data):
    whole = fold_files(history, history.files)
    if not history.files:
        return
    chosen = data.draw(st.sampled_from(history.files))
    pieces = split_file(chosen, data.draw(st.integers(0, len(chosen.changes))))
    assert fold_files(history, [*pieces, *(file for file in history.files if file != chosen)]) == whole


def test_a_partial_update_of_a_missing_row_leaves_nulls():
    change = ModelChange(at(0), Operation.UPDATE, (1,), {"id": 1, "a": 5, "b": 6}, frozenset({"b"}))
    assert fold([change], ["id", "a", "b"], ["id"]) == {(1,): {"id": 1, "a": 5, "b": None}}


def test_a_late_insert_does_not_bring_a_deleted_row_back():
    delete = ModelChange(at(1), Operation.DELETE, (1,))
    insert = ModelChange(at(0), Operation.INSERT, (1,), {"id": 1})
    assert fold([delete, insert], ["id"], ["id"]) == {}


def test_a_partial_move_takes_its_columns_from_the_old_row_and_not_from_the_row_it_replaces():
    load = [{"id": 1, "a": "old"}, {"id": 2, "a": "replaced"}]
    changes = move(at(0), (1,), (2,), {"id": 2, "a": None}, frozenset({"a"}))
    assert fold(reversed(changes), ["id", "a"], ["id"], load) == {(2,): {"id": 2, "a": "old"}}


def test_the_order_column_counts_before_the_file():
    newer = ModelChange(at(0, "2"), Operation.UPDATE, (1,), {"id": 1, "a": "new"})
    older = ModelChange(at(1, "1"), Operation.UPDATE, (1,), {"id": 1, "a": "old"})
    assert fold([newer, older], ["id", "a"], ["id"])[1,]["a"] == "new"


def test_a_table_without_key_keeps_equal_rows_and_refuses_updates():
    inserts = [ModelChange(at(row), Operation.INSERT, (), {"a": 1}) for row in range(2)]
    assert fold_keyless([*inserts, inserts[0]], ["a"], [{"a": 1}]) == [{"a": 1}] * 3
    with pytest.raises(ValueError, match="cannot take DELETE"):
        fold_keyless([ModelChange(at(0), Operation.DELETE, ())], ["a"])


def test_rules_for_tables_without_a_key_refuse_set_aside_or_count():
    insert = ModelChange(at(0), Operation.INSERT, (), {"a": 1})
    update = ModelChange(at(1), Operation.UPDATE, (), {"a": 2})
    with pytest.raises(ValueError, match="UPDATE"):
        fold_by_rule([insert, update], ["a"], "stop")
    aside, ignoring = (fold_by_rule([insert, update], ["a"], rule, [{"a": 0}]) for rule in ("quarantine", "inserts"))
    assert aside.rows == ignoring.rows == [{"a": 0}, {"a": 1}]
    assert (aside.set_aside, aside.ignored) == ([update], 0)
    assert (ignoring.set_aside, ignoring.ignored) == ([], 1)
