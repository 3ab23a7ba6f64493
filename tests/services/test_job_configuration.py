"""The job's command line and where its configuration comes from; its work is tested with Spark."""

import json
import uuid

import pytest

from lakeward.aws import job
from lakeward.aws.job import open_config
from lakeward.errors import ConfigurationError
from lakeward.mirror.op.report import Outcome, RunReport, TableReport
from tests.servers.moto import CREDENTIALS, REGION, moto_client

CONFIG = "landing: s3://lake/landing\nstate: sqlite:///job.db\n"


def test_arguments_of_every_starter():
    plain = job.read_arguments(
        ["--config", "a.yaml", "--table", "a.b,c.d", "--table", "e.f", "--file", "x", "--wait", "3"]
    )
    assert (plain.config, plain.table, plain.file, plain.wait) == ("a.yaml", ["a.b", "c.d", "e.f"], ["x"], 3)
    glue = ["--JOB_ID", "j_1", "--JOB_RUN_ID", "jr_1", "--JOB_NAME", "n", "--TempDir", "s3://t/", "--config", "s3://c"]
    assert job.read_arguments(glue).config == "s3://c"
    assert job.read_arguments(["--config=x"]).wait == 900


@pytest.mark.parametrize("arguments", [[], ["--config", "a", "--tabel", "x"], ["--config", "a", "--wait", "long"]])
def test_wrong_arguments_end_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        job.read_arguments(arguments)
    assert ended.value.code == 2


@pytest.fixture
def bucket(moto_endpoint, monkeypatch):
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name.upper(), value)
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto_endpoint)
    name = f"conf-{uuid.uuid4().hex[:8]}"
    client = moto_client("s3", moto_endpoint)
    client.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})
    client.put_object(Bucket=name, Key="my lake/lakeward.yaml", Body=CONFIG.encode())
    client.put_object(Bucket=name, Key="bad.yaml", Body=b"tabels: {}")
    client.put_object(Bucket=name, Key="binary", Body=b"\xff\xfe")
    client.close()
    return name


def test_the_configuration_is_read_from_s3_and_overridden_by_the_environment(bucket, monkeypatch):
    monkeypatch.setenv("LAKEWARD_STATE", "sqlite:///other.db")
    config = open_config(f"s3://{bucket}/my lake/lakeward.yaml")
    assert (config.landing, config.state) == ("s3://lake/landing", "sqlite:///other.db")


@pytest.mark.parametrize(
    ("key", "message"), [("none.yaml", "no configuration file"), ("bad.yaml", "unknown key"), ("binary", "UTF-8")]
)
def test_a_configuration_that_cannot_be_read_is_reported(bucket, key, message):
    with pytest.raises(ConfigurationError, match=message):
        open_config(f"s3a://{bucket}/{key}")


def test_a_local_configuration_is_read_too(tmp_path):
    (tmp_path / "lakeward.yaml").write_text(CONFIG)
    assert open_config(str(tmp_path / "lakeward.yaml")).base == tmp_path


def test_an_error_is_printed_as_json_and_ends_with_its_code(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        job.main(["--config", str(tmp_path / "none.yaml")])
    assert ended.value.code == 2
    assert json.loads(capsys.readouterr().out)["error"]["kind"] == "configuration"


@pytest.mark.parametrize(("outcome", "code"), [(Outcome.DONE, 0), (Outcome.FAILED, 3)])
def test_the_report_is_printed_and_success_does_not_exit(monkeypatch, capsys, outcome, code):
    report = RunReport("r", (TableReport("a.b", outcome, message="why", exit_code=code),))
    monkeypatch.setattr(job, "run_job", lambda *_arguments, **_options: report)
    if code:
        with pytest.raises(SystemExit) as ended:
            job.main(["--config", "x"])
        assert ended.value.code == code
    else:
        job.main(["--config", "x"])
    assert json.loads(capsys.readouterr().out)["run_id"] == "r"
