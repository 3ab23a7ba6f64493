"""What ``lakeward diff`` does between its options and its output."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakeward.cassandra.snapshots import shown_like_cql
from lakeward.cli.diff_options import ALL_COLUMNS
from lakeward.diffing.comparison import keys_of
from lakeward.diffing.free_names import with_free_names
from lakeward.diffing.inputs.addresses import absolute
from lakeward.diffing.running import Wanted, run_comparison
from lakeward.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakeward.api.sides import SideDesk
    from lakeward.diffing.inputs.sides import Side
    from lakeward.diffing.options import DiffOptions
    from lakeward.diffing.running import DiffResult


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
        report = Path(choices["report"]).absolute() if choices["report"] else None
        if report is not None and not report.parent.is_dir():
            msg = f"there is no folder for the report {choices['report']}"
            raise ConfigurationError(msg)
        if report is not None and report.is_dir():
            msg = f"{choices['report']} is a folder, and the report is a file"
            raise ConfigurationError(msg, hint=f"--report {choices['report'].rstrip('/')}/diff.html")
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

    def wanted(self) -> Wanted:
        """Say what shall come out."""
        choices = self.choices
        return Wanted(
            to=absolute(choices["to"]) if choices["to"] else None,
            format=choices["format_"],
            max_delete_share=choices["max_delete_share"],
            limit=self.limit,
            report=choices["report"],
            plan=choices["plan"],
            exact=choices["exact"],
        )


def run_diff(desk: SideDesk, request: DiffRequest) -> DiffResult:
    """Compare, write what shall be written, and give what shall be shown."""
    past, current = request.open(desk, "past"), request.open(desk, "current")
    keys = () if request.keys == (ALL_COLUMNS,) else keys_of(past, current, request.keys)
    columns = list(dict.fromkeys((*past.frame.columns, *current.frame.columns)))
    options = with_free_names(request.options, keys, columns)
    wanted = replace(request.wanted(), shown=shown_like_cql(past, current))
    return run_comparison(desk.config, past, current, keys, options, wanted)
