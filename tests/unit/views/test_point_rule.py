"""The rule for points: what it proves is one state of the database, whatever was read, split, repeated or loaded."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import groupby
from random import Random

import pytest

from lakeward.model import Place, digits_micros, time_digits
from lakeward.views.points.rule import (
    Bar,
    Candidate,
    GroupTable,
    HeldRows,
    LoadEnd,
    judge,
    merged,
    point_name,
    point_time,
)

SECOND = 1_000_000
START = digits_micros("20240401100000")


def end(second: float) -> str:
    return time_digits(START + int(second * SECOND))


def at(second: float) -> int:
    return START + int(second * SECOND)


def held(first: float, last: float, file: str = "a") -> HeldRows:
    return HeldRows(at(first), at(last), True, place(first, file), place(last, file), end(10 * (last // 10 + 1)))


def place(second: float, file: str = "a") -> Place:
    return Place(time_digits(at(second)), "", file, 1)


LOADED = LoadEnd(at(-1), "the times in its rows")
A, B = GroupTable("sales.a", load_end=LOADED), GroupTable("sales.b", load_end=LOADED)


def judged(
    tables: list[GroupTable], rows: dict[tuple[str, int], HeldRows], *, declared: bool = False
) -> list[list[str]]:
    """The reasons of each of three candidates, with their tables."""
    found = judge([end(10), end(20), end(30)], tables, rows, declared=declared)
    return [[f"{entry.table}: {entry.reason}" for entry in candidate.prevented] for candidate in found]


ROWS = {("sales.a", 0): held(1, 9), ("sales.b", 1): held(11, 19), ("sales.a", 2): held(21, 29)}


def test_ends_of_files_are_points_once_a_later_commit_arrived() -> None:
    first, second, last = judged([A, B], ROWS)
    assert (first, second) == ([], [])
    assert len(last) == 1 and "no change that was committed later has arrived" in last[0]
    assert judged([A, B], ROWS, declared=True) == [[], [], []]


def test_equal_commit_times_on_both_sides_may_be_one_transaction() -> None:
    first, second, _ = judged([A, B], {**ROWS, ("sales.b", 1): held(9, 19)})
    assert "a transaction may be in both" in first[0] and second == []


def test_changes_without_commit_times_prove_nothing() -> None:
    rows = {**ROWS, ("sales.b", 1): HeldRows(is_timed=False)}
    assert all("changes of sales.b have no commit times" in found[0] for found in judged([A, B], rows))
    assert judged([A, B], rows, declared=True) == [
        [f"{name}: its load may hold later transactions: it may have lasted until 2024-04-01T09:59:59Z "
         "(the times in its rows, and an hour is added for the lag)" for name in ("sales.a", "sales.b")]
    ] * 3  # fmt: skip
    known = [replace(table, load_end=LoadEnd(at(15), "loaded_by", is_declared=True)) for table in (A, B)]
    first, second, last = judged(known, rows, declared=True)
    assert (len(first), second, last) == (2, [], [])


def test_a_table_is_complete_up_to_what_bars_it_and_the_others_show_it() -> None:
    barred = replace(B, bars=(Bar(end(30), "later"), Bar(end(20), "it has not read cdc/2.csv")))
    unknown = "None: it is unknown whether the last transaction continues in the next file (sales.b: it has not read"
    first, second, _ = judged([A, barred], ROWS)
    assert (first, second[1:]) == ([f"{unknown} cdc/2.csv)"], ["sales.b: it has not read cdc/2.csv"])
    assert judged([A, replace(B, bars=(Bar(end(30), "later"),))], ROWS)[:2] == [[], [
        "None: it is unknown whether the last transaction continues in the next file (sales.b: later)",
    ]]  # fmt: skip
    assert judged([A, replace(B, bars=(Bar(end(31), "later"),))], ROWS)[:2] == [[], []]
    assert judged([A, replace(B, bars=(Bar("", "it was never run"),))], ROWS)[0] == ["sales.b: it was never run"]
    assert judged([A, replace(B, since=end(15))], ROWS)[:2] == [
        ["sales.b: its state is known from 2024-04-01T10:00:15Z on"], [],
    ]  # fmt: skip


def test_a_load_counts_from_the_first_commit_after_it() -> None:
    loaded = replace(B, load_end=LoadEnd(at(15), "the times in its rows"))
    first, second, _ = judged([A, loaded], ROWS)
    assert "it may have lasted until 2024-04-01T10:00:15Z" in first[0] and second == []
    assert judged([A, replace(B, load_end=LoadEnd(at(11), "x"))], ROWS)[0], "a commit of that very second is in it"


def test_a_later_file_that_precedes_an_earlier_one_in_a_tables_order() -> None:
    rows = {("sales.a", 0): held(1, 9), ("sales.a", 1): replace(held(11, 19, "late"), first=place(5, "late"))}
    assert "late, a later file, holds changes that precede" in judged([A], rows, declared=True)[0][0]


def test_names_of_points_are_read_back() -> None:
    for time in ("20240327014303888000", "20240327014303000000", "20240327014303000001"):
        assert point_time(point_name(time)) == time
    assert point_name("20240327014303888000") == "point-2024-03-27T014303.888Z"
    for text in ("newest", "point-2024-03-27", "point-2024-13-27T014303Z", "point-2024-03-27T014303.8880Z", ""):
        assert point_time(text) is None


def test_ranges_of_files_are_merged() -> None:
    assert merged([held(5, 6), HeldRows(is_timed=False), held(1, 2)]) == replace(held(1, 6), is_timed=False)
    assert merged([]) == HeldRows()


# A database of several tables in which every transaction moves an amount from one account to another.


@dataclass(frozen=True)
class Row:
    transaction: int
    commit: int
    table: str
    account: int
    balance: int


State = dict[tuple[str, int], int]
Files = list[tuple[str, list["Row"]]]


class Database:
    """Transfers between accounts, captured into files that may divide transactions, repeat files or arrive late."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.names = [f"bank.t{number}" for number in range(random.randint(2, 3))]
        self.states: list[State] = [{(name, account): 100 for name in self.names for account in range(2)}]
        self.rows: list[Row] = []
        clock = 0
        for number in range(1, 25):
            clock += random.choice((0, 1, 1, 3))
            self._transfer(number, at(clock))
        self.commits = {row.transaction: row.commit for row in self.rows}

    def _transfer(self, number: int, commit: int) -> None:
        state = dict(self.states[-1])
        for _ in range(self.random.randint(1, 3)):
            source, target = self.random.sample(sorted(state), 2)
            for key, amount in ((source, -1), (target, 1)):
                state[key] += amount
                self.rows.append(Row(number, commit, *key, state[key]))
        self.states.append(state)

    def files(self, *, whole: bool) -> Files:
        """Cut the rows anywhere, and name each file a second after its last commit, later than the file before.

        ``whole``: only between transactions, and no file is written twice.
        """
        wholes = [n for n in range(1, len(self.rows)) if self.rows[n].transaction != self.rows[n - 1].transaction]
        anywhere = [] if whole else self.random.sample(range(1, len(self.rows)), 3)
        cuts = sorted({*anywhere, *self.random.sample(wholes, 5)})
        pieces = [self.rows[low:high] for low, high in zip([0, *cuts], [*cuts, len(self.rows)], strict=True)]
        if not whole and self.random.random() < 0.3:
            again = self.random.randrange(len(pieces))
            pieces.insert(self.random.randint(again, len(pieces)), pieces[again])
        named, clock = [], 0
        for piece in pieces:
            clock = max(clock + 1, piece[-1].commit + SECOND)
            named.append((time_digits(clock), piece))
        return named


