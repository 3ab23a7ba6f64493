"""The complete snapshot in a folder.

A folder with the log of a table format (Delta, Hudi) at or below it is refused: files that the log has removed are
beside those that are valid. The rule for others, without their hidden files (names that begin with ``_`` or ``.``,
except ``_name=value``):

1. Marks (``_SUCCESS`` or ``_manifest.json``) in folders below it: it holds snapshots and is not one itself. Reading it
   would mix them, so it is refused with the list of those that are complete.
2. ``_manifest.json`` in it: a snapshot by Lakeward, complete if ``_SUCCESS`` is there too and every file that the
   manifest lists has its size.
3. ``_SUCCESS`` in it: what one Spark job wrote. Folders below it are its partitions, whatever their names.
4. Neither. If it, or a folder below it, is named like a snapshot (``version=…``, ``year=…`` to ``minute=…``, a time in
   UTC such as ``2023-10-25T14:09:00Z``, ``full-snapshot``, ``incremental-snapshot``), or Spark has left its
   ``_temporary`` there or a writer of Lakeward its claim, it is an unfinished or partial snapshot and refused.
   Otherwise it is a folder of plain files, whose folders below (``dept=…``) are partitions.

The published recipe has put snapshots into three layouts: ``DAY/full-snapshot``, ``snapshot/TIME`` and
``snapshot/year=…/…/minute=…``.

``incomplete_ok`` accepts the folder as it is where rules 2 and 4 would refuse it; rule 1 still holds. None refuses as
False does, but no hint names the option: the command does not have it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lakeward.diffing.stored.addresses import LATEST, PREVIOUS, is_day, is_moment, span_of
from lakeward.errors import RefusedInputError
from lakeward.storage.claims import MANIFEST, SUCCESS, is_claim
from lakeward.text import listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_RENEWED = re.compile(r"^(\d{4}-\d\d-\d\d(?:T\d\dZ)?)\.\d+$", re.ASCII)
_SNAPSHOT_NAME = re.compile(r"(version|year|month|day|hour|minute)=.+")
_UNFINISHED = "_temporary"
# Folders in which table formats record which of the files beside them are valid.
_TABLE_LOGS = {"_delta_log": "Delta", ".hoodie": "Hudi"}
_SHOWN = 20
# Folder of change sets beside that of snapshots, in the layout of the published recipe, and in its first layout the
# folders of the snapshot and of the change set of a day.
INCREMENTAL = "incremental"
FULL, _OF_DAY = "full-snapshot", "incremental-snapshot"
_UNITS = ("year", "month", "day", "hour", "minute")


@dataclass(frozen=True)
class Listing:
    """A folder's files by their path from there, with their sizes."""

    location: str
    files: Mapping[str, int] = field(default_factory=dict)

    @property
    def data(self) -> dict[str, int]:
        """The files that readers treat as data."""
        return {path: size for path, size in self.files.items() if not any(map(_is_hidden, path.split("/")))}

    @property
    def marked(self) -> list[str]:
        """The folders at or below it that hold a mark, by their path; the folder itself has the empty path."""
        found = {_parent(path) for path in self.files if path.rpartition("/")[2] in (SUCCESS, MANIFEST)}
        return sorted(folder for folder in found if not any(map(_is_hidden, folder.split("/") if folder else ())))

    @property
    def complete(self) -> list[str]:
        """The marked folders that are finished."""
        return [folder for folder in self.marked if _join(folder, SUCCESS) in self.files]

    def has(self, name: str) -> bool:
        """Whether a file is directly in the folder."""
        return name in self.files


