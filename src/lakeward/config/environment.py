"""Values that settings only point at: ``env:NAME`` stands for the variable NAME, so that secrets stay out of files."""

from __future__ import annotations

import os

from lakeward.errors import ConfigurationError

ENVIRONMENT_MARK = "env:"


def from_environment(value: str, setting: str) -> str:
    """Give a setting's value, read from the environment where it says ``env:NAME``.

    Raises:
        ConfigurationError: there is no such variable, or it is empty.
    """
    if not value.startswith(ENVIRONMENT_MARK):
        return value
    name = value.removeprefix(ENVIRONMENT_MARK)
    found = os.environ.get(name)
    if not found:
        msg = f"{setting} is to be read from the environment variable {name!r}, which is not set"
        raise ConfigurationError(msg, hint=f"export {name}=…   before starting lakeward")
    return found
