"""The comparison of two sides: from their schemas to the diff, counts and examples."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from pyspark.sql import Observation
from pyspark.sql import functions as F

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
from lakeward.diffing.frames.refusals import ONE_ROW_A_KEY, duplicate_key_in, refused_duplicate, refused_input
from lakeward.diffing.plans.planner import planned_pairs
from lakeward.diffing.report.examples import Example, examples
from lakeward.errors import ConfigurationError, RefusedInputError
from lakeward.spark.errors import Failure, task_error, translated
from lakeward.spark.settings import session_settings
from lakeward.spark.workspace import Workspace
from lakeward.storage.checksum import checksum_columns, read_checksum
from lakeward.storage.sets import OBSERVED
from lakeward.transforms.columns import column, columns
from lakeward.transforms.compare import holds_map

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager
    from types import TracebackType

    from pyspark.sql import DataFrame

    from lakeward.diffing.frames.alignment import Alignment
    from lakeward.diffing.frames.options import DiffOptions
    from lakeward.diffing.frames.pairs import PlannedPairs
    from lakeward.diffing.stored.addresses import Side

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

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
            RefusedInputError: a key comes more than once, or a file cannot be read.
        """
        return translated(self._duplicate_key, task_error(), *refused_input("one of the sides"))

    def _duplicate_key(self, failure: Failure) -> RefusedInputError | None:
        found = duplicate_key_in(failure)
        return None if found is None else self._duplicates(found)

    def _duplicates(self, found: str) -> RefusedInputError:
        """Return the error that lists the keys that come more than once."""
        if any(holds_map(key.type) for key in self.alignment.keys):
            # Spark cannot group by maps.
            return refused_duplicate(found)
        first = [self.past, self.current] if found.startswith("past") else [self.current, self.past]
        for side in first:
            if listed := self._repeated(side):
                which = "past" if side is self.past else "current"
                msg = f"keys come more than once on the {which} side ({side.label}): {listed}"
                return RefusedInputError(msg, hint=ONE_ROW_A_KEY)
        msg = f"{self.past.label} or {self.current.label} has other rows than when it was opened: it is being written"
        return RefusedInputError(msg, hint="compare snapshots that are complete")

    def _repeated(self, side: Side) -> str:
        """Return the first keys of a side that come more than once, as text; empty without any."""
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
