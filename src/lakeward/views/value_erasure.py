"""Replace the stored values of columns that got a rule, in every place where Lakeward keeps them.

This is an erasure, of values in place of rows: the same op, the same places, the same proof and receipt. It is
announced in the changelog before the new rules are in force, so that a crash between the two is seen.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakeward.column_policy import POLICY_PROPERTY, hashed_names, stored_policy
from lakeward.config.policy import policy_of
from lakeward.errors import ConfigurationError
from lakeward.iceberg.cleanup import stored_rows
from lakeward.iceberg.metadata import EMPTY_TAG
from lakeward.mirror.erase import erase_keys, next_record
from lakeward.mirror.kinds.erase import references_by_snapshot
from lakeward.mirror.op.effect import capture
from lakeward.mirror.op.erased import UNFINISHED_PROPERTY, Erasure, UnfinishedErasure
from lakeward.mirror.op.policy import anew_hint, changed_rules, policy_property, rule_conflicts, rules_to_apply
from lakeward.mirror.op.protected import looks_hashed
from lakeward.mirror.op.steps import Step
from lakeward.views.erasure import finish_erasure, foreign_traces, found_places, receipt_of, resume

if TYPE_CHECKING:
    from lakeward.column_policy import StoredPolicy
    from lakeward.mirror.op.context import TableContext
    from lakeward.views.erasure import Receipt


def apply_column_policy(context: TableContext, reason: str) -> list[Receipt]:
    """Replace the stored values of columns whose rule is new, and return the receipt, after that of :func:`resume`.

    The caller holds the table's lease.

    Raises:
        ConfigurationError: every stored value follows its rule, or a rule cannot be applied to what is stored.
    """
    earlier = resume(_under_stored_rules(context))
    if earlier and not changed_rules(context.settings, _stored(context), context.mirror.columns()):
        return earlier
    erasure = _erasure_of_values(context, reason)
    context.permission.require()
    op = capture(_under_stored_rules(context)).logged + 1
    context.changelog.set_properties({UNFINISHED_PROPERTY: UnfinishedErasure(op, begun=erasure).to_json()})
    context.reached(Step.ERASE_BEGUN)
    _put_policy_in_force(context, erasure)
    context.reached(Step.ERASE_RULED)
    return [*earlier, finish_erasure(context, erase_keys(context, erasure))]


def plan_column_policy(context: TableContext) -> Receipt:
    """Return which stored values a new column policy would replace, without changing anything."""
    before = _under_stored_rules(context)
    record = next_record(before, capture(before), _erasure_of_values(context, ""))
    traces = tuple(foreign_traces(context, record))
    return receipt_of(context, record, tuple(found_places(context, record)), traces, 0, dry_run=True)


def _under_stored_rules(context: TableContext) -> TableContext:
    """Return the context with the rules under which the table's rows were stored, in place of new ones."""
    settings = context.settings
    rules = {settings.renames.get(name, name): rule for name, rule in _stored(context).rules.items()}
    return replace(context, settings=settings.model_copy(update={"column_policies": rules}))


def _stored(context: TableContext) -> StoredPolicy:
    return stored_policy(context.mirror.property(POLICY_PROPERTY) if context.mirror.exists() else None)


def _erasure_of_values(context: TableContext, reason: str) -> Erasure:
    """Return the erasure of values whose column's rule is new."""
    mirror = context.mirror.find_metadata()
    if mirror is None or mirror.head(EMPTY_TAG) is None:
        msg = f"{context.table} has no rows yet: nothing was run, so there is nothing to replace"
        raise ConfigurationError(msg, hint=f"lakeward run {context.table}")
    if conflict := next(rule_conflicts(context.settings), None):
        msg = f"{context.table}: {conflict}"
        raise ConfigurationError(msg, hint=f"lakeward tables show {context.table}")
    policy_of(context.settings)  # refuses a missing key before anything is changed
    rules = rules_to_apply(context.table, context.settings, _stored(context), mirror.columns())
    erasure = Erasure("", (), reason, 0, columns=rules)
    _require_no_hashes(context, erasure)
    return erasure


def _require_no_hashes(context: TableContext, erasure: Erasure) -> None:
    """Refuse to hash values that look like hashes: it could not be seen which of them are replaced already.

    Raises:
        ConfigurationError: there are such values.
    """
    if not hashed_names(erasure.rules):
        return
    heads = [snapshot.id for snapshot, _ in references_by_snapshot(context.mirror.metadata())]
    for table, snapshots in (
        (context.mirror, [*heads, context.mirror.require_head().id]),
        (context.changelog, [context.changelog.require_head().id]),
    ):
        for snapshot_id in snapshots:
            rows = stored_rows(table, snapshot_id)
            if rows.filter(looks_hashed(rows.columns, erasure.rules)).take(1):
                shown = ", ".join(hashed_names(erasure.rules))
                msg = f"{context.table}: columns: hash for {shown}: values of 64 hexadecimal digits are stored already"
                raise ConfigurationError(msg, hint=f"use mask, redact or drop; or {anew_hint(context.table)}")


def _put_policy_in_force(context: TableContext, erasure: Erasure) -> None:
    """Store the new rules with the mirror: from now on, files are read under them."""
    hashed = hashed_names(erasure.rules)
    known = context.mirror.property(POLICY_PROPERTY)
    fields = [
        replace(found, source=found.type) if found.name in hashed else found for found in context.mirror.columns()
    ]
    text = policy_property(context.settings, fields, known)
    assert text is not None  # there are rules
    context.permission.require()
    context.mirror.set_properties({POLICY_PROPERTY: text})
