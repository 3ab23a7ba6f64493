"""Waiting for the next round of a sync: for a complete export of another job, or for the end of an interval."""

import itertools
import threading
import time
from pathlib import Path

import pytest

from lakeward.cassandra.export_folder import ExportFolder
from lakeward.cassandra.sync_rounds import Interval, NewExport, SyncReport
from lakeward.storage.filesystem import LocalFileSystem

NAME = "year=2026/month=11/day=15/hour=10/minute={:02d}"


def land(folder: Path, minute: int, *, complete: bool = True) -> None:
    export = folder / "snapshot" / NAME.format(minute)
    export.mkdir(parents=True)
    (export / "_manifest.json").write_text('{"id": "x", "files": []}')
    if complete:
        (export / "_SUCCESS").touch()


@pytest.mark.parametrize("there", [True, False])
def test_a_complete_export_ends_the_wait(tmp_path, there):
    if there:
        land(tmp_path, 1)
    folder = ExportFolder(LocalFileSystem(), str(tmp_path))
    after = NAME.format(1) if there else ""
    noticed = threading.Event()

    def write():
        time.sleep(0.3)
        land(tmp_path, 2, complete=False)
        land(tmp_path, 3)
        # Files that land before the watch has started are not reported: more of them land until it has.
        for number in itertools.count():
            if noticed.wait(0.5):
                return
            (tmp_path / "snapshot" / f"later-{number}").touch()

    writer = threading.Thread(target=write)
    began = time.monotonic()
    writer.start()
    NewExport(folder, poll=300).wait_after(after)
    noticed.set()
    assert [export.name for export in folder.exports(after).exports] == [NAME.format(3)]
    writer.join()
    assert time.monotonic() - began < 250


def test_existing_files_are_not_waited_for(tmp_path):
    land(tmp_path, 1)
    NewExport(ExportFolder(LocalFileSystem(), str(tmp_path))).wait_after("")


def test_other_stores_are_polled(tmp_path):
    class Elsewhere:
        """A store that does not report changes."""

        def __getattr__(self, name):
            return getattr(LocalFileSystem(), name)

    looks: list[float] = []

    def wait(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 2:
            land(tmp_path, 1)

    NewExport(ExportFolder(Elsewhere(), str(tmp_path)), sleep=wait)(SyncReport((), None))
    assert looks == [30.0, 30.0]


def test_after_a_failed_round_the_folder_is_left_alone_for_a_while():
    waited: list[float] = []
    NewExport(ExportFolder(LocalFileSystem(), "/nowhere"), sleep=waited.append)(None)
    NewExport(ExportFolder(LocalFileSystem(), "/nowhere"), 2.5, sleep=waited.append)(None)
    assert waited == [30.0, 2.5]


def test_an_interval_counts_from_the_beginning_of_a_round():
    now, waited = [100.0], []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        now[0] += seconds

    wait = Interval(60, clock=lambda: now[0], sleep=sleep)
    for taken in (10, 0, 75, 20):
        now[0] += taken
        wait(None)
    # The round of 75 seconds is followed immediately by another, and the next interval begins there.
    assert waited == [50, 60, 0, 40]
