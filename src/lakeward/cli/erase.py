"""``lakeward erase``: remove the rows of certain keys everywhere, with a receipt."""

from __future__ import annotations

import json
import tempfile
from itertools import count as count_from
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from lakeward.cli.options import command, confirmed, require_answerable
from lakeward.cli.output import add_row, count, emit, emit_json, lines, note, table
from lakeward.errors import ConfigurationError, LakewardError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from lakeward import Lakeward, Receipt
    from lakeward.cli.options import Invocation


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
    reason: str,
    landing: bool,
    moves: Literal["erase", "keep"] | None,
    dry_run: bool,
    resume: bool,
    yes: bool,
    receipt: str | None,
) -> None:
    """Erase rows by key, permanently, and prove it.

    The rows of these keys are removed from the mirror, its load branches, tags and history, from the changelog, the
    quarantine and all published files. Snapshots that may hold them expire, even within the undo window. Only salted
    hashes of the keys are kept, so that reading a file again does not bring the rows back. The receipt lists every
    place with what was removed and what a scan found afterwards.

    Repeat --key for several keys: --key id=42 --key id=43. A composite key takes one option for each of its columns:
    --key region=EU --key number=7. A file of --keys-from has one key per line, as id=42 or as a JSON object of all key
    columns.
    """
    if resume and (texts or keys_from or dry_run):
        msg = "--resume finishes what was begun: it takes no keys"
        raise click.UsageError(msg)
    if not dry_run:
        _require_writable(receipt)
    with invocation.lake() as lake:
        keys = [] if resume else _keys(lake, name, texts, keys_from)
        if not (resume or dry_run or _is_meant(name, len(keys), reason, yes=yes)):
            note(invocation, "nothing was erased")
            return
        if resume:
            receipts = lake.resume_erasure(name)
        elif dry_run:
            receipts = [lake.plan_erasure(name, keys, moves=moves)]
        else:
            receipts = lake.erase(name, keys, reason=reason, landing=landing, moves=moves)
    # Before anything else can fail: a receipt cannot be made a second time.
    emit(
        invocation, {"receipts": [made.to_dict() for made in receipts]}, lambda console: _draw(console, name, receipts)
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


def _is_meant(name: str, keys: int, reason: str, *, yes: bool) -> bool:
    """Ask for consent, and refuse where nobody can be asked: nothing brings the rows back."""
    if not reason.strip():
        msg = "an erasure needs a reason: --reason TEXT"
        raise click.UsageError(msg)
    require_answerable(yes=yes)
    question = f"Erase {count(keys, 'key')} from {name} and everything made from it? This cannot be undone."
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
        msg = f"op {receipt.op} erased its keys, but {file} cannot be written: {error.strerror}"
        raise LakewardError(msg, hint="keep the receipt printed on standard output") from error
    note(invocation, f"the receipt of op {receipt.op} is in {file}")


def _draw(console: Console, name: str, receipts: Sequence[Receipt]) -> None:
    if not receipts:
        console.print(f"{name}: no erasure was interrupted")
    for receipt in receipts:
        _draw_receipt(console, receipt)


def _draw_receipt(console: Console, receipt: Receipt) -> None:
    what = "would erase" if receipt.dry_run else f"op {receipt.op} erased"
    console.print(f"{receipt.table}: {what} {count(receipt.keys, 'key')}")
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
        facts.append(("proof", "a scan of every place found no row of these keys" if receipt.proved else "missing"))
    lines(console, facts)


def _free_name(receipt: Receipt) -> Path:
    """Return a file name that is not taken: a receipt of another lake may be in this folder."""
    name = f"erasure-{receipt.table}-op{receipt.op}"
    files = (Path(f"{name}{f'-{number}' if number > 1 else ''}.json") for number in count_from(1))
    return next(file for file in files if not file.exists())
