"""Commands called in the process of the test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.testing import Result


def invoke(*arguments: object) -> Result:
    """Call the command with arguments: ``invoke("run", "--output", "json")``."""
    from lakeward.cli.main import cli

    return CliRunner().invoke(cli, [str(argument) for argument in arguments], prog_name="lakeward")


@pytest.fixture
def call() -> Callable[..., Result]:
    """Return a function that calls the command in this process, on its Spark application if there is one."""
    return invoke
