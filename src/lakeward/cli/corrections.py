"""Commands that correct a table: ``lakeward undo``, ``quarantine`` for bad rows that were set aside, and ``erase``."""

from __future__ import annotations

import json
import re
import sys
import tempfile
from itertools import count as count_from
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from lakeward.cli.failures import DONE, FAILED
from lakeward.cli.options import MOST_SHOWN, command, confirmed, group, require_answerable
from lakeward.cli.output import add_row, console_on, count, emit, emit_json, error_line, lines, note, table
from lakeward.errors import ConfigurationError, LakewardError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from lakeward import BadRow, ConcernedOp, Lakeward, OpReport, QuarantineReport, Receipt, UndoPlan
    from lakeward.cli.options import Invocation


_SHOWN = 20


@command("undo")
@click.argument("name", metavar="TABLE")
@click.option("--to-op", type=click.IntRange(min=0), metavar="OP", help="Op to go back to; 0: the empty table.")
@click.option(
    "--to-time", metavar="TIME", help="Day or time: go back to the last op without changes committed after it."
)
@click.option("--skip-file", multiple=True, metavar="PATH", help="Never read this change file again; repeatable.")
@click.option("--dry-run", is_flag=True, help="Show what would be undone, and do nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def undo(
    invocation: Invocation,
    name: str,
    to_op: int | None,
    to_time: str | None,
    skip_file: tuple[str, ...],
    dry_run: bool,
    yes: bool,
) -> None:
    """Undo every op after a certain one: rows, deletes and the record of the files that were read.

    The next run reads their files again, unless --skip-file fences them. The undo is an op itself and can be undone: go
    back to the op before it.
    """
    if (to_op is None) == (to_time is None):
        msg = "use either --to-op or --to-time"
        raise click.UsageError(msg)
    if not dry_run:
        require_answerable(yes=yes)
    goal: dict[str, Any] = {"to_op": to_op, "to_time": to_time, "skip_files": skip_file}
    if dry_run or not yes:
        with invocation.lake() as lake:
            plan = lake.plan_undo(name, **goal, finish=not dry_run)
        if dry_run:
            _emit(invocation, plan, None)
            return
        if plan.op is not None:
            _draw(console_on(sys.stderr), plan, None)
            if not confirmed("Undo this?", yes=yes):
                note(invocation, "nothing was undone")
                return
        goal["newest_op"] = plan.newest_op
    with invocation.lake() as lake:
        done = lake.undo(name, **goal)
    _emit(invocation, done.plan, done.op)


def _emit(invocation: Invocation, plan: UndoPlan, op: OpReport | None) -> None:
    document = {"plan": plan.to_dict(), "op": op.to_dict() if op else None}
    emit(invocation, document, lambda console: _draw(console, plan, op))


def _draw(console: Console, plan: UndoPlan, op: OpReport | None) -> None:
    if plan.op is None:
        console.print(f"{plan.table}: nothing to undo: {plan.reason}")
        return
    done = f"op {plan.op} undid" if op else f"op {plan.op} would undo"
    console.print(f"{plan.table}: {done} {count(plan.op_count, 'op')}; the table is as after op {plan.back_to}")
    console.print(f"  {plan.reason}")
    _draw_ops(console, plan.ops)
    if plan.ops_again:
        console.print("restored:")
        _draw_ops(console, plan.ops_again)
    _draw_files(console, plan)
    if plan.rows is not None:
        rows = plan.rows
        console.print(f"rows: {rows.inserted:,} inserted, {rows.updated:,} updated, {rows.deleted:,} deleted")
    if op is not None:
        console.print(f"the mirror has {count(op.mirror_rows or 0, 'row')} ({op.strategy}: {op.reason})")
    for mark in plan.marked:
        console.print(f"contains undone changes: {mark.kind} {mark.version} at op {mark.op}, {mark.location}")
    if op is not None:
        console.print(f"to undo this: lakeward undo {plan.table} --to-op {plan.newest_op}")


def _draw_ops(console: Console, ops: Sequence[ConcernedOp]) -> None:
    drawn = table("> op", "kind", "> generation", "> files", "> changes")
    for op in ops[:_SHOWN]:
        add_row(drawn, [op.op, op.kind, op.generation, op.files, op.changes])
    console.print(drawn)
    if len(ops) > _SHOWN:
        console.print(f"  and {len(ops) - _SHOWN:,} more; --output json lists 1,000")


