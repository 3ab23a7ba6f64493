"""Renaming columns in a catalog that takes changes of today's schema only; the others are tested with Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lakeward.errors import ConfigurationError
from lakeward.iceberg.define import rename_everywhere


class RestTable:
    """An Iceberg table as a REST catalog hands it out, with these columns."""

    identifier = "lake.sales.product"

    def __init__(self, *names: str) -> None:
        self.names = names
        self.changes: list[tuple[str, ...]] = []

    def load(self) -> Any:
        fields = [SimpleNamespace(name=lambda name=name: name) for name in self.names]
        kind = SimpleNamespace(getSimpleName=lambda: "RESTTableOperations")
        return SimpleNamespace(
            schema=lambda: SimpleNamespace(columns=lambda: fields),
            operations=lambda: SimpleNamespace(getClass=lambda: kind),
            updateSchema=lambda: self,
        )

    def renameColumn(self, old: str, new: str) -> None:  # noqa: N802 - Iceberg's own name
        self.changes.append(("rename", old, new))

    def deleteColumn(self, name: str) -> None:  # noqa: N802 - Iceberg's own name
        self.changes.append(("delete", name))

    def commit(self) -> None:
        self.changes.append(("commit",))


def test_names_that_differ_in_case_are_renamed_once() -> None:
    table = RestTable("id", "v", "V", "ts", "done")
    rename_everywhere(table, {"V": "V_2", "gone": "x", "v": "done"}, ("ts", "no column"))  # type: ignore[arg-type]
    assert table.changes == [("rename", "V", "V_2"), ("delete", "ts"), ("commit",)]


def test_names_that_iceberg_does_not_read_cannot_be_repaired_there() -> None:
    table = RestTable("id", "_file")
    with pytest.raises(ConfigurationError, match="keeps the schemas of earlier snapshots") as raised:
        rename_everywhere(table, {"_file": "file"})  # type: ignore[arg-type]
    assert table.changes == [] and "run again" in (raised.value.hint or "")
