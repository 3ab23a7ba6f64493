"""The command on a real lake: in this process where one Spark application serves, in its own where that matters."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from lakeward.model import TableId
from lakeward.state.base import open_state
from lakeward.state.leases import HeldLease, current_owner

pytestmark = pytest.mark.usefixtures("spark")

CONFIGURATION = """
defaults: {on_bad_row: quarantine}
spark: {master: "local[2]", conf: {spark.sql.shuffle.partitions: "2", spark.driver.memory: 1g}}
tables:
  people.persons:
    primary_key: PersonID
    schema: "PersonID int, FullName string, City string"
"""
COMMAND = [sys.executable, "-m", "lakeward.cli.main"]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "landing/people/persons"
    folder.mkdir(parents=True)
    (tmp_path / "lakeward.yaml").write_text(CONFIGURATION)
    (folder / "LOAD00000001.csv").write_text("1,Ann,Rome\n2,Bob,NULL\n")
    (folder / "20240101-000000000.csv").write_text("U,1,Anna,Rome\nD,2,,\nI,4,Dora,Bern\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows(call: Callable[..., Result], query: str) -> Any:
    result = call("sql", query, "--output", "json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_plan_run_status_and_sql(project, call):
    planned = call("plan")
    assert planned.exit_code == 0, planned.stderr
    assert "people.persons: op 1 (load, generation 1)" in planned.stdout
    assert "2 waiting files" in planned.stdout
    assert json.loads(call("status", "--output", "json").stdout)["tables"][0]["state"] == "pending"

    done = call("run")
    assert done.exit_code == 0, done.stderr
    assert "op 2 (batch) published: 1 file, 3 rows" in done.stderr
    assert rows(call, "SELECT * FROM people.persons ORDER BY 1") == [
        {"PersonID": 1, "FullName": "Anna", "City": "Rome"},
        {"PersonID": 4, "FullName": "Dora", "City": "Bern"},
    ]
    assert call("plan").stdout == "people.persons: nothing to do\n"
    again = json.loads(call("run", "--output", "json").stdout)
    assert (again["exit_code"], again["tables"][0]["outcome"]) == (0, "idle")
    assert json.loads(call("status", "--output", "json").stdout)["tables"][0]["state"] == "current"


def test_bad_rows_are_listed_repaired_and_dropped(project, call):
    file = "people/persons/20240102-000000000.csv"
    (project / "landing" / file).write_text("U,x,Odd,Rome\nU,1,Annika,Rome\nI,y,Odder,Oslo\n")
    assert call("run").exit_code == 0
    (listed,) = json.loads(call("quarantine", "list", "--output", "json").stdout)["tables"]
    assert [(row["id"], row["column"], row["value"]) for row in listed["rows"]] == [
        (f"{file}:1", "PersonID", "x"),
        (f"{file}:3", "PersonID", "y"),
    ]
    still = call("quarantine", "retry", "people.persons", f"{file}:1")
    assert (still.exit_code, "1 still bad" in still.stdout) == (3, True)
    fixed = call("quarantine", "retry", "people.persons", "--replace", f"{file}:1=U,1,Early,Rome")
    assert fixed.exit_code == 0, fixed.stderr
    # The repaired row goes back to its own place, before the update that follows it in the file.
    assert rows(call, "SELECT FullName FROM people.persons WHERE PersonID = 1") == [{"FullName": "Annika"}]
    assert call("quarantine", "drop", "people.persons", "--all").exit_code == 0
    assert "0 bad rows" in call("quarantine", "list").stdout
    assert call("quarantine", "drop", "people.persons", f"{file}:9").exit_code == 2


def test_the_state_can_be_deleted_and_rebuilt(project, call):
    assert call("run").exit_code == 0
    for file in project.glob("lakeward.db*"):
        file.unlink()
    rebuilt = call("state", "rebuild")
    assert (rebuilt.exit_code, rebuilt.stdout) == (0, "1 table found in the lake\n  people.persons\n"), rebuilt.stderr
    assert call("plan").stdout == "people.persons: nothing to do\n"


def test_a_table_held_by_another_writer_is_skipped_with_0(project, call):
    store = open_state("sqlite:///lakeward.db", project)
    with HeldLease(store, TableId("people", "persons"), current_owner("other")):
        result = call("run", "--output", "json")
    store.close()
    assert result.exit_code == 0
    (table,) = json.loads(result.stdout)["tables"]
    assert table["outcome"] == "locked"
    assert "note: people.persons: " in result.stderr


def test_a_refused_plan_and_run_have_one_exit_code(project, call):
    (project / "landing/people/persons/20240102-000000000.csv").write_text("U,x,Odd,Rome\n")
    text = (project / "lakeward.yaml").read_text().replace("on_bad_row: quarantine", "on_bad_row: fail")
    (project / "lakeward.yaml").write_text(text)
    assert call("run", "--file", "people/persons/LOAD00000001.csv").exit_code == 0
    planned, done = call("plan"), call("run")
    assert (planned.exit_code, done.exit_code) == (3, 3)
    for result in (planned, done):
        assert "people/persons/20240102-000000000.csv, row 1, column PersonID, value 'x'" in result.stderr


VALUES = """
SELECT cast('0.00000001' AS decimal(20,8)) AS small, cast(12.50 AS decimal(10,2)) AS price,
  timestamp '2024-01-02 03:04:05.678901' AS at, timestamp_ntz '1890-01-02 03:04:05' AS wall, date '0001-01-01' AS day,
  X'DEADBEEF' AS bytes, map(1, date '2020-01-01') AS map, array(cast(1.5 AS decimal(3,1)), null) AS list,
  named_struct('x y', X'00', 'z.w', null) AS struct, cast('NaN' AS double) AS nan, null AS nothing, '' AS empty,
  9223372036854775807 AS big, true AS yes, 'a,"b"' AS `odd.name`
