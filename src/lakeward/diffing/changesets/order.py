"""Change sets in the order in which they lead from one state of a table to another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakeward.errors import RefusedInputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakeward.diffing.changesets.finding import ChangeSet

# What tells one state of a table from another of the same kind where no checksum does.
_IDENTITY = ("location", "id", "table_uuid", "snapshot", "as_of", "op")


def require_order(past: Mapping[str, Any], sets: Sequence[ChangeSet], *, is_result_known: bool = False) -> None:
    """Require that each change set begins where the one before it ended, and the first one at the past.

    States are told by their checksums where both have one, else, where they are of the same kind, by where they lie. A
    change set without a manifest fits anywhere: nothing is known of its parents. With ``is_result_known`` the checksum
    of the result will be looked at: then a past without one may have been moved to another place.

    Raises:
        RefusedInputError: naming the change set, what it was made of, and what it is to be applied to.
    """
    state: Mapping[str, Any] | None = None if is_result_known and past.get("checksum") is None else past
    before = "the past"
    for one in sets:
        if one.manifest is not None and state is not None and not is_same_state(state, one.manifest.past):
            msg = (
                f"{one.label} was made of {shown_state(one.manifest.past)}, but is to be applied to {before}: "
                f"{shown_state(state)}"
            )
            raise RefusedInputError(msg, hint=_hint(past, sets, one))
        state = one.manifest.current if one.manifest is not None else None
        before = f"the result of {one.label}"


def is_same_state(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Tell whether two parents are the same state of a table."""
    checksums = one.get("checksum"), other.get("checksum")
    if None not in checksums:
        return checksums[0] == checksums[1]
    if one.get("kind") != other.get("kind"):
        return True
    told = [name for name in _IDENTITY if one.get(name) is not None and other.get(name) is not None]
    return all(one[name] == other[name] for name in told)


def is_surely_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Tell whether two states are known to be one: by their checksums, or by their ids where one has none."""
    for name in ("checksum", "id"):
        if one.get(name) is not None and other.get(name) is not None:
            return bool(one[name] == other[name])
    return False


def shown_state(state: Mapping[str, Any]) -> str:
    """Give a parent for a message."""
    told = {name: state[name] for name in ("location", "table", "created", "rows", "checksum") if state.get(name)}
    return ", ".join(f"{name} {value}" for name, value in told.items()) or "something unknown"


def _hint(past: Mapping[str, Any], sets: Sequence[ChangeSet], wrong: ChangeSet) -> str:
    """Say what would be the right one, if it is among those that were given."""
    assert wrong.manifest is not None
    if [one.manifest.id for one in sets if one.manifest is not None].count(wrong.manifest.id) > 1:
        return f"name {wrong.location} once"
    for one in sets:
        if one.manifest is not None and one is not wrong and is_same_state(one.manifest.current, wrong.manifest.past):
            return f"apply {one.location} right before it"
    if is_same_state(past, wrong.manifest.past):
        return f"apply {wrong.location} first"
    return "apply the change sets in the order in which they were made, each once; --force applies them regardless"
