"""A seeded simulator of sources and their capture: landing files in stages, and the truth they must give."""

from __future__ import annotations

from lakeward.testing.simulator.options import SimulatorOptions, random_options
from lakeward.testing.simulator.simulation import Landing, Simulation, SimulationResult, Stage, write_simulation
from lakeward.testing.simulator.tables import TableSpec

__all__ = [
    "Landing",
    "Simulation",
    "SimulationResult",
    "SimulatorOptions",
    "Stage",
    "TableSpec",
    "random_options",
    "write_simulation",
]
