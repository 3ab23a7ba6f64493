"""Op handlers: every kind of op has one, and the run of a table calls it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lakeward.errors import ConflictError
from lakeward.mirror import run
from lakeward.mirror.kinds import HANDLERS, handler_of
from lakeward.mirror.kinds.base import OpHandler, RowOpHandler
from lakeward.mirror.op.changelog import OpRecord
from lakeward.mirror.op.effect import Bases, OpInput, Strategy
from lakeward.mirror.op.erased import Erasure
from lakeward.mirror.run import RunEnd, TableOps
from lakeward.model import OpKind, Progress, TableId

FIXED = {OpKind.TRUNCATE: Strategy.CLEAR, OpKind.VOID: Strategy.LOG_ONLY, OpKind.ERASE: Strategy.ERASE}


def test_every_kind_of_op_has_a_handler() -> None:
    assert set(HANDLERS) == set(OpKind)
    assert all(handler_of(name).kind is name for name in OpKind)
    for handler in HANDLERS.values():
        assert type(handler).effect is not OpHandler.effect
        assert not isinstance(handler, RowOpHandler) or type(handler).fold is not RowOpHandler.fold


@pytest.mark.parametrize("name", FIXED)
def test_the_effect_of_ops_without_rows_is_decided_by_their_kind(name: OpKind) -> None:
    nothing: Any = None
    record = OpRecord(3, name, 1, Progress(3), erasure=Erasure("", (), "", 0))
    op_input = OpInput(record, Bases(None, None), (), None, 0)
    assert handler_of(name).effect(nothing, nothing, op_input).plan.strategy is FIXED[name]


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(run, "_first_bases", lambda _: Bases(None, None))
    monkeypatch.setattr(run, "capture", lambda _: Bases(None, None, logged=1))
    return SimpleNamespace(table=TableId("a", "b"), permission=SimpleNamespace(require=lambda: None))


def attempts(monkeypatch: pytest.MonkeyPatch, *outcomes: object) -> list[int]:
    """Make attempts at ops end with the given outcomes in turn; return the list of what each was based on."""
    following, stood_on = iter(outcomes), []

    def attempt(_ops: TableOps, bases: Bases) -> object:
        stood_on.append(bases.logged)
        outcome = next(following)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(TableOps, "_attempt", attempt)
    return stood_on


def report(op: int, *, is_last: bool = False) -> Any:
    return SimpleNamespace(op=op, is_last=is_last, mirror_rows=10 * op)


def test_ops_follow_one_another_until_none_is_due(context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    stood_on = attempts(monkeypatch, report(1), report(2), None)
    assert [found.op for found in TableOps(context)] == [1, 2]
    assert stood_on == [0, 1, 1], "what was found at the beginning serves the first op only"


def test_an_op_marked_as_the_last_ends_the_run(context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts(monkeypatch, report(1, is_last=True))
    ops = TableOps(context)
    assert [found.op for found in ops] == [1]
    assert ops.end == RunEnd(10)


def test_a_writer_that_loses_a_race_starts_over_and_gives_up_at_the_fifth(
    context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = ConflictError("another writer was faster")
    stood_on = attempts(monkeypatch, *[lost] * 4, report(1), *[lost] * 5)
    ops = iter(TableOps(context))
    assert next(ops).op == 1
    with pytest.raises(ConflictError):
        next(ops)
    assert len(stood_on) == 10
