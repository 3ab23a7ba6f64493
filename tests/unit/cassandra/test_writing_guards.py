"""What must hold before a table is written to, without a server."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql.types import StructType

from lakeward.cassandra import guards
from lakeward.cassandra.cql import TableName
from lakeward.cassandra.jobs import AppliedState, Job
from lakeward.cassandra.keyspaces import WriteLimits
from lakeward.cassandra.schema import TableSchema
from lakeward.cassandra.snapshots import ExportOrigin
from lakeward.diffing.frames.options import DiffOptions
from lakeward.diffing.stored.changesets import ChangeSet, ChangeSetManifest
from lakeward.errors import ConfigurationError, RefusedInputError

NOW = datetime(2026, 11, 15, 10, 30, 0, 123_456, tzinfo=UTC)
ONE = {"kind": "export", "location": "/1", "id": "1", "checksum": "c1", "rows": 2_000}
TWO = {"kind": "export", "location": "/2", "id": "2", "checksum": "c2", "rows": 1_500}
THREE = {"kind": "export", "location": "/3", "id": "3", "checksum": "c3", "rows": 1_500}
ORIGIN = ExportOrigin("prod", TableSchema(TableName("ks", "t"), ()), NOW, NOW, writetime=False, ttl=False)
WHOLE: dict[str, ExportOrigin | None] = {"past": ORIGIN, "current": ORIGIN}
KEYSPACES = WriteLimits(
    30, 65_536, oldest_timestamp=timedelta(days=2), newest_timestamp=timedelta(minutes=5), is_keyspaces=True
)


def change_set(past: dict[str, Any], current: dict[str, Any], **counts: int) -> ChangeSet:
    manifest = ChangeSetManifest(
        id="set",
        created=NOW.isoformat(),
        past=past,
        current=current,
        keys=("k",),
        past_schema=StructType(),
        current_schema=StructType(),
        options=DiffOptions(),
        exact=True,
        counts=counts,
    )
    frame: Any = None
    return ChangeSet("/changes", frame, manifest, ("k",), DiffOptions())


def state(identity: dict[str, Any], change_set: str | None = None, rejected: int = 0) -> AppliedState:
    return AppliedState(identity, change_set, NOW, rejected, "/dead" if rejected else None)


def test_the_next_change_set_begins_where_the_last_one_ended() -> None:
    following = change_set(ONE, TWO)
    assert guards.require_next(state(ONE), following, force=False) == []
    assert guards.require_next(state({**ONE, "location": "/moved"}), following, force=False) == []
    assert "nothing is recorded" in guards.require_next(None, following, force=False)[0]
    with pytest.raises(RefusedInputError, match=r"made from location /1.* but the target holds location /3") as error:
        guards.require_next(state(THREE), following, force=False)
    assert error.value.exit_code == 2
    assert "applied regardless" in guards.require_next(state(THREE), following, force=True)[0]
    recipe = replace(following, manifest=None)
    assert "no manifest" in guards.require_next(state(THREE), recipe, force=False)[0]
    # What makes a live table like another fits whatever was applied to it.
    repair = change_set({"kind": "live", "location": "prod/ks.t", "checksum": "x"}, {"kind": "live"})
    assert guards.require_next(state(THREE), repair, force=False) == []
    mixed = replace(state(THREE), unknown="two states")
    with pytest.raises(RefusedInputError, match="was made by a comparison of"):
        guards.require_next(mixed, repair, force=False)
    with pytest.raises(RefusedInputError, match="what the target holds is not known: two states"):
        guards.require_next(mixed, change_set(THREE, ONE), force=False)
    assert not guards.is_applied(replace(mixed, change_set="set"), following.manifest)
    # A warning says what cannot be compared with the past of a change set.
    unsure = guards.require_next(state({"kind": "files", "location": "/x"}), following, force=False)
    assert "it is not known whether that is what /changes (set) was made from" in unsure[0]


def test_a_change_set_is_known_to_be_applied_by_its_id_or_by_the_state_it_leads_to() -> None:
    manifest = change_set(ONE, TWO).manifest
    assert guards.is_applied(state(THREE, "set"), manifest)
    assert guards.is_applied(state(TWO), manifest)
    assert not guards.is_applied(state(ONE), manifest)
    assert not guards.is_applied(state(THREE), manifest)
    assert not guards.is_applied(None, manifest)
    assert not guards.is_applied(state({"kind": "files", "location": "/x"}), manifest), "what is not known is not so"
    # One without changes leads to where it begins.
    assert not guards.is_applied(state(ONE), change_set(ONE, ONE).manifest)


def test_changes_older_than_the_targets_cells_are_refused() -> None:
    written = replace(state(ONE), timestamp=2_000_000)
    assert guards.require_later(written, 2_000_001, "x", force=False) == []
    assert guards.require_later(state(ONE), 1, "x", force=False) == []
    assert guards.require_later(None, 1, "x", force=False) == []
    with pytest.raises(RefusedInputError, match=r"as of 1970-01-01T00:00:01\+00:00.*which wins") as error:
        guards.require_later(written, 1_000_000, "x", force=False)
    assert "--timestamp now" in str(error.value.hint)
    assert "which wins" in guards.require_later(written, 2_000_000, "x", force=True)[0]


def test_only_one_job_may_be_half_written() -> None:
    begun = Job("apply-1", "apply", 8, 1, TWO, "set-1")
    assert guards.require_none_under_way(None, "apply-2", "ks.t", force=False) == []
    assert guards.require_none_under_way(begun, "apply-1", "ks.t", force=False) == []
    with pytest.raises(RefusedInputError, match=r"change set set-1 into ks\.t was started and not finished"):
        guards.require_none_under_way(begun, "apply-2", "ks.t", force=False)
    other = Job("import-1", "import", 8, 1, ONE)
    with pytest.raises(RefusedInputError, match=r"import of /1 into ks\.t"):
        guards.require_none_under_way(other, "apply-2", "ks.t", force=False)
    assert "left as it is" in guards.require_none_under_way(other, "apply-2", "ks.t", force=True)[0]


def test_a_large_share_of_deletes_is_refused() -> None:
    with pytest.raises(RefusedInputError, match="would delete 1,200 of 2,000 rows, 60% where 50% are allowed") as error:
        guards.require_few_deletes(change_set(ONE, TWO, deleted=1_200), 0.5)
    assert "--max-delete-share" in str(error.value.hint)
    guards.require_few_deletes(change_set(ONE, TWO, deleted=1_000), 0.5)
    guards.require_few_deletes(change_set(ONE, TWO, deleted=2_000), 1.0)
    small = {**ONE, "rows": 999}
    guards.require_few_deletes(change_set(small, TWO, deleted=999), 0.5)
    with pytest.raises(RefusedInputError, match="of 1,000 rows"):
        guards.require_few_deletes(change_set({}, TWO, deleted=600, changed=100, unchanged=300), 0.5)


def test_deletes_of_parts_of_a_table_and_unfinished_parents_are_refused() -> None:
    some = change_set(ONE, TWO, deleted=3)
    assert guards.require_whole_parents(some, WHOLE, force=False) == []
    part: dict[str, ExportOrigin | None] = {"past": ORIGIN, "current": replace(ORIGIN, where="day > 3")}
    with pytest.raises(RefusedInputError, match=r"current side .* \(--where day > 3\), so its 3 deletes may be"):
        guards.require_whole_parents(some, part, force=False)
    assert len(guards.require_whole_parents(some, part, force=True)) == 1
    assert guards.require_whole_parents(change_set(ONE, TWO, deleted=0), part, force=False) == []
    columns: dict[str, ExportOrigin | None] = {"past": replace(ORIGIN, columns=("a", "b")), "current": ORIGIN}
    with pytest.raises(RefusedInputError, match="--columns a,b"):
        guards.require_whole_parents(some, columns, force=False)
    unfinished = change_set(ONE, {"kind": "files", "location": "/f", "complete": False})
    with pytest.raises(RefusedInputError, match=r"current side of .* was not finished"):
        guards.require_whole_parents(unfinished, {"past": None, "current": None}, force=False)


def test_the_time_of_writes_is_the_exports_start_to_the_microsecond_by_default() -> None:
    assert guards.chosen_timestamp("snapshot", ORIGIN, "x") == 1_794_738_600_123_456
    assert guards.chosen_timestamp("snapshot", None, "x") is None
    assert guards.chosen_timestamp("42", ORIGIN, "x") == 42
    assert abs(int(guards.chosen_timestamp("now", ORIGIN, "x") or 0) - time.time() * 1e6) < 5e6
    for wrong in ("yesterday", "-1", "1.5", "²", ""):
        with pytest.raises(ConfigurationError, match="expected snapshot, now, or microseconds"):
            guards.chosen_timestamp(wrong, ORIGIN, "x")
    with pytest.raises(ConfigurationError, match="after the year 9999; expected microseconds") as error:
        guards.chosen_timestamp(str(time.time_ns()), ORIGIN, "x")
    assert "--timestamp now" in str(error.value.hint)


def test_keyspaces_takes_no_old_times_and_only_where_turned_on() -> None:
    now = time.time_ns() // 1_000
    guards.require_accepted_timestamp(now - 86_400_000_000, KEYSPACES, "x")
    guards.require_accepted_timestamp(1, WriteLimits(50, 4096), "x")
    for wrong in (now - 3 * 86_400_000_000, now + 600_000_000):
        with pytest.raises(RefusedInputError, match="this cluster accepts times from 2 days") as error:
            guards.require_accepted_timestamp(wrong, KEYSPACES, "x")
        assert "--timestamp now" in str(error.value.hint)

    table = TableName("ks", "t")

    class Session:
        def __init__(self, *enabled: str) -> None:
            self.enabled = enabled

        def execute(self, *_: Any) -> list[tuple[dict[str, Any]]]:
            return [({name: {"status": "enabled"} for name in self.enabled},)]

    both = Session("client_side_timestamps", "ttl")
    assert guards.takes_timestamps(both, KEYSPACES, table, "snapshot", expires=True)
    assert not guards.takes_timestamps(Session(), KEYSPACES, table, "now", expires=False)
    with pytest.raises(RefusedInputError, match="accepts no timestamps from clients") as error:
        guards.takes_timestamps(Session(), KEYSPACES, table, "snapshot", expires=False)
    assert "client_side_timestamps" in str(error.value.hint)
    with pytest.raises(RefusedInputError, match="TTL is turned off for"):
        guards.takes_timestamps(Session("client_side_timestamps"), KEYSPACES, table, "now", expires=True)


def test_a_job_has_the_same_id_however_its_table_is_defined() -> None:
    assert guards.job_id("import", ONE, "snapshot") == guards.job_id("import", {**ONE, "cassandra": {}}, "snapshot")
    others = [("apply", ONE, "snapshot"), ("import", TWO, "snapshot"), ("import", ONE, "now")]
    assert len({guards.job_id(*other) for other in others} | {guards.job_id("import", ONE, "snapshot")}) == 4
    assert guards.plain_identity({**ONE, "cassandra": {}}) == ONE
    assert guards.rejected_warnings(None) == guards.rejected_warnings(state(ONE)) == ()
    assert "/dead" in guards.rejected_warnings(state(ONE, rejected=2))[0]
