"""The jars that Spark needs: pinned by coordinate and checksum, fetched once into a cache.

``LAKEWARD_JARS=<dir>`` serves machines without network. Otherwise ``<cache>/jars`` is used, where the cache is
``LAKEWARD_CACHE``, ``$XDG_CACHE_HOME/lakeward`` or ``~/.cache/lakeward``, and what it lacks is fetched by the
resolver inside Spark. A jar is used only when its size and SHA-256 are the pinned ones.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lakeward.errors import ConfigurationError
from lakeward.lake.iceberg import ivy
from lakeward.lake.iceberg.catalog import CatalogKind

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True)
class Jar:
    """One jar as it must be, to the byte."""

    coordinate: str
    size: int
    sha256: str

    @property
    def file_name(self) -> str:
        """The jar's file name: artifact and version."""
        _, artifact, version = self.coordinate.split(":")
        return f"{artifact}-{version}.jar"


# Which Iceberg runtime goes with the installed pyspark; its first two version numbers choose.
ICEBERG_BY_SPARK = {
    "4.1": Jar(
        "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
        48_309_426,
        "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82",
    ),
    "3.5": Jar(
        "org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.12.0",
        48_252_525,
        "8dd8c90e54ed1a20f2461309d047a255ee56382eb7c0a46162b27a4936fd86dc",
    ),
}
SQLITE_JDBC = Jar(
    "org.xerial:sqlite-jdbc:3.50.3.0",
    14_346_720,
    "a3f53a2aa15ae9425a9e793bbe9c8e5288febeb4b65ef5c1a4e80d4c2045cf08",
)


def iceberg_runtime(spark_version: str) -> Jar:
    """Choose the Iceberg runtime built for a Spark version."""
    jar = ICEBERG_BY_SPARK.get(".".join(spark_version.split(".")[:2]))
    if jar is None:
        known = " and ".join(f"{version}.x" for version in ICEBERG_BY_SPARK)
        msg = f"pyspark {spark_version} is installed; Lakeward knows the Iceberg runtime for {known}"
        raise ConfigurationError(msg, hint="install pyspark 4.1.x")
    return jar


def required_jars(kind: CatalogKind) -> tuple[Jar, ...]:
    """List the jars that a catalog of this kind needs under the installed pyspark."""
    runtime = iceberg_runtime(importlib.metadata.version("pyspark"))
    return (runtime, SQLITE_JDBC) if kind is CatalogKind.SQLITE else (runtime,)


def resolve_jars(kind: CatalogKind) -> list[Path]:
    """Give the paths of all jars for a catalog of this kind, fetching what the cache lacks.

    Raises:
        ConfigurationError: a jar is missing or damaged and cannot be fetched; names its coordinate and the remedy.
    """
    jars = required_jars(kind)
    if provided := os.environ.get("LAKEWARD_JARS"):
        return [_provided(jar, Path(provided).expanduser().resolve()) for jar in jars]
    folder = cache_folder() / "jars"
    missing = [jar for jar in jars if damage(jar, folder / jar.file_name) is not None]
    if missing:
        _fetch(missing, folder)
    return [folder / jar.file_name for jar in jars]


def cache_folder() -> Path:
    """Give the folder of everything Lakeward fetches once."""
    if chosen := os.environ.get("LAKEWARD_CACHE"):
        return Path(chosen).expanduser().resolve()
    if chosen := os.environ.get("XDG_CACHE_HOME"):
        return Path(chosen).expanduser().resolve() / "lakeward"
    return Path.home() / ".cache" / "lakeward"


def damage(jar: Jar, path: Path) -> str | None:
    """Say what is wrong with the file that should be this jar; None when it is the jar.

    A verified file is remembered by size and time, so that a start does not hash 60 MB again.
    """
    marker = _marker(path)
    with contextlib.suppress(OSError):
        if marker.read_text(encoding="utf-8") == _token(jar, path):
            return None
    problem = _defect(jar, path)
    if problem is None:
        _remember(marker, _token(jar, path))
    return problem


def _defect(jar: Jar, path: Path) -> str | None:
    try:
        size = path.stat().st_size
    except OSError:
        return "missing"
    if size != jar.size:
        return f"a half or foreign file of {size:,} bytes instead of {jar.size:,}"
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    return None if found == jar.sha256 else "a file with another checksum than the pinned one"


def _token(jar: Jar, path: Path) -> str:
    status = path.stat()
    return f"{jar.sha256} {status.st_size} {status.st_mtime_ns}"


def _provided(jar: Jar, folder: Path) -> Path:
    path = folder / jar.file_name
    if (problem := damage(jar, path)) is not None:
        msg = f"LAKEWARD_JARS={folder}: {jar.file_name} ({jar.coordinate}) is {problem}"
        raise ConfigurationError(msg, hint=f"copy {jar.file_name} there, or unset LAKEWARD_JARS to fetch it")
    return path


def _fetch(jars: Iterable[Jar], folder: Path) -> None:
    """Fetch jars into a folder of this process alone, check them, and move each into place in one step."""
    wanted = {jar.file_name: jar for jar in jars}
    with ivy.work_folder(folder.parent) as work:
        fetched = ivy.fetch([jar.coordinate for jar in wanted.values()], work)
        for name, jar in wanted.items():
            file = next((file for file in fetched if file.name.endswith(name)), work / name)
            if (problem := _defect(jar, file)) is not None:
                raise ivy.unresolved([jar.coordinate], f"what was fetched is {problem}")
            _publish(file, folder / name)
            _remember(_marker(folder / name), _token(jar, folder / name))


def _publish(file: Path, target: Path) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        file.replace(target)
    except OSError as error:
        msg = f"cannot write {target}: {error.strerror}"
        raise ConfigurationError(msg, hint="set LAKEWARD_CACHE to a folder that can be written") from error


def _marker(path: Path) -> Path:
    """Markers live in the cache, because a folder given by LAKEWARD_JARS may be read-only."""
    place = hashlib.sha256(str(path).encode()).hexdigest()[:16]
    return cache_folder() / "verified" / f"{path.name}.{place}"


def _remember(marker: Path, token: str) -> None:
    """Write the marker in one step; without it the jar is only hashed again."""
    draft = marker.with_name(f"{marker.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        marker.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(token, encoding="utf-8")
        draft.replace(marker)


if __name__ == "__main__":
    # Used by the set-up script, so that the first run of the command does not have to wait for the network.
    try:
        for resolved in resolve_jars(CatalogKind.SQLITE):
            print(resolved)
    except ConfigurationError as refused:
        sys.exit(str(refused))
