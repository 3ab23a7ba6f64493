"""A table's column policy from its settings: the rules, and the key for hashes from the environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.column_policy import MIN_KEY_BYTES, ColumnPolicy, hashed_names, parse_rule
from lakeward.config.base import from_environment
from lakeward.errors import ConfigurationError

if TYPE_CHECKING:
    from lakeward.column_policy import ColumnRule
    from lakeward.config.tables import TableSettings

_HINT = "openssl rand -hex 32 makes a key; export it and name it: hash_key: env:LAKEWARD_HASH_KEY"


def rules_of(settings: TableSettings) -> dict[str, ColumnRule]:
    """Return the rules of ``columns:``, by column."""
    return {name: parse_rule(text) for name, text in settings.column_policies.items()}


def policy_of(settings: TableSettings) -> ColumnPolicy:
    """Return the rules with the key for hashed columns, which is read from the environment.

    Raises:
        ConfigurationError: columns are to be hashed, and there is no usable key.
    """
    rules = rules_of(settings)
    return ColumnPolicy(rules, _key(settings) if hashed_names(rules) else None)


def _key(settings: TableSettings) -> bytes:
    if settings.hash_key is None:
        msg = "columns: has the rule hash, and hash_key is not set"
        raise ConfigurationError(msg, hint=_HINT)
    key = from_environment(settings.hash_key, "hash_key").encode()
    if len(key) < MIN_KEY_BYTES:
        msg = f"hash_key has {len(key)} bytes; expected at least {MIN_KEY_BYTES}, or values could be guessed"
        raise ConfigurationError(msg, hint=_HINT)
    return key
