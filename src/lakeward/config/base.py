"""What all settings share: spans of time, the base class, and values from the environment."""

from __future__ import annotations

import math
import os
import re
from typing import TYPE_CHECKING, Annotated, Any, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict

from lakeward.errors import ConfigurationError

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo


# Spans of time as people write them: ``0.3``, ``90s``, ``10m``, ``2h``, ``1d``.


_SPAN = re.compile(r"\s*(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>ms|s|m|min|h|d)?\s*", re.ASCII)
_SECONDS = {None: 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}


def parse_span(text: str | float) -> float:
    """Return seconds.

    Raises:
        ConfigurationError: the text is not a span.
    """
    if isinstance(text, int | float) and not isinstance(text, bool):
        return _require_usable(float(text), text)
    match = _SPAN.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise _not_a_span(text)
    return _require_usable(float(match["number"]) * _SECONDS[match["unit"]], text)


def _require_usable(seconds: float, text: object) -> float:
    if not math.isfinite(seconds) or seconds < 0:
        raise _not_a_span(text)
    return seconds


def _not_a_span(text: object) -> ConfigurationError:
    return ConfigurationError(f"{text!r} is not a span of time; expected seconds or a number with s, m, h or d: 10m")


def _span(value: Any) -> Any:
    """Read a span; pydantic reports a ValueError with its key."""
    try:
        return None if value is None else parse_span(value)
    except ConfigurationError as error:
        raise ValueError(error.message) from None


Span = Annotated[float, BeforeValidator(_span)]
OptionalSpan = Annotated[float | None, BeforeValidator(_span)]
NameList = Annotated[tuple[str, ...], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]


class Settings(BaseModel):
    """Base of all settings: frozen, without unknown keys, and errors do not repeat values, which may be secret."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


def inner_model(field: FieldInfo) -> type[BaseModel] | None:
    """Return the settings class that a field holds, directly, as optional or in a dict; None if there is none."""
    candidates = (field.annotation, *get_args(field.annotation))
    return next(
        (candidate for candidate in candidates if isinstance(candidate, type) and issubclass(candidate, BaseModel)),
        None,
    )


# ``env:NAME`` refers to the environment variable NAME, so that secrets stay out of files.
ENVIRONMENT_MARK = "env:"


def from_environment(value: str, setting: str) -> str:
    """Return a setting's value, read from the environment where it is ``env:NAME``.

    Raises:
        ConfigurationError: the variable is not set, or empty.
    """
    if not value.startswith(ENVIRONMENT_MARK):
        return value
    name = value.removeprefix(ENVIRONMENT_MARK)
    found = os.environ.get(name)
    if not found:
        msg = f"{setting} is to be read from the environment variable {name!r}, which is not set"
        raise ConfigurationError(msg, hint=f"export {name}=…   before starting lakeward")
    return found
