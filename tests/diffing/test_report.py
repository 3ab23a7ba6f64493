"""Examples of differences: the first ones by key of each kind, as texts."""

from __future__ import annotations

from lakeward.diffing.examples import Example, examples
from lakeward.diffing.frames.alignment import align
from lakeward.diffing.frames.joining import joined
from lakeward.diffing.frames.options import DiffOptions
from lakeward.diffing.frames.pairs import Summary
from lakeward.diffing.report import render_report

SCHEMA = "id int, `na.me` string, raw binary, at timestamp_ntz, tags array<string>, extra map<string,int>"


def test_the_first_differences_of_each_kind_are_shown_as_texts(spark):
    past = spark.createDataFrame(
        [(at, "a" * 300, b"\x01", None, ["x", None], {"k": 1}) for at in range(100)]
        + [(None, "n", None, None, None, None)],
        SCHEMA,
    )
    current = spark.createDataFrame(
        [(at, "b", b"\x01", None, ["x", None], {"k": 2}) for at in range(50, 100)]
        + [(at, None, b"", None, [], {}) for at in range(200, 230)],
        SCHEMA,
    )
    options = DiffOptions(insert_value="new")
    alignment = align(past.schema, current.schema, ["id"], options, evolve=True)
    found = examples(joined(past, current, alignment, options, whole=False), options, 2)
    assert [(example.action, example.key) for example in found] == [
        ("C", {"id": "50"}), ("C", {"id": "51"}), ("I", {"id": "200"}), ("I", {"id": "201"}),
        ("D", {"id": None}), ("D", {"id": "0"}),
    ]  # fmt: skip
    assert found[0] == Example(
        "C",
        {"id": "50"},
        {"na.me": "a" * 200 + "…", "raw": "0x01", "at": None, "tags": '["x",null]', "extra": '{"k":1}'},
        {"na.me": "b", "raw": "0x01", "at": None, "tags": '["x",null]', "extra": '{"k":2}'},
        ("na.me", "extra"),
    )
    assert (found[2].left, found[2].changed) == (None, ())
    assert found[2].to_dict()["current"] == {"na.me": None, "raw": "0x", "at": None, "tags": "[]", "extra": "{}"}
    assert examples(joined(past, current, alignment, options, whole=False), options, 0) == []
    summary = Summary(101, 80, 30, 50, 51, 0, {"na.me": 50, "extra": 50})
    page = render_report(
        summary, alignment, found, past="past", current="current", plan="join", reason="both are small", options=options
    )
    assert page.count('<tr class="changed">') == 4
