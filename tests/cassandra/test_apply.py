"""Change sets written into tables of a real server."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lakeward.cassandra.apply import ApplyRequest, apply_change_set
from lakeward.cassandra.cql import TableName
from lakeward.cassandra.diff import diff_exports
from lakeward.cassandra.imports import ImportRequest, import_snapshot
from lakeward.cassandra.ledger import Ledger
from lakeward.cassandra.schema import read_table_schema
from lakeward.cassandra.write_plan import WriteStatus
from lakeward.config import Config
from lakeward.diffing.comparison import ComparisonRequest, run_comparison
from lakeward.diffing.frames.options import DiffOptions
from lakeward.diffing.stored.open import open_side
from lakeward.errors import RefusedInputError
from lakeward.session.sessions import table_session
from tests.cassandra.hand_made import export, schema_of
from tests.cassandra.scene import nodes_that_tasks_know, read_cells

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakeward.cassandra.write_plan import WriteReport
    from tests.cassandra.scene import Cells
    from tests.servers.cassandra import CassandraServer

FIRST, SECOND = "2026-11-15T10:30", "2026-11-15T11:30"
COLUMNS = "k text pk, c int ck, s text static, a text, b int, l list<int>, m map<text,int>"


def micros(started: str) -> int:
    return int(datetime.fromisoformat(started).replace(tzinfo=UTC).timestamp()) * 1_000_000


class Stage:
    """A target, and what was exported and compared for it."""

    def __init__(self, spark: SparkSession, server: CassandraServer, keyspace: str, folder: Path) -> None:
        self.spark, self.server, self.folder = table_session(spark), server, folder
        self.config = Config(base=folder)
        self.into = TableName(keyspace, "orders")
        self.session = server.session()

    def export(self, columns: str, started: str, rows: list[tuple[Any, ...]], **block: Any) -> str:
        return export(self.spark, self.folder, schema_of(columns), started, rows, **block)

    def load(self, snapshot: str, **choices: Any) -> WriteReport:
        request = ImportRequest(snapshot, self.into, create_table=True, **choices)
        return import_snapshot(self.spark, self.config, self.server.address, request)

    def diff(self, past: str, current: str, to: str = "changes") -> str:
        found = diff_exports(self.spark, self.config, past, current, to=str(self.folder / to)).change_set
        assert found is not None
        return found

    def apply(self, change_set: str, **choices: Any) -> WriteReport:
        request = ApplyRequest(change_set, self.into, dead_letters=str(self.folder / "dead"), **choices)
        return apply_change_set(self.spark, self.config, self.server.address, request)

    def cells(self, *, writetime: bool = True) -> Cells:
        return read_cells(self.session, read_table_schema(self.session, self.into), writetime=writetime)

    def execute(self, query: str) -> None:
        self.session.execute(query.replace("$T", self.into.cql))


@pytest.fixture
def stage(spark: SparkSession, cassandra_server: CassandraServer, keyspace: str, tmp_path: Path) -> Stage:
    return Stage(spark, cassandra_server, keyspace, tmp_path)


def test_changes_are_written_cell_by_cell_at_one_time_and_replays_change_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    past = stage.export(
        COLUMNS,
        FIRST,
        [
            ("p1", 1, None, "x", 1, [1, 2], {"a": 1}),
            ("p1", 2, None, "y", 2, None, {"b": 2}),
            ("p1", 3, None, "z", 3, None, None),
            ("p1", 5, None, "w", None, None, None),
            ("p1", None, "old", None, None, None, None),
            ("p2", None, "gone", None, None, None, None),
            ("p2", 1, None, "q", None, [7], None),
            ("p3", 1, None, None, None, None, None),
        ],
    )
    current = stage.export(
        COLUMNS,
        SECOND,
        [
            ("p1", 1, None, "x", 1, [1, 2, 3], {"a": 1}),
            ("p1", 2, None, None, 2, None, None),
            ("p1", 4, None, None, 7, None, None),
            ("p1", None, "new", None, None, None, None),
            ("p2", 1, None, "q", None, [7], None),
            ("p3", 1, None, None, None, None, None),
            ("p4", 1, None, None, None, [9], None),
        ],
    )
    stage.load(past)
    changes = stage.diff(past, current)
    # Written by others in the meantime: a row that the change set deletes, and a cell that it inserts.
    stage.execute("UPDATE $T SET b = 30 WHERE k = 'p1' AND c = 3")
    stage.execute("UPDATE $T SET b = 70 WHERE k = 'p1' AND c = 4")

    nodes = nodes_that_tasks_know(monkeypatch)
    dry = stage.apply(changes, dry_run=True)
    assert nodes == [stage.server.address.settings.hosts]
    assert (dry.status, dry.upserted, dry.deleted, dry.units) == (WriteStatus.DRY_RUN, 5, 3, 8.0)
    assert 0 < dry.seconds < 1, "also without a limit the time is estimated"
    written = stage.apply(changes)
    assert (written.status, written.upserted, written.deleted) == (WriteStatus.DONE, 5, 3)
    assert written.warnings == ()
    first, second = micros(FIRST), micros(SECOND)
    cells = stage.cells()
    live = {name: cells[("row", ("p1", c))][name][1] for c, name in ((3, "b"), (4, "b"))}
    assert live["b"] > second
    plain = stage.cells(writetime=False)
    assert plain == {
        ("row", ("p1", 1)): {"a": ("x",), "b": (1,), "l": ((1, 2, 3),), "m": plain[("row", ("p1", 1))]["m"]},
        ("row", ("p1", 2)): {"b": (2,)},
        ("row", ("p1", 3)): {"b": (30,)},
        ("row", ("p1", 4)): {"b": (70,)},
        ("row", ("p2", 1)): {"a": ("q",), "l": ((7,),)},
        ("row", ("p3", 1)): {},
        ("row", ("p4", 1)): {"l": ((9,),)},
        ("static", ("p1",)): {"s": ("new",)},
    }
    # What did not change was not written: it has the time of the import.
    assert {cells[("row", ("p1", 1))][name][1] for name in "abm"} == {first}
    assert cells[("row", ("p1", 2))]["b"][1] == first
    assert cells[("static", ("p1",))]["s"][1] == second

    assert stage.apply(changes).status is WriteStatus.NOTHING_TO_DO
    replayed = stage.apply(changes, force=True)
    assert (replayed.status, replayed.upserted, replayed.deleted) == (WriteStatus.DONE, 5, 3)
    assert stage.cells(writetime=False) == plain
    # The same state by other jobs: lists do not double.
    stage.load(current, force=True)
    assert stage.cells(writetime=False) == plain
    stage.apply(stage.diff(past, current, to="again"), force=True)
    assert stage.cells(writetime=False) == plain

    # A table that was emptied holds neither what a change set leads to nor what it begins with.
    stage.execute("TRUNCATE $T")
    with pytest.raises(RefusedInputError, match="is empty, though rows were written to it") as refused:
        stage.apply(changes)
    assert "lakeward cassandra import" in str(refused.value.hint)


def test_change_sets_are_applied_in_order_and_schemas_may_grow(stage: Stage) -> None:
    """A column is added and another widened between two exports; then one is dropped."""
    narrow, wider = "k int pk, n int", "k int pk, extra text, n bigint"
    first = stage.export(narrow, FIRST, [(1, 10), (2, 20), (3, 30)])
    second = stage.export(wider, SECOND, [(1, None, 10), (2, "x", 2**40), (4, "y", None)])
    third = stage.export(wider, "2026-11-15T12:30", [(1, None, 11), (2, "x", 2**40), (4, "y", None)])
    to_second, to_third = stage.diff(first, second), stage.diff(second, third, to="more")

    stage.execute("CREATE TABLE $T (k int PRIMARY KEY, n bigint)")
    stage.load(first)
    with pytest.raises(RefusedInputError, match=r"the column 'extra' \(text\) is missing") as refused:
        stage.apply(to_second)
    assert refused.value.hint == f'ALTER TABLE {stage.into.cql} ADD ("extra" text);'
    stage.execute('ALTER TABLE $T ADD ("extra" text)')
    with pytest.raises(RefusedInputError, match=r"was made from .* but the target holds") as refused:
        stage.apply(to_third)
    assert refused.value.exit_code == 2
    written = stage.apply(to_second)
    assert (written.upserted, written.deleted, written.warnings) == (2, 1, ())
    assert stage.cells(writetime=False) == {
        ("row", (1,)): {"n": (10,)},
        ("row", (2,)): {"n": (2**40,), "extra": ("x",)},
        ("row", (4,)): {"extra": ("y",)},
    }
    # A target without a record is assumed to be the right one.
    Ledger(stage.session, stage.into).forget()
    written = stage.apply(to_third)
    assert "nothing is recorded" in written.warnings[0]
    assert stage.cells(writetime=False)[("row", (1,))] == {"n": (11,)}
    # Should the dropped column come back, it is empty.
    fourth = stage.export("k int pk, n bigint", "2026-11-15T13:30", [(1, 11), (2, 2**40), (4, None)])
    stage.apply(stage.diff(third, fourth, to="dropped"))
    kept = {("row", (1,)): {"n": (11,)}, ("row", (2,)): {"n": (2**40,)}, ("row", (4,)): {}}
    assert stage.cells(writetime=False) == kept
    # The previous change set, by force: it is older than the rows of the target, and has no record.
    written = stage.apply(to_second, force=True)
    assert "applied regardless" in written.warnings[0]
    assert stage.cells(writetime=False)[("row", (1,))] == {"n": (11,)}
    assert "is not known" in written.warnings[-1]


def test_a_forced_write_never_sets_the_record_back(stage: Stage) -> None:
    """Change sets that follow would be taken for the next ones of a state that the copy does not hold."""
    columns, times = "k int pk, a text, l list<int>", [f"2026-11-15T{hour}:30" for hour in (10, 11, 12, 13)]
    contents = [
        [(1, "x", [1]), (2, "y", None), (3, "z", None)],
        [(1, "x2", [1, 2]), (2, "y", None), (4, "new", [4])],
        [(1, "x3", None), (2, None, [2])],
        [(1, "x4", None), (2, None, [2]), (5, "last", None)],
    ]
    exports = [stage.export(columns, at, rows) for at, rows in zip(times, contents, strict=True)]
    sets = [stage.diff(*pair, to=f"to-{number}") for number, pair in enumerate(pairwise(exports), start=1)]
    stage.load(exports[0])
    for change_set in sets[:2]:
        assert stage.apply(change_set).status is WriteStatus.DONE
    held, cells = Ledger(stage.session, stage.into).last(), stage.cells(writetime=False)
    # Written before, by themselves or as the state that a change set led to: the cells stay, and so does the record.
    assert stage.apply(sets[0], force=True).status is WriteStatus.DONE
    for folder in exports[:2]:
        assert "the record stays as it is" in stage.load(folder, force=True).warnings[-1]
    assert (Ledger(stage.session, stage.into).last(), stage.cells(writetime=False)) == (held, cells)
    assert stage.apply(sets[1]).status is WriteStatus.NOTHING_TO_DO
    with pytest.raises(RefusedInputError, match="but the target holds"):
        stage.apply(sets[0])
    assert stage.apply(sets[2]).status is WriteStatus.DONE
    expected = {("row", (1,)): {"a": ("x4",)}, ("row", (2,)): {"l": ((2,),)}, ("row", (5,)): {"a": ("last",)}}
    assert stage.cells(writetime=False) == expected

    # As of now it wins, and the copy has parts of two states, of which the record speaks.
    written = stage.apply(sets[0], force=True, timestamp="now")
    assert "is not known" in written.warnings[-1]
    assert stage.cells(writetime=False) != expected
    for refused in (lambda: stage.apply(sets[2]), lambda: stage.load(exports[3])):
        with pytest.raises(RefusedInputError, match="what the target holds is not known") as error:
            refused()
        assert "lakeward cassandra compare" in str(error.value.hint)
    # Emptied and filled anew, all is known again.
    stage.execute("TRUNCATE $T")
    stage.load(exports[2])
    assert stage.apply(sets[2]).warnings == ()
    assert stage.cells(writetime=False) == expected


@pytest.mark.parametrize("kind", ["json", "csv", "spark-csv"])
def test_change_sets_of_the_published_recipe_are_read_by_the_types_of_the_table(stage: Stage, kind: str) -> None:
    stage.execute(
        "CREATE TABLE $T (id text, created timestamp, day date, at time, price decimal, note text, count bigint, "
        "PRIMARY KEY (id, created))"
    )
    for number, day in (("1", "2026-01-01"), ("007", "2026-01-02")):
        stage.execute(
            "INSERT INTO $T (id, created, day, at, price, note, count) VALUES "
            f"('{number}', 1690914239476, '{day}', '10:30:00.5', 1.50, 'old', 1) USING TIMESTAMP 1"
        )
    folder = stage.folder / "incremental" / "year=2026" / "month=11" / "day=15" / "hour=21" / "minute=05"
    folder.mkdir(parents=True)
    created, values = "2023-08-01T18:23:59.476Z", ("day", "at", "price", "note", "count")
    sides = [f"{side}_{name}" for name in values for side in ("left", "right")]
    # The times once as Spark writes them and once as numbers, as a snapshot has them.
    changed = dict(
        zip(sides, ["2026-01-01", "20455", "10:30:00.5", 1, "1.50", "-1.0E+3", "old", "", 1, None], strict=True)
    )
    rows = [
        {"diff": "C", "id": "1", "created": created, **changed},
        {"diff": "D", "id": "007", "created": "1690914239476"},
        {"diff": "I", "id": "8", "created": created, "right_count": 2**40, "right_at": "23:59:59.999999999"},
        {"diff": "N", "id": "9", "created": created},
    ]
    names = ["diff", "id", "created", *sides]
    if kind == "json":
        # Nulls are left out, as Spark does.
        lines = [json.dumps({name: value for name, value in row.items() if value is not None}) for row in rows]
    else:
        cells = [[row.get(name) for name in names] for row in rows]
        lines = [
            *([",".join(names)] if kind == "csv" else []),
            *(",".join("" if cell is None else str(cell) or '""' for cell in row) for row in cells),
        ]
    file = folder / f"part-00000.{kind.removeprefix('spark-')}"
    file.write_text("\n".join(lines) + "\n")
    (folder / "_SUCCESS").touch()
    own = {"csv_columns": tuple(names)} if kind == "spark-csv" else {}
    if own:
        with pytest.raises(RefusedInputError, match="the first line has"):
            stage.apply(str(folder))
    with pytest.raises(RefusedInputError, match="the time of its changes is not known"):
        stage.apply(str(folder), **own)
    written = stage.apply(str(folder), timestamp=str(10**15), **own)
    assert (written.status, written.upserted, written.deleted) == (WriteStatus.DONE, 2, 1)
    assert "no manifest" in written.warnings[0]
    found = {
        number: [str(cell) for cell in rest]
        for number, *rest in stage.session.execute(f"SELECT id, day, at, price, note, count FROM {stage.into.cql}")
    }
    assert found == {
        "1": ["2026-01-02", "1", "-1.0E+3", "", "None"],
        "8": ["None", "86399999999999", "None", "None", str(2**40)],
    }
    # An invalid time is reported, and not taken for another time.
    file.write_text("\n".join(lines).replace("23:59:59", "24:00:00"))
    with pytest.raises(RefusedInputError, match=r"the column right_at holds '24:00:00\.9+', which is not a time"):
        stage.apply(str(folder), timestamp=str(10**15 + 1), **own)


@pytest.mark.parametrize("kind", ["json", "csv"])
def test_change_sets_in_json_and_csv_are_applied_like_those_in_parquet(stage: Stage, kind: str) -> None:
    columns = "k text pk, at timestamp ck, day date, price decimal, raw blob, note text"
    exports = [
        stage.export(columns, FIRST, [("a", 5, -1, "1.50", b"\x00\xff", ""), ("b", 6, None, None, None, "x")]),
        stage.export(columns, SECOND, [("a", 5, 20_771, "1E+40", b"", None), ("c", 7, None, "0.00", b"z", 'y, "z"')]),
    ]
    stage.load(exports[0])
    sides = [open_side(stage.spark, stage.config, folder) for folder in exports]
    wanted = ComparisonRequest(to=f"{stage.folder}/out", format=kind)
    changes = run_comparison(stage.config, sides[0], sides[1], ("k", "at"), DiffOptions(), wanted).change_set
    assert changes is not None
    written = stage.apply(changes)
    assert (written.status, written.upserted, written.deleted, written.warnings) == (WriteStatus.DONE, 2, 1, ())
    twin = Stage(stage.spark, stage.server, stage.server.keyspace(), stage.folder)
    twin.load(exports[1])
    assert stage.cells(writetime=False) == twin.cells(writetime=False)


def test_any_diff_of_any_files_can_be_applied_and_what_is_no_row_is_kept_aside(stage: Stage) -> None:
    """Column by column, without a list of changes; names that look like prefixes, and a key that is not whole."""
    struct = "k int, c int, right_copyright_year int, `left` string"
    for name, rows in {
        "past": [(1, 1, 1, "a"), (1, 2, 2, "b"), (1, 3, 3, "c"), (1, None, 4, "d")],
        "current": [(1, 1, None, "a"), (1, 3, 3, "c"), (2, 1, 5, None)],
    }.items():
        stage.spark.createDataFrame(rows, struct).write.parquet(f"{stage.folder}/{name}")
    stage.execute('CREATE TABLE $T (k int, c int, right_copyright_year int, "left" text, PRIMARY KEY (k, c))')
    for c, text in ((1, "a"), (2, "b"), (3, "c")):
        stage.execute(f"INSERT INTO $T (k, c, right_copyright_year, \"left\") VALUES (1, {c}, {c}, '{text}')")
    before = stage.cells()
    sides = [open_side(stage.spark, stage.config, f"{stage.folder}/{name}") for name in ("past", "current")]
    changes = run_comparison(
        stage.config, sides[0], sides[1], ("k", "c"), DiffOptions(), ComparisonRequest(to=f"{stage.folder}/out")
    ).change_set
    assert changes is not None
    with pytest.raises(RefusedInputError, match="the time of its changes is not known") as refused:
        stage.apply(changes)
    assert "--timestamp now" in str(refused.value.hint)
    written = stage.apply(changes, timestamp="now")
    assert (written.status, written.upserted, written.deleted) == (WriteStatus.REJECTED, 2, 1)
    assert written.rejected == 1
    cells = stage.cells()
    assert cells == {
        ("row", (1, 1)): {"left": before[("row", (1, 1))]["left"]},
        ("row", (1, 3)): before[("row", (1, 3))],
        ("row", (2, 1)): {"right_copyright_year": cells[("row", (2, 1))]["right_copyright_year"]},
    }
    (file,) = (stage.folder / "dead").glob("*/*.jsonl")
    assert written.dead_letters == str(file.parent)
    letter = json.loads(file.read_text())
    assert (letter["action"], letter["key"]) == ("D", {"k": "1", "c": "null"})
    assert letter["values"] == {"left": "'d'", "right_copyright_year": "4"}
    assert "by a partial key" in letter["reason"]


def test_changed_cells_expire_when_the_source_lets_them(stage: Stage) -> None:
    now = int(time.time())
    columns, ttl = "k int pk, a text, b text", {"writetime": True, "ttl": True}
    past = stage.export(
        columns,
        FIRST,
        [
            (1, "x", "y", 1, 1, None, None),
            (2, "x", "y", 1, 1, None, None),
            # Inserted for ever, then with a value that expires: nothing records that the row stays.
            (3, "x", None, 1, None, now - 5, None),
        ],
        **ttl,
    )
    current = stage.export(
        columns,
        SECOND,
        [
            (1, "new", "y", 2, 2, now + 900, now + 900),
            (2, "gone", "y", 2, 1, now - 5, None),
            (3, None, None, None, None, None, None),
        ],
        **ttl,
    )
    stage.load(past)
    stage.apply(stage.diff(past, current))
    found = {k: rest for k, *rest in stage.session.execute(f"SELECT k, a, ttl(a), b, ttl(b) FROM {stage.into.cql}")}
    # b of the first row was written anew, with the same value and a life of its own.
    assert (found[1][0], found[1][2]) == ("new", "y")
    assert 600 < found[1][1] <= 900
    assert 600 < found[1][3] <= 900
    # What has expired on its way is gone; what it replaced does not outlive it.
    assert found[2] == [None, None, "y", None]
    # The source has the row still, by its key alone.
    assert found[3] == [None, None, None, None]
