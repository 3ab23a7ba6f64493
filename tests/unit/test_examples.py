"""The examples in docs/: whole, of the right syntax, and of the fields that matter."""

import inspect
import json
import re
import shutil
import subprocess
from configparser import RawConfigParser
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from lakeward.aws import lambda_handler
from lakeward.cli.main import cli
from lakeward.config import parse_config
from lakeward.runner.watch.triggers import Cron, SystemClock

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = DOCS / "examples"
UNITS = sorted((EXAMPLES / "systemd").iterdir())
PROGRAM = "/opt/lakeward/bin/lakeward"


def unit(path: Path) -> RawConfigParser:
    parser = RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(path, encoding="utf-8")
    return parser


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_units(path, tmp_path):
    # Messages of systemd about the missing program do not concern the unit.
    for found in UNITS:
        (tmp_path / found.name).write_text(found.read_text(encoding="utf-8").replace(PROGRAM, "/bin/true"))
    if program := shutil.which("systemd-analyze"):
        checked = subprocess.run(
            [program, "verify", "--man=no", str(tmp_path / path.name)], capture_output=True, text=True, check=False
        )
        assert (checked.returncode, checked.stderr) == (0, "")
    sections = unit(path)
    if path.suffix == ".timer":
        assert sections["Timer"]["Persistent"] == "true" and sections["Install"]["WantedBy"] == "timers.target"
        return
    command = sections["Service"]["ExecStart"].split()
    assert command[0] == PROGRAM
    assert_is_command(command[1:])
    # The JVM must not be ended before the commit is.
    assert sections["Service"]["KillMode"] == "mixed"


def test_the_watching_service_restarts_unless_it_is_misconfigured():
    service = unit(EXAMPLES / "systemd/lakeward-watch.service")["Service"]
    assert (service["Restart"], service["RestartPreventExitStatus"], service["SuccessExitStatus"]) == (
        "always",
        "2",
        "130",
    )


def assert_is_command(arguments: list[str]) -> None:
    """Check by the command line itself that it accepts these arguments."""
    result = CliRunner().invoke(cli, [*arguments, "--help"])
    assert result.exit_code == 0, result.stderr


def container(name: str) -> tuple[dict, dict]:
    document = yaml.safe_load((EXAMPLES / "kubernetes" / name).read_text(encoding="utf-8"))
    spec = document["spec"].get("jobTemplate", document)["spec"]["template"]["spec"]
    [found] = spec["containers"]
    return document, {**found, "pod": spec}


@pytest.mark.parametrize("name", ["cronjob.yaml", "deployment.yaml"])
def test_kubernetes_pods(name):
    document, found = container(name)
    assert found["command"][0] == "lakeward"
    assert_is_command(found["command"][1:])
    assert found["pod"]["terminationGracePeriodSeconds"] >= 60
    assert found["resources"]["limits"]["memory"] == found["resources"]["requests"]["memory"]
    allowed = {**found["pod"]["securityContext"], **found["securityContext"]}
    assert allowed["runAsNonRoot"] and allowed["runAsUser"] and allowed["readOnlyRootFilesystem"]
    assert not allowed["allowPrivilegeEscalation"] and allowed["capabilities"]["drop"] == ["ALL"]
    # What must be written has a place that can be.
    writable = [mount["mountPath"] for mount in found["volumeMounts"] if not mount.get("readOnly")]
    environment = {variable["name"]: variable["value"] for variable in found["env"]}
    assert writable == ["/tmp"] and environment["HOME"] == "/tmp" and environment["LAKEWARD_CACHE"].startswith("/tmp/")
    mounted = {mount["name"] for mount in found["volumeMounts"]}
    assert mounted == {volume["name"] for volume in found["pod"]["volumes"]}
    assert document["metadata"]["name"].startswith("lakeward")


def test_the_cron_job_does_not_overlap_and_has_a_real_schedule():
    document, found = container("cronjob.yaml")
    assert (document["apiVersion"], document["kind"]) == ("batch/v1", "CronJob")
    assert document["spec"]["concurrencyPolicy"] == "Forbid"
    Cron(document["spec"]["schedule"], SystemClock(), timezone=document["spec"]["timeZone"])
    assert found["pod"]["restartPolicy"] == "Never"


