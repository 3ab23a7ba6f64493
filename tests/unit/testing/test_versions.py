"""The oracle of versions, on states small enough to see that it is right."""

from __future__ import annotations

from datetime import datetime

from lakeward.testing.compare import State, valid_at, versions

FIRST, SECOND, THIRD = (datetime(2024, 1, day) for day in (1, 2, 3))


def test_versions_follow_the_states_and_leave_gaps() -> None:
    states = [
        State(None, [{"id": 1, "a": None, "b": 1}]),
        State(FIRST, [{"id": 1, "a": None, "b": 2}, {"id": 2, "a": 5, "b": 5}]),
        State(SECOND, [{"id": 2, "a": 5, "b": 5}]),
        State(THIRD, [{"id": 1, "a": None, "b": 2}, {"id": 2, "a": 5, "b": 5}]),
    ]
    found = versions(states, ["id"])
    assert sorted((row["id"], str(row["valid_from"]), str(row["valid_to"])) for row in found) == [
        (1, "2024-01-01 00:00:00", "2024-01-02 00:00:00"),
        (1, "2024-01-03 00:00:00", "None"),
        (1, "None", "2024-01-01 00:00:00"),
        (2, "2024-01-01 00:00:00", "None"),
    ]
    assert [row["b"] for row in versions(states, ["id"], ["a"]) if row["id"] == 1] == [1, 2]
    assert valid_at(found, SECOND) == [{"id": 2, "a": 5, "b": 5}]
