"""The configured catalog (SQLite, Hadoop, REST or Glue) as Spark settings, and a check of a warehouse in S3."""

from __future__ import annotations

import re
import uuid
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from lakeward.config.base import from_environment
from lakeward.config.services import create_file, create_folder
from lakeward.errors import ConfigurationError
from lakeward.redaction import holds_login, redact_address
from lakeward.storage.s3 import DEFAULT_REGION, S3FileSystem, S3Location, hadoop_s3_settings, is_s3

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakeward.config import Config


# Fixed: an Iceberg JDBC catalog stores its name in every row, so other engines must use the same name.
CATALOG_NAME = "lake"
CATALOG_KEY = f"spark.sql.catalog.{CATALOG_NAME}"

S3_FILE_IO = "org.apache.iceberg.aws.s3.S3FileIO"
# Characters at which that client cuts an address off.
CUT_OFF_CHARACTERS = ("?", "#")

# How long a writer waits for a locked catalog file.
SQLITE_BUSY_TIMEOUT_MS = 30_000


class CatalogKind(StrEnum):
    """The catalogs that Lakeward supports, by the scheme of ``lake.catalog``."""

    SQLITE = "sqlite"
    HADOOP = "hadoop"
    REST = "rest"
    GLUE = "glue"


KNOWN_CATALOGS = (
    "sqlite:///lake/catalog.db (four slashes for an absolute path)",
    "hadoop:///lake/data (or hadoop://s3a://bucket/prefix)",
    "rest+https://host/path",
    "glue:// (or glue://ACCOUNT?region=REGION)",
)
_SCHEMES = {
    "sqlite": CatalogKind.SQLITE,
    "hadoop": CatalogKind.HADOOP,
    "rest+http": CatalogKind.REST,
    "rest+https": CatalogKind.REST,
    "glue": CatalogKind.GLUE,
}


def catalog_kind(config: Config) -> CatalogKind:
    """Return the kind of the configured catalog.

    Raises:
        ConfigurationError: its scheme is not known.
    """
    scheme, separator, _ = config.lake.catalog.partition("://")
    kind = _SCHEMES.get(scheme) if separator else None
    if kind is None:
        raise _refused(config, "is of an unknown kind")
    return kind


def is_on_s3(config: Config) -> bool:
    """Whether the lake's files are in S3, according to the configuration.

    A REST catalog decides itself where files are: an ``s3:`` block declares that they are in S3.
    """
    kind = catalog_kind(config)
    if kind is CatalogKind.HADOOP and (location := hadoop_location(config)):
        return is_s3(location)
    return (
        kind is CatalogKind.GLUE
        or is_s3(config.lake.warehouse)
        or (kind is CatalogKind.REST and "s3" in config.model_fields_set)
    )


def publishes_to_s3(config: Config) -> bool:
    """Whether any declared table is published to S3, or has scheduled snapshots there, as defaults may have."""
    copies = [table.publish.to for table in config.tables.values() if table.publish is not None]
    scheduled = [table.snapshots.to for table in (config.defaults, *config.tables.values())]
    return any(is_s3(to) for to in (*copies, *scheduled) if to is not None)


def hadoop_location(config: Config) -> str:
    """Return what follows ``hadoop://``: the catalog's location, or an empty text for the warehouse."""
    return config.lake.catalog.removeprefix("hadoop://")


def catalog_conf(config: Config) -> dict[str, str]:
    """Return the Spark settings of the catalog named ``lake``; create the folders and the file of a local one.

    Raises:
        ConfigurationError: the catalog is of an unknown kind or is incomplete, a secret is not set, or an address
            contains a password.
    """
    kind = catalog_kind(config)
    for place in (config.lake.warehouse, hadoop_location(config) if kind is CatalogKind.HADOOP else ""):
        if holds_login(place):
            msg = f"{redact_address(place)} holds a password: the lake's metadata would name all files by it"
            raise ConfigurationError(msg, hint="leave it out; keys of S3 are set under s3: (docs/s3.md)")
    properties = {
        **(s3_properties(config, kind) if is_on_s3(config) else {}),
        **_PROPERTIES[kind](config),
        # A table cached in another session is stale: it lacks new branches and snapshots.
        "cache-enabled": "false",
        **{name: from_environment(value, f"lake.properties {name}") for name, value in config.lake.properties.items()},
    }
    own = {f"{CATALOG_KEY}.{name}": value for name, value in properties.items()}
    return {CATALOG_KEY: "org.apache.iceberg.spark.SparkCatalog", **own}


def sqlite_file(config: Config) -> Path:
    """Return the absolute path of a SQLite catalog's file."""
    return _local_path(config, config.lake.catalog.removeprefix("sqlite://"))


def _sqlite_properties(config: Config) -> dict[str, str]:
    file = sqlite_file(config)
    if "?" in str(file):
        raise _refused(config, "holds a '?', which the SQLite driver reads as the start of its options")
    with _creation_errors(file):
        create_folder(file.parent, config.file_access)
        create_file(file, config.file_access)
    return {
        "type": "jdbc",
        "uri": f"jdbc:sqlite:{file}?busy_timeout={SQLITE_BUSY_TIMEOUT_MS}",
        # V1 is the layout that pyiceberg reads and writes, too.
        "jdbc.schema-version": "V1",
        "warehouse": _warehouse(config),
    }