"""


def test_sql_values_in_json_and_csv(project, call):
    (row,) = rows(call, VALUES)
    assert row == {
        "small": "0.00000001", "price": "12.50", "at": "2024-01-02T03:04:05.678901Z", "wall": "1890-01-02T03:04:05",
        "day": "0001-01-01", "bytes": "3q2+7w==", "map": {"1": "2020-01-01"}, "list": ["1.5", None],
        "struct": {"x y": "AA==", "z.w": None}, "nan": "NaN", "nothing": None, "empty": "", "big": 9223372036854775807,
        "yes": True, "odd.name": 'a,"b"',
    }  # fmt: skip
    text = call("sql", VALUES, "--output", "csv").stdout_bytes.decode()
    names, values = csv.reader(io.StringIO(text, newline=""))
    by_name = dict(zip(names, values, strict=True))
    assert (by_name["price"], by_name["at"], by_name["odd.name"]) == ("12.50", row["at"], 'a,"b"')
    assert (json.loads(by_name["list"]), by_name["nothing"]) == (["1.5", None], "")
    assert ',"",' in text
    assert text.count("\r\n") == 2


def test_sql_csv_for_spreadsheets_holds_no_formula(project, call):
    query = "SELECT '=1+1' AS `=a`, -1 AS b, '-1' AS c, CAST(NULL AS STRING) AS d, '+x,y' AS e"
    plain = call("sql", query, "--output", "csv").stdout.splitlines()
    safe = call("sql", query, "--output", "csv", "--safe-csv").stdout.splitlines()
    assert plain == ["=a,b,c,d,e", '=1+1,-1,-1,,"+x,y"']
    assert safe == ["'=a,b,c,d,e", "'=1+1,-1,'-1,,\"'+x,y\""]


def test_sql_text_is_cut_with_a_note(project, call):
    result = call("sql", "SELECT id FROM range(1200)")
    assert "1,000 rows" in result.stdout
    assert "only the first 1,000 rows are shown" in result.stderr
    assert len(rows(call, "SELECT id FROM range(1200)")) == 1200
    assert rows(call, "SELECT 1 WHERE false") == []


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELEC 1", "Syntax error"),
        ("SELECT * FROM no.where", "cannot be found"),
        ("SELECT 1/0", "DIVIDE_BY_ZERO"),
        ("SELECT 1 AS a, 2 AS a", "several columns of one name, and a JSON object keeps only one: a"),
        ("SELECT named_struct('b', 1, 'b', 2) AS a", "column a has several columns of one name"),
        ("DROP TABLE sales.product", "the statement does more than read (DropTable)"),
    ],
)
def test_a_wrong_query_is_2_in_one_line(project, call, query, words):
    result = call("sql", query, "--output", "json")
    assert result.exit_code == 2
    assert words in json.loads(result.stdout)["error"]["message"]
    assert "\n" not in json.loads(result.stdout)["error"]["message"]
    assert "JVM" not in result.stderr


def test_doctor_makes_a_round_trip(project, call):
    result = call("doctor", "--output", "json")
    document = json.loads(result.stdout)
    assert document["ok"], result.stdout
    assert [check["status"] for check in document["checks"]] == ["ok"] * 9
    assert not any("doctor" in row["namespace"] for row in rows(call, "SHOW NAMESPACES"))


# From here on in processes of their own: what the JVM writes, signals, closed pipes.


@pytest.fixture
def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONUNBUFFERED": "1"}


@pytest.fixture
def started(project: Path, environment: dict[str, str]) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Yield a function that starts the command in a process of its own; what is left of it ends with the test."""
    processes: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_standard_output_of_a_run_is_json_alone_whatever_fails(project, started):
    text = (project / "lakeward.yaml").read_text()
    (project / "lakeward.yaml").write_text(text + "  people.odd: {schema: id int, on_bad_row: fail}\n")
    (project / "landing/people/odd").mkdir()
    (project / "landing/people/odd/LOAD00000001.csv").write_text("x\n")
    process = started("run", "--output", "json", "--debug")
    out, err = process.communicate(timeout=600)
    document = json.loads(out)
    assert process.returncode == document["exit_code"] == 3
    assert {table["table"]: table["outcome"] for table in document["tables"]} == {
        "people.odd": "failed",
        "people.persons": "done",
    }
    assert "INFO" in err, "with --debug Spark's log is on standard error"


@pytest.mark.slow
def test_sigterm_ends_a_run_cleanly_and_the_next_run_completes_it(project, started, call):
    process = started("run", "--output", "json")
    assert process.stderr is not None
    for line in process.stderr:
        if "folding changes" in line:
            break
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 130, err
    assert json.loads(out)["error"]["kind"] == "interrupted"
    assert "Traceback" not in err
    done = json.loads(call("run", "--output", "json").stdout)
    assert done["tables"][0]["outcome"] == "done"
    assert rows(call, "SELECT count(*) AS n FROM people.persons") == [{"n": 2}]


@pytest.mark.slow
def test_a_reader_that_stops_early_is_no_error(project, started):
    process = started("sql", "SELECT id FROM range(3000000)", "--output", "csv")
    assert process.stdout is not None
    assert process.stdout.readline() == "id\n"
    process.stdout.close()
    assert process.wait(timeout=600) == 0
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()
