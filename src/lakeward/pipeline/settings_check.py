"""Which of a table's settings name columns that it does not have, or a partition that cannot be."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.lake.iceberg.partitions import partition_problems, renamed_partition

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakeward.config import TableSettings
    from lakeward.datatypes import Column

_NAMING_COLUMNS = ("primary_key", "null_means_unchanged", "before_image_columns")
_SHOWN = 40


@dataclass(frozen=True)
class SettingProblem:
    """One setting that does not fit the table."""

    setting: str
    message: str


def settings_problems(columns: Sequence[Column], settings: TableSettings) -> Iterator[SettingProblem]:
    """Look at every setting that names columns of the table."""
    names = [column.name for column in columns]
    for setting in _NAMING_COLUMNS:
        wanted = getattr(settings, setting) or ()
        yield from _unknown(setting, [name for name in wanted if name not in names], names, settings)
        if repeated := sorted({name for name in wanted if wanted.count(name) > 1}):
            yield SettingProblem(setting, f"{setting} names {', '.join(repeated)} more than once")
    # A rename keeps the partition: either name will do.
    expressions = [renamed_partition(one, settings.renames) for one in settings.partition_by]
    for message, missing in partition_problems(expressions, columns):
        more = "" if missing is None else f"; {nearest(missing, names)}"
        yield SettingProblem("partition_by", f"{message}{more}")


def _unknown(
    setting: str, missing: Sequence[str], names: Sequence[str], settings: TableSettings
) -> Iterator[SettingProblem]:
    for name in missing:
        renamed = settings.renames.get(name)
        meant = f"it was renamed to {renamed}" if renamed in names else nearest(name, names)
        yield SettingProblem(setting, f"{setting} names {name!r}, which is no column of the table; {meant}")


def nearest(name: str, names: Sequence[str]) -> str:
    """Say which name was meant, by case or by spelling, and which names there are."""
    by_case = [one for one in names if one.lower() == name.lower()]
    close = by_case or difflib.get_close_matches(name, names, n=1)
    listed = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
    return f"did you mean {close[0]!r}? columns: {listed}" if close else f"columns: {listed}"
