"""Checks before a table is written: the right change set, the right timestamp, and plausible contents."""

from __future__ import annotations

import hashlib
import json
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from lakeward.cassandra import keyspaces
from lakeward.cassandra.jobs import EDITS, compared_since, is_outdated
from lakeward.cassandra.snapshots import LIVE
from lakeward.delete_guard import Removal, change_set_refusal
from lakeward.diffing.stored.changesets import is_same_state, is_surely_same, shown_state
from lakeward.errors import ConfigurationError, RefusedInputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.cassandra.cql import TableName
    from lakeward.cassandra.jobs import AppliedState, Job
    from lakeward.cassandra.keyspaces import WriteLimits
    from lakeward.cassandra.snapshots import ExportOrigin
    from lakeward.diffing.stored.changesets import ChangeSet, ChangeSetManifest

_FORCE = "--force applies it regardless"
# The hint where it is not known what a table holds.
REESTABLISH = (
    "lakeward cassandra compare TABLE COPY --to FOLDER, then apply what it wrote; or empty the copy, and import an "
    "export"
)
_YEAR_10000 = 253_402_300_800_000_000
SNAPSHOT_TIME: str = "snapshot"
NOW: str = "now"


def is_applied(last: AppliedState | None, manifest: ChangeSetManifest | None) -> bool:
    """Whether the target already has the state that a change set leads to."""
    if last is None or last.unknown is not None or manifest is None:
        return False
    if last.change_set == manifest.id:
        return True
    return is_surely_same(last.identity, manifest.current) and not is_same_state(last.identity, manifest.past)


def is_repair(manifest: ChangeSetManifest) -> bool:
    """Whether a change set was made by comparing two live tables, whatever was applied to the target."""
    return manifest.past.get("kind") == LIVE


def require_next(last: AppliedState | None, change_set: ChangeSet, *, force: bool) -> list[str]:
    """Require that a change set starts from the state that the target has; return the warnings.

    Raises:
        RefusedInputError: the target has another state, or it is not known which.
    """
    manifest = change_set.manifest
    if manifest is None:
        warnings = [
            f"{change_set.location} has no manifest, so it is not known whether it is the next one for the target"
        ]
        return warnings if last is None else [*warnings, *unknown_warnings(last)]
    if last is None:
        held = shown_state(manifest.past)
        return [f"nothing is recorded about the target: it is assumed to hold the past of the change set, {held}"]
    if is_repair(manifest):
        return _require_fresh(last, change_set.label, compared_since(manifest), force=force)
    if last.unknown is None and is_same_state(last.identity, manifest.past):
        return [*doubt_warnings(last), *_unsure_warnings(last, change_set.label, manifest)]
    if last.unknown is not None:
        (msg,), hint = unknown_warnings(last), REESTABLISH
    else:
        msg = (
            f"{change_set.label} was made from {shown_state(manifest.past)}, but the target holds "
            f"{shown_state(last.identity)}, written at {last.at:%Y-%m-%d %H:%M:%S} UTC"
        )
        hint = "apply the change sets in order, each once"
    if force:
        return [f"{msg}; applied regardless"]
    raise RefusedInputError(msg, hint=f"{hint}; {_FORCE}")


def _require_fresh(last: AppliedState, label: str, seen: datetime, *, force: bool) -> list[str]:
    """Require that a repair was computed from what the target holds now."""
    if not is_outdated(last, seen):
        return []
    msg = (
        f"{label} was made by a comparison of {seen:%Y-%m-%d %H:%M:%S} UTC, but the target was written to at "
        f"{last.at:%Y-%m-%d %H:%M:%S} UTC"
    )
    if force:
        return [f"{msg}; applied regardless"]
    raise RefusedInputError(msg, hint=f"compare again: lakeward cassandra compare … --to FOLDER; {_FORCE}")


def unknown_warnings(last: AppliedState) -> list[str]:
    """Return a warning if it is not known what the target holds."""
    return [f"what the target holds is not known: {last.unknown}"] if last.unknown is not None else []


