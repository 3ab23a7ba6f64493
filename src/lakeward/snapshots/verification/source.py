"""Another copy of a table as a frame: a table in a database, or a folder of files."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeward.errors import ConfigurationError, DataError
from lakeward.snapshots.verification.report import PASSWORD_VARIABLE, USER_VARIABLE
from lakeward.snapshots.versions.files import VERSION_PREFIX
from lakeward.snapshots.versions.manifest import MANIFEST
from lakeward.snapshots.versions.reading import find_version
from lakeward.spark.errors import any_failure, translated
from lakeward.spark.jvm import has_class
from lakeward.storage.filesystem import for_reading, open_filesystem

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame

    from lakeward.pipeline.context import TableContext
    from lakeward.snapshots.verification.report import Against

USER_SETTING, PASSWORD_SETTING = "spark.lakeward.against.user", "spark.lakeward.against.password"
_DRIVERS = {
    "postgresql": "org.postgresql.Driver",
    "redshift": "com.amazon.redshift.jdbc42.Driver",
    "mysql": "com.mysql.cj.jdbc.Driver",
    "mariadb": "org.mariadb.jdbc.Driver",
    "sqlserver": "com.microsoft.sqlserver.jdbc.SQLServerDriver",
    "oracle": "oracle.jdbc.OracleDriver",
    "db2": "com.ibm.db2.jcc.DB2Driver",
    "sqlite": "org.sqlite.JDBC",
}
_BACKQUOTED = ("mysql", "mariadb")
_FILE_FORMAT = re.compile(r"\.(parquet|orc|csv|json)(?:\.\w+)?$")
_FETCHED_ROWS = "10000"
# Nothing is inferred but names: texts are read as the types that the mirror has.
_TEXT_OPTIONS = {
    "csv": {"header": "true", "multiLine": "true", "escape": '"', "mode": "FAILFAST"},
    "json": {"primitivesAsString": "true", "mode": "FAILFAST"},
}
_PARTITION_TYPES = "spark.sql.sources.partitionColumnTypeInference.enabled"


@dataclass(frozen=True)
class OtherSide:
    """The other copy. ``is_text``: its values are texts that must be read as the mirror's types."""

    rows: DataFrame
    is_text: bool = False


def open_other(context: TableContext, against: Against) -> OtherSide:
    """Open the other copy for reading.

    Raises:
        ConfigurationError: it cannot be reached or is nothing that can be compared with.
    """
    msg = f"{context.table}: {shown_location(against)} cannot be read"
    hint = "check the address, the table's name and the user's rights"
    with translated(any_failure(DataError, msg, hint=hint)):
        return _database(context, against) if against.is_jdbc else _folder(context, against)


def shown_location(against: Against) -> str:
    """Give the other copy's address without what follows the database's name, where drivers take secrets."""
    return re.split(r"[?;]", against.location, maxsplit=1)[0] if against.is_jdbc else against.location


def _database(context: TableContext, against: Against) -> OtherSide:
    """Read a table by one query: several would see several states of a database that goes on working."""
    kind = against.location.split(":")[1]
    driver = context.spark.conf.get("spark.lakeward.against.driver", None) or _DRIVERS.get(kind)
    if driver is None:
        msg = f"--against {shown_location(against)}: the driver of {kind!r} is not known; known: {', '.join(_DRIVERS)}"
        raise ConfigurationError(msg, hint="spark: {conf: {spark.lakeward.against.driver: CLASS}}")
    _require_driver(context, kind, driver)
    mark = "`" if kind in _BACKQUOTED else '"'
    named = against.table or ".".join(f"{mark}{one}{mark}" for one in (context.table.schema, context.table.name))
    options = {
        "url": against.location,
        "driver": driver,
        "dbtable": named,
        "fetchsize": _FETCHED_ROWS,
        # A time without zone is no instant.
        "preferTimestampNTZ": "true",
        **_credentials(context),
    }
    return OtherSide(context.spark.read.format("jdbc").options(**options).load())


def _credentials(context: TableContext) -> dict[str, str]:
    found = {
        "user": os.environ.get(USER_VARIABLE) or context.spark.conf.get(USER_SETTING, None),
        "password": os.environ.get(PASSWORD_VARIABLE) or context.spark.conf.get(PASSWORD_SETTING, None),
    }
    return {name: value for name, value in found.items() if value}


def _require_driver(context: TableContext, kind: str, driver: str) -> None:
    if not has_class(context.spark, driver):
        msg = f"the JDBC driver {driver} of {kind!r} is not on Spark's class path"
        hint = "spark: {conf: {spark.jars.packages: GROUP:ARTIFACT:VERSION}}, or spark.driver.extraClassPath: FILE"
        raise ConfigurationError(msg, hint=hint)


def _folder(context: TableContext, against: Against) -> OtherSide:
    location = context.config.resolve(against.location).rstrip("/")
    store = open_filesystem(context.spark, context.config, location)
    present = store.files(location)
    if MANIFEST in present or location.rpartition("/")[2].startswith(VERSION_PREFIX):
        return OtherSide(find_version(store, location).read(context.spark))
    if several := sorted(name for name in store.folders(location) if name.startswith(VERSION_PREFIX)):
        msg = f"{context.table}: {location} holds versions of a table: {', '.join(several[:5])}"
        raise ConfigurationError(msg, hint=f"name one: --against {location}/{several[-1]}")
    file_format = _format_of(context, location, present)
    with context.spark_settings({_PARTITION_TYPES: "false"}):
        reader = context.spark.read.format(file_format).options(**store.options, **_TEXT_OPTIONS.get(file_format, {}))
        return OtherSide(reader.load(for_reading(store.for_spark(location))), is_text=file_format in _TEXT_OPTIONS)


def _format_of(context: TableContext, location: str, present: Iterable[str]) -> str:
    """Tell a folder's format by the names of its files."""
    visible = (path for path in present if not path.rpartition("/")[2].startswith(("_", ".")))
    found = {match[1] for path in visible if (match := _FILE_FORMAT.search(path))}
    if len(found) != 1:
        what = f"files of several formats ({', '.join(sorted(found))})" if found else "no such files"
        msg = f"{context.table}: --against names a folder of Parquet, ORC, CSV or JSON files; {location} has {what}"
        raise ConfigurationError(msg, hint="name the folder that holds the files, or a published version")
    return found.pop()
