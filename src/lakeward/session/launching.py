"""Finding the Java that runs Spark, and starting it without exposing settings to other users of the machine."""

from __future__ import annotations

import logging
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
from pyspark import SparkContext

from lakeward.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


MINIMUM_JAVA = 17
JAVA_PACKAGE = "openjdk-17-jre-headless"
_VERSION = re.compile(r'version "(?P<first>\d+)(?:\.(?P<second>\d+))?')


def require_java() -> int:
    """Return the major version of the Java that Spark would start.

    Raises:
        ConfigurationError: there is no Java, or it is too old; names the package to install.
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
        found = "does not report its version" if version is None else f"is Java {version}"
        problem = f"{program} {found}; Spark needs Java {MINIMUM_JAVA} or newer"
        raise _refused(problem)
    return version


def java_program() -> str | None:
    """Return the Java program that Spark's scripts use: from JAVA_HOME, else from the PATH."""
    if home := os.environ.get("JAVA_HOME"):
        return str(Path(home, "bin", "java"))
    return shutil.which("java")


def major_version(output: str) -> int | None:
    """Return the major version from the output of ``java -version``; 1.8 is Java 8."""
    match = _VERSION.search(output)
    if match is None:
        return None
    first = int(match["first"])
    return int(match["second"]) if first == 1 and match["second"] else first


def _refused(problem: str) -> ConfigurationError:
    return ConfigurationError(problem, hint=f"apt-get install {JAVA_PACKAGE}   (or set JAVA_HOME)")


# Starting the JVM with settings that no other user of the machine can read.
# Every user can see the arguments of a process, so settings are not passed as ``--conf key=value``. What the JVM needs
# at its start (memory, class path, jars, and the user's settings) is in a properties file with mode 0600 that is
# removed as soon as the JVM has read it. The settings of catalogs, which include credentials, are not needed so early:
# they are sent through the authenticated connection from Python and are never in a file.


logger = logging.getLogger(__name__)

ARGUMENTS_VARIABLE = "PYSPARK_SUBMIT_ARGS"
_SHELL = "pyspark-shell"
_FILE_OPTION = "--properties-file"
_CATALOGS = "spark.sql.catalog."
_JAVA_OPTIONS = tuple(
    f"spark.{who}.{which}JavaOptions" for who in ("driver", "executor") for which in ("default", "extra")
)
_SECRET_OPTION = re.compile(r"(?i)-D(?P<name>[^\s=]*(?:secret|passw|passphrase|token|credential)[^\s=]*)=")
_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}


def start_jvm(conf: Mapping[str, str]) -> None:
    """Start the JVM for the next Spark application of this process, unless there is one already."""
    _warn_of_secret_options(conf)
    with tempfile.TemporaryDirectory(prefix="lakeward-") as folder:
        file = Path(folder, "spark.properties")
        arguments = shlex.split(os.environ.get(ARGUMENTS_VARIABLE, _SHELL))
        others, replaced = _without_file(arguments)
        file.touch(mode=0o600)
        file.write_bytes(_defaults(replaced) + properties_text(conf).encode("ascii"))
        with _environment(ARGUMENTS_VARIABLE, shlex.join([_FILE_OPTION, str(file), *others])):
            # Without settings: pyspark would pass them as arguments.
            SparkContext._ensure_initialized()


def properties_text(conf: Mapping[str, str]) -> str:
    """Return settings, except those of catalogs, as the text of a Java properties file."""
    lines = [
        f"{_escaped(key, is_key=True)}={_escaped(value)}\n"
        for key, value in conf.items()
        if not key.startswith(_CATALOGS)
    ]
    return "".join(lines)


def _escaped(text: str, *, is_key: bool = False) -> str:
    written = "".join(_ESCAPES.get(character, character) for character in text)
    if is_key:
        written = re.sub(r"([ :=#!])", r"\\\1", written)
    elif written.startswith(" "):
        written = f"\\{written}"
    # Other characters as UTF-16 escapes, which do not depend on the encoding of the reader.
    return re.sub(r"[^\x20-\x7e]", lambda match: _utf16(match[0]), written)


def _utf16(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def _without_file(arguments: Sequence[str]) -> tuple[list[str], Path | None]:
    """Separate the user's properties file from the other arguments: spark-submit reads only one file."""
    others, found, rest = [], None, iter(arguments)
    for argument in rest:
        if argument == _FILE_OPTION:
            found = next(rest, None)
        elif argument.startswith(f"{_FILE_OPTION}="):
            found = argument.partition("=")[2]
        else:
            others.append(argument)
    return others, Path(found) if found else None


def _defaults(replaced: Path | None) -> bytes:
    """Return the settings that Spark would read by default; those written after them take precedence."""
    home = os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent
    folder = os.environ.get("SPARK_CONF_DIR") or Path(home, "conf")
    file = replaced or Path(folder, "spark-defaults.conf")
    return file.read_bytes() + b"\n\n" if file.is_file() else b""


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _warn_of_secret_options(conf: Mapping[str, str]) -> None:
    for key in _JAVA_OPTIONS:
        for match in _SECRET_OPTION.finditer(conf.get(key, "")):
            text = "%s sets %s, and every user of the machine can read the options of a Java process; use a file"
            logger.warning(text, key, match["name"])
