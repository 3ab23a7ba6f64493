"""What verification reports about files in landing: each against what its content proves."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from lakeward.model import Disposition, FileClass, FileIdentity, Generation, LandingFile, LedgerEntry
from lakeward.storage.landing import Landing, content_hash
from lakeward.views.verification.landing import _verdict

CUT = "20240201" + "0" * 12
BEFORE, AFTER = "20240131" + "0" * 12, "20240202" + "0" * 12


@pytest.mark.parametrize(
    ("time", "generation", "verdict"),
    [
        (BEFORE, 1, "fine"),
        (AFTER, 2, "fine"),
        (AFTER, 1, "follow the current load by their name, but are not applied to it"),
        (BEFORE, 2, "precede the current load by their name, but are applied to it"),
    ],
)
def test_a_change_file_on_the_wrong_side_of_the_cut_is_a_finding(tmp_path: Path, time, generation, verdict) -> None:
    assert judged(tmp_path, time=time, generation=generation) == verdict


def test_changed_waiting_and_fenced_files(tmp_path: Path) -> None:
    assert judged(tmp_path, generation=None) == "wait for a run"
    assert judged(tmp_path, recorded="other content").startswith("have other content")
    assert judged(tmp_path, recorded="other content", disposition=Disposition.FENCED) == "fine"
    assert judged(tmp_path, mtime=99) == "fine", "a touched file is the same file"
    assert judged(tmp_path, mtime=99, file_class=FileClass.LOAD, recorded="x") == "wait for a run"


def judged(
    root: Path, *, time: str = AFTER, generation: int | None = 2, recorded: str | None = None, mtime: int = 1,
    disposition: Disposition = Disposition.CONSUMED, file_class: FileClass = FileClass.CHANGES,
) -> str:  # fmt: skip
    path = root / "file.csv"
    path.write_text("U,1\n")
    size = path.stat().st_size
    file = LandingFile("file.csv", str(path), file_class, time, FileIdentity(size, 1))
    entry = None
    if generation is not None:
        known = content_hash(str(path)) if recorded is None else recorded
        identity = FileIdentity(size, 1 if recorded is None and mtime == 1 else 2)
        entry = LedgerEntry("file.csv", identity, known, 1, disposition, generation, 1, file_class, time)
    context = SimpleNamespace(storage=Landing(root))
    return _verdict(context, file, entry, Generation(2, CUT), CUT)
