"""``lakeward cassandra sync`` without a cluster: options that do not fit, rounds that fail, and its output."""

import inspect
import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner

from lakeward import CassandraClient, Lakeward, RateLimits
from lakeward.cassandra.sync_rounds import SyncLoop, SyncReport, SyncStep
from lakeward.cassandra.sync_steps import SyncAction
from lakeward.cli import cassandra as commands
from lakeward.cli.cassandra import cassandra
from lakeward.cli.main import cli
from lakeward.cli.options import Invocation
from lakeward.config import parse_config
from lakeward.errors import ConfigurationError, ConflictError, LakewardError, RefusedInputError, RetriableError

COPY = ("sync", "--into", "eu/shop.orders", "--to", "exports")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--every", "1h"), "--every needs --from"),
        (("--from", "prod/shop.orders", "--watch"), "with --from use --every"),
        (("--from", "prod/shop.orders", "--table", "shop.orders"), "with --from use --every"),
        (("--poll", "1s"), "--poll is for --watch"),
        (("--first", "guess"), "Invalid value for '--first'"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, words):
    result = CliRunner().invoke(cassandra, [*COPY, *options])
    assert (result.exit_code, words in result.output) == (2, True), result.output


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--table", "prod/shop.orders"), "expected shop.orders"),
        (("--ledger", "prod/shop.state"), "it must be in the cluster of eu/shop.orders"),
    ],
)
def test_a_cluster_that_is_not_queried_is_not_named(options, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lakeward.yaml").write_text("clusters: {eu: {hosts: [127.0.0.1]}, prod: {hosts: [127.0.0.2]}}\n")
    result = CliRunner().invoke(cli, ["cassandra", *COPY, *options])
    assert (result.exit_code, words in result.stderr) == (2, True), result.stderr


def raises(error: Exception) -> Callable[[], Any]:
    def fail() -> None:
        raise error

    return fail


def test_rounds_continue_after_temporary_errors():
    """Of the round itself, and of the wait for the next one."""
    report = SyncReport((), None)
    gone, conflict = RetriableError("gone"), ConflictError("another export is under way")
    silent = RetriableError("the store does not answer")
    rounds = [raises(gone), lambda: report, raises(conflict), lambda: report]
    waited: list[SyncReport | None] = []
    reports: list[SyncReport] = []
    errors: list[LakewardError] = []

    def wait(found: SyncReport | None) -> None:
        waited.append(found)
        if found is report and waited.count(report) == 2:
            raise silent

    def sync() -> SyncReport:
        found: SyncReport = rounds.pop(0)()
        return found

    with pytest.raises(IndexError):
        SyncLoop(sync, wait, reports.append, errors.append).run()
    assert waited == [None, report, None, report, None]
    assert reports == [report, report]
    assert errors == [gone, conflict, silent]


def test_temporary_errors_and_warnings_are_logged_where_nobody_takes_them(caplog):
    rounds = [raises(RetriableError("the cluster is away")), lambda: SyncReport((), None, (), {"exports/a": "a part"})]

    def sync() -> SyncReport:
        found: SyncReport = rounds.pop(0)()
        return found

    with pytest.raises(IndexError):
        SyncLoop(sync, lambda _: None).run()
    logged = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert logged[0] == "the cluster is away; tried again with the next round"
    assert "exports/a is left out: a part" in logged[1] and len(logged) == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"every": 3600}, "every needs source"),
        ({"source": "prod/shop.orders"}, "source needs every"),
        ({"source": "prod/shop.orders", "every": 60, "poll": 1}, "poll is how often the folder is looked at"),
        ({"source": "prod/shop.orders", "every": 60, "table": "shop.orders"}, "pass only one of them"),
        ({"source": "prod/shop.orders", "every": -1}, "every must be a number of 0 or more or None, found -1"),
        ({"poll": "1s"}, "poll must be a number"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_before_anything_is_done(arguments, words, tmp_path):
    clusters = {"eu": {"hosts": ["127.0.0.1"]}, "prod": {"hosts": ["127.0.0.2"]}}
    config = parse_config({"clusters": clusters}, base=tmp_path)
    with CassandraClient(config) as client, pytest.raises(ConfigurationError, match=words):
        client.keep_in_sync(into="eu/shop.orders", to="exports", **arguments)


def test_help_shows_no_private_functions():
    for method in (CassandraClient.keep_in_sync, CassandraClient.sync, Lakeward.__init__):
        assert not [
            p for p in inspect.signature(method).parameters.values() if callable(p.default) and p.default is not p.empty
        ]


@pytest.mark.parametrize("error", [RefusedInputError("too many deletes"), ConfigurationError("no such table")])
def test_other_errors_end_the_rounds(error):
    seen: list[LakewardError] = []
    with pytest.raises(type(error)):
        SyncLoop(raises(error), lambda _: None, on_error=seen.append).run()
    assert not seen


@pytest.mark.parametrize("after", [1, 2, 3])
def test_rounds_end_on_stop(after):
    """Before the first round, after a round, and after a wait."""
    answers = iter(range(1, 10))
    done: list[str] = []

    def sync() -> SyncReport:
        done.append("round")
        return SyncReport((), None)

    SyncLoop(sync, lambda _: done.append("wait"), stop=lambda: next(answers) == after).run()
    assert done == ["round", "wait"][: after - 1]


def test_a_failed_round_is_not_reported_after_a_stop():
    answers = iter([False, True])
    errors: list[LakewardError] = []
    SyncLoop(raises(RetriableError("gone")), raises, on_error=errors.append, stop=lambda: next(answers)).run()
    assert not errors


def test_rejected_rows_and_warnings_are_reported(capsys):
    result = {"upserted": 5, "deleted": 0, "rejected": 2, "dead_letters": "letters/x", "warnings": ["rows stay"]}
    report = SyncReport((SyncStep(SyncAction.IMPORT, result),), None, (), {"exports/half": "holds a part"})
    commands._show_round(Invocation(), report)
    printed = capsys.readouterr()
    assert "import: 5 upserted, 0 deleted" in printed.out
    assert "2 rows were refused; they are in letters/x" in printed.out
    assert "rows stay" in printed.err
    assert "exports/half is left out: holds a part" in printed.err


def test_the_command_leaves_its_rounds_to_the_library(monkeypatch, capsys, tmp_path):
    """--every and --watch only choose the wait; temporary errors are reported, and a signal ends the rounds."""
    calls: list[dict[str, Any]] = []

    def keep_in_sync(_: CassandraClient, **given: Any) -> None:
        calls.append(given)
        given["on_report"](SyncReport((), None))
        given["on_error"](RetriableError("the cluster does not answer"))
        assert not given["stop"]()

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(CassandraClient, "keep_in_sync", keep_in_sync)
    shared = ["--quiet", "--output", "json", "cassandra", *COPY]
    first = CliRunner().invoke(cli, [*shared, "--from", "prod/shop.orders", "--every", "1h", "--max-wcu", "5"])
    second = CliRunner().invoke(cli, [*shared, "--watch", "--poll", "2s", "--first", "assume"])
    assert (first.exit_code, second.exit_code) == (0, 0), first.output + second.output
    assert json.loads(first.stdout)["status"] == "nothing to do"
    assert "the cluster does not answer; tried again with the next round" in first.stderr
    chosen = [{name: given[name] for name in ("source", "every", "poll", "first", "limits")} for given in calls]
    limits = RateLimits(write_units=5)
    assert chosen == [
        {"source": "prod/shop.orders", "every": 3600, "poll": None, "first": None, "limits": limits},
        {"source": None, "every": None, "poll": 2, "first": "assume", "limits": RateLimits()},
    ]
