"""Replace the stored values of columns that got a rule, in every place where Lakeward keeps them.

This is an erasure, of values in place of rows: the same op, the same places, the same proof and receipt. It is
announced in the changelog before the new rules are in force, so that a crash between the two is seen.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

from lakeward import schemas as S
from lakeward.column_policy import POLICY_PROPERTY, dropped, hashed_names, stored_policy
from lakeward.errors import ConfigurationError
from lakeward.iceberg.cleanup import stored_rows
from lakeward.iceberg.define import LAYOUT_PROPERTY
from lakeward.iceberg.metadata import EMPTY_TAG
from lakeward.mirror.erase import erase_keys, next_record
from lakeward.mirror.kinds.erase import names_ever, references_by_snapshot
from lakeward.mirror.op.effect import capture
from lakeward.mirror.op.erased import UNFINISHED_PROPERTY, Erasure, UnfinishedErasure
from lakeward.mirror.op.metadata_columns import source_columns
from lakeward.mirror.op.policy import (
    anew_hint,
    changed_rules,
    policy_property,
    require_same_policy,
    rules_to_apply,
)
from lakeward.mirror.op.protected import looks_hashed
from lakeward.mirror.op.settings import require_same_layout, settings_problems
from lakeward.mirror.op.steps import Step
from lakeward.mirror.run import require_logged_erasure
from lakeward.transforms.columns import column
from lakeward.views.erasure import finish_erasure, foreign_traces, found_places, receipt_of, resume
from lakeward.views.versions.manifest import list_publications

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward.column_policy import StoredPolicy
    from lakeward.columns import Column
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
    """Return the erasure of values whose column's rule is new, checked before anything is changed.

    Raises:
        ConfigurationError: the settings do not fit the table as it would become.
    """
    mirror = context.mirror.find_metadata()
    if mirror is None or mirror.head(EMPTY_TAG) is None:
        msg = f"{context.table} has no rows yet: nothing was run, so there is nothing to replace"
        raise ConfigurationError(msg, hint=f"lakeward run {context.table}")
    require_logged_erasure(context, context.changelog.find_metadata())
    require_same_layout(context, {LAYOUT_PROPERTY: mirror.property(LAYOUT_PROPERTY)})
    rules = rules_to_apply(context.table, context.settings, _stored(context), mirror.columns())
    erasure = Erasure("", (), reason, 0, columns=rules)
    left = [found for found in mirror.columns() if found.name not in dropped(erasure.rules)]
    for problem in settings_problems(source_columns(left, context.settings), context.settings):
        msg = f"{context.table}: {problem.message}"
        raise ConfigurationError(msg, hint=f"correct {problem.setting} of {context.table} first")
    # The key in use must be the one that the stored hashes were made with.
    in_force = {POLICY_PROPERTY: _policy_in_force(context, erasure)}
    require_same_policy(context.table, context.settings, in_force, left)
    _require_columns_left(context, erasure, left)
    _require_no_paths(context, erasure)
    _require_no_hashes(context, erasure)
    return erasure


def _require_columns_left(context: TableContext, erasure: Erasure, left: Sequence[Column]) -> None:
    """Refuse to drop columns without which the table, or a version of it, cannot be.

    Raises:
        ConfigurationError: names what to do first.
    """
    if not source_columns(left, context.settings):
        msg = f"{context.table}: columns: every column of the table would be dropped"
        raise ConfigurationError(msg, hint=f"lakeward tables remove {context.table} --drop-data")
    concerned = names_ever(context, erasure.rules)
    for publication in list_publications(context.mirror.metadata()):
        if publication.date_column in concerned:
            msg = (
                f"{context.table}: columns: {publication.date_column} gets a rule, and its dates are the folders of "
                f"{publication.location}"
            )
            hint = f"drop that first: lakeward snapshot drop {context.table} --version {publication.version}"
            raise ConfigurationError(msg, hint=hint)


def _require_no_paths(context: TableContext, erasure: Erasure) -> None:
    """Refuse a rule for values in the names of folders that files were read from: the changelog keeps their paths.

    Raises:
        ConfigurationError: there are such folders, of a lake that the table has adopted.
    """
    files = context.changelog.read(context.changelog.require_head().id).filter(column(S.KIND) == S.KIND_FILE)
    for name in erasure.rules:
        folders = [f"{known}=" for known in sorted(names_ever(context, [name]))]
        held = [column(S.FILE).startswith(folder) | column(S.FILE).contains(f"/{folder}") for folder in folders]
        if files.filter(reduce(lambda left, right: left | right, held)).take(1):
            msg = (
                f"{context.table}: columns: {name} cannot have a rule: its values are in the names of folders from "
                "which files were read, and the changelog keeps the paths of files"
            )
            raise ConfigurationError(msg, hint=f"unset it; or {anew_hint(context.table)}")


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


def _policy_in_force(context: TableContext, erasure: Erasure) -> str:
    """Return the property of the mirror that holds the rules, as it is once they are in force."""
    hashed = hashed_names(erasure.rules)
    fields = [
        replace(found, source=found.type) if found.name in hashed else found for found in context.mirror.columns()
    ]
    text = policy_property(context.settings, fields, context.mirror.property(POLICY_PROPERTY))
    assert text is not None  # there are rules
    return text


def _put_policy_in_force(context: TableContext, erasure: Erasure) -> None:
    """Store the new rules with the mirror: from now on, files are read under them."""
    text = _policy_in_force(context, erasure)
    context.permission.require()
    context.mirror.set_properties({POLICY_PROPERTY: text})
