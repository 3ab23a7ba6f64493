"""Input that cannot be taken: each a clear error with exit code 2, and nothing half-written."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest


@pytest.fixture(autouse=True)
def _in_a_folder(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Call commands in an empty folder, on the Spark application of the tests."""
    monkeypatch.chdir(tmp_path)


def parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("part-*.parquet"))


def test_every_fault_of_a_side_is_refused(call, spark, tmp_path):
    good = tmp_path / "good"
    spark.range(20).selectExpr("id", "cast(id as string) text").repartition(2).write.parquet(str(good))

    def spoiled(name: str, spoil: Callable[[Path], object]) -> str:
        folder = tmp_path / name
        shutil.copytree(good, folder, ignore=shutil.ignore_patterns(".*"))
        spoil(folder)
        return name

    def cut(folder: Path) -> None:
        last = parts(folder)[-1]
        last.write_bytes(last.read_bytes()[: last.stat().st_size // 2])

    def damage(folder: Path) -> None:
        """Spoil a page; no footer shows it."""
        last = parts(folder)[-1]
        content = bytearray(last.read_bytes())
        content[4:60] = bytes(56)
        last.write_bytes(content)

    def log_as_delta(folder: Path) -> None:
        (folder / "_delta_log").mkdir()
        (folder / "_delta_log/0.json").touch()

    (tmp_path / "empty").mkdir()
    (tmp_path / "nothing.json").write_text('{"id": 1}\n')
    (tmp_path / "nameless").mkdir()
    (tmp_path / "nameless/data").write_text("x")
    other = spark.range(3).selectExpr("cast(cast(id as string) as binary) id", "1 as text")
    other.write.parquet(str(tmp_path / "other_types"))
    (tmp_path / "nanos").mkdir()
    nanos = pa.table({"id": [1], "text": pa.array([1], pa.timestamp("ns"))})
    pq.write_table(nanos, tmp_path / "nanos/a.parquet")
    above = tmp_path / "above"
    for minute in ("01", "02"):
        shutil.copytree(good, above / f"day=01/minute={minute}")
    wrong = {
        "missing": "there is nothing at",
        "empty": "holds no files",
        spoiled("text", lambda folder: parts(folder)[0].write_text("no parquet")): "part-00000",
        spoiled("cut", cut): "part-00001",
        spoiled("zero", lambda folder: parts(folder)[0].write_bytes(b"")): "is empty and thus not a parquet file",
        spoiled("damaged", damage): "part-00001",
        spoiled("day=02", lambda folder: (folder / "_SUCCESS").unlink()): "unfinished or only a part",
        "above": "day=01/minute=01, day=01/minute=02",
        "nothing.json": "--schema",
        "nameless": "the format of",
        "other_types": "'id' is",
        "nanos": "a type that Spark does not read",
        spoiled("delta", log_as_delta): "is or contains a Delta table",
        "s3x://bucket/a": "no jar",
        "iceberg:a.b": "there is no lakeward.yaml",
    }
    for side, reason in wrong.items():
        refused = call("diff", "good", side, "--keys", "id", "--to", "out")
        assert (refused.exit_code, reason in refused.stderr) == (2, True), (side, refused.stderr)
        assert "Traceback" not in refused.stderr
        assert not (tmp_path / "out").exists(), side
    for keys, reason in (("nothing", "no key column"), ("id,id", "more than once")):
        refused = call("diff", "good", "good", "--keys", keys)
        assert (refused.exit_code, reason in refused.stderr) == (2, True), refused.stderr
    taken = call("diff", "good", "day=02", "--keys", "id", "--incomplete-ok", "--exit-code")
    assert taken.exit_code == 0, taken.stderr


def test_csv_and_json_need_a_schema_that_fits(call, tmp_path):
    (tmp_path / "past.csv").write_text('id,text,at\n1,"a ""b""\nc",2026-01-01T00:00:00Z\n2,"",\n3,,\n')
    (tmp_path / "current.json").write_text(
        '{"id":1,"text":"a \\"b\\"\\nc","at":"2026-01-01T01:00:00+01:00"}\n{"id":2,"text":""}\n{"id":3,"text":"x"}\n'
    )
    schema = "id bigint, text string, at timestamp"
    same = call("diff", "past.csv", "current.json", "--keys", "id", "--schema", schema)
    assert (same.exit_code, "0 inserted, 1 changed, 0 deleted; 2 unchanged" in same.stdout) == (0, True), same.stderr
    (tmp_path / "columns.ddl").write_text(schema)
    assert call("diff", "past.csv", "current.json", "--keys", "id", "--schema", "columns.ddl").exit_code == 0
    # Columns are found by the names in the first line.
    assert call("diff", "past.csv", "past.csv", "--keys=id", "--schema=at date, text string, id int").exit_code == 0
    for wrong, reason in {
        "id bigint, text string": "the first line has id, text, at, the schema has id, text",
        "id bigint, text int, at timestamp": "column text holds 'a \"b\"\nc', which is no int",
        "id bigint, text array<string>, at timestamp": "CSV cannot hold nested values: text array<string>",
        "id, oops": "is not a schema",
    }.items():
        refused = call("diff", "past.csv", "past.csv", "--keys", "id", "--schema", wrong)
        assert (refused.exit_code, reason in refused.stderr) == (2, True), refused.stderr


def test_csv_with_all_fields_in_quotes_and_other_ways_to_write_quotes(call, tmp_path):
    schema = "id int, text varchar(9), price decimal(9,2), day date, at timestamp, done boolean, share double"
    head = f"{','.join(part.split()[0] for part in schema.split(', '))}\n"
    quoted = '"1","","2.50","2026-01-01","2026-01-01T00:00:00Z","true","NaN"\n"2",,"","","","",""\n'
    (tmp_path / "quoted.csv").write_text(head + quoted)
    (tmp_path / "plain.csv").write_text(head + '1,"",2.50,2026-01-01,2026-01-01 00:00:00,true,NaN\n2,,,,,,\n')
    same = call("diff", "quoted.csv", "plain.csv", "--keys", "id", "--schema", schema, "--exit-code")
    assert same.exit_code == 0, same.stdout + same.stderr
    for text, reason in {'id,text\n1,"a \\"b\\" c"\n': "doubled", "": "is empty and thus not a csv file"}.items():
        (tmp_path / "wrong.csv").write_text(text)
        refused = call("diff", "wrong.csv", "wrong.csv", "--keys", "id", "--schema", "id int, text string")
        assert (refused.exit_code, reason in refused.stderr) == (2, True), refused.stderr
