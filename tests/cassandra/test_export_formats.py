"""JSON and CSV read back to the values that Parquet holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cassandra.export_scene import Exports

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.servers.cassandra import CassandraServer

pytestmark = pytest.mark.spark
_FLAT = ("t", "b", "d", "f", "n", "ts", "dec", "id", "ok", "day", "dur", "s")
_TEXTS = (
    "",
    " ",
    " x ",
    'a"b',
    "a,b",
    "line\nbreak",
    "cr\rlf\r\n",
    "\\",
    "\\N",
    "null",
    "\x00",
    "é😀",
    "\u2028",
    "'",
    "#x",
)
_NUMBERS = (0.0, -0.0, 0.1, 1e300, 5e-324, float("nan"), float("inf"), float("-inf"), None)


@pytest.fixture
def exports(spark: SparkSession, cassandra_server: CassandraServer, keyspace: str, tmp_path: Path) -> Exports:
    return Exports(spark, cassandra_server, keyspace, tmp_path)


def _fill(exports: Exports) -> None:
    exports.run(
        "CREATE TYPE place (street text, codes frozen<map<int, frozen<list<double>>>>)",
        'CREATE TABLE "All" (p text, c double, s text static, t text, b blob, d double, f float, n bigint, '
        "ts timestamp, dec decimal, id uuid, ok boolean, day date, dur duration, l list<frozen<map<text, blob>>>, "
        "m map<int, text>, mm map<text, frozen<map<uuid, double>>>, u place, tp tuple<int, text>, PRIMARY KEY (p, c))",
    )
    insert = exports.session.prepare(
        'INSERT INTO "All" (p, c, t, b, d, f, n, ts, l, u) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)'
    )
    for number, text in enumerate(_TEXTS):
        value = _NUMBERS[number % len(_NUMBERS)]
        codes = {number: [value] if value is not None else []}
        maps = [{text: text.encode()}, {}] if number % 2 else None
        narrow = 3.4e38 if value == 1e300 else value
        row = (
            f"{number}{text}",
            number * 0.1,
            text,
            text.encode(),
            value,
            narrow,
            number - 2**63,
            -(2**62) + number,
            maps,
        )
        exports.session.execute(insert, (*row, (text, codes)))
    exports.run(
        "INSERT INTO \"All\" (p, s) VALUES ('static', '')",
        'INSERT INTO "All" (p, c, dec, id, ok, day, dur, m, mm, u, tp) VALUES '
        "('one', -0.0, 1.2300, 5132b130-ae79-11e4-ab27-0800200c9a66, false, '-5000-01-01', 1mo2d3ns, {1: '', -7: 'x'}, "
        "{'': {5132b130-ae79-11e4-ab27-0800200c9a66: NaN}}, {street: null}, (null, ''))",
        "INSERT INTO \"All\" (p, c) VALUES ('one', 0.0)",
    )


def test_json_and_csv_hold_the_values_that_parquet_holds(exports: Exports) -> None:
    _fill(exports)

    whole = exports.export("All", to="parquet", splits=4)
    as_json = exports.export("All", to="json", splits=4, format="json")
    as_csv = exports.export("All", to="csv", splits=4, format="csv", columns=_FLAT)

    expected = _rows(exports, whole.folder)
    assert len(expected) == len(_TEXTS) + 3
    assert _rows(exports, as_json.folder) == expected
    flat = {key: {name: row[name] for name in row if name in ("p", "c", *_FLAT)} for key, row in expected.items()}
    assert _rows(exports, as_csv.folder) == flat
    assert as_json.checksum == whole.checksum
    assert (as_json.layout, as_csv.layout) == ("plain", "plain")
    # Others read the files by the schema beside them.
    sidecar = json.loads(Path(as_json.folder, "_schema.json").read_text())
    types = {field["name"]: field["type"] for field in sidecar["fields"]}
    assert types["m"]["elementType"]["fields"][0]["type"] == "integer"
    lines = [line for file in Path(as_json.folder).glob("part-*.json") for line in file.read_text("utf-8").split("\n")]
    (one,) = [row for row in (json.loads(line) for line in lines if line) if row.get("dec") == "1.2300"]
    assert one["m"] == [{"key": -7, "value": "x"}, {"key": 1, "value": ""}]


@pytest.mark.parametrize(
    ("format_", "layout"), [("parquet", "set"), ("parquet", "plain"), ("json", "plain"), ("csv", "plain")]
)
def test_an_empty_table_is_a_snapshot_without_rows(exports: Exports, format_: str, layout: str) -> None:
    exports.run("CREATE TABLE t (p int, c text, s int static, v bigint, PRIMARY KEY (p, c))")

    exported = exports.export("t", splits=2, format=format_, layout=layout)

    side = exports.side(exported.folder)
    assert (exported.rows, side.rows, side.frame.collect()) == (0, 0, [])
    assert [(column.name, column.dataType.simpleString()) for column in side.frame.schema] == [
        ("p", "int"), ("c", "string"), ("s", "int"), ("v", "bigint")
    ]  # fmt: skip


def _rows(exports: Exports, folder: str) -> dict[tuple[str, str | None], dict[str, Any]]:
    """Return rows by their key; as text, in which NaN equals NaN and -0.0 is not 0.0."""
    rows = [row.asDict(recursive=True) for row in exports.side(folder).frame.collect()]
    found = {(row["p"], row["c"]): {name: _canonical_text(value) for name, value in row.items()} for row in rows}
    assert len(found) == len(rows)
    return found


def _canonical_text(value: Any) -> str:
    if isinstance(value, dict):
        return str(sorted((_canonical_text(name), _canonical_text(one)) for name, one in value.items()))
    if isinstance(value, list):
        return str([_canonical_text(item) for item in value])
    return repr(value)
