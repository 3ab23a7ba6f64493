"""Column policy: what becomes of the values of a column before any of them is stored (``columns:`` of a table).

A rule is a function of single values. The columns of a table are seen in two ways: as the files have them, by which
they are read and compared with the source, and as the lake stores them. :func:`as_read` and :func:`as_stored` lead from
one to the other; without rules both are the same.
"""

from __future__ import annotations

import hmac
import json
import re
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from lakeward.columns import Column
from lakeward.documents import Record
from lakeward.errors import ConfigurationError
from lakeward.text import json_object, reading_property

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


# What every value of a masked column becomes.
MASK = "***"
# A shorter key could be guessed from hashes of known values.
MIN_KEY_BYTES = 32
_DIGEST = "sha256"
_TRUNCATE = re.compile(r"truncate\(\s*([1-9][0-9]{0,6})\s*\)", re.ASCII)
_FORMS = "mask, hash, drop, redact or truncate(n) with n at least 1"
_FINGERPRINT_OF = b"lakeward: fingerprint of the key for hashed columns"


class RuleKind(StrEnum):
    """What a rule does with a value."""

    MASK = "mask"
    HASH = "hash"
    DROP = "drop"
    REDACT = "redact"
    TRUNCATE = "truncate"


@dataclass(frozen=True)
class ColumnRule:
    """A column's rule; ``length`` is how many characters a truncated value keeps."""

    kind: RuleKind
    length: int | None = None

    @property
    def text(self) -> str:
        """The rule as users write it."""
        return self.kind.value if self.length is None else f"{self.kind.value}({self.length})"

    @property
    def needs_no_value(self) -> bool:
        """Whether the result does not depend on which value it is, so that values are not even parsed."""
        return self.kind in (RuleKind.MASK, RuleKind.DROP, RuleKind.REDACT)


def parse_rule(text: str) -> ColumnRule:
    """Read a rule.

    Raises:
        ConfigurationError: it has none of the forms.
    """
    if match := _TRUNCATE.fullmatch(text.strip()):
        return ColumnRule(RuleKind.TRUNCATE, int(match[1]))
    for kind in RuleKind:
        if text.strip() == kind.value and kind is not RuleKind.TRUNCATE:
            return ColumnRule(kind)
    msg = f"{text!r} is not a rule for a column; expected {_FORMS}"
    raise ConfigurationError(msg)


if TYPE_CHECKING:
    Rules = Mapping[str, ColumnRule]


@dataclass(frozen=True)
class ColumnPolicy:
    """The rules of a table, and the key for its hashed columns. Pickled into Spark tasks; the key is never shown."""

    rules: Rules = field(default_factory=dict)
    key: bytes | None = field(default=None, repr=False)

    def rule(self, name: str) -> ColumnRule | None:
        """Return the rule of a column, None where its values are stored as they are."""
        return self.rules.get(name)


def hashed(key: bytes, value: bytes) -> str:
    """Return what a value becomes, from its canonical bytes: HMAC-SHA-256 as 64 hexadecimal digits."""
    return hmac.digest(key, value, _DIGEST).hex()


def fingerprint(key: bytes) -> str:
    """Return a text by which a key is recognised, and from which it cannot be computed."""
    return hashed(key, _FINGERPRINT_OF)[:32]


def dropped(rules: Rules) -> tuple[str, ...]:
    """Return the names of the columns that the lake does not have."""
    return tuple(name for name, rule in rules.items() if rule.kind is RuleKind.DROP)


def hashed_names(rules: Rules) -> tuple[str, ...]:
    """Return the names of the columns whose values are hashed."""
    return tuple(name for name, rule in rules.items() if rule.kind is RuleKind.HASH)


def of_files(columns: Iterable[Column], rules: Rules) -> tuple[Column, ...]:
    """Return declared columns, or those of a file, that have a place in the lake, by the types they are read with.

    A masked column may have any type: its values are not parsed.
    """
    kinds = {name: rule.kind for name, rule in rules.items()}
    return tuple(
        replace(column, type="string") if kinds.get(column.name) is RuleKind.MASK and column.type else column
        for column in columns
        if kinds.get(column.name) is not RuleKind.DROP
    )


def as_read(columns: Iterable[Column], rules: Rules) -> tuple[Column, ...]:
    """Return the lake's columns with the types of the source; the empty type where that is not known yet."""
    return tuple(
        Column(column.name, column.source or "") if _is_hashed(column, rules) else column for column in columns
    )


def as_stored(columns: Iterable[Column], rules: Rules) -> tuple[Column, ...]:
    """Return columns as the lake stores them: hashes are text, beside which the type at the source is kept."""
    return tuple(
        Column(column.name, "string", column.type or None) if _is_hashed(column, rules) else column
        for column in columns
    )


def _is_hashed(column: Column, rules: Rules) -> bool:
    rule = rules.get(column.name)
    return rule is not None and rule.kind is RuleKind.HASH


# The property of a mirror that holds the policy its rows were stored under.
POLICY_PROPERTY = "lakeward.column-policy"


@dataclass(frozen=True)
class StoredPolicy(Record):
    """The policy that a table's rows were stored under.

    ``types`` are the types at the source of hashed columns, ``key`` is the fingerprint of their key.
    """

    rules: dict[str, str] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    key: str | None = None

    def to_json(self) -> str:
        """Write as JSON for the property."""
        return json.dumps(self.to_dict(), sort_keys=True)


def stored_policy(text: str | None) -> StoredPolicy:
    """Read the property; one without rules where it is not set.

    Raises:
        DataError: the property is damaged.
    """
    if text is None:
        return StoredPolicy()
    with reading_property(POLICY_PROPERTY, of="mirror"):
        return StoredPolicy.from_dict(json_object(text))


def with_sources(columns: Iterable[Column], text: str | None) -> tuple[Column, ...]:
    """Return a mirror's columns with the types at the source that its property has for hashed ones."""
    types = stored_policy(text).types
    return tuple(replace(column, source=types.get(column.name)) for column in columns)
