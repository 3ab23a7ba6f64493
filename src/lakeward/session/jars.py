"""The jars that Spark needs: pinned by coordinate and checksum, fetched once into a cache.

``LAKEWARD_JARS=<dir>`` is for machines without network. Otherwise ``<cache>/jars`` is used, where the cache is
``LAKEWARD_CACHE``, ``$XDG_CACHE_HOME/lakeward`` or ``~/.cache/lakeward``, and what it lacks is fetched by the
resolver inside Spark. A jar is used only when its size and SHA-256 are the pinned ones.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

from lakeward.errors import ConfigurationError
from lakeward.session.catalog import CatalogKind, catalog_kind, is_on_s3, publishes_to_s3
from lakeward.session.launching import require_java

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lakeward.config import Config


# Fetching jars with the resolver inside Spark, separate from the user's own Maven and Ivy caches.


FETCH_TIMEOUT_SECONDS = 900
_UNREACHABLE = re.compile(r"Server access error.*?\((?P<reason>[^()]*)\)|UnknownHostException: (?P<host>\S+)")
_INCOMPLETE = re.compile(r"\[(?:FAILED|NOT FOUND)\s*\].*|download failed: .*")
_FAILURE = re.compile(r"Exception.*?: (?P<reason>.*)")
# Variables of another Spark installation, which would be started instead of the installed pyspark.
_FOREIGN = ("SPARK_HOME", "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "PYSPARK_SUBMIT_ARGS", "SPARK_REMOTE")


@contextmanager
def work_folder(cache: Path) -> Iterator[Path]:
    """Create a temporary folder on the file system of the cache, so that moving a file from it is atomic."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="fetch-", dir=cache))
    except OSError as error:
        msg = f"cannot write to the cache folder {cache}: {error.strerror}"
        raise ConfigurationError(msg, hint="set LAKEWARD_CACHE to a folder that can be written") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def fetch(coordinates: Sequence[str], work: Path, *, exclude: Sequence[str] = ("org.slf4j:*",)) -> list[Path]:
    """Resolve coordinates into a folder and return the jars; their content is not checked here.

    ``exclude`` names unwanted dependencies, as ``group:artifact``.

    Raises:
        ConfigurationError: Java is missing, or the resolver failed.
    """
    require_java()
    try:
        outcome = subprocess.run(
            _command(coordinates, work, exclude),
            env=_environment(),
            cwd=work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=FETCH_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise unresolved(coordinates, f"no answer within {FETCH_TIMEOUT_SECONDS} seconds") from error
    if outcome.returncode != 0:
        raise unresolved(coordinates, explain(outcome.stdout))
    return sorted((work / "ivy" / "jars").glob("*.jar"))


def explain(output: str) -> str:
    """Return the reason of a failure from the resolver's output: no network, an incomplete download, or another."""
    if match := _UNREACHABLE.search(output):
        cause = match["reason"] or f"unknown host {match['host']}"
        return f"the package repository cannot be reached, is this machine offline? ({cause})"
    if match := _INCOMPLETE.search(output):
        return f"the download was incomplete ({match[0].strip()})"
    failures = [match["reason"] for match in _FAILURE.finditer(output)]
    return failures[-1] if failures else "the resolver gave no reason"


def unresolved(coordinates: Sequence[str], problem: str) -> ConfigurationError:
    """Return the error for jars that could not be fetched."""
    msg = f"cannot fetch {', '.join(coordinates)}: {problem}"
    return ConfigurationError(
        msg, hint="run again with network; on a machine without, set LAKEWARD_JARS=<dir> to a folder with the jar files"
    )


def _command(coordinates: Sequence[str], work: Path, exclude: Sequence[str]) -> list[str]:
    script = work / "nothing.py"
    script.touch()
    return [
        str(_spark_home() / "bin" / "spark-submit"),
        "--master", "local[1]",
        "--packages", ",".join(coordinates),
        "--exclude-packages", ",".join(exclude),
        "--conf", f"spark.jars.ivy={work / 'ivy'}",
        # A pom without its jar in the user's Maven cache makes the resolution fail: use an empty cache.
        "--conf", f'spark.driver.extraJavaOptions="-Duser.home={work / "home"}"',
        str(script),
    ]  # fmt: skip


def _environment() -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in _FOREIGN}
    interpreter = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    return {**inherited, **interpreter, "SPARK_HOME": str(_spark_home())}


def _spark_home() -> Path:
    return Path(pyspark.__file__).parent


@dataclass(frozen=True)
class Jar:
    """A pinned jar."""

    coordinate: str
    size: int
    sha256: str

    @property
    def file_name(self) -> str:
        """The jar's file name: artifact and version."""
        _, artifact, version = self.coordinate.split(":")
        return f"{artifact}-{version}.jar"

    @property
    def fetched_name(self) -> str:
        """The file name used by the resolver; it includes the group, since artifact names can end alike."""
        return f"{self.coordinate.split(':')[0]}_{self.file_name}"


# The Iceberg runtime by the first two version numbers of the installed pyspark.
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


# Dependencies of the jars for S3 that Spark includes already, or that are not used (600 MB).
_UNWANTED = (
    "software.amazon.awssdk:bundle",
    "org.wildfly.openssl:wildfly-openssl",
    "io.netty:*",
    "org.slf4j:*",
    "org.apache.httpcomponents:*",
    "commons-codec:commons-codec",
    "commons-logging:commons-logging",
)
# Fits the Hadoop of one Spark version; only a Hadoop catalog on S3 needs it.
_HADOOP_AWS, _HADOOP_AWS_SPARK = "org.apache.hadoop:hadoop-aws", "4.1"


