"""``lakeward.yaml``: what it may hold, and reading it."""

from lakeward.config.loading import (
    DEFAULT_FILE,
    ENVIRONMENT_PREFIX,
    Config,
    LakeSettings,
    RetrySettings,
    SparkSettings,
    explain_settings,
    load_config,
    merge_settings,
    parse_config,
    read_config,
)
from lakeward.config.tables import CsvSettings, FilesSettings, PublishSettings, TableDefaults, TableSettings

__all__ = [
    "DEFAULT_FILE",
    "ENVIRONMENT_PREFIX",
    "Config",
    "CsvSettings",
    "FilesSettings",
    "LakeSettings",
    "PublishSettings",
    "RetrySettings",
    "SparkSettings",
    "TableDefaults",
    "TableSettings",
    "explain_settings",
    "load_config",
    "merge_settings",
    "parse_config",
    "read_config",
]
