"""Global options, exit codes, help, errors."""

import resource
import subprocess
import sys

import pytest

from lakeward import __version__
from lakeward.errors import BugError, DataError


def test_version(call):
    assert call("--version").stdout == f"lakeward {__version__}\n"


def test_help_lists_every_command(call):
    result = call("--help")
    assert result.exit_code == 0
    for name in (
        "init", "demo", "doctor", "discover", "tables", "plan", "run", "status", "sql", "quarantine", "state",
        "simulate",
    ):  # fmt: skip
        assert f"  {name} " in result.stdout


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["tables", "list"]])
def test_quick_commands_do_not_load_spark(project, arguments):
    script = (
        "import sys\nfrom lakeward.cli.main import cli\n"
        f"try:\n    cli.main({arguments!r})\n"
        "except SystemExit:\n    pass\n"
        "print([name for name in ('pyspark', 'pyarrow', 'pandas') if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


def test_help_is_quick():
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "lakeward.cli.main", "--help"], capture_output=True, text=True, check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.stdout.startswith("Usage: lakeward")
    # CPU time, not time on the clock: the machine may be busy.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.5


def test_configuration_before_and_after_the_command(project, call, tmp_path):
    other = tmp_path / "other.yaml"
    other.write_text("tables: {shop.till: {}}")
    assert "shop.till" in call("--config", str(other), "tables", "list").stdout
    assert "shop.till" in call("tables", "--config", str(other), "list").stdout
    assert "shop.till" in call("tables", "list", "--config", str(other)).stdout
    assert "shop.till" in call("--config", "nowhere.yaml", "tables", "list", "--config", str(other)).stdout


def test_output_before_and_after_the_command(project, call):
    assert call("--output", "json", "tables", "list").stdout == call("tables", "list", "--output", "json").stdout


def test_a_usage_error_is_2_and_names_the_help(project, call, call_json):
    result = call("run", "--bogus")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--bogus" in result.stderr
    assert "try: lakeward run --help" in result.stderr
    assert call_json("run", "--bogus")["error"]["kind"] == "usage"
    assert call("--output=json", "nonsense").stdout.startswith("{")


def test_no_arguments_show_the_help_and_are_2(call):
    result = call()
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Usage: lakeward" in result.stderr


def test_no_configuration_is_2_with_the_remedy(tmp_path, monkeypatch, call, call_json):
    monkeypatch.chdir(tmp_path)
    result = call("run")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: no configuration file at lakeward.yaml\ntry: lakeward init")
    assert call_json("run")["error"] == {
        "kind": "configuration",
        "message": "no configuration file at lakeward.yaml",
        "hint": "lakeward init   (or --config FILE)",
        "exit_code": 2,
    }


@pytest.mark.parametrize("landing", ["missing", "empty"])
@pytest.mark.parametrize("command", ["run", "plan", "discover"])
def test_an_empty_or_missing_landing_is_2_with_the_remedy(tmp_path, monkeypatch, call, landing, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lakeward.yaml").write_text("landing: ./landing\ntables: {a.b: {}}")
    if landing == "empty":
        (tmp_path / "landing").mkdir()
    result = call(command)
    assert result.exit_code == 2
    assert "missing or empty" in result.stderr
    assert "try: " in result.stderr


def test_an_error_of_the_library_has_no_traceback_without_debug(project, call, answers):
    answers("status", DataError("files are odd", hint="look at them"))
    result = call("status")
    assert (result.exit_code, result.stdout, result.stderr) == (3, "", "error: files are odd\ntry: look at them\n")
    assert "Traceback" in call("status", "--debug").stderr
    answers("status", BugError("broken"))
    assert call("status").exit_code == 3


def test_an_unexpected_error_is_called_a_bug(project, call, answers, call_json):
    answers("status", ZeroDivisionError("oops"))
    result = call("status")
    assert result.exit_code == 3
    assert "this is a bug in Lakeward: ZeroDivisionError: oops" in result.stderr
    assert "--debug" in result.stderr
    assert "Traceback" not in result.stderr
    assert "Traceback" in call("--debug", "status").stderr
    assert call_json("status")["error"]["kind"] == "bug"


def test_an_interrupt_is_130_without_traceback(project, call, answers):
    answers("status", KeyboardInterrupt())
    result = call("status")
    assert result.exit_code == 130
    assert "error: interrupted" in result.stderr
    assert "Traceback" not in result.stderr


def test_data_is_not_read_as_markup(project, call, answers):
    answers("status", DataError("value [red]x[/red] :smile: does not fit"))
    assert "[red]x[/red] :smile:" in call("status").stderr
