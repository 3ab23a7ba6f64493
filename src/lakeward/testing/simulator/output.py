"""A simulation on disk: landing tree, truth and a configuration with which ``lakeward run`` works."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from lakeward.arguments import PATH, instance, takes
from lakeward.errors import ConfigurationError
from lakeward.testing.simulator.configuration import LANDING, configuration_of, schema_is_declared
from lakeward.testing.simulator.options import SimulatorOptions
from lakeward.testing.simulator.parquet_writer import render_rows
from lakeward.testing.simulator.simulation import render, write_file
from lakeward.testing.simulator.stream import Capture

if TYPE_CHECKING:
    from lakeward.datatypes import Column
    from lakeward.model import TableId
    from lakeward.testing.simulator.source import SourceTable

TRUTH = "truth"
CONFIGURATION = "lakeward.yaml"
_OPTIONS = instance("SimulatorOptions", SimulatorOptions)


@dataclass(frozen=True)
class SimulationResult:
    """What was written where. ``rows`` counts each table's rows at the end."""

    directory: Path
    landing: Path
    truth: Path
    configuration: Path
    files: int
    changes: int
    rows: dict[TableId, int]


@takes(directory=PATH, options=_OPTIONS)
def write_simulation(directory: str | Path, options: SimulatorOptions) -> SimulationResult:
    """Write a whole simulation, all files landed, with the truth beside it. Any number of changes fits.

    Raises:
        ConfigurationError: the folder has a simulation or other landing files already, or the options leave old load
            parts among new ones, which only who saw them land one after the other can tell apart.
    """
    root = Path(directory)
    _require_usable(root, options)
    capture = Capture(options)
    files = changes = 0
    seen: dict[TableId, set[Column]] = {}
    for file in capture.files():
        write_file(root / LANDING, file.path, render(file), file.written)
        files, changes = files + 1, changes + len(file.changes)
        if file.table is not None:
            seen.setdefault(file.table.id, set()).update(file.columns)
    specs = [table.spec for table in capture.tables]
    _write_truth(root / TRUTH, capture.tables, options, seen)
    text = yaml.safe_dump(configuration_of(specs, options), sort_keys=False, allow_unicode=True)
    (root / CONFIGURATION).write_text(text, encoding="utf-8")
    rows = {table.spec.id: len(table.truth.rows()) for table in capture.tables}
    return SimulationResult(root, root / LANDING, root / TRUTH, root / CONFIGURATION, files, changes, rows)


def _write_truth(
    folder: Path, tables: list[SourceTable], options: SimulatorOptions, seen: dict[TableId, set[Column]]
) -> None:
    """Write every table's rows with the columns its mirror has: undeclared ones show once a file has them."""
    folder.mkdir(parents=True, exist_ok=True)
    for table in tables:
        all_columns = table.spec.all_columns
        declared = schema_is_declared(options) or table.spec.id not in seen
        columns = all_columns if declared else [column for column in all_columns if column in seen[table.spec.id]]
        (folder / f"{table.spec.id}.parquet").write_bytes(render_rows(columns, table.truth.rows()))


def _require_usable(root: Path, options: SimulatorOptions) -> None:
    if options.reload_fewer_parts and options.reloads:
        msg = "reload_fewer_parts cannot be written at once: an old load part would lie beside the new ones"
        raise ConfigurationError(msg)
    for name in (LANDING, TRUTH, CONFIGURATION):
        if (root / name).exists() and not ((root / name).is_dir() and not any((root / name).iterdir())):
            msg = f"{root / name} exists already; a simulation is written into an empty folder"
            raise ConfigurationError(msg, hint="lakeward simulate OTHER_FOLDER")
