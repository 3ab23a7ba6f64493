"""How a version's rows lie in files: the format, and one folder per date or none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward.datatypes import Column

FLAT, DATED = "flat", "dated"
LAYOUTS = (FLAT, DATED)
FORMATS = ("parquet", "csv", "json", "orc")
# The folder of rows without a date, named as Hive and Spark name it.
NO_DATE = "__HIVE_DEFAULT_PARTITION__"
_TIMESTAMPS = ("timestamp", "timestamp_ntz")


@dataclass(frozen=True)
class Shape:
    """Format and layout; ``timezone`` says where the dates of a timestamp column begin."""

    format: str = "parquet"
    layout: str = FLAT
    date_column: str = ""
    timezone: str = "UTC"

    @property
    def is_dated(self) -> bool:
        """Whether there is one folder per date."""
        return self.layout == DATED

    def require_usable(self) -> None:
        """Refuse what contradicts itself.

        Raises:
            ConfigurationError: the layout and the date column do not go together, or a name is not known.
        """
        if self.format not in FORMATS or self.layout not in LAYOUTS:
            msg = f"format {self.format!r}, layout {self.layout!r}: known are {', '.join(FORMATS)} and flat, dated"
            raise ConfigurationError(msg)
        if self.is_dated and not self.date_column:
            msg = "the dated layout needs a date column"
            raise ConfigurationError(msg, hint="--layout dated --date-column COLUMN")
        if self.date_column and not self.is_dated:
            msg = f"a date column ({self.date_column}) is given, but the layout is flat"
            raise ConfigurationError(msg, hint=f"--layout dated --date-column {self.date_column}")

    def folder_column(self, table: str, columns: Sequence[Column]) -> str:
        """Give the name of the date folders for a table's columns; empty for the flat layout.

        Raises:
            ConfigurationError: the date column is not there, is no date, or its folders' name is taken.
        """
        if not self.is_dated:
            return ""
        types = {one.name: one.lake_type for one in columns}
        found = types.get(self.date_column)
        if found is None:
            msg = f"{table} has no column {self.date_column!r}; it has {', '.join(types)}"
            raise ConfigurationError(msg)
        if found == "date":
            return self._from_date(table, columns)
        if found not in _TIMESTAMPS:
            msg = f"{table}: column {self.date_column!r} is of type {found}; folders by date need a date or a timestamp"
            raise ConfigurationError(msg)
        return self._from_timestamp(table, types)

    def _from_date(self, table: str, columns: Sequence[Column]) -> str:
        if len(columns) == 1:
            msg = f"{table}: {self.date_column!r} is its only column; nothing would be left for the files"
            raise ConfigurationError(msg, hint="--layout flat")
        return self.date_column

    def _from_timestamp(self, table: str, types: dict[str, str]) -> str:
        name = f"{self.date_column}_date"
        taken = next((one for one in types if one.casefold() == name.casefold()), None)
        if taken is not None:
            msg = f"{table}: the folders of {self.date_column!r} would be named like its column {taken!r}"
            hint = f"--date-column {taken}" if types[taken] == "date" else "--layout flat"
            raise ConfigurationError(msg, hint=hint)
        return name
