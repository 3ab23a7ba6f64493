"""A seeded simulator of sources and their capture: landing files in stages, and the rows they must result in."""

from __future__ import annotations

from lakeward.testing.simulator.options import SimulatorOptions, random_options
from lakeward.testing.simulator.simulation import Landing, LandingStage, Simulation, SimulationResult, write_simulation
from lakeward.testing.simulator.tables import TableSpec

__all__ = [
    "Landing",
    "LandingStage",
    "Simulation",
    "SimulationResult",
    "SimulatorOptions",
    "TableSpec",
    "random_options",
    "write_simulation",
]