def require_one(listing: Listing, *, incomplete_ok: bool | None, is_change_set: bool = False) -> None:
    """Refuse a folder that is not one complete snapshot, or change set; see the rule above.

    Raises:
        RefusedInputError: it holds several, or an unfinished one, or a table of another format.
    """
    folders = {part for path in listing.files for part in path.split("/")[:-1]}
    if (log := next((table_log for table_log in _TABLE_LOGS if table_log in folders), None)) is not None:
        msg = f"{listing.location} is or contains a {_TABLE_LOGS[log]} table ({log}): not all files are current rows"
        raise RefusedInputError(msg, hint="write the table's rows as Parquet files, and compare those")
    if any(listing.marked):
        raise _holds_several(listing, is_change_set=is_change_set)
    if incomplete_ok or listing.has(SUCCESS):
        return
    if listing.has(MANIFEST):
        msg = f"{listing.location} has a {MANIFEST} but no {SUCCESS}: it was not finished"
        raise RefusedInputError(msg, hint=f"write it again{or_as_it_is(incomplete_ok)}")
    if trouble := _unfinished(listing):
        msg = f"{listing.location} has neither {SUCCESS} nor {MANIFEST}, and {trouble}: it is unfinished or only a part"
        raise RefusedInputError(msg, hint=f"name a finished snapshot{or_as_it_is(incomplete_ok)}")


def require_outside(to: str, locations: Iterable[str]) -> None:
    """Refuse to write into a snapshot: a folder that holds another one is no longer a snapshot (rule 1).

    Raises:
        RefusedInputError: naming the snapshot.
    """
    for location in locations:
        if f"{to.rstrip('/')}/".startswith(f"{location.rstrip('/')}/"):
            msg = f"{to} is inside the snapshot {location}, which could no longer be read"
            raise RefusedInputError(msg, hint="name a folder beside it: --to PATH")


def or_as_it_is(incomplete_ok: bool | None) -> str:
    """Return the end of a hint where the user may choose to accept what is unfinished."""
    return "" if incomplete_ok is None else ", or take it as it is: --incomplete-ok"


def choose(listing: Listing, word: str) -> str:
    """Return the path of the snapshot below a folder that ``latest``, ``previous``, a day or a time selects.

    Raises:
        RefusedInputError: there is none, or not exactly one.
    """
    complete = [path for path in listing.complete if path and not _is_of_change_set(path)]
    # The result of a patch may be beside them and has no time in its name.
    below = [path for path in complete if _is_dated(path)] or complete
    if not below:
        msg = f"{listing.location} holds no complete snapshot, so {word!r} names none"
        raise RefusedInputError(msg, hint="a snapshot is complete once it has a _SUCCESS")
    dated = sorted((_moment(listing, path), path) for path in _of_one_table(listing, below, word))
    if word in (LATEST, PREVIOUS):
        number = 1 if word == LATEST else 2
        if len(dated) < number:
            msg = f"{listing.location} holds one complete snapshot only, {dated[0][1]}: there is none before it"
            raise RefusedInputError(msg)
        return dated[-number][1]
    start, end = span_of(word)
    found = [path for moment, path in dated if start <= moment < end]
    if len(found) != 1:
        many = f"{len(found)} complete snapshots" if found else "no complete snapshot"
        msg = f"{listing.location} holds {many} of {word}: {_shown(found or below)}"
        raise RefusedInputError(msg, hint="name one of them by its whole path, or by its minute: 2026-11-15T10:30")
    return found[0]


def _is_of_change_set(path: str) -> bool:
    """Whether a path is that of a change set, in a layout of the published recipe."""
    return not {INCREMENTAL, _OF_DAY}.isdisjoint(path.split("/"))


def _is_dated(path: str) -> bool:
    """Whether the names of a snapshot's folders, down to its own, contain its time."""
    parts = path.split("/")
    own = parts[:-1] if parts[-1] == FULL else parts
    return any(map(_SNAPSHOT_NAME.fullmatch, parts)) or any(map(is_moment, own[-1:]))


def _is_of_time(name: str) -> bool:
    return _SNAPSHOT_NAME.fullmatch(name) is not None or is_moment(name)


