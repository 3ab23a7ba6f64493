"""``lakeward-job``: one run, started by Glue, EMR or ``spark-submit``, with its configuration on disk or S3.

lakeward-job --config s3://bucket/lakeward.yaml [--table sales.product,sales.customer] [--file URI …] [--wait SECONDS]

Its last line of output is the run's report as JSON, as of ``lakeward run --output json``; the exit code is the same.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lakeward.config import load_config, read_config
from lakeward.config.services import S3Settings
from lakeward.errors import ConfigurationError, LakewardError
from lakeward.storage.s3 import S3FileSystem, S3Location, is_s3
from lakeward.text import to_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward.config import Config
    from lakeward.mirror.op.report import RunReport


logger = logging.getLogger(__name__)

# Glue passes its own parameters to the script; this one is always among them.
_GLUE_SIGN = "--JOB_NAME"
# A run that was started while another one runs must not skip the tables that the other one holds.
_DEFAULT_WAIT = 900.0


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the job as a process."""
    logging.basicConfig(stream=sys.stderr, format="%(levelname)s %(message)s")
    logging.getLogger("lakeward").setLevel(logging.INFO)
    given = read_arguments(sys.argv[1:] if arguments is None else arguments)
    code = _guarded(given)
    # Glue treats any SystemExit as a failure, even 0.
    if code:
        sys.exit(code)


def read_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the arguments of the command line, without those that Glue adds."""
    parser = argparse.ArgumentParser(prog="lakeward-job", description="Bring mirrors up to date, as a job of Spark.")
    parser.add_argument("--config", required=True, help="configuration file: a path or s3://bucket/key")
    parser.add_argument(
        "--table", action="append", default=[], metavar="NAMES",
        help="tables, separated by commas; repeatable, but Glue passes each parameter once. Default: all active",
    )  # fmt: skip
    parser.add_argument(
        "--file", action="append", default=[], metavar="URI", help="take only this landing file; repeatable"
    )
    parser.add_argument(
        "--wait", type=float, default=_DEFAULT_WAIT, metavar="SECONDS",
        help="seconds to wait for a table that another run holds; default %(default)g",
    )  # fmt: skip
    given, rest = parser.parse_known_args(arguments)
    if rest and _GLUE_SIGN not in rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    given.table = [name.strip() for names in given.table for name in names.split(",") if name.strip()]
    return given


def _guarded(given: argparse.Namespace) -> int:
    """Run the job and print its report as the last line: spark-submit mixes standard error into standard output."""
    try:
        report = run_job(given.config, given.table, given.file, wait=given.wait)
    except LakewardError as error:
        logger.error("%s", error)
        document = {"kind": error.kind, "message": error.message, "hint": error.hint, "exit_code": error.exit_code}
        _print({"error": document})
        return error.exit_code
    for failed in report.failed:
        logger.error("%s", failed.message)
    _print(report.to_dict())
    return report.exit_code


def run_job(config: str, tables: Sequence[str] = (), files: Sequence[str] = (), *, wait: float = 0.0) -> RunReport:
    """Run tables once, in the current Spark application or in a new one."""
    from lakeward.lake import Lakeward
    from lakeward.mirror.op.context import RunOptions

    with Lakeward(open_config(config)) as lake:
        return lake.run(tables, options=RunOptions(files=frozenset(files)), wait=wait)


def _print(document: object) -> None:
    sys.stdout.write(to_json(document) + "\n")
    sys.stdout.flush()


def open_config(location: str) -> Config:
    """Read a configuration file from a path or ``s3://bucket/key``.

    Raises:
        ConfigurationError: it is missing, cannot be read, or is not valid.
    """
    if not is_s3(location):
        return load_config(location)
    text = _fetch(location)
    # Relative paths in it are relative to the folder in which the job runs.
    return read_config(text, base=Path.cwd(), environment=os.environ, source=location)


def _fetch(location: str) -> str:
    place = S3Location.parse(location, "--config")
    try:
        # The endpoint in the file is not known yet: this one comes from the environment (AWS_ENDPOINT_URL).
        with S3FileSystem(S3Settings()).fetch(place.uri) as copy:
            return Path(copy).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        msg = f"no configuration file at {location}"
        raise ConfigurationError(msg, hint="upload it: aws s3 cp lakeward.yaml LOCATION") from error
    except UnicodeDecodeError as error:
        msg = f"{location} is not text in UTF-8: {error}"
        raise ConfigurationError(msg) from error
