"""A small sample shop as DMS would land it: data that is the same every time, and what must come of it."""

from __future__ import annotations

from lakeward.demo.project import MARK, TABLES, DemoTable, land_changes, write_demo

__all__ = ["MARK", "TABLES", "DemoTable", "land_changes", "write_demo"]
