"""Which names a table's columns can have in the lake, and other names for those that it cannot.

A table with any other name is written without complaint and cannot be read afterwards: Spark, Glue and Trino do not
distinguish upper and lower case, and Iceberg refuses to scan a table that has a column named like one of its own.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# Names that start so are Lakeward's own, in the changelog beside the source's columns.
OWN_PREFIX = "_lw_"
# Iceberg adds these columns to every scan of a table: one that has such a column itself cannot be read.
UNREADABLE_NAMES = frozenset(
    {"_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"}
)
# The other names of Iceberg's MetadataColumns, which only its views of changes add.
_VIEW_NAMES = frozenset({"_change_type", "_change_ordinal", "_commit_snapshot_id"})
ICEBERG_NAMES = UNREADABLE_NAMES | _VIEW_NAMES

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_YAML_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})


@dataclass(frozen=True)
class NameProblem:
    """A name that a column of the lake cannot have, why, and a name that is free.

    ``twin`` is the column that it differs from only in case; None where that is not the reason.
    """

    name: str
    reason: str
    proposal: str
    twin: str | None = None


def name_problems(names: Sequence[str], present: Iterable[str] = ()) -> list[NameProblem]:
    """Return the names that cannot be used, in their order.

    ``present`` are columns that a table of the lake has already: of these only those that cannot be read count.
    """
    kept = set(present)
    taken = {name.lower() for name in names}
    first: dict[str, str] = {}
    problems = []
    for name in sorted(names, key=lambda name: name not in kept):  # of two the one that is already there stays
        reason = _reason(name, first.get(name.lower()), is_present=name in kept)
        if reason is not None:
            proposal = _free_name(name, taken)
            taken.add(proposal.lower())
            problems.append(NameProblem(name, reason, proposal, first.get(name.lower())))
        first.setdefault(name.lower(), name)
    return sorted(problems, key=lambda problem: names.index(problem.name))


def describe_problems(problems: Sequence[NameProblem]) -> str:
    """Describe names that cannot be used, for a message."""
    return "; ".join(f"column {problem.name!r} {problem.reason}" for problem in problems)


def renames_for(problems: Sequence[NameProblem], renames: Mapping[str, str]) -> str:
    """Return a value of the setting ``renames`` that solves the problems too, as YAML writes it on one line."""
    proposals = {problem.name: problem.proposal for problem in problems}
    # A name that a rename made is not renamed again: the column gets its new name at once.
    merged = {**{old: proposals.get(new, new) for old, new in renames.items()}, **proposals}
    pairs = ", ".join(f"{_yaml(old)}: {_yaml(new)}" for old, new in merged.items())
    return f"{{{pairs}}}"


def _yaml(name: str) -> str:
    """Quote a name unless it is plain in YAML; JSON's quotes are YAML's too."""
    is_plain = _PLAIN.fullmatch(name) and name.lower() not in _YAML_WORDS
    return name if is_plain else json.dumps(name, ensure_ascii=False)


def _reason(name: str, twin: str | None, *, is_present: bool) -> str | None:
    lowered = name.lower()
    if not name:
        return "has no name"
    if name in UNREADABLE_NAMES or (lowered in ICEBERG_NAMES and not is_present):
        return "is the name of one of Iceberg's own columns"
    if lowered.startswith(OWN_PREFIX) and not is_present:
        return f"starts with {OWN_PREFIX}, as only Lakeward's own columns do"
    if twin is not None:
        return f"differs only in case from {twin!r}"
    return None


def _free_name(name: str, taken: set[str]) -> str:
    """Return a name like ``name`` that no column has, in any case."""
    is_own = name.lower().startswith(OWN_PREFIX)
    bare = name[len(OWN_PREFIX) :] if is_own else name
    bare = bare.lstrip("_") or "column"
    candidates = [bare, *(f"{bare}_{number}" for number in range(2, len(taken) + 3))]
    return next(one for one in candidates if one.lower() not in taken)
