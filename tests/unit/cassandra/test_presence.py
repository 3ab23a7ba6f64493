"""Tables that are made: other nodes may see one later than the node that made it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from cassandra import DriverException

from lakeward.cassandra import tables
from lakeward.cassandra.cql import TableName
from lakeward.errors import RetriableError

TABLE = TableName("ks", "t")


@dataclass
class SlowCluster:
    """Nodes that agree after some queries; also replaces the session."""

    looks_until_agreed: int
    done: list[str] = field(default_factory=list)

    @property
    def cluster(self) -> SlowCluster:
        return self

    def execute(self, query: str, *_: Any, **__: Any) -> list[Any]:
        self.done.append(query.split(maxsplit=1)[0])
        return []

    def refresh_table_metadata(self, keyspace: str, table: str, max_schema_agreement_wait: float) -> None:
        assert (keyspace, table) == ("ks", "t")
        assert max_schema_agreement_wait > 0
        self.done.append("look")
        if self.done.count("look") < self.looks_until_agreed:
            raise DriverException


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_PAUSE_SECONDS", 0.01)


def test_a_new_table_is_used_when_it_exists_on_all_nodes():
    session = SlowCluster(looks_until_agreed=3)
    tables.make_table(session, TABLE, ["CREATE TABLE ks.t (k int PRIMARY KEY)"], what="t")
    assert session.done == ["CREATE", "look", "look", "look", "SELECT"]


def test_nodes_that_never_agree_are_reported(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tables, "_PATIENCE_SECONDS", 0.05)
    with pytest.raises(RetriableError, match="not all nodes know about it") as caught:
        tables.make_table(SlowCluster(looks_until_agreed=10_000), TABLE, ["CREATE TABLE …"], what="t")
    assert "nodetool describecluster" in str(caught.value)
