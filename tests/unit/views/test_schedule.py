"""What is kept of a schedule with the mirror, what is due by it, and why it waits; no JVM."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lakeward.config import parse_config
from lakeward.documents import to_compact_json
from lakeward.errors import ConfigurationError, DataError
from lakeward.model import Generation, Progress, TableId, micros_of
from lakeward.views.versions import schedule as S
from lakeward.views.versions.manifest import PREFIX, Publication, PublicationKind
from lakeward.views.versions.periods import Calendar
from lakeward.views.versions.schedule import Schedule, ScheduleState, complete_periods, schedule_state, turn_of

ROOT = "/lake/out/sales.product"
LOADED = Progress(op=3, generations=(Generation(1),))


def at(text: str) -> int:
    return micros_of(datetime.fromisoformat(f"{text}+00:00"))


class FakeMirror:
    """The properties of a mirror."""

    def __init__(self, *publications: Publication, state: ScheduleState | None = None, **own: str) -> None:
        self._own = {f"{PREFIX}{number}": to_compact_json(found) for number, found in enumerate(publications)} | own
        if state is not None:
            self._own["lakeward.schedule"] = to_compact_json(state)

    def property(self, name: str) -> str | None:
        return self._own.get(name)

    def properties(self, prefix: str) -> dict[str, str]:
        return {name: text for name, text in self._own.items() if name.startswith(prefix)}


def context(**snapshots: Any) -> Any:
    own = {"timestamp_column": "ts", "snapshots": {"every": "day", "to": "out", **snapshots}}
    config = parse_config({"tables": {"sales.product": own}}, base=Path("/lake"))
    return SimpleNamespace(table=TableId("sales", "product"), config=config, settings=config.tables["sales.product"])


def version(label: str, *, period: str | None = "", day: str = "", root: str = ROOT) -> Publication:
    day = day or label[:10]
    return Publication(
        label, PublicationKind.FILES, label, f"{day}T23:59:59.999999+00:00", f"{root}/version={label}", 1, 3, 2, "00",
        "now", 11, "parquet", "flat", period=day if period == "" else period,
    )  # fmt: skip


def scheduled(**snapshots: Any) -> Schedule:
    found = Schedule.of(context(**snapshots))
    assert found is not None
    return found


def due(mirror: Any, now: str, *, progress: Progress = LOADED, since: int | None = None, **snapshots: Any) -> list[str]:
    found = scheduled(**snapshots).due(context(**snapshots), mirror, progress, at(now), since=since)
    return [period.label for period in found]


def test_a_schedule_that_is_seen_for_the_first_time_asks_for_no_day_of_the_past():
    assert due(FakeMirror(), "2020-11-15T12:00:00") == []
    found = scheduled().state(None, at("2020-11-15T12:00:00"))
    assert (found.every, found.root, found.through) == ("day", ROOT, at("2020-11-15T12:00:00"))
    assert due(FakeMirror(state=found), "2020-11-16T00:00:00") == ["2020-11-15"]
    assert due(FakeMirror(), "2020-11-15T12:00:00", start="2020-11-13") == ["2020-11-13", "2020-11-14"]


def test_another_schedule_begins_anew_and_keeps_the_tables_that_versions_are_in():
    before = ScheduleState("day", ROOT, None, 5, listed="a.b", column="version", tables=("a.b",))
    same = scheduled(register_all="a.b").state(before, 9)
    assert same == before
    assert scheduled(register_all="a.c").state(before, 9).listed is None
    assert scheduled(register_all="a.b", version_column="of").state(before, 9).listed is None
    for other in ({"every": "hour"}, {"to": "elsewhere"}, {"start": "2020-11-14"}):
        found = scheduled(**other).state(before, 9)
        assert found.through == (9 if "start" not in other else at("2020-11-14T00:00:00"))
        assert found.tables == ("a.b",)


def test_known_days_are_not_due_whoever_made_them():
    by_hand, moved = version("2020-11-13", period=None), version("2020-11-14.2", day="2020-11-14")
    elsewhere = version("2020-11-15", root="/lake/other/sales.product")
    mirror = FakeMirror(by_hand, moved, elsewhere)
    assert due(mirror, "2020-11-16T12:00:00", start="2020-11-12") == ["2020-11-12", "2020-11-15"]
    own = scheduled().versions(mirror)  # type: ignore[arg-type]
    assert [found.period for found in own] == ["2020-11-14"]
    assert scheduled(keep=1).surplus(mirror, at("2020-11-16T12:00:00")) == []  # type: ignore[arg-type]


def test_earlier_days_are_due_when_they_are_asked_for_and_skip_none():
    state = ScheduleState("day", ROOT, None, at("2020-11-14T00:00:00"))
    since = at("2020-11-16T00:00:00")
    assert due(FakeMirror(state=state), "2020-11-18T12:00:00", since=since) == [
        "2020-11-14", "2020-11-15", "2020-11-16", "2020-11-17",
    ]  # fmt: skip
    assert due(FakeMirror(state=state), "2020-11-15T12:00:00", since=at("2020-11-12T00:00:00")) == [
        "2020-11-12", "2020-11-13", "2020-11-14",
    ]  # fmt: skip


def test_days_before_the_table_is_known_are_left_out():
    cut = Progress(op=3, generations=(Generation(1, unseen=True), Generation(2, cut="20201114120000000000")))
    assert due(FakeMirror(), "2020-11-16T12:00:00", start="2020-01-01", progress=cut) == ["2020-11-14", "2020-11-15"]
    assert due(FakeMirror(), "2020-11-16T12:00:00", start="2020-01-01", progress=Progress()) == []


def test_the_newest_of_a_days_folders_is_the_last_one():
    assert [turn_of(version(label, day="2020-11-14")) for label in ("2020-11-14", "2020-11-14.2", "2020-11-14.10")] == [
        1, 2, 10,
    ]  # fmt: skip


def test_a_day_waits_for_files_that_landed_before_it_was_due_or_before_the_run():
    calendar = Calendar.of(context().settings.snapshots, "UTC")
    assert calendar is not None
    days = [calendar.period_at(at(f"2020-11-{day}T12:00:00")) for day in (14, 15)]
    assert complete_periods(days, None) == days
    assert complete_periods(days, at("2020-11-15T12:00:00")) == days[:1]
    assert complete_periods(days, at("2020-11-15T12:00:00"), began=at("2020-11-17T00:00:00")) == []
    assert complete_periods(days, at("2020-11-17T00:00:01"), began=at("2020-11-17T00:00:00")) == days


def test_what_people_see(monkeypatch):
    monkeypatch.setattr(S, "now_micros", lambda: at("2020-11-16T12:00:00"))
    mirror: Any = FakeMirror(version("2020-11-13"))
    found = S.describe_schedule(context(start="2020-11-13"), mirror, LOADED, at("2020-11-16T00:00:00"))
    assert found is not None
    assert (found.versions, found.newest, found.due) == (1, "2020-11-13", ("2020-11-14", "2020-11-15"))
    assert (found.due_since, found.overdue) == ("2020-11-15T00:00:00+00:00", True)
    assert found.waits == "files that landed are not applied yet"
    assert (found.next_version, found.next_at) == ("2020-11-16", "2020-11-17T00:00:00+00:00")
    empty = S.describe_schedule(context(), None, Progress(), None)
    assert empty is not None and (empty.due, empty.waits) == ((), "nothing was loaded yet")
    assert S.describe_schedule(context(every=None), None, Progress(), None) is None


def test_names_of_tables_are_those_of_each_table():
    found = scheduled(register="{schema}.{table}_now", register_all="days.{schema}_{table}")
    assert (found.registered, found.register_all) == ("sales.product_now", "days.sales_product")


def test_a_table_without_commit_times_is_refused_with_the_setting():
    found = context()
    found.settings = found.settings.model_copy(update={"timestamp_column": None})
    with pytest.raises(ConfigurationError, match="has no timestamp_column") as refused:
        S.require_commit_times(found)
    assert "every: null" in str(refused.value.hint)


def test_a_damaged_state_is_named():
    mirror: Any = FakeMirror(**{"lakeward.schedule": "{"})
    with pytest.raises(DataError, match=r"lakeward\.schedule of the mirror"):
        schedule_state(mirror)


def test_a_version_leaves_tables_over_all_that_were_made_under_a_former_name(monkeypatch):
    calls: list[tuple[str, ...]] = []
    monkeypatch.setattr(S, "unlist_version", lambda _context, *of: calls.append(of))
    state = ScheduleState("day", ROOT, None, 0, tables=("shop.days", "shop.versions"))
    first, again = version("2020-11-14"), version("2020-11-14.2", period="2020-11-14")
    renamed = SimpleNamespace(table=TableId("shop", "item"))
    for others in ((again,), ()):
        mirror = FakeMirror(first, *others, state=state)
        renamed.mirror = SimpleNamespace(metadata=lambda mirror=mirror: mirror)
        S.unlist(renamed, first)
    assert calls == [(name, "sales.product", "2020-11-14", []) for name in ("shop.days", "shop.versions")]
