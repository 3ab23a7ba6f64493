"""The comparison of two sides, from their schemas to the diff, counts and examples, and a complete run of one.

A run also checks the number of deletes, and writes the change set and the report.
"""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pyspark.sql import Observation
from pyspark.sql import functions as F

from lakeward.delete_guard import DEFAULT_MAX_SHARE, Removal, comparison_refusal
from lakeward.diffing.examples import Example, examples
from lakeward.diffing.frames.alignment import align
from lakeward.diffing.frames.joining import is_case_sensitive
from lakeward.diffing.frames.pairs import (
    ACTION,
    HASH,
    JOIN,
    UNCHANGED,
    Pairs,
    Summary,
    classified,
    read_summary,
    shaped_from,
    summary_columns,
)
from lakeward.diffing.frames.refusals import ONE_ROW_A_KEY, refused_duplicate, refused_input
from lakeward.diffing.plans.planner import planned_pairs
from lakeward.diffing.report import render_report, require_replaceable
from lakeward.diffing.stored.applying import require_free_minute, write_change_set
from lakeward.diffing.stored.changesets import describe
from lakeward.diffing.stored.folders import require_outside
from lakeward.documents import Document
from lakeward.errors import ConfigurationError, RefusedInputError
from lakeward.spark.errors import Failure, task_error, translated
from lakeward.spark.refusals import duplicate_key_in
from lakeward.spark.workspace import Workspace, session_settings
from lakeward.storage.checksum import checksum_columns, read_checksum
from lakeward.storage.filesystem import open_filesystem
from lakeward.storage.sets import OBSERVED
from lakeward.transforms.columns import column, columns
from lakeward.transforms.compare import holds_map

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from pyspark.sql import DataFrame

    from lakeward.config import Config
    from lakeward.diffing.examples import Example
    from lakeward.diffing.frames.alignment import Alignment
    from lakeward.diffing.frames.options import DiffOptions
    from lakeward.diffing.frames.pairs import PlannedPairs, Summary
    from lakeward.diffing.stored.addresses import Side
    from lakeward.diffing.stored.changesets import ChangeSetManifest


_KEYS_SHOWN = 10


@dataclass(frozen=True)
class _ObservedSide:
    """A side whose checksum is computed while it is read."""

    side: Side
    observation: Observation | None = None

    @classmethod
    def of(cls, side: Side) -> _ObservedSide:
        if side.checksum is not None:
            return cls(side)
        observation = Observation()
        frame = side.frame.observe(observation, *checksum_columns(side.frame.schema))
        return cls(replace(side, frame=frame), observation)


