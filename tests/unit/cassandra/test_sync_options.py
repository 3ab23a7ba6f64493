"""``lakeward cassandra sync`` without a cluster: options that do not fit, rounds that fail, and what it says."""

from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner

from lakeward.cassandra.sync_steps import Action
from lakeward.cassandra.syncing import SyncReport, SyncStep
from lakeward.cli import cassandra_sync
from lakeward.cli.cassandra import cassandra
from lakeward.cli.invocation import Invocation
from lakeward.cli.main import cli
from lakeward.errors import ConflictError, RetriableError

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
def test_what_does_not_fit_is_refused(options, words):
    result = CliRunner().invoke(cassandra, [*COPY, *options])
    assert (result.exit_code, words in result.output) == (2, True), result.output


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--table", "prod/shop.orders"), "expected shop.orders"),
        (("--ledger", "prod/shop.state"), "is in another cluster than eu/shop.orders"),
    ],
)
def test_a_cluster_that_is_not_asked_is_not_named(options, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lakeward.yaml").write_text("clusters: {eu: {hosts: [127.0.0.1]}, prod: {hosts: [127.0.0.2]}}\n")
    result = CliRunner().invoke(cli, ["cassandra", *COPY, *options])
    assert (result.exit_code, words in result.stderr) == (2, True), result.stderr


def test_rounds_go_on_after_errors_that_pass(monkeypatch):
    """Of the round itself, and of the wait for the next one."""
    report = SyncReport((), None)

    def dies(error: Exception) -> Callable[[], Any]:
        def die() -> None:
            raise error

        return die

    conflict = dies(ConflictError("another export is under way"))
    rounds = [dies(RetriableError("gone")), lambda: report, conflict, lambda: report]
    monkeypatch.setattr(cassandra_sync._Rounds, "once", lambda _: rounds.pop(0)())
    waited: list[SyncReport | None] = []

    def wait(found: SyncReport | None) -> None:
        waited.append(found)
        if found is report and waited.count(report) == 2:
            dies(RetriableError("the store does not answer"))()

    with pytest.raises(IndexError):
        cassandra_sync._Rounds(Invocation(quiet=True), None, None).for_ever(wait)  # type: ignore[arg-type]
    assert waited == [None, report, None, report, None]


def test_rejected_rows_and_warnings_are_told(capsys):
    result = {"upserted": 5, "deleted": 0, "rejected": 2, "dead_letters": "letters/x", "warnings": ["rows stay"]}
    report = SyncReport((SyncStep(Action.IMPORT, result),), None, (), {"exports/half": "holds a part"})
    cassandra_sync._Rounds(Invocation(), None, None)._tell(report)  # type: ignore[arg-type]
    told = capsys.readouterr()
    assert "import: 5 upserted, 0 deleted" in told.out
    assert "2 rows were refused; they are in letters/x" in told.out
    assert "rows stay" in told.err
    assert "exports/half is left out: holds a part" in told.err
