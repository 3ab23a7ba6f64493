"""What ``lakeward diff`` does between its options and its output."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakeward.cli.diff_options import ALL_COLUMNS
from lakeward.diffing.changesets.manifest import describe
from lakeward.diffing.changesets.writing import require_free_minute, write_change_set
from lakeward.diffing.comparison import Comparison, keys_of
from lakeward.diffing.inputs.addresses import absolute
from lakeward.diffing.report.page import render_report
from lakeward.errors import ConfigurationError, RefusedInputError
from lakeward.lake.stores import open_store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.api.sides import SideDesk
    from lakeward.diffing.changesets.manifest import ChangeSetManifest
    from lakeward.diffing.inputs.sides import Side
    from lakeward.diffing.options import DiffOptions
    from lakeward.diffing.report.examples import Example
    from lakeward.diffing.summary import Summary

# Below so many rows a table may well lose half of them.
_GUARDED_ROWS, _GUARDED_SHARE = 1_000, 0.5


@dataclass(frozen=True)
class DiffRequest:
    """What was asked for."""

    past: str
    current: str
    keys: tuple[str, ...]
    options: DiffOptions
    choices: Mapping[str, Any]

    @classmethod
    def of(
        cls, past: str, current: str, keys: tuple[str, ...], options: DiffOptions, choices: Mapping[str, Any]
    ) -> DiffRequest:
        """Hold the request, and refuse what cannot be done before anything is started."""
        if choices["report"] and not Path(choices["report"]).absolute().parent.is_dir():
            msg = f"there is no folder for the report {choices['report']}"
            raise ConfigurationError(msg)
        return cls(past, current, keys, options, choices)

    @property
    def limit(self) -> int:
        """Examples to show of each kind."""
        return int(self.choices["limit"])

    def open(self, desk: SideDesk, which: str) -> Side:
        """Open one of the sides."""
        return desk.open(
            self.past if which == "past" else self.current,
            schema=self.choices[f"{which}_schema"] or self.choices["schema"],
            format=self.choices[f"{which}_format"],
            incomplete_ok=self.choices["incomplete_ok"],
            root=self.choices["root"],
        )


@dataclass(frozen=True)
class DiffResult:
    """What came out."""

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

    def to_document(self) -> dict[str, Any]:
        """Give it as JSON."""
        return {
            "past": dict(self.past),
            "current": dict(self.current),
            "keys": list(self.keys),
            "plan": {"name": self.plan, "reason": self.reason},
            "summary": self.summary.to_document(),
            "schema_differences": list(self.differences),
            "examples": [_without_absent(one.to_document()) for one in self.examples],
            "change_set": self.change_set,
            "report": self.report,
        }


def run_diff(desk: SideDesk, request: DiffRequest) -> DiffResult:
    """Compare, write what shall be written, and give what shall be shown."""
    past, current = request.open(desk, "past"), request.open(desk, "current")
    keys = () if request.keys == (ALL_COLUMNS,) else keys_of(past, current, request.keys)
    plan, exact, to = request.choices["plan"], request.choices["exact"], request.choices["to"]
    with Comparison(past, current, keys, request.options, plan=plan, exact=exact, checksums=bool(to)) as comparison:
        if to:
            written = _written(desk, comparison, request, absolute(to))
        else:
            written = None
            _require_few_deletes(comparison.summary(), request)
        summary = comparison.summary()
        wanted = request.limit if not to or request.choices["report"] else 0
        examples = tuple(comparison.examples(wanted))
        report = _reported(comparison, request, examples)
        identities = comparison.identities() if to else (past.identity, current.identity)
        return DiffResult(
            past={"address": request.past, **identities[0]},
            current={"address": request.current, **identities[1]},
            keys=tuple(one.name for one in comparison.alignment.keys),
            plan=comparison.plan,
            reason=comparison.reason,
            summary=summary,
            differences=comparison.alignment.differences,
            examples=examples,
            change_set=written,
            report=report,
        )


def _written(desk: SideDesk, comparison: Comparison, request: DiffRequest, to: str) -> str:
    store, moment = open_store(desk.spark, desk.config, to), datetime.now(UTC)
    require_free_minute(store, to, moment)
    manifest = describe(
        comparison.alignment,
        request.options,
        past={},
        current={},
        counts={},
        format=request.choices["format_"],
        created=moment,
    )

    def check() -> ChangeSetManifest:
        summary = comparison.summary()
        _require_few_deletes(summary, request)
        past, current = comparison.identities()
        counts = {name: getattr(summary, name) for name in ("inserted", "changed", "deleted", "unchanged")}
        return replace(manifest, past=past, current=current, counts=counts)

    frame = comparison.kept_frame() if request.choices["report"] else comparison.frame
    with comparison.told():
        return write_change_set(frame, store, to, manifest, moment=moment, check=check)


def _require_few_deletes(summary: Summary, request: DiffRequest) -> None:
    """Refuse a current side that may have lost rows on its way: its change set would delete them elsewhere."""
    limit = request.choices["max_delete_share"]
    if limit is None and request.choices["to"] and summary.past_rows >= _GUARDED_ROWS:
        limit = _GUARDED_SHARE
    share = summary.delete_share()
    if limit is not None and share > limit:
        msg = (
            f"{summary.deleted:,} of {summary.past_rows:,} rows would be deleted, {share:.0%} where {limit:.0%} are "
            "allowed: the current side may be incomplete; nothing was written"
        )
        raise RefusedInputError(msg, hint=f"check {request.current}, then allow it: --max-delete-share 1")


def _reported(comparison: Comparison, request: DiffRequest, shown: tuple[Example, ...]) -> str | None:
    if not request.choices["report"]:
        return None
    target = Path(request.choices["report"]).absolute()
    page = render_report(
        comparison.summary(),
        comparison.alignment,
        shown,
        past=request.past,
        current=request.current,
        plan=comparison.plan,
        reason=comparison.reason,
        options=request.options,
    )
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    draft.write_text(page, encoding="utf-8")
    draft.replace(target)
    return str(target)


def _without_absent(example: dict[str, Any]) -> dict[str, Any]:
    """Leave out the side that has no row: that is not the same as a row of nulls."""
    return {name: value for name, value in example.items() if value is not None}
