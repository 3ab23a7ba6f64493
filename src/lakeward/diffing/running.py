"""A complete run of a comparison: compare, check the number of deletes, write the change set and the report."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakeward.delete_guard import DEFAULT_MAX_SHARE, Removal, comparison_refusal
from lakeward.diffing.comparison import SideComparison
from lakeward.diffing.report.page import render_report, require_replaceable
from lakeward.diffing.stored.applying import require_free_minute, write_change_set
from lakeward.diffing.stored.changesets import describe
from lakeward.diffing.stored.folders import require_outside
from lakeward.documents import Document
from lakeward.errors import RefusedInputError
from lakeward.storage.filesystem import open_filesystem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lakeward.config import Config
    from lakeward.diffing.frames.alignment import Alignment
    from lakeward.diffing.frames.options import DiffOptions
    from lakeward.diffing.frames.pairs import Summary
    from lakeward.diffing.report.examples import Example
    from lakeward.diffing.stored.addresses import Side
    from lakeward.diffing.stored.changesets import ChangeSetManifest


@dataclass(frozen=True)
class ComparisonRequest:
    """What a comparison is to produce.

    to: folder below which a change set is written, a whole path or a URI; None: none is written.
    max_delete_share: refuse where more of the past's rows would be deleted; None: half of them, from 1,000 rows on,
        where a change set is written.
    limit: how many examples of each kind are shown; where a change set is written only in the report.
    report: file of the HTML report.
    checksums: whether the change set has the checksums of its parents; unknown ones are computed while reading.
    same_rows: number of rows that are the same on both sides and were left out of both; they count as unchanged.
    shown: converts an example for display; None: examples are shown as they are.
    """

    to: str | None = None
    format: str = "parquet"
    max_delete_share: float | None = None
    limit: int = 5
    report: str | None = None
    plan: str = "auto"
    exact: bool = False
    checksums: bool = True
    same_rows: int = 0
    shown: Callable[[Example], Example] | None = None


@dataclass(frozen=True)
class DiffResult(
    Document,
    keys=("past", "current", "keys", "choice", "summary", "differences", "examples", "change_set", "report"),
    renamed={"choice": "plan", "differences": "schema_differences"},
):
    """The result of a comparison."""

    past: Mapping[str, Any]
    current: Mapping[str, Any]
    keys: tuple[str, ...]
    plan: str
    reason: str
    summary: Summary
    differences: tuple[str, ...]
    examples: tuple[Example, ...]
    change_set: str | None
    report: str | None

    @property
    def choice(self) -> dict[str, str]:
        """The plan and why it was chosen."""
        return {"name": self.plan, "reason": self.reason}


def run_comparison(
    config: Config, past: Side, current: Side, keys: Sequence[str], options: DiffOptions, wanted: ComparisonRequest
) -> DiffResult:
    """Compare two sides, write the requested change set and report, and return the result.

    Raises:
        ConfigurationError: the file of the report exists and is not a report.
        RefusedInputError: the sides cannot be compared, too much would be deleted, the minute has a change set, or the
            keys do not identify a row.
    """
    to = wanted.to
    if wanted.report:
        require_replaceable(Path(wanted.report).absolute())
    checksums = bool(to) and wanted.checksums
    with SideComparison(
        past, current, keys, options, plan=wanted.plan, exact=wanted.exact, checksums=checksums
    ) as comparison:
        written = None
        if to:
            written = _written(config, comparison, wanted, to)
        else:
            _require_few_deletes(comparison, wanted)
        examples = tuple(comparison.examples(wanted.limit if not to or wanted.report else 0))
        if wanted.shown is not None:
            examples = tuple(map(wanted.shown, examples))
        identities = comparison.identities() if to else (past.identity, current.identity)
        return DiffResult(
            past={"address": past.label, **identities[0]},
            current={"address": current.label, **identities[1]},
            keys=tuple(key.name for key in comparison.alignment.keys),
            plan=comparison.plan,
            reason=comparison.reason,
            summary=_summary(comparison, wanted),
            differences=comparison.alignment.differences,
            examples=examples,
            change_set=written,
            report=_reported(comparison, wanted, examples),
        )


def _written(config: Config, comparison: SideComparison, wanted: ComparisonRequest, to: str) -> str:
    _require_common_keys(comparison.alignment)
    identities = (comparison.past.identity, comparison.current.identity)
    require_outside(to, [str(identity["location"]) for identity in identities if "location" in identity])
    store, moment = open_filesystem(comparison.past.frame.sparkSession, config, to), datetime.now(UTC)
    require_free_minute(store, to, moment)
    manifest = describe(
        comparison.alignment,
        comparison.options,
        past={},
        current={},
        counts={},
        format=wanted.format,
        created=moment,
    )

    def check() -> ChangeSetManifest:
        _require_few_deletes(comparison, wanted)
        summary = _summary(comparison, wanted)
        _require_keys(summary)
        past, current = comparison.identities()
        counts = {name: getattr(summary, name) for name in ("inserted", "changed", "deleted", "unchanged")}
        return replace(manifest, past=past, current=current, counts=counts)

    frame = comparison.kept_frame() if wanted.report else comparison.frame
    with comparison.translated_errors():
        return write_change_set(frame, store, to, manifest, moment=moment, check=check)


def _require_common_keys(alignment: Alignment) -> None:
    """Refuse keys that a side lacks, as where all columns are keys and one is new: the change set would not apply."""
    if lacking := [key.name for key in alignment.keys if key.in_left is None or key.in_right is None]:
        msg = f"only one side has the key column {', '.join(lacking)}, so that a change set could not be applied"
        raise RefusedInputError(msg, hint="name the columns that identify a row: --keys COLUMN,…; or leave out --to")


def _require_keys(summary: Summary) -> None:
    """Refuse keys that do not identify a row: a change set would delete a key that still has a row."""
    if summary.duplicates:
        msg = (
            f"{summary.duplicates:,} rows have a key that came before on their side, and a change set identifies rows "
            "by their key alone; nothing was written"
        )
        raise RefusedInputError(msg, hint="name all columns of the key: --keys COLUMN,…; or leave out --to")


def _summary(comparison: SideComparison, wanted: ComparisonRequest) -> Summary:
    found, same = comparison.summary(), wanted.same_rows
    return replace(
        found,
        past_rows=found.past_rows + same,
        current_rows=found.current_rows + same,
        unchanged=found.unchanged + same,
    )


def _require_few_deletes(comparison: SideComparison, wanted: ComparisonRequest) -> None:
    """Refuse a current side that may have lost rows by mistake: its change set would delete them elsewhere."""
    summary, limit = _summary(comparison, wanted), wanted.max_delete_share
    removal = Removal(summary.deleted, summary.past_rows, DEFAULT_MAX_SHARE if limit is None else limit)
    # A limit that the user chose applies to small tables, too.
    refused = bool(wanted.to) and removal.is_refused if limit is None else removal.is_too_large
    if refused:
        raise comparison_refusal(removal, comparison.current.label)


def _reported(comparison: SideComparison, wanted: ComparisonRequest, shown: tuple[Example, ...]) -> str | None:
    if not wanted.report:
        return None
    target = Path(wanted.report).absolute()
    page = render_report(
        _summary(comparison, wanted),
        comparison.alignment,
        shown,
        past=comparison.past.label,
        current=comparison.current.label,
        plan=comparison.plan,
        reason=comparison.reason,
        options=comparison.options,
    )
    # The file may have been created while the comparison ran.
    require_replaceable(target)
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex[:12]}")
    try:
        draft.write_text(page, encoding="utf-8")
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    return str(target)
