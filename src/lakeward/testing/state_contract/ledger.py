"""The contract of the ledger cache: consumed files, at one position."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lakeward.model import Disposition, FileClass, LedgerEntry, Progress
from lakeward.testing.state_contract.shared import CUSTOMER, ELSEWHERE, PRODUCT, PROGRESS, WithStore, make_entry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward.state.base import StateStore


class LedgerContract(WithStore):
    """The contract of the ledger; ``many_files`` is the size of the largest ledger."""

    many_files = 20_000

    def test_an_unknown_table_has_no_ledger(self, store: StateStore) -> None:
        assert store.ledger_position(PRODUCT) is None
        assert store.progress(PRODUCT) is None
        assert store.lookup(PRODUCT, ["a"]) == {}
        assert store.load_parts(PRODUCT, 1) == []
        assert store.count_files(PRODUCT) == 0
        assert not store.has_files(PRODUCT)

    def test_a_ledger_comes_back_as_it_went_in(self, store: StateStore) -> None:
        entries = [make_entry(path, op=number) for number, path in enumerate(["a", "ä/%_'\".csv", "A", "日本"], 1)]
        store.replace_ledger(PRODUCT, 2**63 - 1, PROGRESS, iter(entries))
        assert store.ledger_position(PRODUCT) == 2**63 - 1
        assert store.progress(PRODUCT) == PROGRESS
        assert store.lookup(PRODUCT, {entry.path for entry in entries} | {"b"}) == {e.path: e for e in entries}
        assert store.lookup(PRODUCT, []) == {}

    def test_progress_before_the_first_op_comes_back(self, store: StateStore) -> None:
        store.replace_ledger(PRODUCT, 1, Progress(), [])
        assert store.progress(PRODUCT) == Progress()
        assert not store.has_files(PRODUCT)

    def test_of_two_entries_with_one_path_the_later_stands(self, store: StateStore) -> None:
        far_apart = [make_entry(f"filler-{number}") for number in range(1200)]
        store.replace_ledger(
            PRODUCT, 1, PROGRESS, [make_entry("a", op=1), make_entry("a", op=2), *far_apart, make_entry("a", op=3)]
        )
        assert store.lookup(PRODUCT, ["a"])["a"].op == 3
        assert store.count_files(PRODUCT) == 1201

    def test_replacing_throws_away_this_table_alone(self, store: StateStore) -> None:
        store.replace_ledger(PRODUCT, 1, PROGRESS, [make_entry("a"), make_entry("b")])
        store.replace_ledger(CUSTOMER, 5, PROGRESS, [make_entry("a", op=9)])
        store.replace_ledger(PRODUCT, 2, Progress(op=8), [make_entry("c")])
        assert set(store.lookup(PRODUCT, ["a", "b", "c"])) == {"c"}
        assert store.ledger_position(PRODUCT) == 2
        assert store.progress(PRODUCT) == Progress(op=8)
        assert store.ledger_position(CUSTOMER) == 5
        assert store.lookup(CUSTOMER, ["a"])["a"].op == 9

    def test_entries_that_fail_midway_leave_the_old_ledger(self, store: StateStore) -> None:
        def failing() -> Iterator[LedgerEntry]:
            yield from (make_entry(f"new-{number}") for number in range(1500))
            msg = "the lake is unreachable"
            raise OSError(msg)

        store.replace_ledger(PRODUCT, 1, PROGRESS, [make_entry("old")])
        with pytest.raises(OSError, match="unreachable"):
            store.replace_ledger(PRODUCT, 2, Progress(op=8), failing())
        with pytest.raises(OSError, match="unreachable"):
            store.extend_ledger(PRODUCT, after=1, snapshot_id=2, progress=Progress(op=8), entries=failing())
        assert (store.ledger_position(PRODUCT), store.count_files(PRODUCT)) == (1, 1)
        store.replace_ledger(PRODUCT, 3, PROGRESS, [make_entry("newest")])
        assert store.count_files(PRODUCT) == 1

    def test_other_writers_do_not_wait_for_slow_entries(self, store: StateStore) -> None:
        def slow() -> Iterator[LedgerEntry]:
            yield from (make_entry(f"first-{number}") for number in range(600))
            lease = store.acquire_lease(CUSTOMER, ELSEWHERE, seconds=30)
            store.renew_lease(lease, seconds=30)
            yield make_entry("last")

        store.replace_ledger(PRODUCT, 1, PROGRESS, slow())
        assert store.count_files(PRODUCT) == 601

    def test_extending_needs_the_position_it_was_computed_from(self, store: StateStore) -> None:
        def extend(after: int | None, snapshot_id: int, *paths: str) -> bool:
            entries = [make_entry(path, op=snapshot_id) for path in paths]
            progress = Progress(op=snapshot_id)
            return store.extend_ledger(
                PRODUCT, after=after, snapshot_id=snapshot_id, progress=progress, entries=entries
            )

        assert not extend(1, 2, "a")
        assert not store.has_files(PRODUCT)
        assert extend(None, 1, "a", "b")
        assert not extend(None, 9, "z")
        assert extend(1, 2, "b", "c")
        assert not extend(1, 9, "z")
        assert {path: entry.op for path, entry in store.lookup(PRODUCT, "abcz").items()} == {"a": 1, "b": 2, "c": 2}
        assert store.progress(PRODUCT) == Progress(op=2)

    def test_extending_leaves_other_tables_alone(self, store: StateStore) -> None:
        store.replace_ledger(CUSTOMER, 1, PROGRESS, [make_entry("a", op=1)])
        store.extend_ledger(PRODUCT, after=None, snapshot_id=2, progress=PROGRESS, entries=[make_entry("a", op=2)])
        assert store.lookup(CUSTOMER, ["a"])["a"].op == 1

    def test_load_parts_of_a_generation_come_by_path(self, store: StateStore) -> None:
        parts = [make_entry(f"LOAD{n:08d}.csv", generation=2, file_class=FileClass.LOAD) for n in (3, 1, 2)]
        older = make_entry("LOAD00000009.csv", generation=1, file_class=FileClass.LOAD)
        store.replace_ledger(PRODUCT, 1, PROGRESS, [*parts, older, make_entry("20240405.csv", generation=2)])
        assert [entry.path[-5] for entry in store.load_parts(PRODUCT, 2)] == ["1", "2", "3"]
        assert store.load_parts(PRODUCT, 1) == [older]

    def test_any_number_of_paths_is_looked_up(self, store: StateStore) -> None:
        paths = [f"2024/{number:06d}.csv" for number in range(self.many_files)]
        entries = {path: make_entry(path) for path in paths}
        store.replace_ledger(PRODUCT, 1, PROGRESS, iter(entries.values()))
        assert store.count_files(PRODUCT) == self.many_files
        unknown = [f"unknown-{number}" for number in range(self.many_files // 4)]
        assert store.lookup(PRODUCT, [*paths, *unknown]) == entries

    def test_files_that_only_received_their_number_are_looked_up_and_not_counted(self, store: StateStore) -> None:
        seen = replace(make_entry("b", generation=0), disposition=Disposition.ARRIVED)
        store.replace_ledger(PRODUCT, 1, PROGRESS, [make_entry("a"), seen])
        assert store.lookup(PRODUCT, ["b"]) == {"b": seen}
        assert store.count_files(PRODUCT) == 1
        read = make_entry("b")
        assert store.extend_ledger(PRODUCT, after=1, snapshot_id=2, progress=PROGRESS, entries=[read])
        assert store.count_files(PRODUCT) == 2

    def test_a_forgotten_ledger_is_gone(self, store: StateStore) -> None:
        for table in (PRODUCT, CUSTOMER):
            store.replace_ledger(table, 1, PROGRESS, [make_entry("a")])
        store.forget_ledger(PRODUCT)
        store.forget_ledger(PRODUCT)
        assert store.ledger_position(PRODUCT) is None
        assert store.progress(PRODUCT) is None
        assert not store.has_files(PRODUCT)
        assert store.has_files(CUSTOMER)

    def test_a_path_is_a_load_part_only_as_long_as_its_last_entry_is(self, store: StateStore) -> None:
        store.replace_ledger(PRODUCT, 1, PROGRESS, [make_entry("a", file_class=FileClass.LOAD)])
        store.extend_ledger(PRODUCT, after=1, snapshot_id=2, progress=PROGRESS, entries=[make_entry("a", op=2)])
        assert store.load_parts(PRODUCT, 1) == []
        assert store.count_files(PRODUCT) == 1

    def test_very_long_paths_stay_apart(self, store: StateStore) -> None:
        entries = {path: make_entry(path) for path in ("x" * 1500 + end for end in "ab")}
        store.replace_ledger(PRODUCT, 1, PROGRESS, entries.values())
        assert store.lookup(PRODUCT, list(entries)) == entries

    def test_a_reader_finds_the_old_ledger_or_the_new_one(self, store: StateStore) -> None:
        # More than the page of any store.
        paths = [f"{number}.csv" for number in range(600)]
        store.replace_ledger(PRODUCT, 0, PROGRESS, (make_entry(path, op=100) for path in paths))
        stop, mixed = threading.Event(), list[set[int]]()

        def look() -> None:
            while not stop.is_set():
                ops = [entry.op for entry in store.lookup(PRODUCT, paths).values()]
                if len(ops) != len(paths) or len(set(ops)) != 1:
                    mixed.append(set(ops))

        reader = threading.Thread(target=look)
        reader.start()
        for op in range(101, 105):
            store.replace_ledger(PRODUCT, op, PROGRESS, [make_entry(path, op=op) for path in paths])
        stop.set()
        reader.join()
        assert mixed == []
        assert store.ledger_position(PRODUCT) == 104

    def test_of_two_extensions_of_one_position_one_stands(self, store: StateStore) -> None:
        store.replace_ledger(PRODUCT, 1, PROGRESS, [])
        barrier, outcomes = threading.Barrier(4), list[tuple[int, bool]]()

        def extend(number: int) -> None:
            barrier.wait()
            entries = [make_entry(f"{number}-{count}.csv", op=number) for count in range(30)]
            extended = store.extend_ledger(
                PRODUCT, after=1, snapshot_id=number, progress=Progress(op=number), entries=entries
            )
            outcomes.append((number, extended))

        threads = [threading.Thread(target=extend, args=(number,)) for number in range(2, 6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        [winner] = [number for number, extended in outcomes if extended]
        assert (store.ledger_position(PRODUCT), store.progress(PRODUCT)) == (winner, Progress(op=winner))
        assert store.count_files(PRODUCT) == 30
        assert store.has_files(PRODUCT, generation=1)
