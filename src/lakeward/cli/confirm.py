"""Asking before something that takes back or removes."""

from __future__ import annotations

import sys

import click


def require_answerable(*, yes: bool) -> None:
    """Refuse to go on without a consent that nobody can be asked for; called before anything is started.

    Raises:
        UsageError: there is no terminal to ask on, and --yes was not given.
    """
    if not yes and not (sys.stdin.isatty() and sys.stderr.isatty()):
        msg = "there is no terminal to ask on: give --yes, or look first with --dry-run"
        raise click.UsageError(msg)


def confirmed(question: str, *, yes: bool) -> bool:
    """Ask on the terminal, unless the answer was given beforehand."""
    return yes or click.confirm(question, err=True)