def iceberg_runtime(spark_version: str) -> Jar:
    """Return the Iceberg runtime built for a Spark version."""
    jar = ICEBERG_BY_SPARK.get(".".join(spark_version.split(".")[:2]))
    if jar is None:
        known = " and ".join(f"{version}.x" for version in ICEBERG_BY_SPARK)
        msg = f"pyspark {spark_version} is installed; Lakeward knows the Iceberg runtime for {known}"
        raise ConfigurationError(msg, hint="install pyspark 4.1.x")
    return jar


def required_jars(config: Config) -> tuple[Jar, ...]:
    """Return the jars that the configured lake needs with the installed pyspark."""
    version = importlib.metadata.version("pyspark")
    catalog = (SQLITE_JDBC,) if catalog_kind(config) is CatalogKind.SQLITE else ()
    needs_s3 = is_on_s3(config) or publishes_to_s3(config)
    return (iceberg_runtime(version), *catalog, *(s3_jars(version) if needs_s3 else ()))


def s3_jars(spark_version: str) -> tuple[Jar, ...]:
    """Return the jars for a lake on S3: Amazon's SDK, and Hadoop's client where it fits the Spark version."""
    has_hadoop = spark_version.startswith(_HADOOP_AWS_SPARK)
    return tuple(jar for jar in _pinned_s3_jars() if has_hadoop or not jar.coordinate.startswith(_HADOOP_AWS))


@cache
def _pinned_s3_jars() -> tuple[Jar, ...]:
    return read_pins("lakeward.session", "s3-jars.txt")


def read_pins(package: str, name: str) -> tuple[Jar, ...]:
    """Read a package's list of jars: coordinate, size and SHA-256 on each line."""
    text = (files(package) / name).read_text(encoding="utf-8")
    rows = (line.split() for line in text.splitlines() if not line.startswith("#"))
    return tuple(Jar(coordinate, int(size), sha256) for coordinate, size, sha256 in rows)


def resolve_jars(config: Config) -> list[Path]:
    """Return the paths of all jars for the configured lake, fetching those missing from the cache.

    Raises:
        ConfigurationError: a jar is missing or damaged and cannot be fetched; names its coordinate and the remedy.
    """
    return _resolve(required_jars(config))


def resolve_program(jars: Iterable[Jar]) -> list[Path]:
    """Return the paths of all jars of a separate program that shares no library with Spark, fetching missing ones.

    Raises:
        ConfigurationError: as for :func:`resolve_jars`.
    """
    return _resolve(jars, exclude=())


def _resolve(jars: Iterable[Jar], exclude: Sequence[str] = _UNWANTED) -> list[Path]:
    if provided := os.environ.get("LAKEWARD_JARS"):
        return [_provided(jar, Path(provided).expanduser().resolve()) for jar in jars]
    folder = cache_folder() / "jars"
    missing = [jar for jar in jars if damage(jar, folder / jar.file_name) is not None]
    if missing:
        _fetch(missing, folder, exclude)
    return [folder / jar.file_name for jar in jars]


def cache_folder() -> Path:
    """Return the folder of everything that Lakeward downloads."""
    if chosen := os.environ.get("LAKEWARD_CACHE"):
        return Path(chosen).expanduser().resolve()
    if chosen := os.environ.get("XDG_CACHE_HOME"):
        return Path(chosen).expanduser().resolve() / "lakeward"
    return Path.home() / ".cache" / "lakeward"


def damage(jar: Jar, path: Path) -> str | None:
    """Return what is wrong with a file that should be this jar, None where nothing is.

    Verified files are remembered by size and time, so that not every start hashes 60 MB.
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
        return f"an incomplete or foreign file of {size:,} bytes instead of {jar.size:,}"
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


def _fetch(jars: Iterable[Jar], folder: Path, exclude: Sequence[str]) -> None:
    """Fetch jars into a temporary folder, check them, and move each into place atomically."""
    wanted = {jar.file_name: jar for jar in jars}
    with work_folder(folder.parent) as work:
        fetched = fetch([jar.coordinate for jar in wanted.values()], work, exclude=exclude)
        for name, jar in wanted.items():
            file = next((file for file in fetched if file.name == jar.fetched_name), work / name)
            if (problem := _defect(jar, file)) is not None:
                raise unresolved([jar.coordinate], f"what was fetched is {problem}")
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
    """Return the marker of a verified jar; it is in the cache, as the folder LAKEWARD_JARS may be read-only."""
    place = hashlib.sha256(str(path).encode()).hexdigest()[:16]
    return cache_folder() / "verified" / f"{path.name}.{place}"


def _remember(marker: Path, token: str) -> None:
    """Write the marker atomically. A failure is harmless: the jar is hashed again next time."""
    draft = marker.with_name(f"{marker.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        marker.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(token, encoding="utf-8")
        draft.replace(marker)


def main() -> None:
    """Fetch the jars for all kinds of lakes at set-up, so that the first run needs no network."""
    version = importlib.metadata.version("pyspark")
    try:
        for resolved in _resolve((iceberg_runtime(version), SQLITE_JDBC, *s3_jars(version))):
            print(resolved)
    except ConfigurationError as refused:
        sys.exit(str(refused))


if __name__ == "__main__":
    main()