def test_the_deployment_selects_its_own_pods():
    document, _ = container("deployment.yaml")
    labels = document["spec"]["template"]["metadata"]["labels"]
    assert (document["apiVersion"], document["kind"]) == ("apps/v1", "Deployment")
    assert document["spec"]["selector"]["matchLabels"] == labels
    assert (document["spec"]["replicas"], document["spec"]["strategy"]["type"]) == (1, "Recreate")


@pytest.mark.parametrize("path", sorted((EXAMPLES / "aws").glob("*-policy.json")), ids=lambda path: path.name)
def test_policies(path):
    policy = json.loads(path.read_text(encoding="utf-8"))
    assert policy["Version"] == "2012-10-17"
    for statement in policy["Statement"]:
        assert statement["Effect"] == "Allow"
        actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
        assert all(re.fullmatch(r"[a-z0-9-]+:[A-Za-z]+", action) for action in actions)
        resources = statement["Resource"] if isinstance(statement["Resource"], list) else [statement["Resource"]]
        assert all(resource.startswith("arn:aws:") for resource in resources)


def test_metrics_of_a_pod_can_be_reached_from_others():
    _, found = container("deployment.yaml")
    environment = {variable["name"]: variable["value"] for variable in found["env"]}
    metrics = parse_config({}, base=DOCS, environment=environment).metrics
    assert (metrics.address, [metrics.port]) == ("0.0.0.0", [port["containerPort"] for port in found["ports"]])
    assert parse_config({}, base=DOCS).metrics.address == "127.0.0.1"


def test_permissions_cover_the_commands_on_the_pages():
    def rights(name: str) -> set[tuple[str, str]]:
        policy = json.loads((EXAMPLES / "aws" / name).read_text(encoding="utf-8"))
        return {
            (action, resource)
            for found in policy["Statement"]
            for action in ([found["Action"]] if isinstance(found["Action"], str) else found["Action"])
            for resource in ([found["Resource"]] if isinstance(found["Resource"], str) else found["Resource"])
        }

    landing, lake = "arn:aws:s3:::my-landing/dms/*", "arn:aws:s3:::my-lake/warehouse/*"
    running, erasing = rights("lake-policy.json"), rights("erase-landing-policy.json")
    assert {action for action, where in running if where == landing} == {"s3:GetObject"}
    assert {("s3:PutObject", lake), ("s3:DeleteObject", lake), ("s3:GetObject", lake)} <= running
    assert {("s3:PutObject", landing), ("s3:DeleteObjectVersion", landing)} <= erasing
    table = (
        (DOCS / "state.md").read_text(encoding="utf-8").partition("**Allowed actions**")[2].partition("CreateTable")[0]
    )
    documented = {f"dynamodb:{name}" for name in re.findall(r"`([A-Z]\w+)`", table)}
    assert {action for action, _ in running if action.startswith("dynamodb:")} == documented


def test_the_queue_lets_the_bucket_send_and_the_bucket_does():
    policy = json.loads((EXAMPLES / "aws/queue-policy.json").read_text(encoding="utf-8"))
    notification = json.loads((EXAMPLES / "aws/bucket-notification.json").read_text(encoding="utf-8"))
    [statement], [sends] = policy["Statement"], notification["QueueConfigurations"]
    assert statement["Resource"] == sends["QueueArn"] and sends["Events"] == ["s3:ObjectCreated:*"]
    assert "aws:SourceArn" in statement["Condition"]["ArnEquals"]


def test_the_page_names_examples_that_exist_and_settings_that_fit():
    page = (DOCS / "deploy.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\(examples/([^)]+\.\w+)\)", page))
    assert linked == {str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*.*") if path.parent.name in FOLDERS}
    [block] = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    settings = parse_config(yaml.safe_load(block), base=DOCS).watch
    assert (settings.settle, settings.rescan, settings.prefix) == (0.3, 600, ("sales/",))


FOLDERS = ("systemd", "kubernetes", "aws")


def test_the_page_describes_every_variable_of_the_function():
    source = inspect.getsource(lambda_handler.LambdaSettings)
    names = set(re.findall(r'"(TARGET|[A-Z]+(?:_[A-Z]+)?)"', source)) | {"EMR_SPARK", "SCOPE"}
    page = (DOCS / "deploy.md").read_text(encoding="utf-8")
    assert {f"LAKEWARD_LAMBDA_{name}" for name in names} == set(re.findall(r"LAKEWARD_LAMBDA_[A-Z_]+", page))
