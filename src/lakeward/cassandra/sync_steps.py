"""What a sync has to do next, told from the folder of exports and the target's ledger alone.

Every step ends with something that the next look sees: an export in the folder, a change set in the folder, a state in
the ledger. A sync that is killed anywhere therefore needs no memory: the next one looks, and goes on from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from lakeward.cassandra.guards import REESTABLISH
from lakeward.errors import RefusedInputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.cassandra.export_folder import ExportFolder, KnownChangeSet, KnownExport

_CHOICE = "--first import writes the newest export over it, --first assume assumes that it holds that export"


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
class Rules:
    """What a sync was told.

    first: what happens to a target of whose rows nothing is known; None: it is refused.
    source: the cluster that is exported; None: exports of another job are followed.
    any_cluster: follow exports whichever cluster they say they are of.
    """

    first: First | None = None
    source: str | None = None
    any_cluster: bool = False


@dataclass(frozen=True)
class NextStep:
    """What to do: with which export, made of which past, by which change set."""

    action: Action
    export: KnownExport
    past: KnownExport | None = None
    change_set: KnownChangeSet | None = None


class SyncTarget(Protocol):
    """What a sync must know of the table it keeps up to date."""

    def applied(self) -> Mapping[str, Any] | None:
        """Return the identity of the export that the target holds, as recorded; None where nothing is."""

    def under_way(self) -> Mapping[str, Any] | None:
        """Return the identity of the snapshot whose import was begun and has not ended; None where there is none."""

    def is_empty(self) -> bool:
        """Whether the table has no rows."""

    def lost(self) -> str | None:
        """Return why the table does not hold any more what is recorded of it; None where it may."""

    def unknown(self) -> str | None:
        """Return why it is not known which state the table holds; None where the record says it."""


def next_step(folder: ExportFolder, target: SyncTarget, rules: Rules) -> NextStep | None:
    """Return the next step; None where the target holds the newest export, or there is none yet.

    Raises:
        RefusedInputError: the target holds something of which it is not known how it relates to the exports.
    """
    begun = target.under_way()
    if begun is not None and (name := folder.name_of(begun)) is not None:
        # Rows of it are in the target: any other export would leave those that it does not have.
        return NextStep(Action.IMPORT, _of_source(folder.export(name), rules))
    applied = target.applied()
    if applied is None:
        return _first_step(folder, target, rules)
    lost = target.lost()
    if lost is not None and target.is_empty():
        return _filling(folder, applied, rules)
    unknown = target.unknown()
    if unknown is not None and rules.first is None:
        raise RefusedInputError(unknown, hint=f"{REESTABLISH}; {_CHOICE}")
    if unknown is not None:
        return _first_step(folder, target, rules)
    held = _of_source(_held(folder, applied), rules)
    doubt = lost or (f"the target holds {held.folder}, only a part of its table: {held.part}" if held.part else None)
    if doubt is not None:
        if rules.first is None:
            raise RefusedInputError(doubt, hint=_CHOICE)
        return _first_step(folder, target, rules)
    later = folder.exports(after=held.name).exports
    return _step_between(folder, held, _of_source(later[0], rules, held)) if later else None


def _held(folder: ExportFolder, applied: Mapping[str, Any]) -> KnownExport:
    name = folder.name_of(applied)
    if name is not None:
        return folder.export(name)
    msg = (
        f"the target holds the export {applied.get('location')} ({applied.get('id')}), which is not in "
        f"{folder.folder}: what changed since cannot be determined"
    )
    hint = "restore that export, or empty the target: it is then filled with the newest export"
    raise RefusedInputError(msg, hint=hint)


def _filling(folder: ExportFolder, applied: Mapping[str, Any], rules: Rules) -> NextStep | None:
    """Fill a target that lost all its rows, unless they had a time to live that may have come to its end."""
    newest = folder.newest()
    if newest is None or (newest.expires and newest.id == applied.get("id")):
        return None
    return NextStep(Action.IMPORT, _of_source(newest, rules))


def _of_source(export: KnownExport, rules: Rules, past: KnownExport | None = None) -> KnownExport:
    """Return an export that is of the cluster which is exported, and of its past's."""
    expected = rules.source or (past.cluster if past is not None else None)
    if rules.any_cluster or expected is None or export.cluster == expected:
        return export
    msg = (
        f"{export.folder} is an export of the cluster {export.cluster}, but those of {expected} are followed: "
        "rows of two tables would be mixed"
    )
    hint = "--to another folder, or remove that export; --any-cluster where it is the same table under another name"
    raise RefusedInputError(msg, hint=hint)


def _step_between(folder: ExportFolder, past: KnownExport, current: KnownExport) -> NextStep:
    found = folder.change_set(past.id, current)
    if found is None:
        return NextStep(Action.DIFF, current, past)
    return NextStep(Action.RECORD if found.is_empty else Action.APPLY, current, past, found)


def _first_step(folder: ExportFolder, target: SyncTarget, rules: Rules) -> NextStep | None:
    newest = folder.newest()
    if newest is None:
        return None
    require_known_target(target, rules.first)
    return NextStep(Action.ASSUME if rules.first is First.ASSUME else Action.IMPORT, _of_source(newest, rules))


def require_known_target(target: SyncTarget, first: First | None) -> None:
    """Refuse a target with rows of which nothing is recorded; to be asked before an export, which may be long.

    Raises:
        RefusedInputError: nobody said what they are.
    """
    if first is None and target.applied() is None and target.under_way() is None and not target.is_empty():
        msg = "the target already has rows, and nothing is recorded about where they come from"
        raise RefusedInputError(msg, hint=_CHOICE)
