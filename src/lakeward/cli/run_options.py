"""What a user may decide for one run, shared by ``run`` and ``plan``."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakeward import Lakeward, RunOptions

_TIME_DIGITS = 20
_NAME_TIME = re.compile(r"^(\d{8})-?(\d{6,12})$")


def run_options(function: Any) -> Any:
    """Add the options with which a user decides what a run may do."""
    for option in reversed(
        [
            click.option(
                "--file", "files", multiple=True, metavar="URI",
                help="Take only this landing file: a path under landing, a local path, a file:// or s3:// URI; "
                "repeatable.",
            ),
            click.option(
                "--allow-deletes", is_flag=True, help="Let a batch pass that deletes more than max_delete_share."
            ),
            click.option(
                "--cut", metavar="TIME", callback=_cut,
                help="Change files named at or after this time belong to the reload: 2024-04-05T00:30:52 (UTC unless "
                "it has an offset) or as in file names, 20240405-003052555.",
            ),
            click.option("--same-load", is_flag=True, help="Load files with a new time were only copied or touched."),
            click.option(
                "--reload", is_flag=True, help="Load files that were written again are a reload, whatever they contain."
            ),
            click.option(
                "--keep-part", "keep_parts", multiple=True, metavar="PATH",
                help="This load file belongs to the load that is taken; repeatable.",
            ),
            click.option(
                "--drop-part", "drop_parts", multiple=True, metavar="PATH",
                help="This load file does not belong to the load that is taken; repeatable.",
            ),
            click.option(
                "--accept-changed", multiple=True, metavar="PATH",
                help="Ignore the new content of this file that was consumed before; repeatable.",
            ),
        ]
    ):  # fmt: skip
        function = option(function)
    return function


def read_options(
    lake: Lakeward, names: Sequence[str], choices: Mapping[str, Any]
) -> tuple[tuple[str, ...], RunOptions]:
    """Give the tables and the options of a run; files without tables choose the tables they belong to."""
    from lakeward import RunOptions

    if choices["reload"] and not names:
        msg = "--reload decides about the load files of a table: name the table"
        raise click.UsageError(msg)
    tables, paths = lake.choose_files(names, files=choices["files"])
    parts = {
        name: frozenset(lake.landing_path(path) for path in choices[name])
        for name in ("keep_parts", "drop_parts", "accept_changed")
    }
    options = RunOptions(
        allow_deletes=choices["allow_deletes"],
        files=paths,
        cut=choices["cut"],
        same_load=choices["same_load"],
        reload=choices["reload"],
        keep_parts=parts["keep_parts"],
        drop_parts=parts["drop_parts"],
        accept_changed=parts["accept_changed"],
    )
    return tables, options


def _cut(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """Give a time as the 20 digits that file names' times have, in UTC."""
    if value is None:
        return None
    if match := _NAME_TIME.match(value):
        return (match[1] + match[2]).ljust(_TIME_DIGITS, "0")
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        msg = f"{value!r} is not a time; expected 2024-04-05T00:30:52 or 20240405-003052555"
        raise click.BadParameter(msg) from None
    in_utc = time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    return f"{in_utc:%Y%m%d%H%M%S%f}"