class SideComparison:
    """A comparison that is valid inside a ``with`` block; every result is computed once, at its first use.

    ``checksums`` must be set where :meth:`identities` will be called.
    """

    def __init__(
        self,
        past: Side,
        current: Side,
        keys: Sequence[str],
        options: DiffOptions,
        *,
        plan: str = "auto",
        exact: bool = False,
        checksums: bool = False,
    ) -> None:
        """Set what to compare; nothing is read before the block begins."""
        self.past, self.current, self.options = past, current, options
        self._keys, self._plan, self._exact, self._checksums = keys, plan, exact, checksums
        self._stack = ExitStack()
        self._observation: Observation | None = None

    def __enter__(self) -> Self:
        with self._stack:
            spark, observe = self.past.frame.sparkSession, _ObservedSide.of if self._checksums else _ObservedSide
            self._observed = [observe(side) for side in (self.past, self.current)]
            self._stack.enter_context(session_settings(spark, OBSERVED))
            self._workspace = self._stack.enter_context(Workspace())
            self.alignment = self._aligned()
            with self.translated_errors():
                self._planned = self._decided()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    alignment: Alignment
    _planned: PlannedPairs
    _workspace: Workspace

    def _aligned(self) -> Alignment:
        past, current = self.past.frame, self.current.frame
        sensitive = is_case_sensitive(past.sparkSession)
        return align(past.schema, current.schema, self._keys, self.options, evolve=True, case_sensitive=sensitive)

    def _decided(self) -> PlannedPairs:
        left, right = (observed.side for observed in self._observed)
        return planned_pairs(
            left, right, self.alignment, self.options, plan=self._plan, exact=self._exact, workspace=self._workspace
        )

    @property
    def plan(self) -> str:
        """The plan that was chosen."""
        return self._planned.name

    @property
    def reason(self) -> str:
        """Why it was chosen."""
        return self._planned.reason

    @cached_property
    def frame(self) -> DataFrame:
        """The diff in the chosen mode, counted as it is read."""
        return shaped_from(self._counted, self._planned.pairs, self.options)

    def kept_frame(self) -> DataFrame:
        """Return the diff of pairs that are kept, so that examples can be taken from them afterwards."""
        if self.options.include_unchanged:
            return self.frame
        return shaped_from(classified(self._kept, self.options), self._kept, self.options)

    @cached_property
    def _counted(self) -> DataFrame:
        self._observation = Observation()
        rows = classified(self._planned.pairs, self.options)
        return rows.observe(self._observation, *summary_columns(self.alignment, self.options))

    @cached_property
    def _kept(self) -> Pairs:
        """The pairs that differ, kept: counting and showing examples then take one pass over the sides."""
        differing = self._counted.filter(column(ACTION) != UNCHANGED)
        kept = self._workspace.keep(differing)
        with self.translated_errors():
            kept.agg(F.count(F.lit(1))).collect()
            self._require_unique()
        return Pairs(kept.select(*columns(self._planned.pairs.frame.columns)), self.alignment, is_whole=False)

    def summary(self) -> Summary:
        """Return the counts; they are known already after :attr:`frame` was written."""
        if self._observation is None:
            _ = self._kept
        assert self._observation is not None
        rows = [self._planned.past_rows, self._planned.current_rows]
        if self._planned.counts is not None:
            self._require_unique()
            rows = list(self._planned.counts.rows())
        elif not self._planned.pairs.is_whole:
            with self.translated_errors():
                rows = [
                    known if known is not None else self._count(observed)
                    for known, observed in zip(rows, self._observed, strict=True)
                ]
        return read_summary(self._observation.get, self.alignment, past_rows=rows[0], current_rows=rows[1])

    def _require_unique(self) -> None:
        """Refuse keys that came twice, where that shows only after the pairs were read."""
        if self._planned.counts is not None and (side := self._planned.counts.duplicated_side()):
            raise self._duplicates(side)

    def _count(self, observed: _ObservedSide) -> int:
        known = observed.side.rows
        original = self.past if observed is self._observed[0] else self.current
        return known if known is not None else original.frame.count()

    def examples(self, limit: int) -> list[Example]:
        """Return the first differences of each kind."""
        with self.translated_errors():
            return examples(self._kept, self.options, limit) if limit > 0 else []

    def identities(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return the identities of both sides, with rows and checksum as far as known, once the diff was read."""
        was_read = self.plan in (JOIN, HASH)
        return tuple(_identity(observed, was_read=was_read) for observed in self._observed)  # type: ignore[return-value]

    def translated_errors(self) -> AbstractContextManager[None]:
        """Return a context that translates errors of Spark about the input.

        Raises:
            RefusedInputError: a key occurs more than once, or a file cannot be read.
        """
        return translated(self._duplicate_key, task_error(), *refused_input("one of the sides"))

    def _duplicate_key(self, failure: Failure) -> RefusedInputError | None:
        found = duplicate_key_in(failure)
        return None if found is None else self._duplicates(found)

    def _duplicates(self, found: str) -> RefusedInputError:
        """Return the error that lists the keys that occur more than once."""
        if any(holds_map(key.type) for key in self.alignment.keys):
            # Spark cannot group by maps.
            return refused_duplicate(found)
        first = [self.past, self.current] if found.startswith("past") else [self.current, self.past]
        for side in first:
            if listed := self._repeated(side):
                which = "past" if side is self.past else "current"
                msg = f"keys occur more than once on the {which} side ({side.label}): {listed}"
                return RefusedInputError(msg, hint=ONE_ROW_A_KEY)
        msg = f"{self.past.label} or {self.current.label} has other rows than when it was opened: it is being written"
        return RefusedInputError(msg, hint="compare snapshots that are complete")

    def _repeated(self, side: Side) -> str:
        """Return the first keys of a side that occur more than once, as text; empty without any."""
        own = [key.in_left if side is self.past else key.in_right for key in self.alignment.keys]
        names = [name for name in own if name is not None]
        keys, times = columns(names), "_lw_times"
        repeated = side.frame.groupBy(*keys).agg(F.count(F.lit(1)).alias(times)).filter(column(times) > 1)
        order = [column(times).desc(), *[key.asc_nulls_first() for key in keys]]
        shown = [row.asDict() for row in repeated.orderBy(*order).limit(_KEYS_SHOWN + 1).collect()]
        listed = "; ".join(
            f"{', '.join(f'{name}={_shown(row[name])}' for name in names)} ({row[times]:,} times)"
            for row in shown[:_KEYS_SHOWN]
        )
        return listed + ("; and more" if len(shown) > _KEYS_SHOWN else "")


def keys_of(past: Side, current: Side, keys: Sequence[str]) -> tuple[str, ...]:
    """Return the keys that were named, or those that both sides' manifests or tables agree on.

    Raises:
        ConfigurationError: none were named, and the sides have none, or different ones.
    """
    if keys:
        return tuple(keys)
    known = [side.primary_key for side in (past, current) if side.primary_key]
    if len({frozenset(names) for names in known}) == 1:
        return known[0]
    if known:
        listed = "; ".join(f"{side.label}: {', '.join(side.primary_key)}" for side in (past, current))
        msg = f"the two sides have different keys: {listed}"
        raise ConfigurationError(msg, hint="choose them: --keys COLUMN,COLUMN")
    msg = "it is not known which columns identify a row"
    raise ConfigurationError(msg, hint="--keys COLUMN,COLUMN   (--keys '*': all columns, so that no row is changed)")


def _shown(value: Any) -> str:
    """Return a key's value for a message: dates and decimals as people write them, not as Python shows them."""
    return repr(value) if value is None or isinstance(value, str | int | float | bytearray) else str(value)


def _identity(observed: _ObservedSide, *, was_read: bool) -> Mapping[str, Any]:
    known = dict(observed.side.identity)
    if observed.observation is not None and was_read:
        checksum = read_checksum(observed.observation.get).text
        known.update(rows=int(checksum.partition(":")[0]), checksum=checksum)
    return known


@dataclass(frozen=True)
class ComparisonRequest:
    """The outputs that a comparison is to produce.

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