def state_at(loads: dict[str, int], database: Database, read: dict[str, Files], time: str) -> State:
    """Fold each table as a mirror is: its load, then the changes of the files that it read, by commit and file."""
    state: State = {}
    for name in database.names:
        state.update({key: value for key, value in database.states[loads[name]].items() if key[0] == name})
        rows = [
            (row.commit, file, number, row)
            for file, piece in read[name] if file <= time
            for number, row in enumerate(piece) if row.table == name
        ]  # fmt: skip
        state.update({(row.table, row.account): row.balance for *_, row in sorted(rows, key=lambda entry: entry[:3])})
    return state


def summaries(database: Database, read: dict[str, Files], ends: list[str]) -> dict[tuple[str, int], HeldRows]:
    found: dict[tuple[str, int], list[HeldRows]] = defaultdict(list)
    for name in database.names:
        for file, piece in read[name]:
            own = [(row.commit, number) for number, row in enumerate(piece) if row.table == name]
            if own:
                places = [Place(time_digits(commit), file, file, number) for commit, number in own]
                summary = HeldRows(min(own)[0], max(own)[0], True, min(places), max(places), file)
                found[name, sum(end < file for end in ends)].append(summary)
    return {key: merged(parts) for key, parts in found.items()}


def story(seed: int, *, whole: bool) -> tuple[Database, dict[str, int], dict[str, Files], list[Candidate]]:
    random = Random(seed)
    database = Database(random)
    files = database.files(whole=whole)
    loads, read, tables = {}, {}, []
    for name in database.names:
        # A load shows the state after some transaction; files hold changes from before it as well.
        loads[name] = random.choice((0, 0, random.randint(0, 8)))
        missing = {random.choice(files)[0]} if random.random() < 0.1 else set[str]()
        stopped = random.choice((files[-1][0], files[-1][0], random.choice(files)[0]))
        read[name] = [(time, piece) for time, piece in files if time <= stopped and time not in missing]
        known = {time for time, _ in read[name]}
        unread = min((time for time, _ in files if time not in known), default=None)
        loaded = database.commits.get(loads[name], at(-1)) + random.choice((0, SECOND))
        bars = (Bar(unread, "it has not read it"),) if unread is not None else ()
        tables.append(GroupTable(name, load_end=LoadEnd(loaded, "rows"), bars=bars))
    ends = [time for time, _ in groupby(files, key=lambda file: file[0])]
    return database, loads, read, judge(ends, tables, summaries(database, read, ends), declared=whole)


@pytest.mark.parametrize("whole", [False, True], ids=["by commit times", "declared"])
@pytest.mark.parametrize("seeds", [range(first, first + 100) for first in range(0, 300, 100)])
def test_every_point_is_the_state_after_some_transaction_and_no_money_is_missing(seeds: range, whole: bool) -> None:
    points = ends = wrong_without_the_rule = 0
    for seed in seeds:
        database, loads, read, candidates = story(seed, whole=whole)
        for candidate in candidates:
            state = state_at(loads, database, read, candidate.time)
            is_whole = state in database.states
            if not candidate.prevented:
                assert is_whole and sum(state.values()) == sum(database.states[0].values()), (seed, candidate)
            points, ends = points + (not candidate.prevented), ends + 1
            wrong_without_the_rule += not is_whole
    assert points > ends / 20, "the rule finds points"
    assert wrong_without_the_rule > ends / 10, "heads of tables differ: an end of a file is not a point as such"