def _hadoop_properties(config: Config) -> dict[str, str]:
    location = hadoop_location(config)
    if location and "://" not in location:
        folder = _local_path(config, location)
        _create_folder(folder)
        return {"type": "hadoop", "warehouse": str(folder)}
    place = location or _warehouse(config)
    # Hadoop's scheme for S3 is s3a.
    return {"type": "hadoop", "warehouse": re.sub("^s3:", "s3a:", place)}


def _rest_properties(config: Config) -> dict[str, str]:
    properties = {"type": "rest", "uri": config.lake.catalog.removeprefix("rest+")}
    # For a REST catalog a warehouse is a name, not a folder: the default has no meaning there.
    if "warehouse" in config.lake.model_fields_set:
        properties["warehouse"] = config.lake.warehouse
    return properties


def s3_properties(config: Config, kind: CatalogKind) -> dict[str, str]:
    """Return the catalog properties for files in S3, for Iceberg's client or, in a Hadoop catalog, for Hadoop's."""
    if kind is CatalogKind.HADOOP:
        # Set for this catalog only: the application's settings are shared by all its lakes.
        return {f"hadoop.{name}": value for name, value in hadoop_s3_settings(config.s3, config.s3.keys()).items()}
    if any(character in config.lake.warehouse for character in CUT_OFF_CHARACTERS):
        msg = (
            f"lake.warehouse {config.lake.warehouse!r} holds a '?' or '#', where Iceberg cuts the path of its files off"
        )
        raise ConfigurationError(msg, hint="choose a prefix without them")
    settings, keys = config.s3, config.s3.keys()
    properties = {
        "io-impl": S3_FILE_IO,
        # The Java runtime's client: the pinned jars do not include Iceberg's default.
        "http-client.type": "urlconnection",
        "s3.path-style-access": str(settings.is_path_style).lower(),
        "s3.endpoint": settings.endpoint,
        # Stores other than AWS have no region, but Amazon's client requires one.
        "client.region": settings.region or (DEFAULT_REGION if settings.endpoint else None),
        "s3.access-key-id": keys.access if keys else None,
        "s3.secret-access-key": keys.secret if keys else None,
        "s3.session-token": keys.token if keys else None,
    }
    return {name: value for name, value in properties.items() if value is not None}


def _glue_properties(config: Config) -> dict[str, str]:
    if not is_s3(config.lake.warehouse):
        msg = f"lake.warehouse is {config.lake.warehouse!r}; a Glue catalog needs an s3:// location"
        raise ConfigurationError(msg, hint="set lake.warehouse to s3://bucket/prefix")
    account, _, query = config.lake.catalog.removeprefix("glue://").partition("?")
    options = dict(parse_qsl(query))
    if unknown := sorted(options.keys() - {"region"}):
        raise _refused(config, f"has the unknown option {unknown[0]!r}")
    properties = {
        "catalog-impl": "org.apache.iceberg.aws.glue.GlueCatalog",
        "warehouse": config.lake.warehouse,
    }
    if account.strip("/"):
        properties["glue.id"] = account.strip("/")
    if "region" in options:
        properties["client.region"] = options["region"]
    return properties


_PROPERTIES = {
    CatalogKind.SQLITE: _sqlite_properties,
    CatalogKind.HADOOP: _hadoop_properties,
    CatalogKind.REST: _rest_properties,
    CatalogKind.GLUE: _glue_properties,
}


def _warehouse(config: Config) -> str:
    location = config.resolve(config.lake.warehouse)
    if "://" not in location:
        _create_folder(Path(location))
    return location


def _local_path(config: Config, rest: str) -> Path:
    """Read what follows ``scheme://`` as database URLs do: ``/relative/path`` or ``//absolute/path``."""
    if not rest.startswith("/") or not rest.strip("/"):
        raise _refused(config, "names no path")
    return Path(config.resolve(rest[1:]))


def _create_folder(folder: Path) -> None:
    """Create a folder of data files with the permissions of the umask, unless it exists."""
    with _creation_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)


@contextmanager
def _creation_errors(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        msg = f"cannot create {place} for the lake: {error.strerror}"
        raise ConfigurationError(msg, hint="check lake.catalog and lake.warehouse") from error


def _refused(config: Config, problem: str) -> ConfigurationError:
    msg = f"lake.catalog {redact_address(config.lake.catalog)!r} {problem}; known: {'; '.join(KNOWN_CATALOGS)}"
    return ConfigurationError(msg)


# Checking a warehouse in S3 without Spark.


def s3_warehouse(config: Config) -> str | None:
    """Return the location of the lake's files in S3; None where the catalog decides, or they are elsewhere."""
    kind = catalog_kind(config)
    if kind is CatalogKind.REST or not is_on_s3(config):
        return None
    return (hadoop_location(config) if kind is CatalogKind.HADOOP else None) or config.lake.warehouse


def probe_s3_warehouse(config: Config, warehouse: str) -> None:
    """Put, list, read and delete one small object in the warehouse.

    Raises:
        ConfigurationError: a request is refused; names the address and the remedy.
        RetriableError: S3 does not answer.
    """
    folder = S3Location.parse(warehouse, "lake.warehouse").uri
    store, name = S3FileSystem(config.s3), f"lakeward-doctor-{uuid.uuid4().hex}"
    store.write_text(f"{folder}/{name}", "lakeward doctor")
    try:
        store.files(f"{folder}/{name}")
    finally:
        store.remove(folder, [name])
