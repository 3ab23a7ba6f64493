"""The verdict on a change agrees with the fold of all that had arrived by its op."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from lakeward.model import Operation, Place, Progress
from lakeward.testing.oracle import ModelChange, fold, in_order
from lakeward.testing.replication.strategies import COLUMNS, KEY, ChangeHistory, arrivals, histories
from lakeward.views.history.rows import ChangeVerdict, RowChange, judge_changes

OTHERS = frozenset(COLUMNS) - frozenset(KEY)


def labelled(change: ModelChange) -> ModelChange:
    """Make a change set its own place as every value: what is left of it is then seen in the rows."""
    is_move = change.moved_from is not None
    values = dict.fromkeys(OTHERS, change.place) if change.operation is not Operation.DELETE else {}
    return replace(change, values={**dict(zip(KEY, change.key, strict=True)), **values},
                   unchanged=frozenset() if is_move else change.unchanged)  # fmt: skip


def row_change(change: ModelChange, op: int) -> RowChange:
    is_delete = change.operation is Operation.DELETE
    columns_set = OTHERS if is_delete else OTHERS - change.unchanged
    return RowChange(op, 1, change.place, columns_set, is_delete)


def stands(change: ModelChange, known: list[ModelChange]) -> bool:
    """Return whether anything of a change is left once all known ones are folded."""
    last = [event for event in in_order(known) if event.key == change.key][-1]
    if change.operation is Operation.DELETE or not OTHERS - change.unchanged:
        return last is change
    row = fold(known, COLUMNS, KEY).get(change.key, {})
    return any(row.get(name) == change.place for name in OTHERS - change.unchanged)


@given(data=st.data(), history=histories())
def test_a_change_has_won_if_a_value_of_it_is_in_the_row_after_its_op(
    data: st.DataObject, history: ChangeHistory
) -> None:
    order = data.draw(arrivals(history.files))
    arrived = [file.path for file in {file.path: file for file in order}.values()]
    ops = {path: number for number, path in enumerate(arrived, start=2)}
    changes = in_order(labelled(change) for change in history.changes)
    for key in {change.key for change in changes}:
        own = [change for change in changes if change.key == key]
        found = judge_changes(
            [row_change(event, ops[event.place.file]) for event in own], Progress(len(ops) + 1), {1: 1}
        )
        for change, (verdict, reason) in zip(own, found, strict=True):
            op = ops[change.place.file]
            known = [change for change in changes if ops[change.place.file] <= op]
            assert (verdict is ChangeVerdict.WON) == stands(change, known), (change, verdict, reason)
            if verdict is ChangeVerdict.STALE:
                assert any(event.place > change.place and ops[event.place.file] < op for event in own)


def place(sequence: str, file: str = "a", row: int = 1) -> Place:
    return Place(sequence, "20240101000000000000", file, row)


def verdicts(
    *changes: RowChange, undone: tuple[tuple[int, int], ...] = (), begun: dict[int, int] | None = None
) -> list[str]:
    return [verdict.value for verdict, _ in judge_changes(changes, Progress(9, undone=undone), begun or {1: 1})]


def test_a_change_sequence_that_is_delivered_again_is_a_repeat_and_supersedes_nothing() -> None:
    first = RowChange(2, 1, place("1"), OTHERS, is_numbered=True)
    again = RowChange(3, 1, place("1", file="b"), OTHERS, is_numbered=True)
    assert verdicts(first, again) == ["won", "repeated"]
    # The order of delivery decides, not that of the files.
    assert verdicts(replace(first, op=4), again) == ["repeated", "won"]
    # Once the first is undone, the second counts.
    assert verdicts(first, again, undone=((2, 2),)) == ["undone", "won"]


def test_a_change_of_a_generation_that_a_load_has_replaced_is_superseded() -> None:
    old, late = RowChange(2, 1, place("1"), OTHERS), RowChange(5, 1, place("2"), OTHERS)
    found = judge_changes([old, late], Progress(9), {1: 1, 2: 4})
    assert found == [
        (ChangeVerdict.WON, None),
        (ChangeVerdict.SUPERSEDED, "the load of generation 2 had replaced generation 1"),
    ]


def test_reasons_name_the_op_that_intervened() -> None:
    found = judge_changes(
        [RowChange(3, 1, place("1"), OTHERS), RowChange(2, 1, place("2"), OTHERS), RowChange(5, 1, place("3"), OTHERS)],
        Progress(9, undone=((5, 6),)),
        {1: 1},
    )
    assert found == [
        (ChangeVerdict.STALE, "op 2 had already applied a later change"),
        (ChangeVerdict.WON, None),
        (ChangeVerdict.UNDONE, "op 7 undid it"),
    ]
    assert verdicts(RowChange(2, 1, place("1"), frozenset("a")), RowChange(2, 1, place("2"), frozenset("b"))) == [
        "won",
        "won",
    ]
    assert verdicts(RowChange(2, 1, place("1"), frozenset("a")), RowChange(2, 1, place("2"), frozenset("a"))) == [
        "superseded",
        "won",
    ]
