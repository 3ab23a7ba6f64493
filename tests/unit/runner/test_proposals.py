"""What a new table's files propose for its key and its commit time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeward.config import TableSettings
from lakeward.model import TableId
from lakeward.runner import validation
from lakeward.runner.tables import KnownTable
from lakeward.runner.validation import Proposal, propose
from lakeward.storage.landing import Landing

TIME = "2024-01-01 00:00:00.000000"


def proposed(root: Path, *parts: dict[str, Any]) -> Proposal:
    folder = root / "sales" / "orders"
    folder.mkdir(parents=True)
    for number, part in enumerate(parts, start=1):
        pq.write_table(pa.table(part), folder / f"LOAD0000000{number}.parquet")
    known = KnownTable(TableId("sales", "orders"), TableSettings(), active=False, declared=False)
    return propose(Landing(root), known)


@pytest.mark.parametrize(
    ("columns", "key"),
    [
        ({"name": ["a", "b"], "id": [1, 2]}, ("id",)),
        ({"id": [1, 1], "orders_id": [1, 2]}, ("orders_id",)),
        ({"id": [1, None], "title": ["a", "b"]}, ("title",)),
        ({"price": [1.5, 2.5], "is_new": [True, False], "code": ["a", "b"]}, ("code",)),
        ({"order": [1, 1, 2], "line": [1, 2, 1], "text": ["x", "x", "x"]}, ("order", "line")),
        ({"id": [1, 1], "line": [1, 1]}, ()),
        ({"id": pa.array([], pa.int32())}, ()),
    ],
)
def test_columns_unique_in_the_load_are_proposed_likely_names_first(
    tmp_path: Path, columns: dict[str, Any], key: tuple[str, ...]
) -> None:
    assert proposed(tmp_path, columns) == Proposal(key, None)


def test_all_parts_of_the_load_count(tmp_path: Path) -> None:
    parts = ({"id": [1, 2], "no": [1, 2]}, {"id": [2, 3], "no": [3, 4]})
    assert proposed(tmp_path, *parts).primary_key == ("no",)


def test_the_commit_time_is_proposed_and_is_not_a_key(tmp_path: Path) -> None:
    assert proposed(tmp_path, {"ts": [TIME], "name": ["a"]}) == Proposal(("name",), "ts")


def test_large_loads_and_files_that_do_not_name_their_columns_propose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validation, "READ_BYTES", 10)
    assert proposed(tmp_path, {"ts": [TIME], "id": [1]}) == Proposal((), "ts")
    (tmp_path / "sales" / "orders" / "LOAD00000001.parquet").unlink()
    (tmp_path / "sales" / "orders" / "LOAD00000001.csv").write_text("1,a\n")
    known = KnownTable(TableId("sales", "orders"), TableSettings(), active=False, declared=False)
    assert propose(Landing(tmp_path), known) == Proposal()
