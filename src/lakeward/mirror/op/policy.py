"""The column policy of a table: whether its rules fit the table, and whether its rows were stored under the same rules.

What the rows were stored under is a property of the mirror, which is written before the first row. Values that were
replaced are gone, so that a rule cannot be taken back. Those that were stored are in every file of the past: a new rule
needs an erasure, which replaces them there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.column_policy import (
    POLICY_PROPERTY,
    RuleKind,
    StoredPolicy,
    as_read,
    fingerprint,
    hashed_names,
    parse_rule,
    stored_policy,
)
from lakeward.config.policy import policy_of, rules_of
from lakeward.errors import ConfigurationError
from lakeward.iceberg.partitions import parse_partition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lakeward.column_policy import ColumnRule
    from lakeward.columns import Column
    from lakeward.config import TableSettings
    from lakeward.formats.base import FileSummary
    from lakeward.mirror.op.context import TableContext
    from lakeward.model import TableId


def rule_conflicts(settings: TableSettings) -> Iterator[str]:
    """Yield the rules that contradict other settings, whatever columns the table has."""
    rules = rules_of(settings)
    if hashed_names(rules) and settings.hash_key is None:
        yield f"columns: {hashed_names(rules)[0]} is to be hashed, and hash_key is not set"
    declared = {column.name for column in settings.columns or ()}
    if declared and all(name in rules and rules[name].kind is RuleKind.DROP for name in declared):
        yield "columns: every column is dropped"
    for name, rule in rules.items():
        if reason := _conflict(name, rule, settings):
            yield f"columns: {name} cannot have the rule {rule.text}: {reason}"


def _conflict(name: str, rule: ColumnRule, settings: TableSettings) -> str | None:
    orders = (settings.timestamp_column, settings.sequence_column, settings.transaction_column)
    if name.lower() in {(order or "").lower() for order in (*orders, settings.operation_column)}:
        return "it places the changes in their order, and is stored for that as it is"
    if reason := _publishing_conflict(name, rule, settings):
        return reason
    if rule.kind is RuleKind.HASH:
        return None
    if name in settings.primary_key:
        return "it is part of the key, whose values must stay distinct; hash keeps them so"
    if name in _partition_columns(settings):
        return "it is in partition_by; only hash is possible there"
    return None


def _publishing_conflict(name: str, rule: ColumnRule, settings: TableSettings) -> str | None:
    """Return why a rule contradicts what is published of the table, None where it does not."""
    published = settings.publish
    if published is not None and name == published.date_column:
        return "it is publish: date_column:"
    if name == settings.snapshots.date_column:
        return "it is snapshots: date_column:"
    if published is not None and rule.kind is RuleKind.DROP and name in (*published.columns, *published.partition_by):
        return "it is in publish: columns: or partition_by:"
    return None


def _partition_columns(settings: TableSettings) -> set[str]:
    names = [*settings.column_policies]
    found = set()
    for expression in settings.partition_by:
        try:
            found.add(parse_partition(expression, names).column)
        except ConfigurationError:
            continue  # reported when the partition is checked
    return found


def rule_misfits(columns: Sequence[Column], settings: TableSettings) -> Iterator[str]:
    """Yield the rules that do not fit the table's columns."""
    rules = rules_of(settings)
    by_lower = {name.lower(): name for name in rules}
    for column in as_read(columns, rules):
        meant = by_lower.get(column.name.lower())
        if meant is not None and meant != column.name:
            yield f"columns: has a rule for {meant!r}, and the table a column {column.name!r}: they differ in case"
        rule = rules.get(column.name)
        if rule is not None and rule.kind is RuleKind.TRUNCATE and column.type != "string":
            yield f"columns: {column.name} cannot be truncated: it is {column.type}, and only text has characters"


def unknown_rules(names: Iterable[str], settings: TableSettings) -> list[str]:
    """Return the columns with a rule that are neither declared nor among the names."""
    known = {*names, *(column.name for column in settings.columns or ())}
    return [name for name in settings.column_policies if name not in known]


