"""Doctor without Spark, the simulator's options, numbers and errors for eyes."""

from dataclasses import fields

import pytest

from lakeward.api.doctor import Check
from lakeward.api.snapshots import Snapshots
from lakeward.cli import samples
from lakeward.cli.output import age, count, size
from lakeward.session import launching
from lakeward.testing.simulator import SimulatorOptions
from lakeward.views.versions.schedule import SnapshotSchedule


def test_doctor_names_problems_with_their_remedy(project, call, call_json, monkeypatch):
    (project / "lakeward.yaml").write_text("landing: ./nowhere\nlake: {warehouse: ./lakeward.yaml/data}")
    monkeypatch.setattr(launching, "java_program", lambda: None)
    result = call("doctor", "--no-spark")
    assert result.exit_code == 2
    checks = {check["name"]: check for check in call_json("doctor")["checks"]}
    assert {name for name, check in checks.items() if check["status"] == "problem"} == {"java", "landing", "warehouse"}
    assert all(check["remedy"] for check in checks.values() if check["status"] == "problem")
    assert checks["spark"] == {
        "name": "spark", "status": "skipped", "detail": "needs what is missing above", "remedy": None
    }  # fmt: skip


def test_doctor_needs_no_landing_where_only_clusters_are_configured(project, call_json, monkeypatch):
    (project / "landing").rename(project / "elsewhere")
    monkeypatch.setattr("lakeward.api.doctor._clusters", lambda *_: [])
    for text, status in (("", "skipped"), ("landing: ./landing\n", "problem")):
        (project / "lakeward.yaml").write_text(f"{text}clusters: {{prod: {{hosts: [127.0.0.1]}}}}")
        statuses = {check["name"]: check["status"] for check in call_json("doctor", "--no-spark")["checks"]}
        assert (statuses["landing"], statuses["tables"]) == (status, "skipped")


def test_doctor_reports_scheduled_snapshots_that_are_overdue(project, call_json, monkeypatch):
    plan = "tables: {sales.product: {timestamp_column: ts, snapshots: {every: day, to: ./out}}}"
    (project / "lakeward.yaml").write_text(plan)

    def found(*due):
        return SnapshotSchedule("sales.product", "day", "/out", 1, "2020-11-13", due, "2020-11-15", bool(due), "why",
                                "2020-11-16", "2020-11-17")  # fmt: skip

    monkeypatch.setattr("lakeward.api.doctor._spark", lambda *_: Check("spark", "ok", "runs"))
    for due, status, text in (((), "ok", "none is overdue in 1 table"), (("2020-11-14",), "problem", "2020-11-14 has")):
        monkeypatch.setattr(Snapshots, "schedule", lambda _self, due=due: [found(*due)])
        check = call_json("doctor")["checks"][-1]
        assert (check["name"], check["status"], text in check["detail"]) == ("snapshots", status, True)
    assert check["remedy"] == "lakeward run sales.product"
    assert call_json("doctor", "--no-spark")["checks"][-1]["status"] == "skipped"


def test_doctor_continues_without_a_configuration(tmp_path, monkeypatch, call_json):
    monkeypatch.chdir(tmp_path)
    document = call_json("doctor")
    statuses = {check["name"]: check["status"] for check in document["checks"]}
    assert document["ok"] is False
    assert (statuses["config"], statuses["landing"], statuses["spark"]) == ("problem", "skipped", "skipped")


def test_simulate_offers_every_option_that_means_something():
    names = {field.name for field in fields(SimulatorOptions)}
    assert set(samples.HELP) == names - samples.NOT_OFFERED
    assert names > samples.NOT_OFFERED


def test_simulate_writes_a_project(tmp_path, call, call_json):
    folder = tmp_path / "random"
    arguments = ["--seed", "7", "--tables", "2", "--changes", "50", "--timestamp-column", "none", "--change-sequence"]
    document = call_json("simulate", str(folder), *arguments, "--date-folders", "YYYYMMDD")
    assert document["files"] > 0
    assert len(document["rows"]) == 2
    assert (folder / "lakeward.yaml").is_file()
    result = call("simulate", str(folder))
    assert (result.exit_code, "exists already" in result.stderr) == (2, True)
    again = call("simulate", str(tmp_path / "other"), *arguments)
    assert f"next: lakeward run --config {tmp_path / 'other'}/lakeward.yaml" in again.stdout


@pytest.mark.parametrize(
    "arguments", [["--tables", "0"], ["--split", "2"], ["--format", "xml"], ["--change-keys"], ["--tables", "many"]]
)
def test_simulate_refuses_what_no_capture_writes(tmp_path, call, arguments):
    assert call("simulate", str(tmp_path / "random"), *arguments).exit_code == 2


def test_numbers_for_people():
    assert [size(number) for number in (0, 1023, 1024, 5 << 30)] == ["0 B", "1023 B", "1.0 KiB", "5.0 GiB"]
    assert [age(seconds) for seconds in (0.25, 59, 60, 7200, 200_000)] == ["0.2 s", "59.0 s", "1 min", "2 h", "2 d"]
    assert [count(1, "row"), count(2000, "row")] == ["1 row", "2,000 rows"]
