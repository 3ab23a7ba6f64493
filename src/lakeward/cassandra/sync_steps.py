"""What a sync has to do next, told from the folder of exports and the target's ledger alone.

Every step ends with something that the next look sees: an export in the folder, a change set in the folder, a state in
the ledger. A sync that is killed anywhere therefore needs no memory: the next one looks, and goes on from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from lakeward.errors import RefusedInputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.cassandra.export_folders import ExportFolder, KnownExport


class Action(StrEnum):
    """A step."""

    EXPORT = "export"
    IMPORT = "import"
    ASSUME = "assume"
    DIFF = "diff"
    APPLY = "apply"
    RECORD = "record"


class First(StrEnum):
    """What happens to a target of which nothing is recorded: it is filled, or taken for what the export holds."""

    IMPORT = "import"
    ASSUME = "assume"


@dataclass(frozen=True)
class Step:
    """What to do: with which export, made of which past, by which change set."""

    action: Action
    export: KnownExport
    past: KnownExport | None = None
    change_set: str | None = None


class Target(Protocol):
    """What a sync must know of the table it keeps up to date."""

    def applied(self) -> Mapping[str, Any] | None:
        """Give the identity of the export that the target holds, as recorded; None where nothing is."""

    def under_way(self) -> Mapping[str, Any] | None:
        """Give the identity of the snapshot whose import was begun and has not ended; None where there is none."""

    def is_empty(self) -> bool:
        """Tell whether the table has no rows."""


def next_step(folder: ExportFolder, target: Target, first: First | None) -> Step | None:
    """Give the next step; None where the target holds the newest export, or there is none yet.

    Raises:
        RefusedInputError: the target holds something of which it is not known how it relates to the exports.
    """
    applied = target.applied()
    if applied is None:
        return _first_step(folder, target, first)
    name = folder.name_of(applied)
    if name is None:
        msg = (
            f"the target holds the export {applied.get('location')} ({applied.get('id')}), which is not in "
            f"{folder.folder}: what changed since cannot be told"
        )
        hint = "bring that export back, or load anew: lakeward cassandra import EXPORT --into KEYSPACE.TABLE --force"
        raise RefusedInputError(msg, hint=hint)
    later = [one for one in folder.exports() if one > name]
    return _step_between(folder, folder.export(name), folder.export(later[0])) if later else None


def _step_between(folder: ExportFolder, past: KnownExport, current: KnownExport) -> Step:
    found = folder.change_set(past.id, current)
    if found is None:
        return Step(Action.DIFF, current, past)
    return Step(Action.RECORD if found.is_empty else Action.APPLY, current, past, found.folder)


def _first_step(folder: ExportFolder, target: Target, first: First | None) -> Step | None:
    names = folder.exports()
    begun = target.under_way()
    if begun is not None and (name := folder.name_of(begun)) is not None:
        # Rows of it are in the target: any other export would leave those that it does not have.
        return Step(Action.IMPORT, folder.export(name))
    if not names:
        return None
    require_known_target(target, first)
    return Step(Action.ASSUME if first is First.ASSUME else Action.IMPORT, folder.export(names[-1]))


def require_known_target(target: Target, first: First | None) -> None:
    """Refuse a target with rows of which nothing is recorded; to be asked before an export, which may be long.

    Raises:
        RefusedInputError: nobody said what they are.
    """
    if first is None and target.applied() is None and target.under_way() is None and not target.is_empty():
        msg = "the target has rows already, and nothing is recorded of where they come from"
        hint = "--first import writes the export over them, --first assume takes them for what the export holds"
        raise RefusedInputError(msg, hint=hint)