def doubt_warnings(last: AppliedState) -> list[str]:
    """Return a warning if the target may have rows that are not part of the recorded state."""
    if last.doubt is None:
        return []
    return [f"the target may still have {last.doubt}; lakeward cassandra compare finds them"]


def _unsure_warnings(last: AppliedState, label: str, manifest: ChangeSetManifest) -> list[str]:
    """Return a warning if the states of the target and of the change set's past cannot be compared."""
    if last.identity.get("kind") == manifest.past.get("kind") or is_surely_same(last.identity, manifest.past):
        return []
    held, past = shown_state(last.identity), shown_state(manifest.past)
    return [f"the target holds {held}; it is not known whether that is what {label} was made from, {past}"]


def require_none_under_way(begun: Job | None, job_id: str, target: str, *, force: bool) -> list[str]:
    """Require that no other job was started and left unfinished: rows of it may be in the target.

    Raises:
        RefusedInputError: there is such a job.
    """
    if begun is None or begun.id == job_id:
        return []
    msg = unfinished(begun, target)
    if force:
        return [f"{msg}; left as it is"]
    raise RefusedInputError(msg, hint=f"finish it first, with the command that started it; {_FORCE}")


def unfinished(begun: Job, target: str) -> str:
    """Return the message about a job that was started and not finished."""
    where = begun.identity.get("location")
    if begun.kind in EDITS:
        return f"{where} was started and not finished"
    what = f"change set {begun.change_set}" if begun.change_set else f"import of {where}"
    return f"the {what} into {target} was started and not finished"


def require_few_deletes(change_set: ChangeSet, max_share: float) -> None:
    """Refuse a change set that would delete a large part of the table: its current side may have lost rows.

    Raises:
        RefusedInputError: it would; the message has both numbers.
    """
    if change_set.manifest is None:
        return
    counts = change_set.manifest.counts
    deleted = int(counts.get("deleted", 0))
    known = sum(int(counts.get(word, 0)) for word in ("changed", "deleted", "unchanged"))
    rows = int(change_set.manifest.past.get("rows") or known)
    removal = Removal(deleted, rows, max_share)
    if removal.is_refused:
        raise change_set_refusal(removal, change_set.label)


def require_whole_parents(
    change_set: ChangeSet, parents: Mapping[str, ExportOrigin | None], *, force: bool
) -> list[str]:
    """Refuse deletes that may only mean that a parent did not have all rows.

    Raises:
        RefusedInputError: a parent was not finished; or is a part of its table, and there are deletes.
    """
    manifest = change_set.manifest
    if manifest is None:
        return []
    problems = []
    for which, identity in (("past", manifest.past), ("current", manifest.current)):
        if identity.get("complete") is False:
            problems.append(f"the {which} side of {change_set.label}, {shown_state(identity)}, was not finished")
        origin = parents[which]
        if origin is not None and not origin.is_whole and manifest.counts.get("deleted"):
            part = f"--where {origin.where}" if origin.where else f"--columns {','.join(origin.columns)}"
            problems.append(
                f"the {which} side of {change_set.label} is only a part of its table ({part}), so its "
                f"{manifest.counts['deleted']:,} deletes may be rows that still exist"
            )
    if problems and not force:
        raise RefusedInputError("; ".join(problems), hint=f"make it from complete exports; {_FORCE}")
    return problems


def chosen_timestamp(choice: str, origin: ExportOrigin | None, label: str) -> int | None:
    """Return the timestamp of cells in microseconds; None where it was not chosen and is not known.

    Raises:
        ConfigurationError: the choice is not valid.
    """
    if choice == NOW:
        return time.time_ns() // 1_000
    if choice == SNAPSHOT_TIME:
        return None if origin is None else microseconds(origin.started)
    if choice.isascii() and choice.isdigit():
        if int(choice) >= _YEAR_10000:
            msg = f"the timestamp {choice} for {label} is after the year 9999; expected microseconds since 1970"
            raise ConfigurationError(msg, hint=f"--timestamp now, which is {time.time_ns() // 1_000}")
        return int(choice)
    msg = f"the timestamp {choice!r} for {label} is not valid; expected snapshot, now, or microseconds since 1970"
    raise ConfigurationError(msg)


