"""A configuration file that lies on S3, where jobs have no disk of their own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from lakeward.config import load_config, read_config
from lakeward.config.s3 import S3Settings
from lakeward.errors import ConfigurationError
from lakeward.storage.s3 import S3Location, is_s3, s3_client, s3_errors

if TYPE_CHECKING:
    from lakeward.config import Config


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
