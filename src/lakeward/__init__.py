"""Lakeward keeps an exact, queryable copy of operational databases in a data lake.

Public names are loaded at first use: Spark tasks and quick commands import parts of the package and need not pay
for all of it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakeward.api import (
        Lakeward as Lakeward,
    )
    from lakeward.config import (
        Config as Config,
    )
    from lakeward.config import (
        TableSettings as TableSettings,
    )
    from lakeward.config import (
        load_config as load_config,
    )
    from lakeward.diffing.comparators import (
        Bitwise as Bitwise,
    )
    from lakeward.diffing.comparators import (
        Comparator as Comparator,
    )
    from lakeward.diffing.comparators import (
        Duration as Duration,
    )
    from lakeward.diffing.comparators import (
        Epsilon as Epsilon,
    )
    from lakeward.diffing.comparators import (
        Equality as Equality,
    )
    from lakeward.diffing.comparators import (
        MapEntries as MapEntries,
    )
    from lakeward.diffing.comparators import (
        Whitespace as Whitespace,
    )
    from lakeward.diffing.composing import (
        compose as compose,
    )
    from lakeward.diffing.frames import (
        diff as diff,
    )
    from lakeward.diffing.options import (
        DiffMode as DiffMode,
    )
    from lakeward.diffing.options import (
        DiffOptions as DiffOptions,
    )
    from lakeward.diffing.options import (
        DuplicateKeys as DuplicateKeys,
    )
    from lakeward.diffing.patching import (
        patch as patch,
    )
    from lakeward.diffing.reversing import (
        reverse as reverse,
    )
    from lakeward.errors import (
        BadRowError as BadRowError,
    )
    from lakeward.errors import (
        BugError as BugError,
    )
    from lakeward.errors import (
        ChangedFileError as ChangedFileError,
    )
    from lakeward.errors import (
        ConfigurationError as ConfigurationError,
    )
    from lakeward.errors import (
        ConflictError as ConflictError,
    )
    from lakeward.errors import (
        CutError as CutError,
    )
    from lakeward.errors import (
        DataError as DataError,
    )
    from lakeward.errors import (
        DeleteShareError as DeleteShareError,
    )
    from lakeward.errors import (
        LakewardError as LakewardError,
    )
    from lakeward.errors import (
        LeaseHeldError as LeaseHeldError,
    )
    from lakeward.errors import (
        RefusedInputError as RefusedInputError,
    )
    from lakeward.errors import (
        RetriableError as RetriableError,
    )
    from lakeward.errors import (
        SchemaError as SchemaError,
    )
    from lakeward.errors import (
        VanishedError as VanishedError,
    )
    from lakeward.pipeline.context import (
        RunOptions as RunOptions,
    )
    from lakeward.pipeline.report import (
        OpReport as OpReport,
    )
    from lakeward.pipeline.report import (
        Outcome as Outcome,
    )
    from lakeward.pipeline.report import (
        RunReport as RunReport,
    )
    from lakeward.pipeline.report import (
        TablePlan as TablePlan,
    )
    from lakeward.pipeline.report import (
        TableReport as TableReport,
    )

__version__ = "0.1.0"

_HOME = {
    "Lakeward": "lakeward.api",
    "Config": "lakeward.config",
    "TableSettings": "lakeward.config",
    "load_config": "lakeward.config",
    "Bitwise": "lakeward.diffing.comparators",
    "Comparator": "lakeward.diffing.comparators",
    "Duration": "lakeward.diffing.comparators",
    "Epsilon": "lakeward.diffing.comparators",
    "Equality": "lakeward.diffing.comparators",
    "MapEntries": "lakeward.diffing.comparators",
    "Whitespace": "lakeward.diffing.comparators",
    "DiffMode": "lakeward.diffing.options",
    "DiffOptions": "lakeward.diffing.options",
    "DuplicateKeys": "lakeward.diffing.options",
    "compose": "lakeward.diffing.composing",
    "diff": "lakeward.diffing.frames",
    "patch": "lakeward.diffing.patching",
    "reverse": "lakeward.diffing.reversing",
    "BadRowError": "lakeward.errors",
    "BugError": "lakeward.errors",
    "ChangedFileError": "lakeward.errors",
    "ConfigurationError": "lakeward.errors",
    "ConflictError": "lakeward.errors",
    "CutError": "lakeward.errors",
    "DataError": "lakeward.errors",
    "DeleteShareError": "lakeward.errors",
    "LakewardError": "lakeward.errors",
    "LeaseHeldError": "lakeward.errors",
    "RefusedInputError": "lakeward.errors",
    "RetriableError": "lakeward.errors",
    "SchemaError": "lakeward.errors",
    "VanishedError": "lakeward.errors",
    "RunOptions": "lakeward.pipeline.context",
    "OpReport": "lakeward.pipeline.report",
    "Outcome": "lakeward.pipeline.report",
    "RunReport": "lakeward.pipeline.report",
    "TablePlan": "lakeward.pipeline.report",
    "TableReport": "lakeward.pipeline.report",
}

__all__ = [
    "BadRowError",
    "Bitwise",
    "BugError",
    "ChangedFileError",
    "Comparator",
    "Config",
    "ConfigurationError",
    "ConflictError",
    "CutError",
    "DataError",
    "DeleteShareError",
    "DiffMode",
    "DiffOptions",
    "DuplicateKeys",
    "Duration",
    "Epsilon",
    "Equality",
    "Lakeward",
    "LakewardError",
    "LeaseHeldError",
    "MapEntries",
    "OpReport",
    "Outcome",
    "RefusedInputError",
    "RetriableError",
    "RunOptions",
    "RunReport",
    "SchemaError",
    "TablePlan",
    "TableReport",
    "TableSettings",
    "VanishedError",
    "Whitespace",
    "compose",
    "diff",
    "load_config",
    "patch",
    "reverse",
]


def __getattr__(name: str) -> object:
    """Load a public name from its module."""
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    msg = f"module 'lakeward' has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return sorted(__all__)
