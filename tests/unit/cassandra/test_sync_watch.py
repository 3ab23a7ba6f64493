"""Waiting for exports of another job: only complete ones count, and the wait ends when one is there."""

import itertools
import threading
import time
from pathlib import Path

import pytest

from lakeward.cassandra.export_folders import ExportFolder
from lakeward.cassandra.folder_watch import wait_for_export
from lakeward.lake.stores import LocalStore

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
    folder = ExportFolder(LocalStore(), str(tmp_path))
    after = NAME.format(1) if there else ""
    heard = threading.Event()

    def write():
        time.sleep(0.3)
        land(tmp_path, 2, complete=False)
        land(tmp_path, 3)
        # What lands before the watch stands is not told of: there is more to tell of until it does.
        for number in itertools.count():
            if heard.wait(0.5):
                return
            (tmp_path / "snapshot" / f"later-{number}").touch()

    writer = threading.Thread(target=write)
    began = time.monotonic()
    writer.start()
    wait_for_export(folder, after, poll=300)
    heard.set()
    assert [one.name for one in folder.exports(after).exports] == [NAME.format(3)]
    writer.join()
    assert time.monotonic() - began < 250


def test_what_is_there_is_not_waited_for(tmp_path):
    land(tmp_path, 1)
    wait_for_export(ExportFolder(LocalStore(), str(tmp_path)), "")


def test_other_stores_are_looked_at_again_and_again(tmp_path, monkeypatch):
    class Elsewhere:
        """A store that tells nothing of changes."""

        files, read_text = LocalStore.files, LocalStore.read_text

    looks: list[float] = []

    def wait(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 2:
            land(tmp_path, 1)

    monkeypatch.setattr("lakeward.cassandra.folder_watch.time.sleep", wait)
    wait_for_export(ExportFolder(Elsewhere(), str(tmp_path)), "")
    assert looks == [30.0, 30.0]
