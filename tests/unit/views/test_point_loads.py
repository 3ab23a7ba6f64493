"""When a table's load ended at the latest: by its rows, by a declaration, or by its files."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lakeward.config import Config, TableSettings
from lakeward.model import Disposition, FileClass, FileIdentity, Generation, LedgerEntry, TableId, digits_micros
from lakeward.views.points.evidence import load_end
from lakeward.views.points.rule import LoadEnd

WRITTEN = digits_micros("20240401120000")


def part(number: int, disposition: Disposition = Disposition.CONSUMED) -> LedgerEntry:
    identity = FileIdentity(1, WRITTEN + number)
    return LedgerEntry(f"bank/a/LOAD{number}.csv", identity, "", 1, disposition, 1, 1, FileClass.LOAD, "")


def ended(generation: Generation, *parts: LedgerEntry, loaded_by: str | None = None) -> LoadEnd | None:
    state = SimpleNamespace(load_parts=lambda _table, _number: list(parts))
    settings = TableSettings(loaded_by=loaded_by, primary_key=("id",))
    context: Any = SimpleNamespace(state=state, settings=settings, config=Config(), table=TableId("bank", "a"))
    return load_end(context, generation)


def test_the_times_in_its_rows_count_where_they_are_not_the_start_of_the_task() -> None:
    found = ended(Generation(1, load_to=5, timed_by_row=True), part(1))
    assert found == LoadEnd(5, "the times in its rows")


@pytest.mark.parametrize("generation", [Generation(1, load_to=5), Generation(1)])
def test_else_the_newest_of_its_files_counts_and_not_those_that_are_no_part_of_it(generation: Generation) -> None:
    found = ended(generation, part(2), part(1), part(9, Disposition.SUPERSEDED))
    assert found is not None and (found.micros, found.is_declared) == (WRITTEN + 2, False)
    assert ended(generation) is None and ended(generation, part(9, Disposition.RETURNED)) is None


def test_a_declaration_counts_unless_it_is_about_the_load_before() -> None:
    declared = ended(Generation(1), part(1), loaded_by="2024-03-31")
    assert declared == LoadEnd(digits_micros("20240331235959999999"), "loaded_by", is_declared=True)
    assert ended(Generation(1), loaded_by="2024-03-31T10:00:00") is not None, "that there is no load is declared, too"
    reloaded = ended(Generation(2, "20240401000000000000"), part(1), loaded_by="2024-03-31")
    assert reloaded is not None and reloaded.micros == WRITTEN + 1


def test_an_emptied_table_is_empty_from_when_that_was_noticed() -> None:
    found = ended(Generation(2, emptied=True, since="20240401000000000000"))
    assert found is not None and found.micros == digits_micros("20240401")
