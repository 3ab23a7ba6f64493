"""Lakeward as a library."""

from lakeward.api.lake import Lakeward

__all__ = ["Lakeward"]
