"""Exports of tables of a real server: whole, exact, seen complete or not at all."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lakeward.cassandra import export, export_journal
from lakeward.cassandra.export import ExportReport
from lakeward.cassandra.read_plan import MURMUR3
from lakeward.cassandra.snapshots import origin_of
from lakeward.errors import ConfigurationError, RefusedInputError
from tests.cassandra.export_scene import Exports

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.servers.cassandra import CassandraServer

pytestmark = pytest.mark.spark
_MINUTE = datetime(2026, 11, 15, 10, 30, 7, tzinfo=UTC)
_YEAR_50000 = 1_515_662_000_000_000


@pytest.fixture
def exports(spark: SparkSession, cassandra_server: CassandraServer, keyspace: str, tmp_path: Path) -> Exports:
    return Exports(spark, cassandra_server, keyspace, tmp_path)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[datetime]:
    """The time at which exports begin; the last one counts."""
    times = [_MINUTE]
    monkeypatch.setattr(export_journal, "now", lambda: times[-1])
    return times


def _fill(exports: Exports) -> None:
    exports.run(
        "CREATE TYPE place (street text, number int)",
        "CREATE TABLE orders (shop int, customer text, at timestamp, greeting text static, note text, tags set<int>, "
        "rates frozen<map<int, double>>, home place, photo blob, total decimal, PRIMARY KEY ((shop, customer), at)) "
        "WITH CLUSTERING ORDER BY (at DESC)",
        *[
            f"INSERT INTO orders (shop, customer, at, note, total) VALUES ({shop}, 'c{shop % 7}', {at}, 'n', {shop}.50)"
            for shop in range(60)
            for at in range(3)
        ],
        "INSERT INTO orders (shop, customer, greeting) VALUES (1, 'c1', 'hello')",
        # A partition of nothing but a static value, and rows of nothing but a key.
        "INSERT INTO orders (shop, customer, greeting) VALUES (900, 'alone', 'hi')",
        "INSERT INTO orders (shop, customer, at) VALUES (901, '', 0)",
        f"INSERT INTO orders (shop, customer, at, note, photo, tags, rates, home) VALUES "
        f"(902, 'odd', {_YEAR_50000}, '', 0x, {{}}, {{7: NaN, -1: -0.0}}, {{street: 'x'}})",
        "UPDATE orders SET note = 'gone' WHERE shop = 903 AND customer = 'c' AND at = 1",
        "UPDATE orders SET note = null WHERE shop = 903 AND customer = 'c' AND at = 1",
    )


def test_an_export_holds_every_row_once_and_its_manifest_describes_it(exports: Exports, clock: list[datetime]) -> None:
    _fill(exports)

    exported = exports.export("orders", splits=12)

    folder = exports.folder / "out" / exports.keyspace / "orders"
    assert exported.folder == f"{folder}/snapshot/year=2026/month=11/day=15/hour=10/minute=30"
    assert exported.rows == 60 * 3 + 4
    manifest = json.loads(Path(exported.folder, "_manifest.json").read_text())
    _assert_described(exports, exported, manifest)
    side = exports.side(f"{folder}/latest")
    assert side.primary_key == ("shop", "customer", "at")
    assert side.set is not None
    found = {(row["shop"], row["customer"], row["at"]): row.asDict() for row in side.frame.collect()}
    _assert_rows(found)
    # Nothing is left of the work.
    assert sorted(path.name for path in folder.iterdir()) == ["snapshot"]
    origin = origin_of(side.identity)
    assert origin is not None
    assert origin.schema.primary_key == side.primary_key
    assert (origin.started, origin.is_whole) == (_MINUTE, True)
    assert "ranges" not in side.identity["cassandra"]

    # A second one in the same minute is refused, whatever it is of, and names the first.
    with pytest.raises(RefusedInputError, match=f"minute=30 already holds the export {exported.id}"):
        exports.export("orders", layout="plain")
    clock.append(_MINUTE + timedelta(minutes=1))
    plain = exports.export("orders", layout="plain", columns=("note", "shop"), where="at > 0")
    rows = exports.side(f"{folder}/latest").frame.collect()
    assert plain.rows == len(rows) == 60 * 2 + 1
    assert rows[0].asDict().keys() == {"shop", "customer", "at", "note"}
    assert not origin_of(exports.side(f"{folder}/latest").identity).is_whole  # type: ignore[union-attr]
    _assert_only_whole_ones_are_taken(exports, folder, Path(plain.folder))


def _assert_described(exports: Exports, exported: ExportReport, manifest: dict[str, Any]) -> None:
    block = manifest["cassandra"]
    assert (manifest["kind"], manifest["rows"], manifest["id"]) == ("export", exported.rows, exported.id)
    assert manifest["checksum"] == manifest["set"]["checksum"] == exported.checksum
    assert block["schema"]["udts"] == {"place": [["street", "text"], ["number", "int"]]}
    types = {column["name"]: column["type"] for column in block["schema"]["columns"]}
    assert types["rates"] == "frozen<map<int, double>>"
    assert (block["consistency"], block["partitioner"]) == ("LOCAL_QUORUM", "Murmur3Partitioner")
    assert block["started"] == "2026-11-15T10:30:07.000000+00:00"
    assert datetime.fromisoformat(block["ended"]).tzinfo is not None
    assert block["server"].split(".")[0].isdigit()
    assert block["driver"].split(".")[0].isdigit()
    ranges = block["ranges"]
    assert sum(token_range["rows"] for token_range in ranges) == exported.rows
    assert (ranges[0]["start"], ranges[-1]["end"]) == (MURMUR3.ring.start, MURMUR3.ring.end)
    assert all(one["end"] == other["start"] for one, other in pairwise(ranges))
    assert exported.ranges == len(ranges) >= 8


def _assert_rows(found: dict[tuple[Any, ...], dict[str, Any]]) -> None:
    assert len(found) == 60 * 3 + 4
    # Static values are rows of their own; those of other rows are null.
    assert found[1, "c1", None]["greeting"] == "hello"
    assert found[900, "alone", None]["greeting"] == "hi"
    assert all(row["greeting"] is None for key, row in found.items() if key[2] is not None)
    assert set(found[901, "", 0].values()) == {901, "", 0, None}
    odd = found[902, "odd", _YEAR_50000]
    assert (odd["note"], odd["photo"], odd["tags"], odd["total"]) == ("", b"", None, None)
    assert odd["home"].asDict() == {"street": "x", "number": None}
    assert str(odd["rates"]) == "{-1: -0.0, 7: nan}"
    assert found[59, "c3", 2]["total"] == "59.50"
    assert (903, "c", 1) not in found


def _assert_only_whole_ones_are_taken(exports: Exports, folder: Path, last: Path) -> None:
    """A path in part would mix snapshots; one that lost rows on its way would delete them elsewhere."""
    with pytest.raises(RefusedInputError, match="holds 2 complete snapshots"):
        exports.side(str(folder))
    with pytest.raises(RefusedInputError, match="holds 2 complete snapshots"):
        exports.side(str(folder / "snapshot" / "year=2026"))
    lost = next(last.glob("*.parquet"))
    content = lost.read_bytes()
    lost.unlink()
    with pytest.raises(RefusedInputError, match="files are missing or not as they were written"):
        exports.side(str(last))
    lost.write_bytes(content)
    (last / "_SUCCESS").unlink()
    with pytest.raises(RefusedInputError, match="was not finished"):
        exports.side(str(last))
    assert exports.side(f"{folder}/latest").identity["location"].endswith("minute=30")


def test_times_of_writing_and_expiry_are_kept(exports: Exports) -> None:
    exports.run(
        "CREATE TABLE t (p int PRIMARY KEY, v int, w text, l list<int>)",
        "INSERT INTO t (p, v, l) VALUES (1, 5, [1, 2]) USING TIMESTAMP 1000 AND TTL 5000",
        "UPDATE t USING TIMESTAMP 2000 SET w = 'x' WHERE p = 1",
        "INSERT INTO t (p) VALUES (2)",
    )
    before = datetime.now(UTC).timestamp()

    exported = exports.export("t", ttl=True, layout="plain")

    one, two = exports.side(exported.folder).frame.orderBy("p").collect()
    assert (one["_lw_writetime_v"], one["_lw_writetime_w"], one["_lw_writetime_l"]) == (1000, 2000, 1000)
    assert one["_lw_expires_w"] is None
    for name in ("_lw_expires_v", "_lw_expires_l"):
        assert before + 4900 < one[name] < before + 5100
    assert all(value is None for name, value in two.asDict().items() if name != "p")
    block = json.loads(Path(exported.folder, "_manifest.json").read_text())["cassandra"]
    assert (block["writetime"], block["ttl"], block["collection_writetime"]) == (True, True, "max")


def test_what_cannot_be_exported_is_refused_before_anything_is_written(exports: Exports) -> None:
    exports.run(
        "CREATE TABLE counted (p int PRIMARY KEY, n counter)",
        "CREATE TABLE nested (p int PRIMARY KEY, l list<int>, m frozen<map<int, int>>)",
        'CREATE TABLE timed (p int PRIMARY KEY, v int, "_lw_writetime_v" bigint)',
        "UPDATE counted SET n = n + 5 WHERE p = 1",
    )

    with pytest.raises(RefusedInputError, match="has counters"):
        exports.export("counted")
    with pytest.raises(RefusedInputError, match=r"CSV cannot hold nested values: l array<int>, m map<int,int>"):
        exports.export("nested", format="csv")
    with pytest.raises(ConfigurationError, match="no column x"):
        exports.export("nested", columns=("x",))
    with pytest.raises(ConfigurationError, match="does not accept the condition"):
        exports.export("nested", where="x = 3")
    for open_value in ("p = ?", "p = :x"):
        with pytest.raises(ConfigurationError, match="has an unbound value"):
            exports.export("nested", where=open_value)
    with pytest.raises(
        ConfigurationError, match="whose names begin like the time columns of a snapshot: _lw_writetime_v"
    ):
        exports.export("timed")
    with pytest.raises(ConfigurationError, match="netsed"):
        exports.export("netsed")
    assert not (exports.folder / "out").exists()
    counted = exports.export("counted", counters=True)
    assert [tuple(row) for row in exports.side(counted.folder).frame.collect()] == [(1, 5)]


def test_an_export_whose_reading_fails_leaves_nothing_to_be_seen(
    exports: Exports, monkeypatch: pytest.MonkeyPatch
) -> None:
    exports.run("CREATE TABLE t (p int PRIMARY KEY, v int)", "INSERT INTO t (p, v) VALUES (1, 2)")
    read = export.read_groups

    def without_the_column(*arguments: Any, **choices: Any) -> Any:
        exports.run("ALTER TABLE t DROP v")
        return read(*arguments, **choices)

    monkeypatch.setattr(export, "read_groups", without_the_column)
    with pytest.raises(ConfigurationError, match="the server does not accept the query"):
        exports.export("t")

    assert not list(exports.folder.rglob("_SUCCESS"))
    with pytest.raises(RefusedInputError, match="holds no complete snapshot"):
        exports.side(f"{exports.folder}/out/{exports.keyspace}/t/latest")
    monkeypatch.undo()
    # What was begun was of another table than the one that is there now.
    with pytest.raises(RefusedInputError, match="the schema of the table has changed since"):
        exports.export("t")
    assert exports.export("t", restart=True).rows == 1


def test_an_export_that_was_seen_before_its_process_ended_is_not_gone_on_with(
    exports: Exports, clock: list[datetime], monkeypatch: pytest.MonkeyPatch
) -> None:
    exports.run("CREATE TABLE t (p int PRIMARY KEY)", "INSERT INTO t (p) VALUES (1)")
    tidy, calls = export_journal.Journal.remove, []

    def interrupted(self: export_journal.Journal) -> None:
        calls.append(self)
        # The first one is at the beginning.
        if len(calls) == 2:
            raise KeyboardInterrupt
        tidy(self)

    monkeypatch.setattr(export_journal.Journal, "remove", interrupted)
    with pytest.raises(KeyboardInterrupt):
        exports.export("t", layout="plain")
    exports.run("INSERT INTO t (p) VALUES (2)")
    clock.append(_MINUTE + timedelta(minutes=1))

    second = exports.export("t", layout="plain")

    assert (second.resumed, second.rows) == (False, 2)
    assert exports.side(f"{exports.folder}/out/{exports.keyspace}/t/previous").rows == 1
    assert not (exports.folder / "out" / exports.keyspace / "t" / export_journal.FOLDER).exists()