def require_known_rules(
    context: TableContext,
    columns: Sequence[Column],
    summaries: Iterable[FileSummary],
    mirror: Sequence[Column],
) -> None:
    """Refuse rules for columns that nothing has, where the op creates the table or adds columns to it.

    A misspelt rule would leave the column that it is meant for as it is. Otherwise a rule may wait for its column.

    Raises:
        ConfigurationError: there is such a rule.
    """
    names = {column.name for column in columns}
    if names == {column.name for column in mirror}:
        return
    in_files = {name for summary in summaries for name, _ in summary.columns or ()}
    if not (unknown := unknown_rules(names | in_files, context.settings)):
        return
    stored = stored_policy(context.mirror.property(POLICY_PROPERTY)) if mirror else StoredPolicy()
    if missing := [name for name in unknown if name not in stored.rules]:
        msg = f"{context.table}: columns: has a rule for {missing[0]!r}, which is not a column of the table"
        raise ConfigurationError(msg, hint=f"columns are {', '.join(sorted(names | in_files))}; or unset the rule")


def require_same_policy(
    table: TableId,
    settings: TableSettings,
    properties: Mapping[str, str | None],
    mirror: Sequence[Column],
) -> None:
    """Refuse rules, or a key for hashes, other than those that the table's rows were stored under.

    A rule may be added for a column that the table does not have yet. Without the key, which only reading files needs,
    the key is not compared.

    Raises:
        ConfigurationError: rows before and after would not agree.
    """
    stored = stored_policy(properties.get(POLICY_PROPERTY))
    if changed := changed_rules(settings, stored, mirror):
        msg = (
            f"{table}: the table has rows, and they were stored under other rules (columns:): {describe_rules(changed)}"
        )
        raise ConfigurationError(msg, hint=_change_hint(table, settings, changed, mirror))
    key = _usable_key(settings)
    if stored.key is not None and key is not None and fingerprint(key) != stored.key:
        msg = f"{table}: hash_key is not the key that the table's rows were hashed with"
        raise ConfigurationError(msg, hint=f"set it back; or {anew_hint(table)}")


@dataclass(frozen=True)
class ChangedRule:
    """A column's rule under which its values were stored, and the one that the settings have; None for none."""

    column: str
    before: str | None
    now: str | None


def changed_rules(settings: TableSettings, stored: StoredPolicy, mirror: Sequence[Column]) -> list[ChangedRule]:
    """Return the rules that differ from those that the table's rows were stored under."""
    before = {settings.renames.get(name, name): rule for name, rule in stored.rules.items()}
    now = settings.column_policies
    present = {settings.renames.get(column.name, column.name) for column in mirror} | {column.name for column in mirror}
    names = [name for name in before if now.get(name) != before[name]]
    names += [name for name in now if name not in before and name in present]
    return [ChangedRule(name, before.get(name), now.get(name)) for name in names]


def describe_rules(changed: Iterable[ChangedRule]) -> str:
    """Return what the rules were and what they are."""
    return "; ".join(f"{rule.column} was {_shown(rule.before)}, now {_shown(rule.now)}" for rule in changed)


def _change_hint(
    table: TableId, settings: TableSettings, changed: Iterable[ChangedRule], mirror: Sequence[Column]
) -> str:
    """Return what can be done about changed rules: replacing what is stored, where that is possible."""
    if any(why_not_replaced(rule, settings, mirror) for rule in changed):
        return f"set it back; or {anew_hint(table)}"
    return f"set it back; or replace the stored values too, permanently: {replace_command(table)}"


def replace_command(table: TableId) -> str:
    """Return the command that makes a table's stored values follow its rules."""
    return f"lakeward erase {table} --column-policy --reason TEXT"


