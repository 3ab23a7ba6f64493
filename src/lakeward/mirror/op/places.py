"""The order of a table's change files where ``files.order`` decides it: that it stays the same, and the cut in it.

Without ``files.order`` files are ordered by the times in their names, and a cut is such a time. With it a cut is a
place in the order of files, which the user names by a file: ``file:PATH``, or ``after:PATH``.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from lakeward.errors import ConfigurationError
from lakeward.formats.dms.listing import classify_as_set
from lakeward.formats.file_order import NOT_RECORDED, kind_of, place_after, place_by_name, place_by_number
from lakeward.mirror.op.context import AT_FILE, BEHIND_FILE
from lakeward.model import FileClass

if TYPE_CHECKING:
    from lakeward.config import TableSettings
    from lakeward.formats.base import FileSummary
    from lakeward.mirror.op.context import TableContext
    from lakeward.mirror.op.ledger import OrderedFile
    from lakeward.model import LandingFile, Progress

_NAME_A_FILE = "name a change file by its path under landing, as messages show it"


def has_own_order(context: TableContext) -> bool:
    """Whether ``files.order`` decides the order of the table's change files."""
    return context.settings.files.order is not None


def require_one_order(context: TableContext, progress: Progress) -> None:
    """Refuse an order of files other than the one that places were recorded in: they could not be compared.

    Raises:
        ConfigurationError: earlier change files were ordered in another way, or transaction files have changes as well,
            or a lake is to be adopted, too.
    """
    files = context.settings.files
    if conflict := order_conflict(context.settings):
        table = shlex.quote(str(context.table))
        hint = f"lakeward tables set {table} --unset files, or --unset adopt"
        msg = f"{context.table}: {conflict}"
        raise ConfigurationError(msg, hint=hint)
    if files.changes is not None and context.config.transactions:
        msg = f"{context.table}: files.changes is set, and its changes come from transaction files, too"
        raise ConfigurationError(msg, hint="unset transactions:, or files of the table")
    now = _kind(context)
    last = progress.last_place.file_time if progress.last_place else ""
    places = [last, *(generation.cut for generation in progress.generations)]
    if others := [place for place in places if place and kind_of(place) != now]:
        msg = (
            f"{context.table}: its change files were ordered by {kind_of(others[0])} so far, and by the setting "
            f"files.order {files.order or 'not set'} they are ordered by {now}: the two cannot be compared"
        )
        hint = (
            f"set files back; or read everything again in the new order: {reading_again(context, progress)}; "
            "or declare the new files as a table of their own, with path:"
        )
        raise ConfigurationError(msg, hint=hint)


def reading_again(context: TableContext, progress: Progress) -> str:
    """Return the commands that read all files again; where a load came later, they name what it contains.

    Otherwise the load would be taken for the first one, and changes that it contains would be applied on top of it.
    """
    table = shlex.quote(str(context.table))
    again = f"lakeward undo {table} --to-op 0, then lakeward run {table}"
    if all(generation.number == 1 for generation in progress.generations):
        return again
    return f"{again} --cut {BEHIND_FILE}:PATH, where PATH is the last change file that the present load contains"


def order_conflict(settings: TableSettings) -> str | None:
    """Return why an adopted lake and an order of files other than that of times cannot go together."""
    files = settings.files
    if settings.adopt is None or files.changes is None:
        return None
    return (
        f"adopt and files.changes (files.order: {files.order}) are both set: which change files an adopted lake "
        "contains is only known of names with times, as DMS writes them"
    )


def _kind(context: TableContext) -> str:
    files = context.settings.files
    if files.order is None:
        return kind_of("0" * 20)
    return kind_of(place_by_number(1) if files.records_arrival else place_by_name("name"))


def user_cut(context: TableContext) -> str | None:
    """Return the place that ``--cut`` names, None without it.

    Raises:
        ConfigurationError: it is a time, and the table's files are not ordered by times; or the reverse; or it names a
            file that is not one of the table's.
    """
    text = context.options.cut
    if text is None:
        return None
    mark, _, path = text.partition(":")
    by_file = bool(path) and mark in (AT_FILE, BEHIND_FILE)
    if by_file != has_own_order(context):
        files = context.settings.files
        how = f"files.order: {files.order}" if by_file is False else "the times in the names of its change files"
        msg = f"{context.table}: --cut {text} does not fit: the table is ordered by {how}"
        expected = "--cut file:PATH or --cut after:PATH" if not by_file else "--cut TIME"
        raise ConfigurationError(msg, hint=f"lakeward run {shlex.quote(str(context.table))} {expected}")
    if not by_file:
        return text
    place = _place_of(context, path)
    return place_after(place) if mark == BEHIND_FILE else place


def _place_of(context: TableContext, path: str) -> str:
    """Return the place of a file by its path under landing."""
    name = path.removeprefix(f"{context.folder}/")
    entry = context.state.lookup(context.table, [path]).get(path)
    # A place of a former order, which numbers of arrival are that outlast an undo, cannot be compared with others.
    if entry is not None and entry.time and kind_of(entry.time) == _kind(context):
        return entry.time
    if name == path or context.settings.files.records_arrival:
        known = "has never been seen" if name != path else f"is not below the table's folder {context.folder}"
        msg = f"{context.table}: --cut names {path}, which {known}"
        raise ConfigurationError(msg, hint=_NAME_A_FILE)
    if not _is_change_file(context, path, name):
        # A mistyped name has a place, too, and would take files out of the load or into it.
        msg = f"{context.table}: --cut names {path}, which is no change file in landing and was never read as one"
        raise ConfigurationError(msg, hint=_NAME_A_FILE)
    return place_by_name(name)


def _is_change_file(context: TableContext, path: str, name: str) -> bool:
    """Whether landing holds a change file of this path."""
    match = classify_as_set(name, context.settings)
    if match is None or match.file_class is not FileClass.CHANGES or not {"", ".", ".."}.isdisjoint(name.split("/")):
        return False
    try:
        context.storage.identity(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def cut_at(file: LandingFile | FileSummary | OrderedFile, *, behind: bool = False) -> str:
    """Return the option that puts the cut at a file, or behind it."""
    return f"--cut {shlex.quote(f'{BEHIND_FILE if behind else AT_FILE}:{file.path}')}"


def is_recorded(file: LandingFile) -> bool:
    """Whether a file has its place: it is not waiting for its number."""
    return file.time != NOT_RECORDED
