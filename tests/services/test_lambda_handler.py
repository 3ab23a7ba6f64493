"""The Lambda function against real services: what it starts, what it leaves to a run that waits, what it refuses."""

import json
import subprocess
import sys
import uuid
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

import pytest
from botocore.stub import Stubber

from lakeward.aws.lambda_handler import EmrServerlessJob, JobRequest, Started, handler
from lakeward.errors import ConfigurationError, RetriableError
from tests.servers.moto import CREDENTIALS, REGION, moto_client

CONFIG = "s3://conf/lakeward.yaml"
ARN = f"arn:aws:emr-serverless:{REGION}:123456789012:/applications/app/jobruns/waiting"
ROLE = "arn:aws:iam::123456789012:role/job"


def event(*keys, bucket="lake"):
    records = [
        {"eventName": "ObjectCreated:Put", "s3": {"bucket": {"name": bucket}, "object": {"key": key}}} for key in keys
    ]
    return {"Records": records}


@pytest.fixture
def variables(moto_endpoint, monkeypatch):
    """Return a function that sets the function's variables."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name.upper(), value)
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto_endpoint)

    def set_all(**values):
        values = {"LANDING": "s3://lake/landing", "CONFIG": CONFIG, **values}
        for name, value in values.items():
            monkeypatch.setenv(f"LAKEWARD_LAMBDA_{name}", value)

    return set_all


@pytest.fixture
def client(moto_endpoint):
    """Yield a function that opens clients of the server."""
    opened = []

    def open_one(service):
        opened.append(moto_client(service, moto_endpoint))
        return opened[-1]

    yield open_one
    for run in opened:
        run.close()


class Glue:
    """A Glue job whose runs stay in a state until the test releases them."""

    def __init__(self, client, endpoint, concurrent):
        self.client, self._endpoint, self.name = client, endpoint, f"job-{uuid.uuid4().hex[:8]}"
        self.client.create_job(
            Name=self.name, Role=ROLE, Command={"Name": "glueetl", "ScriptLocation": "s3://x/lakeward_job.py"},
            ExecutionProperty={"MaxConcurrentRuns": concurrent},
        )  # fmt: skip
        self.go_on_after(1000)

    def go_on_after(self, looks):
        self._post("set-transition", {"progression": "manual", "times": looks})

    def close(self):
        self._post("unset-transition", None)

    def _post(self, action, transition):
        body = {"model_name": "glue::job_run", **({"transition": transition} if transition else {})}
        url = f"{self._endpoint}/moto-api/state-manager/{action}"
        with urlopen(HttpRequest(url, json.dumps(body).encode(), method="POST")) as answer:
            assert answer.status < 300

    def runs(self):
        return self.client.get_job_runs(JobName=self.name)["JobRuns"]


@pytest.fixture
def glue(client, moto_endpoint, variables):
    made = []

    def make(concurrent=5, **values):
        made.append(Glue(client("glue"), moto_endpoint, concurrent))
        variables(TARGET=f"glue:{made[-1].name}", **values)
        return made[-1]

    yield make
    for found in made:
        found.close()


def test_an_event_starts_a_glue_job_with_its_arguments(glue):
    job = glue()
    done = handler(event("landing/sales/product/1.csv", "landing/hr/person/1.csv"))
    [run] = job.runs()
    assert (done["started"], done["objects"], done["ignored"]) == ([run["Id"]], 2, 0)
    assert run["Arguments"] == {"--config": CONFIG}


def test_a_run_that_has_not_begun_is_enough(glue):
    job = glue()
    first = handler(event("landing/sales/product/1.csv"))["started"]
    again = handler(event("landing/sales/product/2.csv"))
    assert (again["started"], again["waiting"]) == ([], first)
    assert len(job.runs()) == 1


def test_a_run_that_reads_already_is_followed_by_one_and_only_one(glue):
    job = glue()
    first = handler(event("landing/sales/product/1.csv"))["started"]
    job.go_on_after(1)
    assert job.runs()[0]["JobRunState"] == "RUNNING"
    job.go_on_after(1000)
    second = handler(event("landing/sales/product/2.csv"))["started"]
    assert second and second != first
    assert handler(event("landing/sales/product/3.csv"))["waiting"] == second
    assert len(job.runs()) == 2


def test_runs_per_table_wait_for_their_own_table_or_for_all(glue):
    job = glue(SCOPE="table")
    started = handler(event("landing/a/one/1.csv", "landing/a/two/2024/1.csv", "landing/a/one/2.csv"))["started"]
    assert [run["Arguments"]["--table"] for run in job.runs()] == ["a.one", "a.two"]
    assert handler(event("landing/a/two/9.csv"))["waiting"] == started[1:]
    everything = handler(event("landing/odd.csv"))["started"]
    assert len(everything) == 1 and "--table" not in job.runs()[-1]["Arguments"]
    assert handler(event("landing/b/three/1.csv"))["waiting"] == everything


def test_a_run_of_another_configuration_does_not_count(glue, monkeypatch):
    job = glue()
    handler(event("landing/sales/product/1.csv"))
    monkeypatch.setenv("LAKEWARD_LAMBDA_CONFIG", "s3://conf/other.yaml")
    assert handler(event("landing/sales/product/1.csv"))["started"]
    assert len(job.runs()) == 2


def test_an_event_that_cannot_be_processed_now_fails_for_redelivery(glue):
    job = glue(concurrent=1)
    handler(event("landing/sales/product/1.csv"))
    job.go_on_after(1)
    job.runs()
    job.go_on_after(1000)
    with pytest.raises(RetriableError, match="has its maximum of concurrent runs"):
        handler(event("landing/sales/product/2.csv"))


def test_events_about_other_files_start_nothing(glue):
    job = glue()
    foreign = event("landing/sales/product/1.csv", bucket="other")
    outside = event("elsewhere/sales/product/1.csv", "landing/sales/product/")
    for found in (foreign, outside, {"Event": "s3:TestEvent"}, {"odd": 1}, {"Records": []}):
        done = handler(found)
        assert (done["objects"], done["started"]) == (0, [])
    assert job.runs() == []


def test_a_bad_record_of_a_batch_leaves_the_others(glue):
    job = glue()
    batch = {"Records": [{"body": "no json"}, {"body": json.dumps(event("landing/sales/product/1.csv"))}]}
    done = handler(batch)
    assert (done["objects"], done["ignored"], len(job.runs())) == (1, 1, 1)


def test_an_event_starts_an_emr_serverless_job(client, variables):
    emr = client("emr-serverless")
    application = emr.create_application(name="a", releaseLabel="emr-7.10.0", type="SPARK")["applicationId"]
    variables(
        TARGET=f"emr-serverless:{application}", EMR_ROLE=ROLE, EMR_ENTRY="s3://code/lakeward_job.py",
        EMR_SPARK="--conf spark.executor.cores=2", SCOPE="table",
    )  # fmt: skip
    # The server lists an application's runs only after the first.
    driver = {"sparkSubmit": {"entryPoint": "s3://other.py"}}
    emr.start_job_run(applicationId=application, executionRoleArn=ROLE, name="another", jobDriver=driver)
    [run] = handler(event("landing/sales/product/1.csv"))["started"]
    found = emr.get_job_run(applicationId=application, jobRunId=run)["jobRun"]
    assert found["jobDriver"]["sparkSubmit"] == {
        "entryPoint": "s3://code/lakeward_job.py",
        "entryPointArguments": ["--config", CONFIG, "--table", "sales.product"],
        "sparkSubmitParameters": "--conf spark.executor.cores=2",
    }
    assert handler(event("landing/sales/product/2.csv"))["started"] != [run], "that run has ended"


@pytest.mark.parametrize(
    ("name", "is_enough"), [("lakeward s3://c a.b", True), ("lakeward s3://c", True), ("x", False)]
)
def test_an_emr_serverless_run_that_waits_is_enough(client, name, is_enough):
    # The server here ends every run immediately, so its answers are written by hand.
    emr = client("emr-serverless")
    summary = {
        "applicationId": "app", "id": "waiting", "name": name, "arn": ARN, "createdBy": ROLE, "executionRole": ROLE,
        "createdAt": 0, "updatedAt": 0, "state": "SCHEDULED", "stateDetails": "-", "releaseLabel": "emr-7.10.0",
    }  # fmt: skip
    parameters = {"applicationId": "app", "states": ["SUBMITTED", "PENDING", "SCHEDULED", "QUEUED"]}
    target = EmrServerlessJob(emr, "app", role=ROLE, entry="s3://e", spark="")
    with Stubber(emr) as answers:
        answers.add_response("list_job_runs", {"jobRuns": [summary]}, parameters)
        answers.add_response("start_job_run", {"applicationId": "app", "jobRunId": "new", "arn": ARN})
        started = target.start(JobRequest("s3://c", "a.b"))
    assert started == (Started("waiting", is_new=False) if is_enough else Started("new", is_new=True))


def test_an_event_is_posted_to_the_queue(client, variables):
    sqs = client("sqs")
    url = sqs.create_queue(QueueName=f"q{uuid.uuid4().hex[:8]}")["QueueUrl"]
    variables(TARGET=f"sqs:{url}")
    keys = [f"landing/sales/a+product%2B/{number}.csv" for number in range(70)]
    assert handler(event(*keys))["messages"] == 2
    bodies = [json.loads(sqs.receive_message(QueueUrl=url)["Messages"][0]["Body"]) for _ in range(2)]
    assert [record["s3"]["object"]["key"] for body in bodies for record in body["Records"]] == keys


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"TARGET": "lambda:x"}, "expected glue:JOB"),
        ({"TARGET": "glue:"}, "expected glue:JOB"),
        ({"TARGET": ""}, "LAKEWARD_LAMBDA_TARGET is not set"),
        ({"TARGET": "glue:j", "CONFIG": ""}, "LAKEWARD_LAMBDA_CONFIG is not set"),
        ({"TARGET": "glue:j", "LANDING": "/data"}, "expected s3://"),
        ({"TARGET": "glue:j", "SCOPE": "some"}, "expected all or table"),
        ({"TARGET": "emr-serverless:a"}, "LAKEWARD_LAMBDA_EMR_ROLE is not set"),
    ],
)
def test_wrong_settings_are_reported(variables, values, message):
    variables(**values)
    with pytest.raises(ConfigurationError, match=message):
        handler(event("landing/sales/product/1.csv"))


def test_the_function_loads_nothing_large():
    script = (
        "import sys, lakeward.aws.lambda_handler as one\n"
        "print(*[name for name in ('pyspark', 'py4j', 'pyarrow', 'pandas', 'numpy', 'pydantic', 'yaml', 'sqlalchemy',"
        " 'boto3', 'click', 'watchfiles', 'cronsim') if name in sys.modules])"
    )
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == ""


@pytest.mark.parametrize("name", ["logo.png", "_SUCCESS", "notes.txt", "1.csv.tmp", "csv"])
def test_a_file_that_is_never_read_starts_nothing(glue, name):
    job = glue()
    done = handler(event(f"landing/sales/product/{name}"))
    assert (done["objects"], done["ignored"], job.runs()) == (0, 1, [])