def rules_to_apply(
    table: TableId, settings: TableSettings, stored: StoredPolicy, mirror: Sequence[Column]
) -> dict[str, str]:
    """Return the rules that the table's stored values do not follow yet.

    Raises:
        ConfigurationError: there are none, or one of them cannot be applied to what is stored.
    """
    changed = changed_rules(settings, stored, mirror)
    if not changed and (unknown := set(unknown_rules([column.name for column in mirror], settings)) - {*stored.rules}):
        msg = f"{table}: columns: has a rule for {min(unknown)!r}, which is not a column of the table"
        raise ConfigurationError(msg, hint=f"columns are {', '.join(sorted(column.name for column in mirror))}")
    if not changed:
        msg = f"{table}: every stored value was stored under the table's rules (columns:): there is nothing to replace"
        raise ConfigurationError(msg, hint=f"lakeward tables show {table}")
    for rule in changed:
        if reason := why_not_replaced(rule, settings, mirror):
            msg = f"{table}: columns: {rule.column} was {_shown(rule.before)} and is now {_shown(rule.now)}: {reason}"
            raise ConfigurationError(msg, hint=f"set it back; or {anew_hint(table)}")
    return {rule.column: rule.now for rule in changed if rule.now is not None}


def why_not_replaced(changed: ChangedRule, settings: TableSettings, mirror: Sequence[Column]) -> str | None:
    """Return why stored values of a column cannot be replaced as its new rule has it, None where they can."""
    column = next((found for found in mirror if found.name == changed.column), None)
    if changed.column in settings.renames.values() and column is None:
        return "the lake has the column under its former name until the table is run under the former rules"
    if changed.now is None or column is None:
        return "the values that the former rule replaced are gone"
    if changed.column in settings.primary_key or changed.column in _partition_columns(settings):
        return "values of a key or of partition_by cannot be replaced in rows that are stored"
    return _value_conflict(changed.before, parse_rule(changed.now), column)


def _value_conflict(former: str | None, now: ColumnRule, column: Column) -> str | None:
    before = parse_rule(former) if former else None
    if now.kind is not RuleKind.DROP and before is not None and not _leads_on(before, now, column):
        return "rows before and after would not agree, as the former rule left too little of the values"
    if now.kind in (RuleKind.MASK, RuleKind.HASH) and column.type != "string":
        return f"it would become text, and the column is stored as {column.type}"
    if now.kind is RuleKind.TRUNCATE and column.type != "string":
        return f"it is {column.type}, and only text has characters"
    return None


def _leads_on(before: ColumnRule, now: ColumnRule, column: Column) -> bool:
    """Whether a rule makes the same of values that another rule has replaced as it makes of the source's own."""
    if before.kind is RuleKind.TRUNCATE:
        shorter = now.length is not None and now.length <= (before.length or 0)
        return shorter or now.kind in (RuleKind.MASK, RuleKind.REDACT)
    if before.kind is RuleKind.HASH:
        return now.kind is RuleKind.MASK or (now.kind is RuleKind.REDACT and column.source == column.type)
    return False


def anew_hint(table: TableId) -> str:
    """Return how a table is built anew under settings that its rows cannot be changed to."""
    return (
        f"build the table anew: lakeward tables remove {table} --drop-data, set it up again, and lakeward run {table}; "
        "that reads what is in landing, and nothing else of the table is left"
    )


def _shown(rule: str | None) -> str:
    return rule or "without a rule"


def _usable_key(settings: TableSettings) -> bytes | None:
    """Return the key where it can be read; who reads files without it is refused then."""
    try:
        return policy_of(settings).key
    except ConfigurationError:
        return None


def policy_property(settings: TableSettings, columns: Sequence[Column], present: str | None) -> str | None:
    """Return the policy as a property of the mirror, None for a table without rules.

    ``present`` is the property as it is: the key in it has been compared.
    """
    rules = rules_of(settings)
    if not rules:
        return None
    hashed = hashed_names(rules)
    types = {column.name: column.source for column in columns if column.source is not None and column.name in hashed}
    known = stored_policy(present).key if hashed else None
    if known is None and hashed:
        key = policy_of(settings).key
        known = fingerprint(key) if key is not None else None
    return StoredPolicy(dict(settings.column_policies), types, known).to_json()
