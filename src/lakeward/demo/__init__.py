"""A small sample shop as DMS would land it: always the same data, and the rows that must result."""

from __future__ import annotations

from lakeward.demo.project import MARK, TABLES, DemoTable, land_changes, write_demo

__all__ = ["MARK", "TABLES", "DemoTable", "land_changes", "write_demo"]
