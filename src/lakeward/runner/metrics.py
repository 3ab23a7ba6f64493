"""Figures for Prometheus: an endpoint while ``watch`` runs, a text file after each run otherwise.

The only label is the table. Counters continue from the values in the text file, so that runs of separate processes add
up; all other figures are those of the last run, except that lag grows between runs and tables become late.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, start_http_server, write_to_textfile
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families

from lakeward.errors import ConfigurationError
from lakeward.mirror.op.report import Outcome
from lakeward.runner.observers import SilentObserver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lakeward.errors import LakewardError
    from lakeward.iceberg.rewrite import Debt
    from lakeward.mirror.op.report import RunReport, TableReport
    from lakeward.runner.freshness import Freshness
    from lakeward.runner.status import TableStatus

_TABLE = "table"
_LAG = "lakeward_lag_seconds"
_LATE = "lakeward_late"
_SUCCESS = "lakeward_last_success_timestamp_seconds"


@dataclass(frozen=True)
class Family:
    """A metric; ``per_table`` ones have the label ``table``. Names of counters end in ``_total``."""

    name: str
    help: str
    per_table: bool = True

    @property
    def is_counter(self) -> bool:
        """Whether the metric is a counter."""
        return self.name.endswith("_total")


FAMILIES = (
    Family(_LAG, "age of the oldest file that waits, 0 when none does"),
    Family(_LATE, "1 when the table is late by its freshness objective, 0 when on time; absent when unknown"),
    Family("lakeward_freshness_objective_seconds", "the table's freshness objective"),
    Family("lakeward_newest_change_timestamp_seconds", "time of the newest applied change, with a freshness objective"),
    Family("lakeward_pending_files", "files that wait"),
    Family("lakeward_pending_bytes", "their bytes"),
    Family("lakeward_rows", "rows of the mirror"),
    Family("lakeward_quarantined_rows", "bad rows that wait for a decision"),
    Family("lakeward_failed", "1 when the last run of the table failed, else 0"),
    Family(_SUCCESS, "when a run of the table last ended without failing"),
    Family("lakeward_debt_deleted_share", "share of the mirror's stored rows that are deleted"),
    Family("lakeward_debt_data_files", "data files of the mirror"),
    Family("lakeward_debt_delete_files", "delete files of the mirror"),
    Family("lakeward_debt_file_bytes", "average size of the mirror's files"),
    Family("lakeward_debt_snapshots", "snapshots that the mirror keeps"),
    Family("lakeward_debt_changelog_files", "data files of the changelog"),
    Family("lakeward_ops_total", "ops published"),
    Family("lakeward_op_seconds_total", "seconds that published ops took"),
    Family("lakeward_rows_applied_total", "good rows of published ops"),
    Family("lakeward_rows_quarantined_total", "rows set aside"),
    Family("lakeward_failures_total", "runs in which the table failed"),
    Family("lakeward_retries_total", "attempts that a temporary error stopped"),
    Family("lakeward_runs_total", "runs", per_table=False),
    Family("lakeward_poison_messages_total", "messages of the watched queue that could not be read", per_table=False),
    Family("lakeward_run_seconds_total", "seconds that runs took", per_table=False),
    Family("lakeward_last_run_timestamp_seconds", "when the last run ended", per_table=False),
)
# Figures that a new process takes over from the file.
_CARRIED = {family.name for family in FAMILIES if family.is_counter} | {_SUCCESS}


class Metrics(SilentObserver):
    """The figures of one lake. ``status`` returns the status of named tables; without it only runs are counted."""

    def __init__(
        self, *, file: Path | None = None, status: Callable[[Sequence[str]], Sequence[TableStatus]] | None = None
    ) -> None:
        self.registry = CollectorRegistry()
        self._file = file
        self._status = status
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._values: dict[tuple[str, str], float] = {}
        self._oldest: dict[str, float | None] = {}
        # By table: its freshness, and when that was judged.
        self._freshness: dict[str, tuple[Freshness, float]] = {}
        self._server: Callable[[], None] | None = None
        if file is not None:
            self._carry_on(file)
        self.registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yield all figures to Prometheus' library, lag and lateness as they are now."""
        now = time.time()
        with self._lock:
            lags = {(_LAG, table): max(0.0, now - oldest) if oldest else 0.0 for table, oldest in self._oldest.items()}
            values = {**self._values, **lags, **self._late(now)}
        for family in FAMILIES:
            labels = (_TABLE,) if family.per_table else ()
            make = CounterMetricFamily if family.is_counter else GaugeMetricFamily
            made = make(family.name, family.help, labels=labels)
            for (_, table), value in sorted(item for item in values.items() if item[0][0] == family.name):
                made.add_metric((table,) if family.per_table else (), value)
            yield made

    def retry(self, table: str, attempt: int, delay: float, error: LakewardError) -> None:
        """Count an attempt that failed."""
        with self._lock:
            self._add("retries_total", table, 1)

    def count_poison(self) -> None:
        """Count a message of the watched queue that could not be read."""
        with self._lock:
            self._add("poison_messages_total", "", 1)

    def run_finished(self, report: RunReport) -> None:
        """Add a run and the status of its tables, and write the file."""
        now = time.time()
        with self._lock:
            self._add("runs_total", "", 1)
            self._add("run_seconds_total", "", report.seconds)
            self._add("poison_messages_total", "", 0)
            self._set("last_run_timestamp_seconds", "", now)
            for table in report.tables:
                self._take_in(table, now)
        try:
            if self._status is not None and report.tables:
                self.observe_status(self._status([table.table for table in report.tables]))
        finally:
            if self._file is not None:
                self.write(self._file)

    def observe_status(self, statuses: Iterable[TableStatus]) -> None:
        """Set the figures that come from the status of tables."""
        now = time.time()
        with self._lock:
            for status in statuses:
                age = status.oldest_pending_seconds
                self._oldest[status.table] = now - age if age is not None else None
                self._set_freshness(status.table, status.freshness, now)
                self._set("pending_files", status.table, status.files_pending)
                self._set("pending_bytes", status.table, status.bytes_pending)
                self._set("quarantined_rows", status.table, status.quarantined)
                self._set("failed", status.table, float(status.state == "failed"))
                if status.rows is not None:
                    self._set("rows", status.table, status.rows)
                if status.debt is not None:
                    self._set_debt(status.table, status.debt)
                if status.changelog_debt is not None:
                    self._set("debt_changelog_files", status.table, status.changelog_debt.data_files)

    def serve(self, port: int, address: str = "127.0.0.1") -> None:
        """Answer /metrics on a port until :meth:`close`.

        Raises:
            ConfigurationError: the port cannot be opened.
        """
        try:
            server, thread = start_http_server(port, address, registry=self.registry)
        except OSError as error:
            msg = f"metrics cannot be served on {address}:{port}: {error.strerror or error}"
            raise ConfigurationError(msg, hint="choose another port: --metrics-port, or metrics: {port: …}") from error

        def stop() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        self._server = stop

    def write(self, path: str | Path) -> None:
        """Write all figures to a text file; readers see the old content or the new."""
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        # Two runs may end at the same time: the later figures must be written last.
        with self._writing:
            write_to_textfile(str(path), self.registry)

    def close(self) -> None:
        """Stop the server."""
        if self._server is not None:
            self._server()
            self._server = None

    def _take_in(self, table: TableReport, now: float) -> None:
        name, is_failed = table.table, table.outcome is Outcome.FAILED
        self._add("ops_total", name, len(table.ops))
        self._add("op_seconds_total", name, sum(op.seconds for op in table.ops))
        self._add("rows_applied_total", name, table.rows_applied)
        self._add("rows_quarantined_total", name, table.rows_quarantined)
        self._add("failures_total", name, int(is_failed))
        self._add("retries_total", name, 0)
        if table.outcome is not Outcome.LOCKED:
            self._set("failed", name, float(is_failed))
            if not is_failed:
                self._values[_SUCCESS, name] = now

    def _late(self, now: float) -> dict[tuple[str, str], float]:
        """Return 1 or 0 for every table that is late or on time: a file that waits makes a table late in time."""
        found = {}
        for table, (freshness, judged) in self._freshness.items():
            is_late = freshness.is_late_after(now - judged)
            if is_late or freshness.is_on_time:
                found[_LATE, table] = float(is_late)
        return found

    def _set_freshness(self, table: str, freshness: Freshness | None, now: float) -> None:
        for name in ("freshness_objective_seconds", "newest_change_timestamp_seconds"):
            self._values.pop((f"lakeward_{name}", table), None)
        if freshness is None:
            self._freshness.pop(table, None)
            return
        self._freshness[table] = freshness, now
        self._set("freshness_objective_seconds", table, freshness.objective_seconds)
        if freshness.newest_change is not None:
            newest = datetime.fromisoformat(freshness.newest_change)
            self._set("newest_change_timestamp_seconds", table, newest.timestamp())

    def _set_debt(self, table: str, debt: Debt) -> None:
        self._set("debt_deleted_share", table, debt.deleted_share)
        self._set("debt_data_files", table, debt.data_files)
        self._set("debt_delete_files", table, debt.delete_files)
        self._set("debt_file_bytes", table, debt.average_file_bytes)
        self._set("debt_snapshots", table, debt.snapshots)

    def _set(self, name: str, table: str, value: float) -> None:
        self._values[f"lakeward_{name}", table] = value

    def _add(self, name: str, table: str, value: float) -> None:
        key = (f"lakeward_{name}", table)
        self._values[key] = self._values.get(key, 0.0) + value

    def _carry_on(self, file: Path) -> None:
        """Continue from the figures that an earlier process has written.

        Raises:
            ConfigurationError: the file holds something else, which would be replaced.
        """
        try:
            families = list(text_string_to_metric_families(file.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            msg = f"{file} exists and cannot be read as metrics: {error}; it is not replaced"
            raise ConfigurationError(msg, hint="name another file: metrics: {file: …}, or move that one") from error
        if others := sorted({family.name for family in families if not family.name.startswith("lakeward_")}):
            msg = f"{file} contains metrics that are not Lakeward's ({', '.join(others[:5])}); it is not replaced"
            raise ConfigurationError(msg, hint="name another file: metrics: {file: …}, or move that one")
        for sample in (sample for family in families for sample in family.samples):
            if sample.name in _CARRIED:
                self._values[sample.name, sample.labels.get(_TABLE, "")] = sample.value
