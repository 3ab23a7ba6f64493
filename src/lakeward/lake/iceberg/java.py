"""Which Java would run Spark, and whether it can."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from lakeward.errors import ConfigurationError

MINIMUM_JAVA = 17
JAVA_PACKAGE = "openjdk-17-jre-headless"
_VERSION = re.compile(r'version "(?P<first>\d+)(?:\.(?P<second>\d+))?')


def require_java() -> int:
    """Give the major version of the Java that Spark would start.

    Raises:
        ConfigurationError: there is none, or it is too old; names the package to install.
    """
    program = java_program()
    if program is None:
        problem = "Spark needs Java, and there is no java on the PATH and no JAVA_HOME"
        raise _refused(problem)
    try:
        outcome = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        problem = f"{program} cannot be started: {error}"
        raise _refused(problem) from error
    version = major_version(outcome.stderr + outcome.stdout)
    if version is None or version < MINIMUM_JAVA:
        found = "does not tell its version" if version is None else f"is Java {version}"
        problem = f"{program} {found}; Spark needs Java {MINIMUM_JAVA} or newer"
        raise _refused(problem)
    return version


def java_program() -> str | None:
    """Find Java as Spark's own scripts do: JAVA_HOME first, then the PATH."""
    if home := os.environ.get("JAVA_HOME"):
        return str(Path(home, "bin", "java"))
    return shutil.which("java")


def major_version(output: str) -> int | None:
    """Read the major version from ``java -version``; 1.8 is Java 8."""
    match = _VERSION.search(output)
    if match is None:
        return None
    first = int(match["first"])
    return int(match["second"]) if first == 1 and match["second"] else first


def _refused(problem: str) -> ConfigurationError:
    return ConfigurationError(problem, hint=f"apt-get install {JAVA_PACKAGE}   (or set JAVA_HOME)")
