"""``lakeward-job``: one run, started by Glue, EMR or ``spark-submit``, with its configuration on S3 if need be.

lakeward-job --config s3://bucket/lakeward.yaml [--table sales.product,sales.customer] [--file URI …] [--wait SECONDS]

Prints the run's report as one line of JSON, the last one, as ``lakeward run --output json`` does, and exits like it.
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
from lakeward.storage.s3 import S3Location, is_s3, s3_client, s3_errors
from lakeward.text import to_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward.config import Config
    from lakeward.mirror.op.report import RunReport


logger = logging.getLogger(__name__)

# Glue hands its own parameters to the script; this one is always among them.
_GLUE_SIGN = "--JOB_NAME"
# A run that was started because another was already listing must not skip what that one still holds.
_DEFAULT_WAIT = 900.0


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the job in a process of its own."""
    logging.basicConfig(stream=sys.stderr, format="%(levelname)s %(message)s")
    logging.getLogger("lakeward").setLevel(logging.INFO)
    given = read_arguments(sys.argv[1:] if arguments is None else arguments)
    code = _guarded(given)
    # Glue takes any SystemExit for a failure, 0 included.
    if code:
        sys.exit(code)


def read_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line; under Glue, leave out the parameters that are Glue's own."""
    parser = argparse.ArgumentParser(prog="lakeward-job", description="Bring mirrors up to date, as a job of Spark.")
    parser.add_argument("--config", required=True, help="configuration file: a path or s3://bucket/key")
    parser.add_argument(
        "--table", action="append", default=[], metavar="NAMES",
        help="tables, separated by commas; repeatable, though Glue gives each parameter once. Default: all active",
    )  # fmt: skip
    parser.add_argument(
        "--file", action="append", default=[], metavar="URI", help="take only this landing file; repeatable"
    )
    parser.add_argument(
        "--wait", type=float, default=_DEFAULT_WAIT, metavar="SECONDS",
        help="wait so long for a table that another run holds; default %(default)g",
    )  # fmt: skip
    given, rest = parser.parse_known_args(arguments)
    if rest and _GLUE_SIGN not in rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    given.table = [name.strip() for names in given.table for name in names.split(",") if name.strip()]
    return given


def _guarded(given: argparse.Namespace) -> int:
    """Run the job and print what came of it, last: spark-submit puts standard error into standard output, too."""
    try:
        report = run_job(given.config, given.table, given.file, wait=given.wait)
    except LakewardError as error:
        logger.error("%s", error)
        told = {"kind": error.kind, "message": error.message, "hint": error.hint, "exit_code": error.exit_code}
        _print({"error": told})
        return error.exit_code
    for failed in report.failed:
        logger.error("%s", failed.message)
    _print(report.to_dict())
    return report.exit_code


def run_job(config: str, tables: Sequence[str] = (), files: Sequence[str] = (), *, wait: float = 0.0) -> RunReport:
    """Run tables once, in the Spark application that is there or in one of its own."""
    from lakeward.lake import Lakeward
    from lakeward.mirror.op.context import RunOptions
    from lakeward.runner.watch.requests import choose_files

    with Lakeward(open_config(config)) as lake:
        names, paths = choose_files(lake, tables, files)
        return lake.run(names, options=RunOptions(files=paths), wait=wait)


def _print(document: object) -> None:
    sys.stdout.write(to_json(document) + "\n")
    sys.stdout.flush()


# A configuration file that lies on S3, where jobs have no disk of their own.


def open_config(location: str) -> Config:
    """Read a configuration file from a path or ``s3://bucket/key``.

    Raises:
        ConfigurationError: it is missing, cannot be read, or does not fit.
    """
    if not is_s3(location):
        return load_config(location)
    text = _fetch(location)
    # Whatever counts as relative in it counts from where the job runs; a job's settings are addresses.
    return read_config(text, base=Path.cwd(), environment=os.environ, source=location)


def _fetch(location: str) -> str:
    place = S3Location.parse(location, "--config")
    # The file tells of an endpoint only once it is read: this one comes from the environment (AWS_ENDPOINT_URL).
    client = s3_client(S3Settings(), None)
    try:
        with s3_errors(location):
            content: bytes = client.get_object(Bucket=place.bucket, Key=place.prefix)["Body"].read()
            return content.decode("utf-8")
    except FileNotFoundError as error:
        msg = f"no configuration file at {location}"
        raise ConfigurationError(msg, hint="upload it: aws s3 cp lakeward.yaml LOCATION") from error
    except UnicodeDecodeError as error:
        msg = f"{location} is not text in UTF-8: {error}"
        raise ConfigurationError(msg) from error
    finally:
        client.close()