def _draw_files(console: Console, plan: UndoPlan) -> None:
    fenced = set(plan.fenced)
    new = [path for path in plan.files if path not in fenced]
    console.print(f"{count(plan.file_count, 'file')} of these ops; new to the next run unless fenced:")
    for path in new[:_SHOWN]:
        console.print(f"  {path}")
    if len(new) > _SHOWN:
        console.print(f"  and {plan.file_count - len(fenced) - _SHOWN:,} more")
    for words, paths in (("fenced", plan.fenced), ("no longer fenced", plan.unfenced)):
        for path in paths:
            console.print(f"  {words}: {path}")


# FILE:ROW=text; the name of a file may hold an equals sign.
_REPLACEMENT = re.compile(r"^(?P<id>.+?:\d+)=(?P<text>.*)$", re.DOTALL)


@group("quarantine")
def quarantine() -> None:
    """List bad rows that were set aside, retry them or drop them.

    A row's ID is FILE:ROW, as `lakeward quarantine list` shows it.
    """


@command("list")
@click.argument("names", metavar="[TABLE…]", nargs=-1)
@click.option(
    "--limit",
    type=click.IntRange(min=0, max=MOST_SHOWN),
    default=100,
    show_default=True,
    help="Rows per table; 0 for all.",
)
def list_rows(invocation: Invocation, names: tuple[str, ...], limit: int) -> None:
    """List the bad rows that wait for a decision."""
    with invocation.lake() as lake:
        chosen = [str(lake.table(name).table) for name in names] or [str(known.table) for known in lake.tables()]
        # One more than wanted, to know whether there are more.
        found = {name: list(lake.bad_rows(name, limit=limit + 1 if limit else None)) for name in chosen}
    for name, rows in found.items():
        if limit and len(rows) > limit:
            note(invocation, f"{name} has more than {count(limit, 'bad row')}; --limit shows more")
            del rows[limit:]
    document = [{"table": name, "rows": [row.to_dict() for row in rows]} for name, rows in found.items()]
    emit(invocation, {"tables": document}, lambda console: _draw_list(console, found))


@command("retry")
@click.argument("name", metavar="TABLE")
@click.argument("ids", metavar="[ID…]", nargs=-1)
@click.option("--replace", multiple=True, metavar="'ID=TEXT'", help="Repaired text of a row; repeatable.")
def retry(invocation: Invocation, name: str, ids: tuple[str, ...], replace: tuple[str, ...]) -> int:
    """Retry bad rows at their original place in the order: all of a table, or those named.

    Rows are read again with the current settings of the table, or with the text of --replace. Rows that are still bad
    stay, and the exit code is 3.
    """
    replacements = dict(_read_replacement(text) for text in replace)
    with invocation.lake() as lake:
        lake.table(name)
        report = lake.retry_bad_rows(name, ids, replacements)
    _emit_report(invocation, name, report, "put back")
    if report.still_bad:
        error_line(f"{count(len(report.still_bad), 'row')} of {name} did not fit", f"lakeward quarantine list {name}")
    return FAILED if report.still_bad else DONE


