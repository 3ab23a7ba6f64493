"""Fetching jars with the resolver inside Spark, kept apart from the user's own Maven and Ivy caches."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

from lakeward.errors import ConfigurationError
from lakeward.lake.iceberg.java import require_java

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FETCH_TIMEOUT_SECONDS = 900
_UNREACHABLE = re.compile(r"Server access error.*?\((?P<reason>[^()]*)\)|UnknownHostException: (?P<host>\S+)")
_HALF = re.compile(r"\[(?:FAILED|NOT FOUND)\s*\].*|download failed: .*")
_FAILURE = re.compile(r"Exception.*?: (?P<reason>.*)")
# Variables of the user's own Spark that would make the resolver another program than the installed pyspark.
_FOREIGN = ("SPARK_HOME", "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "PYSPARK_SUBMIT_ARGS", "SPARK_REMOTE")


@contextmanager
def work_folder(cache: Path) -> Iterator[Path]:
    """Make a folder of this process alone beside the cache's jars: a move from it is one step."""
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
    """Resolve coordinates into a folder and list the jars found; their content is not checked here.

    ``exclude`` names what the coordinates depend on and is not wanted, as ``group:artifact``.

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


def fetched_once(coordinate: str, cache: Path) -> Path:
    """Give the folder of an artifact and all it depends on, fetched when it is first asked for."""
    folder = cache / coordinate.replace(":", "-")
    if not folder.exists():
        with work_folder(cache) as work:
            complete = work / "complete"
            complete.mkdir()
            for jar in fetch([coordinate], work):
                shutil.move(jar, complete)
            # Another process may have been quicker.
            if not folder.exists():
                complete.rename(folder)
    return folder


def explain(output: str) -> str:
    """Find in the resolver's output what went wrong: no network, a half download, or something else."""
    if match := _UNREACHABLE.search(output):
        cause = match["reason"] or f"unknown host {match['host']}"
        return f"the package repository cannot be reached, is this machine offline? ({cause})"
    if match := _HALF.search(output):
        return f"the download came only in part ({match[0].strip()})"
    failures = [match["reason"] for match in _FAILURE.finditer(output)]
    return failures[-1] if failures else "the resolver stopped without a reason"


def unresolved(coordinates: Sequence[str], problem: str) -> ConfigurationError:
    """Build the error for jars that could not be fetched."""
    msg = f"cannot fetch {', '.join(coordinates)}: {problem}"
    return ConfigurationError(
        msg, hint="again with network, or LAKEWARD_JARS=<dir> with the jar files on a machine without"
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
        # A pom without its jar in the user's Maven cache makes the whole resolution fail: look into an empty one.
        "--conf", f'spark.driver.extraJavaOptions="-Duser.home={work / "home"}"',
        str(script),
    ]  # fmt: skip


def _environment() -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in _FOREIGN}
    interpreter = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    return {**inherited, **interpreter, "SPARK_HOME": str(_spark_home())}


def _spark_home() -> Path:
    return Path(pyspark.__file__).parent
