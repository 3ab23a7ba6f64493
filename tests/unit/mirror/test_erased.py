"""What is kept of an erasure: in control rows, in properties, in receipts."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from lakeward.errors import BugError
from lakeward.iceberg.cleanup import Stored
from lakeward.mirror.op import erased
from lakeward.mirror.op.changelog import OpRecord
from lakeward.mirror.op.erased import Erasure, UnfinishedErasure, erased_keys, new_salt, unfinished_erasure
from lakeward.model import Generation, OpKind, Progress
from lakeward.views.erasure import ErasedPlace, Receipt

ERASURE = Erasure("salt", ("ab", "cd"), "request 4711", 1_700_000_000_000_000, landing=True)


class Properties:
    """Replaces a changelog: properties alone."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}

    def metadata(self) -> Properties:
        return self

    def property(self, name: str) -> str | None:
        return self.kept.get(name)

    def set_properties(self, properties: dict[str, str | None]) -> None:
        for name, value in properties.items():
            self.kept.pop(name, None)
            if value is not None:
                self.kept[name] = value


def test_control_row_of_an_erase_op_is_read_back():
    record = OpRecord(7, OpKind.ERASE, 1, Progress(7, (Generation(1),)), erasure=ERASURE)
    assert OpRecord.from_json(record.to_json()) == record
    plain = replace(record, kind=OpKind.BATCH, erasure=None)
    assert OpRecord.from_json(plain.to_json()) == plain


def test_control_rows_without_erasures_are_read():
    data = json.loads(OpRecord(7, OpKind.BATCH, 1, Progress(7, (Generation(1),))).to_json())
    del data["erasure"]
    assert OpRecord.from_json(json.dumps(data)).erasure is None


def test_keys_are_remembered_with_the_time_of_their_last_erasure():
    changelog = Properties()
    assert erased_keys(changelog) is None
    erased.record_erasure(changelog, ERASURE, UnfinishedErasure(7, landing=True))
    erased.record_erasure(
        changelog, replace(ERASURE, hashes=("cd", "ef"), at=2_000_000_000_000_000), UnfinishedErasure(9)
    )
    found = erased_keys(changelog)
    assert found.salt == "salt"
    assert found.times == {"ab": 1_700_000_000_000_000, "cd": 2_000_000_000_000_000, "ef": 2_000_000_000_000_000}
    assert unfinished_erasure(changelog) == UnfinishedErasure(9)


def test_the_remaining_steps_after_a_crash_are_read_back():
    changelog = Properties()
    assert unfinished_erasure(None) is None
    assert unfinished_erasure(changelog) is None
    erased.record_removal(changelog, "mirror", Stored(1, 2, ("a", "b")))
    assert unfinished_erasure(changelog) is None
    erased.record_erasure(changelog, ERASURE, UnfinishedErasure(7, landing=True, rewritten={"a.csv": "12"}))
    erased.record_removal(changelog, "mirror", Stored(1, 2, ("a", "b")))
    # Found nothing: what it removed before the crash stays noted.
    erased.record_removal(changelog, "mirror", Stored())
    found = unfinished_erasure(changelog)
    assert found == UnfinishedErasure(7, True, {"a.csv": "12"}, {"mirror": (1, 2, 2)})
    assert found.needs_lake
    assert not replace(found, expired=3, rewritten={}).needs_lake


def test_salts_differ():
    assert new_salt() != new_salt()


def test_receipt_that_proves_nothing_is_refused():
    clean = ErasedPlace("mirror", 1, 0, 1, 0, 0)
    receipt = Receipt("a.b", 7, "r", None, 1, ("ab",), (clean,), 0, (), 0, proved=True)
    receipt.require_clean()
    left = replace(clean, place="changelog", remaining_rows=1, remaining_files=1)
    with pytest.raises(BugError, match="rows of erased keys are still in changelog"):
        replace(receipt, places=(clean, left), proved=False).require_clean()
