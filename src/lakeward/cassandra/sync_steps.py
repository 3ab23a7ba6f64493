"""The next step of a sync, derived only from the folder of exports and the target's ledger.

Every step ends with a visible result: an export in the folder, a change set in the folder, or a state in the ledger.
A sync that is killed anywhere therefore needs no other memory: the next one continues from these results.
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


class SyncAction(StrEnum):
    """A kind of step."""

    EXPORT = "export"
    IMPORT = "import"
    ASSUME = "assume"
    DIFF = "diff"
    APPLY = "apply"
    RECORD = "record"


class First(StrEnum):
    """What to do with a target without a record: import the export, or assume that the target holds it."""

    IMPORT = "import"
    ASSUME = "assume"


@dataclass(frozen=True)
class Rules:
    """The options of a sync.

    first: what to do with a target that has rows and no record; None: refuse it.
    source: the cluster that is exported; None: follow the exports of another job.
    any_cluster: follow exports of any cluster.
    """

    first: First | None = None
    source: str | None = None
    any_cluster: bool = False


@dataclass(frozen=True)
class NextStep:
    """The next action, with its export, the export before it, and the change set between them."""

    action: SyncAction
    export: KnownExport
    past: KnownExport | None = None
    change_set: KnownChangeSet | None = None


class SyncTarget(Protocol):
    """The table that a sync keeps up to date."""

    def applied(self) -> Mapping[str, Any] | None:
        """Return the identity of the export that the target holds, as recorded; None where nothing is."""

    def under_way(self) -> Mapping[str, Any] | None:
        """Return the identity of the snapshot whose import is unfinished; None where there is none."""

    def is_empty(self) -> bool:
        """Whether the table has no rows."""

    def lost(self) -> str | None:
        """Return why the recorded state of the table is gone; None where it may still be there."""

    def unknown(self) -> str | None:
        """Return why it is not known which state the table holds; None where it is known."""


def next_step(folder: ExportFolder, target: SyncTarget, rules: Rules) -> NextStep | None:
    """Return the next step; None where the target holds the newest export, or there is none yet.

    Raises:
        RefusedInputError: the relation between the target and the exports is not known.
    """
    begun = target.under_way()
    if begun is not None and (name := folder.name_of(begun)) is not None:
        # Rows of it are in the target: importing another export would leave those that it does not have.
        return NextStep(SyncAction.IMPORT, _of_source(folder.export(name), rules))
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
    """Return the import for a target that lost all its rows, unless they may simply have expired."""
    newest = folder.newest()
    if newest is None or (newest.expires and newest.id == applied.get("id")):
        return None
    return NextStep(SyncAction.IMPORT, _of_source(newest, rules))


def _of_source(export: KnownExport, rules: Rules, past: KnownExport | None = None) -> KnownExport:
    """Return an export after checking that it is from the expected cluster."""
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
        return NextStep(SyncAction.DIFF, current, past)
    return NextStep(SyncAction.RECORD if found.is_empty else SyncAction.APPLY, current, past, found)


def _first_step(folder: ExportFolder, target: SyncTarget, rules: Rules) -> NextStep | None:
    newest = folder.newest()
    if newest is None:
        return None
    require_known_target(target, rules.first)
    return NextStep(SyncAction.ASSUME if rules.first is First.ASSUME else SyncAction.IMPORT, _of_source(newest, rules))


def require_known_target(target: SyncTarget, first: First | None) -> None:
    """Refuse a target that has rows and no record; called before an export, which may take long.

    Raises:
        RefusedInputError: it has, and ``first`` is not chosen.
    """
    if first is None and target.applied() is None and target.under_way() is None and not target.is_empty():
        msg = "the target already has rows, and nothing is recorded about where they come from"
        raise RefusedInputError(msg, hint=_CHOICE)
