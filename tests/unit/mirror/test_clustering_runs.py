"""Runs of a changelog: few, in the order of ops, each change sorted few times."""

import pytest

from lakeward.mirror.compaction import LogFile, SortedRun, plan_clustering, read_runs, unsorted_files, write_runs

MIB = 1 << 20
MANY = 1 << 40


def log(*ops: int, size: int = MIB) -> list[LogFile]:
    return [LogFile(f"op{op}", size, op, op) for op in ops]


def test_the_ops_logged_since_become_a_run():
    plan = plan_clustering(log(1, 2, 3), (), max_bytes=MANY)
    assert plan is not None
    assert [file.path for file in plan.files] == ["op1", "op2", "op3"]
    assert plan.runs == (SortedRun(1, 3),)


def test_nothing_is_sorted_twice_without_need():
    sorted_file = LogFile("a", 10 * MIB, 1, 9)
    assert plan_clustering([sorted_file], [SortedRun(1, 9)], max_bytes=MANY) is None
    assert plan_clustering([], (), max_bytes=MANY) is None
    assert plan_clustering(log(1), (), max_bytes=MANY) is None


def test_a_large_run_stays_and_one_of_equal_size_is_joined():
    large, equal = LogFile("large", 100 * MIB, 1, 50), LogFile("equal", 3 * MIB, 51, 60)
    plan = plan_clustering([large, equal, *log(61, 62, 63)], [SortedRun(1, 50), SortedRun(51, 60)], max_bytes=MANY)
    assert plan is not None
    assert {file.path for file in plan.files} == {"equal", "op61", "op62", "op63"}
    assert plan.runs == (SortedRun(1, 50), SortedRun(51, 63))


def test_a_slice_is_bounded():
    plan = plan_clustering(log(1, 2, 3, 4), (), max_bytes=2 * MIB)
    assert plan is not None
    assert (len(plan.files), plan.runs) == (2, (SortedRun(1, 2),))
    following = plan_clustering([LogFile("a", 2 * MIB, 1, 2), *log(3, 4)], plan.runs, max_bytes=2 * MIB)
    assert following is not None
    assert following.runs == (SortedRun(1, 2), SortedRun(3, 4))


def test_a_file_across_the_border_of_a_run_breaks_it():
    whole, across = LogFile("whole", MIB, 1, 4), LogFile("across", MIB, 4, 6)
    plan = plan_clustering([whole, across], [SortedRun(1, 4), SortedRun(5, 6)], max_bytes=MANY)
    assert plan is not None
    assert {file.path for file in plan.files} == {"whole", "across"}
    assert plan.runs == (SortedRun(1, 6),)


def test_runs_survive_being_written():
    runs = (SortedRun(1, 4), SortedRun(5, 9))
    assert read_runs(write_runs(runs)) == runs
    assert read_runs(None) == ()
    assert unsorted_files(log(3, 10), runs) == log(10)


@pytest.mark.parametrize("every", [5, 50])
def test_there_are_few_runs_and_each_change_is_sorted_few_times(every):
    files: list[LogFile] = []
    runs: tuple[SortedRun, ...] = ()
    written = 0
    for op in range(1, 2001):
        files += log(op)
        if op % every == 0 and (plan := plan_clustering(files, runs, max_bytes=MANY)):
            files = [file for file in files if file not in plan.files]
            first, last = min(file.first for file in plan.files), max(file.last for file in plan.files)
            files.append(LogFile(f"run{op}", plan.size, first, last))
            runs, written = plan.runs, written + plan.size
    assert len(runs) <= 11
    assert written / (2000 * MIB) < 12
