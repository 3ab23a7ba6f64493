"""Tables whose files are not named as DMS names them: the order of files, what stops it, loads, reloads and undos."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.mirror.plain_table import FOLDER, TABLE, PlainTable
from tests.unit.mirror.stories import COPYING, MANY, PHASES, SETTLES, ordinary_steps, play

from lakeward.config.tables import FileOrder
from lakeward.errors import ConfigurationError
from lakeward.formats.file_order import kind_of, place_after, place_by_name, place_by_number, shown_place
from lakeward.mirror.op import arrivals
from lakeward.mirror.op.context import RunOptions
from lakeward.mirror.op.order_check import do_copies_count
from lakeward.model import Disposition, OrderBy
from lakeward.testing.replication import (
    Deliver,
    Flush,
    FullLoad,
    HoldBack,
    Reload,
    ReplicationOptions,
    RunLakeward,
    Touch,
    Write,
)
from lakeward.testing.replication.strategies import replication_options, replication_steps

OWN = {"load": "part-*.csv", "changes": "**/delta_*.csv", "order": "name"}
ARRIVAL = {**OWN, "order": "arrival"}
TIMED = {"timestamp_column": "ts", "files": OWN}


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlainTable:
    return PlainTable(tmp_path, monkeypatch, files=OWN)


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlainTable:
    return PlainTable(tmp_path, monkeypatch, files=ARRIVAL)


# --- by name ---


def test_names_are_ordered_with_digits_as_numbers(table: PlainTable) -> None:
    table.land("part-0.csv", "1,load", "2,load")
    table.land("delta_9.csv", "U,1,nine")
    table.land("delta_10.csv", "U,1,ten")
    table.land("delta_010b.csv", "U,2,b")
    assert table.run() == "idle"
    assert table.rows == {1: "ten", 2: "b"}


@pytest.mark.parametrize(("before", "after"), [
    ("delta_9.csv", "delta_10.csv"), ("delta_09.csv", "delta_10.csv"), ("2024/2/delta_9.csv", "2024/11/delta_1.csv"),
    ("delta_2024-01-31.csv", "delta_2024-02-01.csv"), ("delta_1.csv", "delta_1b.csv"), ("delta_A.csv", "delta_a.csv"),
    ("delta_99999999999999999999.csv", "delta_100000000000000000000.csv"), ("delta_0.csv", "delta_1.csv"),
])  # fmt: skip
def test_places_by_name(before: str, after: str) -> None:
    assert place_by_name(before) < place_after(place_by_name(before)) < place_by_name(after)
    assert kind_of(place_by_name(before)) == "their names"


def test_leading_zeros_make_equal_places_and_the_path_decides() -> None:
    assert place_by_name("delta_007.csv") == place_by_name("delta_7.csv")


@pytest.mark.parametrize(("place", "text"), [
    (place_by_name("2024/05/delta_0042.csv"), "2024/5/delta_42.csv"),
    (place_after(place_by_name("delta_42.csv")), "after delta_42.csv"), (place_by_number(17), "file number 17"),
    (place_after(place_by_number(17)), "after file number 17"), ("20240405003052555000", "20240405-003052555000"),
])  # fmt: skip
def test_places_are_shown_to_people(place: str, text: str) -> None:
    assert shown_place(place) == text


def test_a_late_file_is_applied_at_its_place(table: PlainTable) -> None:
    table.land("part-0.csv", "1,load")
    table.land("delta_3.csv", "D,1,load")
    table.run()
    table.land("2024/delta_4.csv", "I,9,new")
    table.land("delta_2.csv", "U,1,late")
    table.run()
    assert table.rows == {9: "new"}, "the deletion keeps its place after the late update"


def test_files_that_fit_no_pattern_are_not_read_and_both_patterns_stop_the_table(table: PlainTable) -> None:
    table.land("part-0.csv", "1,load")
    table.land("LOAD00000001.csv", "2,dms")
    table.land("20240327-014303888.csv", "I,3,dms")
    table.land("delta_1.json", "x")
    table.run()
    assert table.rows == {1: "load"}
    table.settings = table.settings.model_validate({**table.settings.model_dump(by_alias=True), "files": {
        "load": "*.csv", "changes": "delta_*", "order": "name"}})  # fmt: skip
    table.land("delta_1.csv", "I,4,both")
    assert "delta_1.csv fits both files.load (*.csv) and files.changes (delta_*)" in table.stops()


def test_parts_that_only_look_like_those_of_dms_are_parts_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = PlainTable(tmp_path, monkeypatch, files={**OWN, "load": "*LOAD*.csv"})
    table.land("full_LOAD1.csv", "1,a", "2,a")
    table.run()
    table.land("full_LOAD01.csv", "3,b", "4,b", at=1_800_000_000)
    table.run()
    assert table.rows == {1: "a", 2: "a", 3: "b", 4: "b"}


def test_another_format_of_a_part_is_the_same_part(table: PlainTable) -> None:
    table.settings = table.settings.model_copy(update={"files": table.settings.files.model_copy(
        update={"load": "part-*"})})  # fmt: skip
    table.land("part-0.csv", "1,load")
    table.land("delta_1.csv", "I,2,new")
    table.run()
    table.remove("part-0.csv")
    table.land("part-0.csv.gz", "1,load")
    assert (table.run(), table.rows, table.progress.generation.number) == ("idle", {1: "load", 2: "new"}, 1)


# --- by arrival ---


def _numbers(table: PlainTable) -> dict[str, str]:
    return {Path(found.record.summary.path).name: found.record.summary.time for found in table._logged
            if found.record.disposition is Disposition.ARRIVED}  # fmt: skip


def test_files_are_applied_in_the_order_in_which_they_were_first_seen(seen: PlainTable) -> None:
    seen.land("part-0.csv", "1,load")
    seen.run()
    seen.land("delta_b.csv", "U,1,first")
    seen.run()
    seen.land("delta_a.csv", "U,1,second", at=1)
    seen.run()
    assert seen.rows == {1: "second"}


def test_files_that_are_seen_together_are_ordered_by_name(seen: PlainTable) -> None:
    seen.land("part-0.csv", "1,load")
    seen.land("delta_10.csv", "U,1,ten", at=1)
    seen.land("delta_9.csv", "U,1,nine", at=2)
    seen.run()
    assert seen.rows == {1: "ten"}


def test_the_number_is_recorded_when_a_file_is_seen_not_when_it_is_read(seen: PlainTable) -> None:
    seen.settings = seen.settings.model_copy(update={"max_files": 1})
    seen.land("part-0.csv", "1,load")
    seen.run()
    seen.land("delta_b.csv", 'U,1,"broken')
    seen.land("delta_c.csv", "U,1,c")
    seen.stops()
    assert _numbers(seen) == {"delta_b.csv": place_by_number(1), "delta_c.csv": place_by_number(2)}
    seen.land("delta_a.csv", "U,1,a")
    seen.land("delta_b.csv", "U,1,b")
    seen.touch_all(at=1_800_000_000)
    seen.run()
    assert seen.rows == {1: "a"}, "delta_a was seen last"


def test_a_number_survives_an_undo_and_a_lost_state_store(seen: PlainTable, monkeypatch: pytest.MonkeyPatch) -> None:
    seen.land("part-0.csv", "1,load")
    for name in ("delta_c.csv", "delta_b.csv", "delta_a.csv"):
        seen.run()
        seen.land(name, f"U,1,{name}")
    seen.run()
    before = _numbers(seen)
    # What an undo of everything leaves: the numbers, and no op that counts.
    seen.undo_all()
    assert seen.rows == {}
    seen.touch_all(at=1_800_000_000)
    seen.run()
    assert (seen.rows, _numbers(seen)) == ({1: "delta_a.csv"}, before)


def test_files_before_the_first_table_receive_numbers_with_its_load(seen: PlainTable) -> None:
    seen.land("delta_b.csv", "U,1,b")
    seen.land("part-0.csv", "1,load")
    seen.land("delta_a.csv", "U,1,a")
    assert seen.run() == "idle"
    assert seen.rows == {1: "b"}
    assert _numbers(seen) == {"delta_a.csv": place_by_number(1), "delta_b.csv": place_by_number(2)}


def test_a_run_of_one_file_records_the_numbers_of_all(seen: PlainTable) -> None:
    seen.land("part-0.csv", "1,load")
    seen.run()
    seen.land("delta_a.csv", "U,1,a")
    seen.land("delta_b.csv", "U,1,b")
    seen.run(files=frozenset({f"{FOLDER}/delta_b.csv"}))
    assert seen.rows == {1: "b"}
    seen.run()
    assert seen.rows == {1: "b"}, "delta_a was seen with it and comes first by name"


def test_more_files_than_one_op_records(seen: PlainTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "MOST_AT_ONCE", 3)
    seen.land("part-0.csv", "1,load")
    for number in range(8):
        seen.land(f"delta_{number}.csv", f"U,1,{number}")
    seen.run()
    assert seen.rows == {1: "7"}
    assert sorted(_numbers(seen).values()) == [place_by_number(number) for number in range(1, 9)]


# --- what stops a table ---


def test_the_order_of_a_table_cannot_change_under_it(table: PlainTable) -> None:
    table.land("part-0.csv", "1,load")
    table.land("delta_1.csv", "U,1,one")
    table.run()
    for files in ({"load": "part-*.csv"}, ARRIVAL):
        table.settings = table.settings.model_copy(update={"files": type(table.settings.files)(**files)})
        stopped = table.stops()
        assert "its change files were ordered by their names so far" in stopped and "--to-op 0" in stopped


def test_another_order_of_a_table_with_a_reload_needs_the_place_of_that_again(seen: PlainTable) -> None:
    seen.land("part-0.csv", "1,load")
    seen.land("delta_1.csv", "U,1,one")
    seen.run()
    seen.land("part-0.csv", "1,reload", at=1_800_000_000)
    seen.run(cut=f"after:{FOLDER}/delta_1.csv")
    seen.land("delta_2.csv", "I,2,two")
    seen.run()
    seen.settings = seen.settings.model_copy(update={"files": type(seen.settings.files)(**OWN)})
    assert "--cut after:PATH, where PATH is the last change file that the present load contains" in seen.stops()
    seen.undo_all()
    seen.forget_state()
    seen.run(cut=f"after:{FOLDER}/delta_1.csv")
    assert seen.rows == {1: "reload", 2: "two"}


def test_a_file_that_was_a_load_part_and_is_a_change_file_now_stops_the_table(table: PlainTable) -> None:
    table.land("part-0.csv", "1,load")
    table.run()
    table.settings = table.settings.model_copy(
        update={"files": type(table.settings.files)(changes="part-*.csv", order="name")}
    )
    assert "op 1 recorded sales/product/part-0.csv as a load file" in table.stops()


@pytest.mark.parametrize("cut", ["2024-04-05", "file:elsewhere/delta_1.csv"])
def test_a_cut_must_name_a_file_of_the_table(table: PlainTable, cut: str) -> None:
    table.land("part-0.csv", "1,load")
    table.land("delta_1.csv", "U,1,one")
    table.run()
    table.land("part-0.csv", "1,reload", at=1_800_000_000)
    assert "--cut" in table.stops(cut=cut)


@pytest.mark.parametrize("name", ["Delta_2.csv", "delta_2.csv", "part-0.csv", "x/../delta_1.csv"])
def test_a_cut_at_a_name_that_no_change_file_has_is_refused(table: PlainTable, name: str) -> None:
    _reloaded(table)
    table.remove("delta_2.csv")
    table.forget_state()
    table.undo_all()
    assert "which is no change file in landing" in table.stops(cut=f"file:{FOLDER}/{name}")


def test_a_cut_at_a_file_does_not_fit_names_of_dms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = PlainTable(tmp_path, monkeypatch)
    table.land("LOAD00000001.csv", "1,load")
    table.run()
    assert "--cut TIME" in table.stops(cut="file:sales/product/delta_1.csv")
    assert RunOptions(cut="file:x").cut == "file:x"
    with pytest.raises(ConfigurationError, match="is not a time"):
        RunOptions(cut="delta_1.csv")


@pytest.mark.parametrize(("order", "order_by", "has_key", "counts"), [
    ("arrival", OrderBy.NONE, True, True), ("arrival", OrderBy.TIMESTAMP, True, False),
    ("name", OrderBy.NONE, True, False), ("column", OrderBy.SEQUENCE, True, False),
    ("name", OrderBy.NONE, False, True), ("column", OrderBy.TIMESTAMP, False, True),
    ("column", OrderBy.SEQUENCE, False, False),
])  # fmt: skip
def test_where_a_copy_would_change_the_table(order: FileOrder, order_by: OrderBy, has_key: bool, counts: bool) -> None:
    assert do_copies_count(order, order_by, has_key=has_key) is counts


# --- reloads ---


def _reloaded(table: PlainTable) -> None:
    table.land("part-0.csv", "1,load", "2,load")
    table.land("delta_1.csv", "U,1,one")
    table.land("delta_2.csv", "U,2,two")
    table.run()
    table.land("part-0.csv", "1,reload", "2,reload", at=1_800_000_000)


@pytest.mark.parametrize(("cut", "rows"), [
    ("after:delta_2.csv", {1: "reload", 2: "reload"}), ("file:delta_2.csv", {1: "reload", 2: "two"}),
    ("file:delta_1.csv", {1: "one", 2: "two"}), ("after:delta_1.csv", {1: "reload", 2: "two"}),
])  # fmt: skip
@pytest.mark.parametrize("order", ["name", "arrival"])
def test_the_user_decides_which_files_follow_a_reload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str, cut: str, rows: dict[int, str]
) -> None:
    table = PlainTable(tmp_path, monkeypatch, files={**OWN, "order": order})
    _reloaded(table)
    stopped = table.stops()
    assert "nothing shows which of 2 change files follow it" in stopped
    assert f"all of them are in it: lakeward run {TABLE} --cut after:{FOLDER}/delta_2.csv" in stopped
    assert f"all of them follow it: lakeward run {TABLE} --cut file:{FOLDER}/delta_1.csv" in stopped
    mark, _, name = cut.partition(":")
    table.run(cut=f"{mark}:{FOLDER}/{name}")
    assert table.rows == rows
    table.land("delta_3.csv", "U,1,three")
    table.run()
    assert table.rows == {**rows, 1: "three"}


def test_trusted_modification_times_decide(table: PlainTable) -> None:
    table.settings = table.settings.model_copy(update={"landing_times": "trusted"})
    _reloaded(table)
    table.land("delta_3.csv", "U,1,three", at=1_800_000_009)
    table.run()
    assert table.rows == {1: "three", 2: "reload"}
    generation = table.progress.generation
    assert generation.cut == place_by_name("delta_3.csv") and len(generation.since) == 20
    table.land("delta_2b.csv", "U,2,between", at=1_800_000_001)
    assert "delta_2b.csv first, which come before those that follow the load" in table.stops()
    table.run(cut=f"file:{FOLDER}/delta_2b.csv")
    assert table.rows == {1: "three", 2: "between"}


def test_trusted_times_that_alternate_in_the_order_of_files_decide_nothing(table: PlainTable) -> None:
    table.settings = table.settings.model_copy(update={"landing_times": "trusted"})
    _reloaded(table)
    table.touch("delta_1.csv", at=1_800_000_009)
    table.run()  # a consumed file that was touched keeps the time it was read with
    assert table.rows == {1: "reload", 2: "reload"}


def test_commit_times_decide_where_load_rows_have_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = PlainTable(tmp_path, monkeypatch, **TIMED)
    table.land("part-0.csv", "2024-01-01 00:00:00,1,load", "2024-01-01 00:00:01,2,load")
    table.land("delta_1.csv", "U,2024-01-02 00:00:00,1,one")
    table.run()
    table.land("delta_2.csv", "U,2024-01-04 00:00:00,1,two")
    table.land("part-0.csv", "2024-01-03 00:00:00,1,reload", "2024-01-03 00:00:01,2,reload", at=1_800_000_000)
    table.run()
    assert table.rows == {1: "two", 2: "reload"}
    assert table.decisions[-1].evidence == "load times"
    assert (table.progress.generation.cut, table.progress.generation.since) == (
        place_by_name("delta_2.csv"), "20240103000000000000",
    )  # fmt: skip


def test_a_reload_without_change_files_needs_no_cut(table: PlainTable) -> None:
    table.land("part-0.csv", "1,load")
    table.run()
    table.land("part-0.csv", "1,reload", at=1_800_000_000)
    table.run()
    table.land("delta_1.csv", "U,1,one")
    table.run()
    assert table.rows == {1: "one"}


def test_names_that_begin_anew_with_a_load_stop_the_table(table: PlainTable) -> None:
    table.settings = table.settings.model_copy(update={"on_missing_folder": "truncate"})
    table.land("part-0.csv", "1,load")
    table.land("delta_8.csv", "U,1,eight")
    table.run()
    table.remove("part-0.csv", "delta_8.csv")
    table.run()
    table.land("part-0.csv", "1,restarted", at=1_800_000_000)
    table.run()
    table.land("delta_1.csv", "U,1,after the restart")
    assert "delta_1.csv first, which come before those that follow the load" in table.stops()
    assert table.rows == {1: "restarted"}
    table.run(cut=f"file:{FOLDER}/delta_1.csv")
    assert table.rows == {1: "after the restart"}


def test_files_of_ops_that_are_undone_do_not_move_the_cut(table: PlainTable) -> None:
    table.land("part-0.csv", "1,load")
    table.land("delta_8.csv", "U,1,eight")
    table.run()
    table.undo_all()
    table.remove("delta_8.csv")
    table.run()
    table.land("part-0.csv", "1,reload", at=1_800_000_000)
    table.run()
    table.land("delta_1.csv", "U,1,one")
    table.run()
    assert table.rows == {1: "one"}


@pytest.mark.parametrize("apart", [True, False])
def test_changes_that_a_reload_contains_are_not_applied_on_top_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, apart: bool
) -> None:
    table = PlainTable(tmp_path, monkeypatch, timestamp_column="ts", files={**OWN, "order": "column"})
    table.land("part-0.csv", "2024-01-01 00:00:01,1,load", "2024-01-01 00:00:02,2,load")
    table.land("delta_1.csv", "U,2024-02-01 11:50:00,1,in the reload")
    table.run()
    reload = ("2024-02-01 12:00:01,1,reload", "2024-02-01 12:00:02,2,reload")
    late, later = "U,2024-02-01 11:40:00,1,late", "U,2024-02-01 12:30:00,2,later"
    if apart:
        table.land("part-0.csv", *reload, at=1_800_000_000)
        table.run()
        table.land("delta_2.csv", late)
    else:
        table.land("delta_2.csv", late, later)
        table.run()
        table.land("part-0.csv", *reload, at=1_800_000_000)
    assert "before others which that load contains" in table.stops()
    assert table.rows[1] == "reload"
    table.remove("delta_2.csv")
    table.land("delta_3.csv", later)
    table.run()
    assert table.rows == {1: "reload", 2: "later"}


# --- stories ---

OUT_OF_ORDER = (HoldBack, Deliver)
# Names of files have no times of the capture's clock. A reload is placed by commit times and times in its rows, and it
# cannot be seen that these are of clocks that differ.
ONE_CLOCK = {"source_lag_ms": 0}


@settings(max_examples=40 * MANY, phases=PHASES)
@given(replication_options(file_order="name", **ONE_CLOCK), replication_steps(), SETTLES)
def test_rows_are_right_or_the_table_stops_where_names_order_files(options, steps, settle):
    play(options, steps, table={"reload_settle": settle})


@settings(max_examples=40 * MANY, phases=PHASES)
@given(
    replication_options(file_order="arrival", **ONE_CLOCK),
    replication_steps(without=OUT_OF_ORDER),
    st.sampled_from((1, 1000)),
)
def test_rows_are_right_or_the_table_stops_where_files_are_ordered_as_they_were_seen(options, steps, files):
    play(options, steps, table={"max_files": files, "reload_settle": 0})


@settings(max_examples=40 * MANY, phases=PHASES)
@given(replication_options(file_order="column", change_sequence=True, **ONE_CLOCK), replication_steps(), SETTLES)
def test_rows_are_right_or_the_table_stops_where_a_column_orders_changes(options, steps, settle):
    play(options, steps, table={"reload_settle": settle})


@settings(max_examples=25 * MANY, phases=PHASES)
@given(
    replication_options(file_order="arrival", **ONE_CLOCK),
    replication_steps(without=COPYING),
    st.sampled_from(("stop", "truncate")),
)
def test_rows_are_right_where_modification_times_of_files_of_any_name_are_trusted(options, steps, missing):
    play(options, steps, table={"landing_times": "trusted", "on_missing_folder": missing, "reload_settle": 0})


@settings(max_examples=25 * MANY, phases=PHASES)
@given(st.sampled_from(("name", "arrival")), ordinary_steps())
def test_ordinary_reloads_with_times_of_rows_need_no_decision(order, steps):
    options = ReplicationOptions(file_order=order)
    assert set(play(options, steps, table={"reload_settle": 0}).outcomes) <= {"idle", "warning"}


@pytest.mark.parametrize("order", ["name", "arrival", "column"])
def test_the_same_story_ends_in_the_same_rows_under_other_names(order: str) -> None:
    steps = (
        Write(((1, "a"), (2, "b"), (3, "c"))), FullLoad(parts=2), RunLakeward(), Write(((1, "x"),)), Flush(), Touch(),
        RunLakeward(), Write(((2, None), (4, "d"))), Flush(), Write(((4, "e"),)), Flush(), RunLakeward(),
        Reload(parts=1), Write(((1, "y"),)), Flush(), RunLakeward(),
    )  # fmt: skip
    plain = ReplicationOptions(change_sequence=True)
    renamed = ReplicationOptions(change_sequence=True, file_order=order)
    ends = [play(options, steps[:13]) for options in (plain, renamed)]
    assert ends[0].table.all_rows == ends[1].table.all_rows == [(1, "x"), (3, "c"), (4, "e")]
