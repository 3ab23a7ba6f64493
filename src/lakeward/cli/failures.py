"""Reports exceptions: a message for people, a document for programs, and the exit code."""

from __future__ import annotations

import sys
import traceback
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import click

from lakeward import redact
from lakeward.cli.output import emit_json, error_line
from lakeward.cli.process import was_interrupted
from lakeward.errors import LakewardError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakeward.cli.options import Invocation

DONE, FINDING, REFUSED, FAILED, INTERRUPTED = 0, 1, 2, 3, 130


def guarded(work: Callable[[], Any], invocation: Invocation, arguments: Sequence[str]) -> int:
    """Run a command and return its exit code; errors are reported as messages."""
    try:
        outcome = work()
    except (KeyboardInterrupt, click.Abort):
        return _interrupted(invocation)
    except Exception as error:  # the last resort before a traceback
        # An interrupt inside a call to Spark can come out as another error.
        return _interrupted(invocation) if was_interrupted() else _report(error, invocation, arguments)
    if was_interrupted():
        return _interrupted(invocation)
    # A command returns its exit code, or nothing when it is done.
    return outcome if isinstance(outcome, int) else DONE


def _report(error: Exception, invocation: Invocation, arguments: Sequence[str]) -> int:
    if isinstance(error, LakewardError):
        return _refuse(error, invocation)
    if isinstance(error, click.UsageError):
        # The error may come before --output was read.
        invocation.output = "json" if _asks_for_json(arguments) else invocation.output
        return _refuse_usage(error, invocation)
    if isinstance(error, UnicodeEncodeError) and (odd := _not_utf8(arguments)):
        return report_error(invocation, "usage", f"the argument {odd!r} is not UTF-8", None, REFUSED)
    # The library is loaded when it is needed: --help need not wait for it.
    from lakeward import explain_error

    known = explain_error(error)
    return _refuse(known, invocation) if known is not None else _bug(error, invocation)


def _not_utf8(arguments: Sequence[str]) -> str | None:
    """Return the first argument with bytes that are not UTF-8; only file names may have them."""
    return next(
        (argument for argument in arguments if any("\udc80" <= letter <= "\udcff" for letter in argument)), None
    )


def report_error(invocation: Invocation, kind: str, message: str, hint: str | None, exit_code: int) -> int:
    """Write an error to standard error and, for programs, as a document to standard output."""
    message = redact(message)
    error_line(message, hint)
    if invocation.is_json and not invocation.has_output:
        document = {"kind": kind, "message": message, "hint": hint, "exit_code": exit_code}
        emit_json(invocation, {"error": document})
    return exit_code


def _refuse(error: LakewardError, invocation: Invocation) -> int:
    if invocation.debug:
        _print_traceback(error)
    return report_error(invocation, error.kind, error.message, error.hint, error.exit_code)


def _refuse_usage(error: click.UsageError, invocation: Invocation) -> int:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show(sys.stderr)
        return REFUSED
    program = error.ctx.command_path if error.ctx else "lakeward"
    return report_error(invocation, "usage", error.format_message(), f"{program} --help", REFUSED)


def _interrupted(invocation: Invocation) -> int:
    message = "interrupted; what was published stays, the rest is finished or rolled back by the next run"
    return report_error(invocation, "interrupted", message, None, INTERRUPTED)


def _print_traceback(error: Exception) -> None:
    """Print an exception with its causes, without the secrets that texts of drivers may hold."""
    sys.stderr.write(redact("".join(traceback.format_exception(error))))


def _bug(error: Exception, invocation: Invocation) -> int:
    if invocation.debug:
        _print_traceback(error)
    message = f"this is a bug in Lakeward: {type(error).__name__}: {error}"
    hint = "the same command with --debug, and report the traceback it shows"
    return report_error(invocation, "bug", message, None if invocation.debug else hint, FAILED)


def _asks_for_json(arguments: Sequence[str]) -> bool:
    pairs = pairwise([*arguments, ""])
    return any(first == "--output=json" or (first, second) == ("--output", "json") for first, second in pairs)