def _of_one_table(listing: Listing, paths: list[str], word: str) -> list[str]:
    """Refuse to choose among snapshots of several tables."""
    if len(prefixes := {_prefix(path) for path in paths}) > 1:
        msg = (
            f"{listing.location} holds snapshots of several things: {_shown(name or '.' for name in sorted(prefixes))}"
        )
        raise RefusedInputError(msg, hint=f"name one of them: {listing.location}/{max(prefixes)}/{word}")
    return paths


def _prefix(path: str) -> str:
    """Return the part of a path before the folders that name the snapshot."""
    parts = path.split("/")
    first = next((number for number, part in enumerate(parts) if _is_of_time(part)), len(parts) - 1)
    return "/".join(parts[:first])


def _moment(listing: Listing, path: str) -> datetime:
    """Read a snapshot's time from the names of its folders."""
    found = dict(
        part.split("=", 1) for part in f"{listing.location}/{path}".split("/") if _SNAPSHOT_NAME.fullmatch(part)
    )
    try:
        if "version" in found:
            return _version_time(found["version"])
        if not found and (named := next(filter(is_moment, path.split("/")), None)) is not None:
            return span_of(named)[0]
        return datetime(*[int(found.get(unit, 1 if unit in ("month", "day") else 0)) for unit in _UNITS], tzinfo=UTC)  # type: ignore[arg-type,misc]
    except ValueError as error:
        msg = f"the time of {path} in {listing.location} cannot be read from its name: {error}"
        raise RefusedInputError(msg, hint="name the snapshot by its whole path") from error


def _version_time(label: str) -> datetime:
    # In an object store a scheduled version that was made again is in another folder, with a number after its day.
    found = datetime.fromisoformat(_RENEWED.sub(r"\1", label))
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _unfinished(listing: Listing) -> str | None:
    own = listing.location.rstrip("/").rpartition("/")[2]
    if _is_own_name(own):
        return f"{own} is the name of a snapshot's folder"
    if any(is_claim(path) for path in listing.files):
        return "the mark of a writer that has not finished is there"
    folders = {part for path in listing.files for part in path.split("/")[:-1]}
    if _UNFINISHED in folders:
        return f"Spark has left its {_UNFINISHED} folder there"
    named = min((folder for folder in folders if _is_own_name(folder)), default=None)
    return f"{named} below it is the name of a snapshot's folder" if named else None


def _is_own_name(name: str) -> bool:
    """Whether only a snapshot or a change set has this name; a day is also that of other folders."""
    return name in (FULL, _OF_DAY) or (_is_of_time(name) and not is_day(name))


def _holds_several(listing: Listing, *, is_change_set: bool) -> RefusedInputError:
    complete = [path for path in listing.complete if path]
    what = "change set" if is_change_set else "snapshot"
    if not complete:
        msg = f"{listing.location} is no {what}, and those below it were not finished: {_shown(listing.marked)}"
        return RefusedInputError(msg)
    number = f"one complete {what}" if len(complete) == 1 else f"{len(complete)} complete {what}s"
    msg = f"{listing.location} is not a {what} but holds {number}: {_shown(complete)}"
    return RefusedInputError(msg, hint=_meant(listing, complete, is_change_set=is_change_set))


def _meant(listing: Listing, complete: list[str], *, is_change_set: bool) -> str:
    """Return a hint with a folder that would be accepted."""
    fitting = [path for path in complete if _is_of_change_set(f"{listing.location}/{path}") is is_change_set]
    if not fitting and is_change_set:
        return "lakeward diff PAST CURRENT --to PATH   (makes a change set)"
    if not fitting:
        return "those are change sets: lakeward patch PAST CHANGE_SET --to PATH   (makes a snapshot of them)"
    whole = f"{listing.location}/{fitting[-1]}"
    if is_change_set:
        return whole
    try:
        return f"{listing.location}/{choose(listing, LATEST)}   (or {listing.location}/{LATEST})"
    except RefusedInputError:
        # They are of several tables, or have no time in their names.
        return whole


def _shown(paths: Iterable[str]) -> str:
    return listed(paths, most=_SHOWN)


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name
