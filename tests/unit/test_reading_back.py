"""Whatever a document that is read back contains, its reader names it and reports no user's mistake as a bug."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lakeward.cassandra.export_folder import _complete
from lakeward.cassandra.export_journal import ExportPlan, Journal, Ownership
from lakeward.diffing.stored.changesets import read_change_set_manifest
from lakeward.diffing.stored.open import _read, primary_key
from lakeward.errors import ConfigurationError, DataError, LakewardError
from lakeward.mirror.compaction import read_runs
from lakeward.mirror.maintenance import last_maintained
from lakeward.mirror.op.changelog import FileRecord, OpRecord
from lakeward.mirror.op.erased import ERASED_PROPERTY, UNFINISHED_PROPERTY, erased_keys, unfinished_erasure
from lakeward.mirror.op.ledger import bad_row_details
from lakeward.mirror.op.settings import kept_settings
from lakeward.model import TableId
from lakeward.state import codec
from lakeward.text import split_address
from lakeward.views.verification.verify import last_verified
from lakeward.views.versions.manifest import PREFIX, list_publications, read_manifest

TABLE = TableId("sales", "product")
NOT_JSON = ["", "{", "nan?", '"', "[1, 2", "\x00", "[" * 100_000, '{"a":' * 100_000]
WRONG_JSON = ["0", "-1.5", "null", "true", '"text"', "[]", "[[]]", '["a"]', '{"kind": 0}', '{"kind": "change-set"}']
ROW = {"table_schema": "sales", "table_name": "product", "active": True, "error": None, "run_id": "r",
       "started_at": None, "finished_at": None, "outcome": "done"}  # fmt: skip


class StoredText:
    """A table's metadata, or a store, that returns one text for every request."""

    def __init__(self, text: str) -> None:
        self.text = text

    def property(self, name: str) -> str:
        return self.text

    def properties(self, prefix: str) -> dict[str, str]:
        return {f"{PREFIX}a": self.text}

    def read_text(self, path: str) -> str:
        return self.text

    def exists(self, path: str) -> bool:
        return True

    def files(self, folder: str) -> dict[str, int]:
        return {group.note: 1 for group in PLAN.groups}


PLAN = ExportPlan.new({}, [[]])


def registered(text: str) -> object:
    return codec.registered_table({**ROW, "settings": text})


READERS: dict[str, Any] = {
    "settings of the registry": registered,
    "report of a run": lambda text: codec.table_run({**ROW, "report": text}),
    "progress": lambda text: codec.load_progress(TABLE, text),
    "control row of an op": OpRecord.from_json,
    "control row of a file": FileRecord.from_json,
    "bad row": bad_row_details,
    "manifest of a version": lambda text: read_manifest(text, "there"),
    "manifest of a snapshot": lambda text: _read(StoredText(text), "there"),
    "manifest of a change set": lambda text: read_change_set_manifest(text, "there"),
    "manifest of an export": lambda text: _complete(StoredText(text), "there"),
    "note of an export": lambda text: Journal(StoredText(text), "there").done(PLAN),
    "owner of an export": lambda text: Ownership(StoredText(text), "there").require_free(),
    "publications": lambda text: list_publications(StoredText(text)),
    "verified": lambda text: last_verified(StoredText(text), None),
    "erased keys": lambda text: erased_keys(StoredText(text)),
    "unfinished erasure": lambda text: unfinished_erasure(StoredText(text)),
    "maintained": lambda text: last_maintained(StoredText(text)),
    "sorted runs": read_runs,
    "settings of the mirror": lambda text: kept_settings(StoredText(text)),
    "layout of the mirror": lambda text: primary_key(StoredText(text)),
}
# An empty property or file is one that is not there.
EMPTY_IS_NONE = {"verified", "maintained", "sorted runs", "owner of an export"}
# These take any object, or any list.
TAKEN = {
    "settings of the registry": {"{"}, "report of a run": {"{"}, "settings of the mirror": {"{"},
    "manifest of an export": {"{"}, "manifest of a snapshot": {'{"kind": "change-set"}'}, "sorted runs": {"[]"},
    "erased keys": {'{"kind": 0}'},
}  # fmt: skip


@pytest.mark.parametrize("name", READERS)
def test_a_damaged_document_is_named(name: str) -> None:
    for text in NOT_JSON + WRONG_JSON:
        if (text == "" and name in EMPTY_IS_NONE) or _is_taken(name, text):
            continue
        with pytest.raises(LakewardError) as caught:
            READERS[name](text)
        assert caught.value.kind in ("configuration", "data"), text[:20]
        assert caught.value.hint, text[:20]


def _is_taken(name: str, text: str) -> bool:
    taken = TAKEN.get(name, set())
    return text in taken or ("{" in taken and text.startswith("{") and len(text) < 100 and text != "{")


def test_damage_in_the_state_store_names_the_row_and_that_it_is_a_cache() -> None:
    with pytest.raises(ConfigurationError, match=r"the settings of sales\.product is damaged: expected a JSON object"):
        registered("0")
    with pytest.raises(ConfigurationError, match=r"(?s)a\.csv.*lakeward state rebuild"):
        codec.file_entry({**ROW, "path": "a.csv"})
    with pytest.raises(ConfigurationError, match="the time 'soon' is damaged"):
        codec.time_of("soon")


@pytest.mark.parametrize("name", [ERASED_PROPERTY, UNFINISHED_PROPERTY])
def test_damaged_records_of_erasures_are_never_read_as_none(name: str) -> None:
    read = erased_keys if name == ERASED_PROPERTY else unfinished_erasure
    with pytest.raises(DataError, match=f"the property {name} of the changelog is damaged"):
        read(StoredText(json.dumps({"hash": "yesterday"})))


@pytest.mark.parametrize("text", ["x://[::1", "http://]", "file://[a]/x"])
def test_an_address_that_cannot_be_parsed_is_a_configuration_error(text: str) -> None:
    with pytest.raises(ConfigurationError, match="landing is not an address"):
        split_address(text, "landing")
