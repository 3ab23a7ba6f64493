"""Undo, as the library offers it: ``lake.undo("sales.product", to_op=41)`` and ``lake.undo.plan(…)``."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lakeward.arguments import FLAG, OPTIONAL_TEXT, OPTIONAL_WHOLE, TEXT, TEXTS, takes
from lakeward.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from lakeward.controller.tables import KnownTable
    from lakeward.controller.workbench import Workbench
    from lakeward.pipeline.context import TableContext
    from lakeward.pipeline.undoing import Goal, Marked, Undone, UndoPlan


class Undo:
    """Takes back what ops did to a table; call it, or let it plan."""

    def __init__(
        self, bench: Callable[[], Workbench], table: Callable[[str], KnownTable], landing_path: Callable[[str], str]
    ) -> None:
        """Work with what the lake gives; ``landing_path`` finds a file that a user names under landing."""
        self._bench = bench
        self._table = table
        self._landing_path = landing_path

    @takes(name=TEXT, to_op=OPTIONAL_WHOLE, to_time=OPTIONAL_TEXT, skip_files=TEXTS, newest_op=OPTIONAL_WHOLE)
    def __call__(
        self,
        name: str,
        *,
        to_op: int | None = None,
        to_time: str | None = None,
        skip_files: Iterable[str] = (),
        newest_op: int | None = None,
    ) -> Undone:
        """Take back every op after one, by an op of its own, and say what was taken back.

        Args:
            name: the table as ``schema.table``.
            to_op: the op whose state shall hold again; 0 for the empty table.
            to_time: instead of it, a day or time: the last op without changes that were committed later.
            skip_files: change files of the ops taken back that no later run shall take again.
            newest_op: refuse when the table stands at another op: what was shown is then not what would be done.

        Raises:
            ConfigurationError: there is no such op, or a file was not read by an op that is taken back.
            ConflictError: another writer holds the table or was faster.
        """
        from lakeward.controller.recording import record_op
        from lakeward.pipeline.undoing import undo

        bench, known, began = self._bench(), self._table(name), datetime.now(UTC)
        goal = self._goal(bench, to_op, to_time, skip_files, newest_op)
        with bench.leased(known) as context:
            done = undo(context, goal)
            done = replace(done, plan=_with_marks(context, done.plan))
        if done.op is not None:
            record_op(bench.state, known.table, began, done.op)
        return done

    @takes(name=TEXT, to_op=OPTIONAL_WHOLE, to_time=OPTIONAL_TEXT, skip_files=TEXTS, finish=FLAG)
    def plan(
        self,
        name: str,
        *,
        to_op: int | None = None,
        to_time: str | None = None,
        skip_files: Iterable[str] = (),
        finish: bool = False,
    ) -> UndoPlan:
        """Say what an undo would take back, down to the rows, and do nothing.

        Args:
            name: the table as ``schema.table``.
            to_op: as for the undo itself.
            to_time: as for the undo itself.
            skip_files: as for the undo itself.
            finish: first finish an op that a crash interrupted, as the undo itself would.
        """
        from lakeward.pipeline.run import finish_interrupted
        from lakeward.pipeline.undoing import plan_undo

        bench, known = self._bench(), self._table(name)
        goal = self._goal(bench, to_op, to_time, skip_files)
        if finish:
            with bench.leased(known) as context:
                finish_interrupted(context)
        context = bench.context(known)
        return _with_marks(context, plan_undo(context, goal))

    def _goal(
        self,
        bench: Workbench,
        to_op: int | None,
        to_time: str | None,
        skip_files: Iterable[str],
        newest_op: int | None = None,
    ) -> Goal:
        from lakeward.pipeline.moments import parse_moment
        from lakeward.pipeline.undoing import Goal

        if (to_op is None) == (to_time is None):
            msg = "an undo goes back either to an op or to a time"
            raise ConfigurationError(msg, hint="lakeward undo TABLE --to-op OP, or --to-time TIME")
        moment = parse_moment(to_time, bench.config.timezone) if to_time is not None else None
        return Goal(to_op, moment, frozenset(self._path(one) for one in skip_files), newest_op)

    def _path(self, name: str) -> str:
        """Give a file's path under landing; one that is gone from there is named as the ledger has it."""
        try:
            return self._landing_path(name)
        except ConfigurationError:
            return name


def _with_marks(context: TableContext, plan: UndoPlan) -> UndoPlan:
    return replace(plan, marked=tuple(_marked(context, plan))) if plan.op is not None else plan


def _marked(context: TableContext, plan: UndoPlan) -> Iterator[Marked]:
    """Give what was made of the table and holds ops that are taken back: publications, then tags made by hand."""
    from lakeward.lake.iceberg.define import APPLIED_STAMP
    from lakeward.pipeline.load_branches import UNDONE_TAG_PREFIX
    from lakeward.pipeline.undoing import Marked
    from lakeward.snapshots.versions.publications import PublicationKind, list_publications

    gone = range(plan.back_to + 1, plan.newest_op + 1)
    mirror = context.mirror.metadata()
    publications = list_publications(mirror)
    for one in publications:
        if one.op in gone:
            yield Marked(one.kind, one.version, one.location, one.op)
    known = {one.location for one in publications if one.kind is PublicationKind.TAG}
    for tag, snapshot in sorted(mirror.tags().items()):
        op = int(mirror.stamp_at(APPLIED_STAMP, snapshot) or 0)
        if op in gone and tag not in known and not tag.startswith(UNDONE_TAG_PREFIX):
            yield Marked(PublicationKind.TAG, tag, tag, op)
