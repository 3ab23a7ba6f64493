"""Documents: what every class is written as, and that each is read back as it was, or refused."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from tests.unit.document_examples import EXAMPLES

from lakeward.cassandra.jobs import AppliedState, Begun
from lakeward.diffing.stored.changesets import read_change_set_manifest
from lakeward.documents import Document, Record, from_document, to_compact_json, to_document
from lakeward.errors import DataError
from lakeward.formats.base import FileSummary
from lakeward.mirror.op.changelog import FileRecord, OpRecord
from lakeward.model import Progress
from lakeward.state.codec import dump_progress
from lakeward.views.versions.manifest import read_manifest

WRITTEN = json.loads((Path(__file__).parent / "documents.json").read_text(encoding="utf-8"))
COMPACT = ("publication", "verified")
SPECIAL = {
    "begun": lambda document: Begun.from_dict({**document, "attempt": 2}),
    "begun, ended": lambda document: Begun.from_dict({**document, "attempt": 1}),
}


def text_of(name: str, value: Any) -> str:
    if name == "progress":
        return dump_progress(value)
    if name in COMPACT:
        return to_compact_json(value)
    if hasattr(value, "to_json"):
        return value.to_json()
    return json.dumps(to_document(value.to_dict()), ensure_ascii=False, default=str)


def test_every_example_has_its_document():
    assert EXAMPLES.keys() == WRITTEN.keys()


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_documents_are_written_as_before(name):
    assert text_of(name, EXAMPLES[name]) == WRITTEN[name]


@pytest.mark.parametrize("name", sorted(name for name, value in EXAMPLES.items() if hasattr(value, "from_dict")))
def test_documents_are_read_back_as_they_were(name):
    value, document = EXAMPLES[name], json.loads(WRITTEN[name])
    read = SPECIAL.get(name, type(value).from_dict)
    assert read(document) == value
    assert repr(read(document)) == repr(value), "types are the same as well"


@pytest.mark.parametrize(("name", "count"), [("file summary", "ignored"), ("progress", "rows_ignored")])
def test_counts_of_ignored_rows_are_zero_in_documents_of_earlier_versions(name, count):
    document = json.loads(WRITTEN[name])
    del document[count]
    assert getattr(type(EXAMPLES[name]).from_dict(document), count) == 0


def test_manifests_are_read_back_as_they_were():
    assert read_change_set_manifest(WRITTEN["change set"], "here") == EXAMPLES["change set"]
    assert read_manifest(WRITTEN["manifest of a set"], "here") == EXAMPLES["manifest of a set"]


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Point(Record, required=("x",)):
    x: int = 0
    y: tuple[int, ...] = ()


@dataclass(frozen=True)
class Shape(Record, also=("area",), renamed={"origin": "at"}, if_set=("note",)):
    origin: Point
    colour: Colour
    note: str | None = None
    points: dict[str, Point] = field(default_factory=dict)

    @property
    def area(self) -> int:
        return 5


SHAPE = Shape(Point(1, (2, 3)), Colour.RED, points={"a": Point(4)})
DOCUMENT = {"at": {"x": 1, "y": [2, 3]}, "colour": "red", "points": {"a": {"x": 4, "y": []}}, "area": 5}


def test_a_document_differs_from_its_fields_as_declared():
    assert SHAPE.to_dict() == DOCUMENT
    assert list(SHAPE.to_dict()) == list(DOCUMENT)
    assert Shape.from_dict(DOCUMENT) == SHAPE


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({**DOCUMENT, "size": 1}, "size: Unexpected keyword argument"),
        ({**DOCUMENT, "at": {}}, "x missing"),
        ({**DOCUMENT, "at": 3}, "expected an object, found 3"),
        ({**DOCUMENT, "colour": "blue"}, "colour: Input should be 'red'"),
        ({"colour": "red"}, "origin: Field required"),
        ([], "expected an object"),
    ],
)
def test_a_damaged_document_is_refused(document, problem):
    with pytest.raises(ValueError, match=problem):
        from_document(Shape, document)


def test_a_class_may_ignore_unknown_keys():
    @dataclass(frozen=True)
    class Open(Record, ignores_unknown=True):
        x: int

    assert Open.from_dict({"x": 1, "later": 2}) == Open(1)


def test_values_in_mappings_and_dataclasses_that_declare_nothing_are_written():
    @dataclass(frozen=True)
    class Plain:
        colours: tuple[Colour, ...]

    @dataclass(frozen=True)
    class Outer(Document):
        inner: dict[str, Plain]

    assert Outer({"a": Plain((Colour.RED,))}).to_dict() == {"inner": {"a": {"colours": ["red"]}}}


@pytest.mark.parametrize("missing", ["op", "generations", "last_place", "newest_commit", "undone"])
def test_progress_without_a_field_of_the_first_version_is_damaged(missing):
    document = json.loads(WRITTEN["progress"])
    del document[missing]
    with pytest.raises(ValueError, match=f"{missing} missing"):
        Progress.from_dict(document)


def test_progress_and_states_of_earlier_versions_are_read():
    document = json.loads(WRITTEN["progress"])
    for later in ("newest_file", "moved_until"):
        del document[later]
    assert Progress.from_dict(document).moved_until is None
    first = {"identity": {"rows": 3}, "change_set": None, "at": "2026-11-18T09:30:01+00:00"}
    assert AppliedState.from_dict(first).to_dict()["at"] == first["at"]
    begun = {"status": "open", "job": {"id": "a", "kind": "apply", "units": 1, "timestamp": 2}, "at": "now"}
    assert Begun.from_dict({**begun, "attempt": 3}).is_open


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"op": 1}', "3"])
def test_damaged_control_rows_are_refused(text):
    for kind in (OpRecord, FileRecord):
        with pytest.raises(DataError, match="a control row of the changelog is damaged"):
            kind.from_json(text)


def test_file_summaries_keep_their_types():
    found = FileSummary.from_json(WRITTEN["file summary"])
    assert found == EXAMPLES["file summary"]
    assert type(found.columns) is tuple
