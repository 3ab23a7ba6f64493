"""Options that take a span of time: 0.3, 90s, 10m, 2h."""

from __future__ import annotations

import click

from lakeward.errors import ConfigurationError


def span(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> float | None:
    """Read a span; an option's callback."""
    if value is None:
        return None
    # Settings load pydantic, which --help need not wait for.
    from lakeward import parse_span

    try:
        return parse_span(value)
    except ConfigurationError as error:
        raise click.BadParameter(error.message) from None
