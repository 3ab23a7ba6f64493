"""Options of ``lakeward cassandra sync`` that contradict each other are refused before anything is started."""

import pytest
from click.testing import CliRunner

from lakeward.cli.cassandra import cassandra

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