@command("drop")
@click.argument("name", metavar="TABLE")
@click.argument("ids", metavar="[ID…]", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Drop all bad rows of the table.")
def drop(invocation: Invocation, name: str, ids: tuple[str, ...], everything: bool) -> None:
    """Drop bad rows: they stay in the changelog and are no longer listed."""
    if bool(ids) == everything:
        msg = "name the rows to drop, or use --all" if everything is False else "use either row ids or --all"
        raise click.UsageError(msg)
    with invocation.lake() as lake:
        lake.table(name)
        report = lake.drop_bad_rows(name, ids)
    _emit_report(invocation, name, report, "dropped")


for _command in (list_rows, retry, drop):
    quarantine.add_command(_command)


def _read_replacement(text: str) -> tuple[str, str]:
    match = _REPLACEMENT.match(text)
    if match is None:
        msg = f"--replace {text!r}: expected FILE:ROW=text"
        raise click.UsageError(msg)
    return match["id"], match["text"]


def _emit_report(invocation: Invocation, name: str, report: QuarantineReport, done: str) -> None:
    document = {"table": name, **report.to_dict()}

    def text(console: Console) -> None:
        console.print(f"{name}: {count(report.handled, 'row')} {done}, {len(report.still_bad):,} still bad")
        if report.still_bad:
            _draw_rows(console, report.still_bad)

    emit(invocation, document, text)


def _draw_list(console: Console, found: dict[str, list[BadRow]]) -> None:
    for name, rows in found.items():
        console.print(f"{name}: {count(len(rows), 'bad row')}")
        if rows:
            _draw_rows(console, rows)


def _draw_rows(console: Console, rows: list[BadRow] | tuple[BadRow, ...]) -> None:
    drawn = table("id", "> op", "column", "value", "reason", "raw text")
    for row in rows:
        add_row(drawn, [row.id, row.op, row.column, row.value, row.reason, row.raw])
    console.print(drawn)


@command("erase")
@click.argument("name", metavar="TABLE")
@click.option(
    "--key",
    "texts",
    multiple=True,
    metavar="COLUMN=VALUE",
    help="Key of a row; one option per column of a composite key.",
)
@click.option(
    "--keys-from", type=click.Path(exists=True, dir_okay=False), metavar="FILE", help="File of keys, one per line."
)
@click.option(
    "--column-policy",
    is_flag=True,
    help="Instead of rows of keys, replace stored values of columns whose rule (columns:) is new.",
)
@click.option("--reason", metavar="TEXT", default="", help="Reason, for the record; required.")
@click.option("--landing", is_flag=True, help="Also rewrite the landing files that hold the rows.")
@click.option(
    "--moves",
    type=click.Choice(("erase", "keep")),
    help="What to do with keys that the rows had before or after a key change.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and change nothing.")
@click.option("--resume", is_flag=True, help="Finish an erasure that was interrupted.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--receipt", type=click.Path(dir_okay=False), metavar="FILE", help="File to write the receipt to.")
def erase(
    invocation: Invocation,
    name: str,
    texts: tuple[str, ...],
    keys_from: str | None,
    column_policy: bool,
    reason: str,
    landing: bool,
    moves: Literal["erase", "keep"] | None,
    dry_run: bool,
    resume: bool,
    yes: bool,
    receipt: str | None,
) -> None:
    """Erase rows by key, or values of columns, permanently, and prove it.

    The rows of these keys are removed from the mirror, its load branches, tags and history, from the changelog, the
    quarantine and all published files. Snapshots that may hold them expire, even within the undo window. Only salted
    hashes of the keys are kept, so that reading a file again does not bring the rows back. The receipt lists every
    place with what was removed and what a scan found afterwards.

    Repeat --key for several keys: --key id=42 --key id=43. A composite key takes one option for each of its columns:
    --key region=EU --key number=7. A file of --keys-from has one key per line, as id=42 or as a JSON object of all key
    columns.

    With --column-policy, rows stay. Where a column got a rule (columns:) after rows were stored, their values are
    replaced as the rule has it, in all the same places.
    """
    if resume and (texts or keys_from or dry_run or column_policy):
        msg = "--resume finishes what was begun: it takes no keys"
        raise click.UsageError(msg)
    if column_policy and (texts or keys_from or landing or moves):
        msg = "--column-policy replaces values of columns: it takes no keys, and neither --landing nor --moves"
        raise click.UsageError(msg)
    if not dry_run:
        _require_writable(receipt)
    with invocation.lake() as lake:
        keys = [] if resume or column_policy else _keys(lake, name, texts, keys_from)
        what = "values of columns" if column_policy else count(len(keys), "key")
        if not (resume or dry_run or _is_meant(name, what, reason, yes=yes)):
            note(invocation, "nothing was erased")
            return
        if resume:
            receipts = lake.resume_erasure(name)
        elif column_policy:
            receipts = [lake.plan_column_policy(name)] if dry_run else lake.apply_column_policy(name, reason=reason)
        elif dry_run:
            receipts = [lake.plan_erasure(name, keys, moves=moves)]
        else:
            receipts = lake.erase(name, keys, reason=reason, landing=landing, moves=moves)
    # Before anything else can fail: a receipt cannot be made a second time.
    emit(
        invocation,
        {"receipts": [made.to_dict() for made in receipts]},
        lambda console: _draw_receipts(console, name, receipts),
    )
    for made in receipts:
        if not made.dry_run:
            _write(invocation, made, receipt if made is receipts[-1] else None)


def _keys(lake: Lakeward, name: str, texts: Sequence[str], keys_from: str | None) -> list[Mapping[str, Any]]:
    from lakeward import parse_key, read_keys

    columns = lake.table(name).settings.primary_key
    if not texts and not keys_from:
        msg = "name the keys to erase: --key COLUMN=VALUE, or --keys-from FILE"
        raise click.UsageError(msg)
    width = max(len(columns), 1)
    if len(texts) % width:
        msg = f"the key of {name} consists of {', '.join(columns)}: every key needs all of them"
        raise click.UsageError(msg)
    groups: list[Mapping[str, Any]] = [parse_key(texts[start : start + width]) for start in range(0, len(texts), width)]
    return groups + (read_keys(keys_from) if keys_from else [])


def _is_meant(name: str, what: str, reason: str, *, yes: bool) -> bool:
    """Ask for consent, and refuse where nobody can be asked: what is erased cannot be restored."""
    if not reason.strip():
        msg = "an erasure needs a reason: --reason TEXT"
        raise click.UsageError(msg)
    require_answerable(yes=yes)
    question = f"Erase {what} from {name} and everything made from it? This cannot be undone."
    return confirmed(question, yes=yes)


def _require_writable(path: str | None) -> None:
    """Raise if the receipt cannot be written, before anything is erased."""
    file = Path(path) if path else Path("erasure.json")
    if path and file.is_file() and file.stat().st_size:
        msg = f"{file} exists already; a receipt does not replace a file"
        raise ConfigurationError(msg, hint="--receipt OTHER_FILE")
    try:
        if file.is_file():
            file.open("a", encoding="utf-8").close()
        elif not file.exists():
            tempfile.TemporaryFile(dir=file.parent).close()
    except OSError as error:
        msg = f"the receipt cannot be written to {file if path else file.parent.absolute()}: {error.strerror}"
        raise ConfigurationError(msg, hint="--receipt FILE, in a writable folder") from error


def _write(invocation: Invocation, receipt: Receipt, path: str | None) -> None:
    file = Path(path) if path else _free_name(receipt)
    try:
        file.write_text(json.dumps(receipt.to_dict(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        if not invocation.is_json:
            emit_json(invocation, receipt.to_dict())
        msg = f"op {receipt.op} was carried out, but {file} cannot be written: {error.strerror}"
        raise LakewardError(msg, hint="keep the receipt printed on standard output") from error
    note(invocation, f"the receipt of op {receipt.op} is in {file}")


def _draw_receipts(console: Console, name: str, receipts: Sequence[Receipt]) -> None:
    if not receipts:
        console.print(f"{name}: no erasure was interrupted")
    for receipt in receipts:
        _draw_receipt(console, receipt)


def _draw_receipt(console: Console, receipt: Receipt) -> None:
    if receipt.columns:
        does = "would replace" if receipt.dry_run else f"op {receipt.op} replaced"
        rules = ", ".join(f"{name} ({rule})" for name, rule in receipt.columns.items())
        console.print(f"{receipt.table}: {does} values of {rules}")
    else:
        does = "would erase" if receipt.dry_run else f"op {receipt.op} erased"
        console.print(f"{receipt.table}: {does} {count(receipt.keys, 'key')}")
    drawn = table("place", "> rows", "> deleted before", "> files", "> left")
    for place in receipt.places:
        add_row(drawn, [place.place, place.rows, place.hidden, place.files, place.remaining_rows])
    console.print(drawn)
    facts = [("landing", f"{place.path}: {count(place.rows, 'row')}, {place.outcome}") for place in receipt.landing]
    if receipt.bad_rows_untold:
        kept = f"{count(receipt.bad_rows_untold, 'bad row')} with unreadable keys were kept"
        facts.append(("quarantine", f"{kept}: lakeward quarantine list {receipt.table}"))
    if not receipt.dry_run:
        facts.append(("snapshots", f"{receipt.snapshots_expired:,} expired, also within the undo window"))
        what = "such value" if receipt.columns else "row of these keys"
        facts.append(("proof", f"a scan of every place found no {what}" if receipt.proved else "missing"))
    if receipt.columns:
        facts.append(("landing", "files there keep the values; the rules are applied whenever one is read"))
    lines(console, facts)


def _free_name(receipt: Receipt) -> Path:
    """Return a file name that is not taken: a receipt of another lake may be in this folder."""
    name = f"erasure-{receipt.table}-op{receipt.op}"
    files = (Path(f"{name}{f'-{number}' if number > 1 else ''}.json") for number in count_from(1))
    return next(file for file in files if not file.exists())
