"""What load files mean: copies, late parts, reloads, files that are gone. Real files and decisions, no Spark."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
from tests.unit.mirror.plain_table import FOLDER, PlainTable

from lakeward.formats.dms.listing import load_part
from lakeward.model import Disposition

DAY = 86_400
START = 1_704_067_200  # 2024-01-01
LOAD1, LOAD2 = f"{FOLDER}/LOAD00000001.csv", f"{FOLDER}/LOAD00000002.csv"


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlainTable:
    """Without a timestamp column, landing times untrusted."""
    return PlainTable(tmp_path, monkeypatch)


@pytest.fixture
def timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlainTable:
    """With a timestamp column, as DMS is best set up."""
    return PlainTable(tmp_path, monkeypatch, timestamp_column="ts")


def loaded(table: PlainTable) -> PlainTable:
    """Load {1,2,3}, then U1, D2, I4."""
    table.land("LOAD00000001.csv", "1,a", "2,b", "3,c", at=START)
    table.land("20240102-000000000.csv", "U,1,A", "D,2,b", "I,4,d", at=START + DAY)
    assert table.run() == "idle"
    assert table.rows == {1: "A", 3: "c", 4: "d"}
    return table


def timed_load(table: PlainTable) -> PlainTable:
    load = "2024-01-01 00:00:00"
    table.land("LOAD00000001.csv", f"{load},1,a", f"{load},2,b", f"{load},3,c", at=START)
    table.land("20240102-000000000.csv", "U,2024-01-02 00:00:00,1,A", "D,2024-01-02 00:00:00,2,b", at=START + DAY)
    assert table.run() == "idle" and table.rows == {1: "A", 3: "c"}
    return table


# --- the same load ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trusted", ["trusted", "untrusted"])
def test_a_touched_or_copied_load_changes_nothing_and_is_shown_until_it_is_decided(tmp_path, monkeypatch, trusted):
    table = loaded(PlainTable(tmp_path, monkeypatch, landing_times=trusted))
    before, ops = table.rows, table.progress.op
    for day in (5, 6):
        table.touch_all(START + day * DAY)
        assert table.run() == "idle" and table.rows == before
    assert "written again with the same content" in (table.warning or "")
    table.forget_state()
    assert table.run() == "idle" and table.rows == before and table.warning
    assert table.progress.generation and table.progress.generation.number == 1
    assert table.run(same_load=True) == "idle" and table.warning is None
    table.touch("LOAD00000001.csv", START + 7 * DAY)
    table.land("20240103-000000000.csv", "U,3,C", at=START + 2 * DAY)
    assert table.run() == "idle" and table.rows == {**before, 3: "C"} and table.warning
    assert table.progress.op == ops + 4


def test_one_of_two_parts_touched_changes_nothing(table):
    table.land("LOAD00000001.csv", "1,a", at=START)
    table.land("LOAD00000002.csv", "2,b", at=START)
    table.land("20240102-000000000.csv", "U,1,A", at=START)
    table.run()
    table.touch("LOAD00000002.csv", START + DAY)
    assert table.run() == "idle" and table.rows == {1: "A", 2: "b"}


def test_without_changes_a_touched_load_needs_no_decision(table):
    table.land("LOAD00000001.csv", "1,a", at=START)
    table.run()
    table.touch("LOAD00000001.csv", START + DAY)
    assert table.run() == "idle" and table.warning is None


def test_a_touched_load_beside_vanished_change_files_stops(table):
    loaded(table)
    table.touch("LOAD00000001.csv", START + DAY)
    table.remove("20240102-000000000.csv")
    text = table.stops()
    assert "landing lacks 1 consumed change file:" in text and "--reload" in text and "--same-load" in text
    assert table.run(same_load=True) == "idle" and table.rows == {1: "A", 3: "c", 4: "d"}


def test_the_same_load_compressed_is_the_same_load(table):
    loaded(table)
    table.land("LOAD00000001.csv.gz", "1,a", "2,b", "3,c", at=START + DAY)
    assert table.run() == "idle" and table.rows == {1: "A", 3: "c", 4: "d"}
    table.remove("LOAD00000001.csv")
    assert table.run() == "idle" and table.rows == {1: "A", 3: "c", 4: "d"}


def test_a_reload_that_ends_in_the_same_content_is_accepted_with_the_option(table):
    loaded(table)
    table.touch("LOAD00000001.csv", START + 5 * DAY)
    table.run()
    table.land("20240110-000000000.csv", "U,3,C", at=START + 9 * DAY)
    text = table.stops(reload=True)
    assert "nothing inside the files shows which change files follow it" in text and "--reload --cut 20240106" in text
    assert table.run(reload=True, cut="20240106" + "0" * 12) == "idle"
    assert table.rows == {1: "a", 2: "b", 3: "C"}


# --- late parts ------------------------------------------------------------------------------------------------------


def test_a_late_part_joins_unless_it_shares_a_key(table):
    loaded(table)
    table.land("LOAD00000002.csv", "5,e", at=START)
    assert table.run() == "idle" and table.rows == {1: "A", 3: "c", 4: "d", 5: "e"}
    table.land("LOAD00000003.csv", "1,again", "6,f", at=START)
    text = table.stops()
    assert "1 keys of it" in text and "--keep-part" in text and "--drop-part" in text and "--reload" in text
    assert table.run(drop_parts={f"{FOLDER}/LOAD00000003.csv"}) == "idle"
    assert table.run() == "idle" and table.rows == {1: "A", 3: "c", 4: "d", 5: "e"}
    table.touch("LOAD00000003.csv", START + DAY)
    assert table.run() == "idle" and 6 not in table.rows


def test_a_new_load_under_other_segment_names_is_not_mixed_with_the_old_one(table):
    loaded(table)
    table.land("SEGMENT1_LOAD00000001.csv", "1,new", "9,i", at=START + 5 * DAY)
    assert "--reload" in table.stops()
    text = table.stops(reload=True)
    assert f"{LOAD1} was not written again" in text
    assert table.run(reload=True, drop_parts={LOAD1}, cut="20240105" + "0" * 12) == "idle"
    assert table.rows == {1: "new", 9: "i"}
    table.touch("LOAD00000001.csv", START + 9 * DAY)
    assert table.run() == "idle" and table.rows == {1: "new", 9: "i"} and table.warning


def test_a_new_load_without_any_shared_key_is_recognised_by_its_own_time(timed):
    timed_load(timed)
    timed.land("LOAD00000002.csv", "2024-02-01 00:00:00,9,i", at=START)
    assert "its rows were loaded at 20240201" in timed.stops()


def test_a_new_load_without_any_shared_key_is_seen_by_its_other_naming(table):
    table.land("SEGMENT1_LOAD00000001.csv", "1,a", at=START)
    table.run()
    table.land("SEGMENT2_LOAD00000001.csv", "2,b", at=START)
    assert table.run() == "idle" and table.rows == {1: "a", 2: "b"}
    table.land("LOAD00000001.csv", "3,c", at=START)
    assert "named without segments, or by others" in table.stops()


def test_without_a_key_a_later_part_stops(tmp_path, monkeypatch):
    table = PlainTable(tmp_path, monkeypatch, primary_key=[], load_settle=60)
    table.land("LOAD00000001.csv", "1,a", at=START)
    table.run()
    table.land("LOAD00000002.csv", "2,b", at=START + 30)
    assert table.run() == "idle" and table.rows == {1: "a", 2: "b"}
    table.land("LOAD00000003.csv", "3,c", at=START + DAY)
    assert "has no key" in table.stops()
    assert table.run(keep_parts={f"{FOLDER}/LOAD00000003.csv"}) == "idle" and table.rows == {1: "a", 2: "b", 3: "c"}


def test_one_part_as_two_files_is_refused(table):
    table.land("LOAD00000001.csv", "1,a")
    table.land("LOAD00000001.csv.gz", "1,b")
    assert "as several files" in table.stops()
    assert table.run(drop_parts={LOAD1}) == "idle" and table.rows == {1: "b"}


# --- reloads ---------------------------------------------------------------------------------------------------------


def test_an_ordinary_reload_with_a_timestamp_column_needs_no_decision(timed):
    timed_load(timed)
    again = "2024-02-01 00:00:00"
    # Copied late, with times that mean nothing, and after a change file that follows it.
    timed.land("20240202-000000000.csv", "U,2024-02-02 00:00:00,3,after", at=START)
    timed.run()
    timed.land("20240131-000000000.csv", "U,2024-01-31 00:00:00,3,before", at=START + 99 * DAY)
    timed.land("LOAD00000001.csv", f"{again},1,new", f"{again},3,new", at=START)
    assert timed.run() == "idle" and timed.rows == {1: "new", 3: "after"}
    [_, decision] = timed.decisions
    assert (decision.evidence, decision.before, decision.after) == ("load times", 2, 1)
    assert decision.cut.startswith("20240201") and decision.changed == (LOAD1,)
    # Applied to the old generation first, not skipped.
    dispositions = [(logged.generation, logged.record.disposition) for logged in timed._logged
                    if "20240131" in logged.record.summary.path]  # fmt: skip
    assert dispositions == [(1, Disposition.CONSUMED)]
    timed.land("20240125-000000000.csv", "U,2024-01-25 00:00:00,1,late and old", at=START + 100 * DAY)
    assert timed.run() == "idle" and timed.rows == {1: "new", 3: "after"}


def test_a_reload_without_times_stops_and_prints_the_command(table):
    loaded(table)
    table.land("LOAD00000001.csv", "1,new", at=START + 5 * DAY)
    text = table.stops()
    assert "the table has no timestamp_column" in text
    assert "1 change file would be in the reload and 0 would follow it" in text
    assert "lakeward run sales.product --cut 20240106-000000000000" in text and "landing_times=trusted" in text
    assert table.rows == {1: "A", 3: "c", 4: "d"}
    assert table.run(cut="20240106" + "0" * 12) == "idle" and table.rows == {1: "new"}


CUTS = ["2024-01-02T00:00:00", "2024-01-02", "20240102", "2024-01-02 00:00", "20240102-000000", "20240102000000"]
CUTS += ["20240102-000000000000", "2024-01-02T00:00:00Z", "2024-01-02T02:00:00+02:00", "2024-01-01T23:00:00.000-01:00"]


@pytest.mark.parametrize("cut", CUTS)
def test_every_form_of_a_cut_decides_alike(table, cut):
    loaded(table)
    table.land("LOAD00000001.csv", "1,new", "2,new", at=START + 5 * DAY)
    assert table.run(cut=cut) == "idle" and table.rows == {1: "A", 4: "d"}
    assert table.progress.generation.cut == "20240102" + "0" * 12


@pytest.mark.parametrize("cut", ["2024-01-03T00:00:00", "2024-01-03", "20240103-000000"])
def test_change_files_before_a_cut_are_in_the_reload(table, cut):
    loaded(table)
    table.land("LOAD00000001.csv", "1,new", "2,new", at=START + 5 * DAY)
    assert table.run(cut=cut) == "idle" and table.rows == {1: "new", 2: "new"}


NO_CUTS = ["", " ", "nonsense", "2024", "202401", "2024-01", "2024-13-01", "20241301-000000", "20240102-250000"]
NO_CUTS += ["2024010212345", "2024-01-02x12:00", "20240102-0030", "2024-01-02T", "20240102-000000\n", "٢٠٢٤٠١٠٢"]
NO_CUTS += ["0001-01-01T00:00:00+02:00", "0" * 20, "20240102-0000000000000"]


@pytest.mark.parametrize("cut", NO_CUTS)
def test_a_cut_that_is_not_a_time_is_refused_and_the_forms_are_named(table, cut):
    loaded(table)
    table.land("LOAD00000001.csv", "1,new", at=START + 5 * DAY)
    text = table.stops(cut=cut)
    assert f"{cut!r} is not a time" in text and "2024-04-05T00:30:52" in text and "20240405-003052555" in text
    assert table.rows == {1: "A", 3: "c", 4: "d"}


def test_trusted_times_decide_where_rows_have_none(tmp_path, monkeypatch):
    table = loaded(PlainTable(tmp_path, monkeypatch, landing_times="trusted"))
    table.land("20240110-000000000.csv", "U,1,after", at=START + 9 * DAY)
    table.run()
    table.land("LOAD00000001.csv", "1,new", "7,g", at=START + 5 * DAY)
    assert table.run() == "idle" and table.rows == {1: "after", 7: "g"}
    assert table.decisions[-1].evidence == "landing times"


def test_contents_that_come_again_are_reloads(tmp_path, monkeypatch):
    table = PlainTable(tmp_path, monkeypatch, landing_times="trusted")
    for day, name in enumerate(("a", "b", "a", "b", "a")):
        table.land("LOAD00000001.csv", f"1,{name}", at=START + day * DAY)
        assert table.run() == "idle" and table.rows == {1: name}
    assert table.progress.generation and table.progress.generation.number == 5


def test_daily_loads_alone_need_no_cut_until_a_change_file_comes_that_may_be_older(table):
    for day, name in enumerate(("a", "b", "c")):
        table.land("LOAD00000001.csv", f"1,{name}", at=START + day * DAY)
        assert table.run() == "idle" and table.rows == {1: name}
    assert table.decisions[-1].evidence == "observed"
    table.land("20240102-000000000.csv", "U,1,older or newer?")
    text = table.stops()
    assert "may precede that load or follow it" in text and "--cut 20240102-000000" in text
    table.land(time.strftime("%Y%m%d-%H%M%S000.csv", time.gmtime(time.time() + DAY)), "U,1,surely newer")
    assert table.run(cut="20240103" + "0" * 12) == "idle" and table.rows == {1: "surely newer"}


def test_a_reload_waits_until_no_load_file_changes(tmp_path, monkeypatch):
    table = timed_load(PlainTable(tmp_path, monkeypatch, timestamp_column="ts", reload_settle="10m"))
    table.land("LOAD00000001.csv", "2024-02-01 00:00:00,1,new", at=time.time())
    assert table.run() == "waiting" and table.rows == {1: "A", 3: "c"}
    table.touch("LOAD00000001.csv", time.time() - 3600)
    assert table.run() == "idle" and table.rows == {1: "new"}


def test_an_additional_part_that_was_finished_first_belongs_to_the_reload(timed):
    timed_load(timed)
    timed.land("LOAD00000002.csv", "2024-02-01 00:00:01,8,h", at=START + 30 * DAY)
    timed.land("LOAD00000001.csv", "2024-02-01 00:00:00,1,new", at=START + 31 * DAY)
    assert timed.run() == "idle" and timed.rows == {1: "new", 8: "h"}


@pytest.mark.parametrize("name", ["LOAD00000001.csv.gz", "LOAD1.csv", "LOAD00001.csv.gz"])
def test_a_reload_under_another_name_of_the_same_part_replaces_it(timed, name):
    timed_load(timed)
    timed.land(name, "2024-02-01 00:00:00,1,new", at=START)
    assert timed.run() == "idle" and timed.rows == {1: "new"}
    timed.touch_all(START + 50 * DAY)
    assert timed.run() == "idle" and timed.rows == {1: "new"}


def test_parts_that_a_reload_lacks_or_has_unchanged_stop_until_kept_or_dropped(table):
    for number, name in ((1, "a"), (2, "b"), (3, "c")):
        table.land(f"LOAD0000000{number}.csv", f"{number},{name}", at=START)
    table.run()
    table.land("LOAD00000001.csv", "1,new", at=START + DAY)
    table.remove("LOAD00000003.csv")
    text = table.stops()
    assert f"{LOAD2} was not written again" in text and "LOAD00000003.csv is gone" in text
    gone = f"{FOLDER}/LOAD00000003.csv"
    assert "--keep-part" in table.stops(drop_parts={gone})
    assert table.run(drop_parts={gone}, keep_parts={LOAD2}) == "idle" and table.rows == {1: "new", 2: "b"}
    assert (table.decisions[-1].kept, table.decisions[-1].dropped) == ((LOAD2,), (gone,))
    # The part that was dropped is not revived by a copy of it.
    table.land("LOAD00000003.csv", "3,c", at=START + 9 * DAY)
    assert table.run() == "idle" and table.rows == {1: "new", 2: "b"}


def test_a_touched_left_over_part_does_not_slip_into_a_smaller_reload(timed):
    for number in (1, 2):
        timed.land(f"LOAD0000000{number}.csv", f"2024-01-01 00:00:00,{number},a", at=START)
    timed.run()
    timed.touch("LOAD00000002.csv", START + 40 * DAY)
    timed.run()
    timed.land("LOAD00000001.csv", "2024-02-01 00:00:00,1,new", at=START + 31 * DAY)
    assert LOAD2 in timed.stops() and timed.rows == {1: "a", 2: "a"}
    assert timed.run(drop_parts={LOAD2}) == "idle" and timed.rows == {1: "new"}


def test_load_times_that_do_not_move_prove_nothing(timed):
    """The start of the task, which a reload within the task does not change, is the time of every load."""
    timed_load(timed)
    timed.land("LOAD00000001.csv", "2024-01-01 00:00:00,1,new", at=START + 31 * DAY)
    assert "is not later than the load before" in timed.stops()


def test_names_in_another_time_zone_are_noticed(timed):
    timed_load(timed)
    timed.land("20240131-230000000.csv", "U,2024-02-01 00:30:00,1,committed after the load", at=START)
    timed.run()
    timed.land("LOAD00000001.csv", "2024-02-01 00:00:00,1,new", at=START)
    assert "name_timezone" in timed.stops()


def test_a_consumed_file_of_bad_rows_alone_says_nothing_about_a_reload(timed):
    table = timed_load(timed)
    table.land("20240103-000000000.csv", "U,2024-01-03 00:00:00,three,C", at=START + 2 * DAY)
    assert table.run() == "idle" and table.rows == {1: "A", 3: "c"}
    table.land(
        "LOAD00000001.csv", "2024-01-05 00:00:00,1,x", "2024-01-05 00:00:01,5,e", "2024-01-05 00:00:02,6,f",
        at=START + 4 * DAY,
    )  # fmt: skip
    assert table.run() == "idle" and table.rows == {1: "x", 5: "e", 6: "f"}


def test_a_timestamp_column_of_the_table_itself_is_not_a_time_of_loading(tmp_path, monkeypatch):
    table = PlainTable(tmp_path, monkeypatch, "id int, name string, changed timestamp", timestamp_column="changed")
    table.land("LOAD00000001.csv", "1,a,2024-01-01 00:00:00", at=START)
    table.land("20240102-000000000.csv", "U,1,A,2024-01-02 00:00:00", at=START)
    table.run()
    table.land("LOAD00000001.csv", "1,new,2024-02-01 00:00:00", at=START)
    assert "--cut" in table.stops()


def test_consumed_changes_after_a_reload_that_are_gone_stop_it(timed):
    timed_load(timed)
    timed.land("20240210-000000000.csv", "U,2024-02-10 00:00:00,1,after", at=START)
    timed.run()
    timed.remove("20240210-000000000.csv")
    timed.land("LOAD00000001.csv", "2024-02-01 00:00:00,1,new", at=START)
    assert "of 1 consumed change file that would follow the reload, 1 can no longer be found" in timed.stops()


def test_a_load_that_arrives_after_its_changes_is_still_their_load(table):
    table.land("20240102-000000000.csv", "U,1,A", "I,2,b")
    table.run()
    table.land("LOAD00000001.csv", "1,a", "3,c")
    assert table.run() == "idle" and table.rows == {1: "A", 2: "b", 3: "c"}
    assert table.decisions[-1].evidence == "first load"


def test_a_damaged_copy_is_not_used_as_the_part(table):
    loaded(table)
    (table.root / FOLDER / "LOAD00000001.csv.gz").write_bytes(b"\x1f\x8b\x08 not gzip")
    assert "LOAD00000001.csv.gz: the file cannot be read" in table.stops()
    assert table.rows == {1: "A", 3: "c", 4: "d"}


# --- files that are gone ---------------------------------------------------------------------------------------------


def test_a_table_whose_files_are_all_gone_stops_with_or_without_new_ones(table):
    loaded(table)
    shutil.rmtree(table.root / FOLDER)
    assert "every file that the table was built from is gone" in table.stops()
    table.land("20240201-000000000.csv", "I,9,i")
    text = table.stops()
    assert "new files are there" in text and "on_missing_folder=truncate" in text and "landing_retention=30d" in text
    assert table.rows == {1: "A", 3: "c", 4: "d"}


def test_a_declared_truncate_empties_the_table_and_the_new_files_count(tmp_path, monkeypatch):
    table = loaded(PlainTable(tmp_path, monkeypatch, on_missing_folder="truncate"))
    shutil.rmtree(table.root / FOLDER)
    table.land("20240201-000000000.csv", "I,9,i")
    assert table.run() == "idle" and table.rows == {9: "i"}
    table.land("LOAD00000001.csv", "1,new", at=START + 30 * DAY)
    assert table.run() == "idle" and table.rows == {1: "new", 9: "i"}
    table.land("20240130-000000000.csv", "I,8,h")
    assert "may precede that load or follow it" in table.stops()
    assert table.run(cut="20240131" + "0" * 12) == "idle" and table.rows == {1: "new", 9: "i"}


def test_a_load_that_comes_after_changes_of_an_emptied_table_may_hold_them(tmp_path, monkeypatch):
    table = loaded(PlainTable(tmp_path, monkeypatch, on_missing_folder="truncate"))
    shutil.rmtree(table.root / FOLDER)
    table.land("20240201-000000000.csv", "I,9,i")
    assert table.run() == "idle" and table.rows == {9: "i"}
    table.land("LOAD00000001.csv", "1,new", at=START + 40 * DAY)
    assert "1 change file would be in the reload and 0 would follow it" in table.stops()
    assert table.rows == {9: "i"}
    assert table.run(cut="20240131" + "0" * 12) == "idle" and table.rows == {1: "new", 9: "i"}


def test_a_single_time_of_loading_may_be_the_start_of_a_task_that_loaded_twice(timed):
    timed.land("LOAD00000001.csv", "2024-01-01 00:00:00,1,a", at=START)
    assert timed.run() == "idle"
    timed.land("20240202-000000000.csv", "U,2024-02-02 00:00:00,1,after the first load of the new task")
    timed.land("LOAD00000001.csv", "2024-02-01 00:00:00,1,new", at=START + 35 * DAY)
    assert "20240201000000000000, which may be the start of the task" in timed.stops()
    assert timed.run(cut="20240205" + "0" * 12) == "idle" and timed.rows == {1: "new"}


def test_times_that_differ_from_row_to_row_are_not_the_start_of_a_task(timed):
    timed.land("LOAD00000001.csv", "2024-01-01 00:00:00,1,a", "2024-01-01 00:00:01,2,b", at=START)
    assert timed.run() == "idle"
    timed.land("20240202-000000000.csv", "U,2024-02-02 00:00:00,1,after", at=START)
    timed.land("LOAD00000001.csv", "2024-02-01 00:00:00,1,new", at=START + 35 * DAY)
    assert timed.run() == "idle" and timed.rows == {1: "after"}


def test_files_that_reappear_after_a_truncate_stop_the_table(tmp_path, monkeypatch):
    table = loaded(PlainTable(tmp_path, monkeypatch, on_missing_folder="truncate"))
    kept = shutil.copytree(table.root / FOLDER, tmp_path / "kept")
    shutil.rmtree(table.root / FOLDER)
    assert table.run() == "idle" and table.rows == {}
    shutil.copytree(kept, table.root / FOLDER)
    assert "lakeward undo sales.product" in table.stops()


def test_declared_retention_lets_old_files_vanish_and_no_younger_ones(tmp_path, monkeypatch):
    table = loaded(PlainTable(tmp_path, monkeypatch, landing_retention="30d"))
    shutil.rmtree(table.root / FOLDER)
    assert table.run() == "idle" and table.rows == {1: "A", 3: "c", 4: "d"}
    table.land("20240301-000000000.csv", "I,9,i", at=time.time())
    assert table.run() == "idle" and table.rows == {1: "A", 3: "c", 4: "d", 9: "i"}
    table.remove("20240301-000000000.csv")
    assert "gone" in table.stops()


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("a/b/LOAD00000001.csv", ("a/b/", 1)),
        ("a/b/LOAD00000001.csv.gz", ("a/b/", 1)),
        ("a/b/LOAD0001.parquet", ("a/b/", 1)),
        ("a/b/LOAD0000000A.csv", ("a/b/", 10)),
        ("a/b/SEGMENT1_LOAD00000001.csv", ("a/b/SEGMENT1_", 1)),
        ("a/b/north/LOAD000.csv", ("a/b/north/", 0)),
    ],
)
def test_a_part_is_named_by_folder_segment_and_counter(path, name):
    assert load_part(path) == name
