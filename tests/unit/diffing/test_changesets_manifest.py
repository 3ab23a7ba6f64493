"""Manifests of change sets, and the order in which change sets lead from one state to another."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql.types import ArrayType, DecimalType, IntegerType, LongType, StringType, StructField, StructType

from lakeward.diffing.frames.alignment import align
from lakeward.diffing.frames.comparators import Bitwise, Epsilon
from lakeward.diffing.frames.options import DiffMode, DiffOptions
from lakeward.diffing.stored.applying import change_set_folder
from lakeward.diffing.stored.changesets import (
    ChangeSet,
    ChangeSetManifest,
    describe,
    find_change_set,
    read_change_set_manifest,
    require_order,
)
from lakeward.errors import RefusedInputError

ODD = StructType([StructField("a b", DecimalType(10, 2)), StructField("`", ArrayType(StringType()))])
PAST = StructType([StructField("id", IntegerType()), StructField("odd", ODD)])
CURRENT = StructType([StructField("id", LongType()), StructField("odd", ODD), StructField("new", StringType())])


def manifest(**more: Any) -> ChangeSetManifest:
    options = more.pop("options", DiffOptions())
    alignment = align(PAST, CURRENT, ["id"], options, evolve=True)
    counts = {"inserted": 1, "changed": 2, "deleted": 3}
    given = {"past": {"checksum": "1:aa"}, "current": {"checksum": "2:bb"}, "counts": counts}
    return replace(describe(alignment, options, **{**given, **more}), schema=CURRENT, files={"part-0": 7})


def test_a_manifest_is_read_back_as_it_was_written():
    options = DiffOptions(
        diff_mode=DiffMode.STRUCTS, change_column="c", ignore_columns=("new",), default_comparator=Epsilon(0.01),
        column_comparators={"odd": Bitwise()}, insert_value="new",
    )  # fmt: skip
    written = manifest(options=options, format="json", created=datetime(2026, 11, 15, 12, tzinfo=UTC))
    read = read_change_set_manifest(written.to_json(), "here")
    assert read == written
    assert not read.exact and manifest().exact
    document = json.loads(written.to_json())
    assert (document["kind"], document["created"]) == ("change-set", "2026-11-15T12:00:00+00:00")
    assert document["comparators"] == {"default": "epsilon:0.01:relative", "types": {}, "columns": {"odd": "bitwise"}}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"kind": "change-set", "keys": 7}'])
def test_documents_that_are_not_manifests_are_refused(text):
    with pytest.raises(RefusedInputError):
        read_change_set_manifest(text, "here")


def test_folders_are_named_by_the_minute_in_utc():
    moment = datetime.fromisoformat("2026-11-16T01:05:59+04:00")
    assert change_set_folder("s3://b/x/", moment) == (
        "s3://b/x/incremental/year=2026/month=11/day=15/hour=21/minute=05"
    )


def change_set(name: str, past: dict[str, Any], current: dict[str, Any]) -> ChangeSet:
    known: Any = manifest(past=past, current=current)
    frame: Any = None
    return ChangeSet(name, frame, known, ("id",), DiffOptions())


def state(checksum: str | None = None, **more: Any) -> dict[str, Any]:
    return {"kind": "files", **({"checksum": checksum} if checksum else {}), **more}


def test_each_change_set_begins_where_the_one_before_it_ended():
    first, second = change_set("one", state("1:a"), state("2:b")), change_set("two", state("2:b"), state("3:c"))
    require_order(state("1:a", location="anywhere"), [first, second])
    for wrong, words, hint in (
        ([second], "checksum 2:b, but is to be applied to the past: checksum 1:a", "in the order"),
        ([second, first], r"two \(\w+\) was made from checksum 2:b", "apply one right before it"),
        ([first, first], r"the result of one \(\w+\): checksum 2:b", "name one once"),
    ):
        with pytest.raises(RefusedInputError, match=words) as caught:
            require_order(state("1:a"), wrong)
        assert hint in str(caught.value.hint)


def test_without_checksums_the_location_identifies_a_state():
    only = change_set("one", state(location="/a", id="7"), state())
    require_order(state(location="/a"), [only])
    require_order({"kind": "iceberg", "location": "s.t", "snapshot": 1}, [only])
    with pytest.raises(RefusedInputError, match="location /a, but is to be applied to the past: location /b"):
        require_order(state(location="/b"), [only])
    with pytest.raises(RefusedInputError):
        require_order(state(location="/a", id="8"), [only])
    require_order(state(location="/b"), [only], is_result_known=True)


def test_a_change_set_without_a_manifest_fits_anywhere():
    unknown = replace(change_set("recipe", {}, {}), manifest=None)
    known = change_set("one", state("5:e"), state("6:f"))
    require_order(state("1:a"), [unknown, known])


def test_a_single_file_and_an_empty_folder_are_no_change_set(tmp_path):
    (tmp_path / "file.parquet").write_bytes(b"PAR1")
    for place in (tmp_path / "file.parquet", tmp_path / "nowhere"):
        with pytest.raises(RefusedInputError, match=f"there is no change set at {place}"):
            find_change_set(None, None, str(place))