def require_accepted_timestamp(timestamp: int, limits: WriteLimits, what: str) -> None:
    """Refuse a timestamp that is further from now than the server accepts.

    Raises:
        RefusedInputError: it is.
    """
    then = datetime.fromtimestamp(timestamp / 1_000_000, UTC)
    age = datetime.now(UTC) - then
    too_old = limits.oldest_timestamp is not None and age > limits.oldest_timestamp
    if too_old or (limits.newest_timestamp is not None and -age > limits.newest_timestamp):
        msg = (
            f"{what} would be written as of {then:%Y-%m-%d %H:%M:%S} UTC; this cluster accepts times from "
            f"{limits.oldest_timestamp} ago to {limits.newest_timestamp} ahead"
        )
        raise RefusedInputError(msg, hint="--timestamp now   (newer writes by other clients are then overwritten)")


def takes_timestamps(session: Any, limits: WriteLimits, target: TableName, choice: str, *, expires: bool) -> bool:
    """Whether the target accepts client timestamps; in Keyspaces they, and TTL, must be turned on.

    Raises:
        RefusedInputError: it does not, and timestamps other than now are requested; or cells cannot expire.
    """
    if not limits.is_keyspaces:
        return True
    if expires and not keyspaces.has_ttl(session, target.keyspace, target.table):
        msg = f"cells are to expire, but TTL is turned off for {target}"
        raise RefusedInputError(msg, hint=keyspaces.enabling_statement(target.cql, "ttl"))
    if keyspaces.has_client_timestamps(session, target.keyspace, target.table):
        return True
    if choice != NOW:
        msg = f"{target} accepts no timestamps from clients, so nothing can be written as of {choice}"
        on = keyspaces.enabling_statement(target.cql, "client_side_timestamps")
        raise RefusedInputError(msg, hint=f"--timestamp now, or turn them on: {on}")
    return False


def require_later(
    last: AppliedState | None, timestamp: int, what: str, *, force: bool, is_replay: bool = False
) -> list[str]:
    """Require that cells get a later timestamp than the existing ones: earlier ones would be lost silently.

    A replay writes its cells with the timestamp that they already have.

    Raises:
        RefusedInputError: the timestamp is not later.
    """
    if last is None or last.timestamp is None or timestamp > last.timestamp or is_replay:
        return []
    times = [
        datetime.fromtimestamp(microsecond / 1_000_000, UTC).isoformat() for microsecond in (timestamp, last.timestamp)
    ]
    msg = f"{what} would be written as of {times[0]}, but the target was last written as of {times[1]}, which wins"
    if force:
        return [msg]
    hint = "--timestamp now   (overwrites newer writes by other clients, too); --force writes it regardless"
    raise RefusedInputError(msg, hint=hint)


def microseconds(moment: datetime) -> int:
    """Return a moment in microseconds since 1970, exactly."""
    return (moment.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def job_id(kind: str, identity: Mapping[str, Any], *more: str) -> str:
    """Return the id of a job, which is the same for the same work."""
    text = json.dumps([kind, {**identity, "cassandra": None}, *more], sort_keys=True, default=str)
    return f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def plain_identity(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return an identity without the definition of its table."""
    return {name: value for name, value in identity.items() if name != "cassandra"}


def rejected_warnings(last: AppliedState | None) -> tuple[str, ...]:
    """Return a warning if rows were rejected when the target got its state."""
    if last is None or not last.rejected:
        return ()
    return (f"{last.rejected:,} rows were rejected when it was written; they are in {last.dead_letters}",)
