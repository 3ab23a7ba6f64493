"""Nothing of Python stays with Arrow's threads when a CSV file is read: they would end a process that shuts down."""

from __future__ import annotations

import subprocess
import sys
import weakref
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from lakeward.config import CsvSettings
from lakeward.formats.dms import csv as dms_csv

# Forked from one process, since starting an interpreter costs more than reading the file.
READ_AND_EXIT = """
import gc, os, sys
from lakeward.config import CsvSettings
from lakeward.formats.dms.csv import CsvFile
ends = []
gc.freeze()  # or every child spends its time on copying what it never uses
for _ in range(int(sys.argv[2])):
    child = os.fork()
    if not child:
        break
    ends.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
if child:
    print(sum(end != 0 for end in ends))
else:
    assert sum(len(rows.rows) for rows in CsvFile.open(sys.argv[1], CsvSettings()).read(2)) == 3
"""


@pytest.fixture
def file(tmp_path: Path) -> dms_csv.CsvFile:
    path = tmp_path / "LOAD00000001.csv"
    path.write_text("1,a\n2,b\n3,c\nwrong\n")
    return dms_csv.CsvFile.open(str(path), CsvSettings())


@pytest.fixture
def lent(monkeypatch: pytest.MonkeyPatch) -> list[weakref.ref[object]]:
    """What was handed to Arrow."""
    handed: list[weakref.ref[object]] = []

    class Recorded(dms_csv._SharedStream):
        def __init__(self, *given: object) -> None:
            super().__init__(*given)
            handed.append(weakref.ref(self))

    monkeypatch.setattr(dms_csv, "_SharedStream", Recorded)
    return handed


def test_processes_that_end_right_after_reading_end_well(file: dms_csv.CsvFile) -> None:
    command = [sys.executable, "-c", READ_AND_EXIT, file.local_path, "12"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == ("0", "")


def test_nothing_is_left_with_arrow_after_the_last_row(file, lent) -> None:
    for _ in range(50):
        assert sum(len(rows.rows) for rows in file.read(2)) == 3
        assert lent.pop()() is None


def test_an_abandoned_reader_leaves_no_memory_with_arrow(file, lent) -> None:
    Path(file.local_path).write_text("1,a\n" * 2_000_000)
    rows = file.read(2)
    next(rows)
    rows.close()
    assert lent.pop()() is None


@pytest.mark.parametrize("failure", [pa.ArrowInvalid("no"), KeyboardInterrupt()], ids=repr)
def test_nothing_is_left_with_arrow_by_a_reader_that_fails_to_open(file, lent, monkeypatch, failure) -> None:
    def refuse(*_: object) -> None:
        raise failure

    monkeypatch.setattr(dms_csv.arrow_csv, "open_csv", refuse)
    with suppress(KeyboardInterrupt):
        list(file.read(2))
    assert lent.pop()() is None


def test_nothing_is_left_with_arrow_by_a_record_that_is_larger_than_a_block(file, lent, monkeypatch) -> None:
    monkeypatch.setattr(dms_csv, "_BLOCK_BYTES", 64)
    Path(file.local_path).write_text("1,a\n" * 100 + f"2,{'b' * 500}\n")
    assert sum(len(rows.rows) for rows in file.read(2)) == 101
    assert lent.pop()() is None
