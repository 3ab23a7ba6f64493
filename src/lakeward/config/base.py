"""What all settings share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict

from lakeward.config.spans import parse_span
from lakeward.errors import ConfigurationError

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo


def _span(value: Any) -> Any:
    """Read a span; pydantic tells of a ValueError with the key that holds it."""
    try:
        return None if value is None else parse_span(value)
    except ConfigurationError as error:
        raise ValueError(error.message) from None


Span = Annotated[float, BeforeValidator(_span)]
OptionalSpan = Annotated[float | None, BeforeValidator(_span)]
NameList = Annotated[tuple[str, ...], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]


class Settings(BaseModel):
    """Frozen, and strict about the keys it knows; a value that does not fit may hold a secret and is not repeated."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


def inner_model(field: FieldInfo) -> type[BaseModel] | None:
    """Give the settings that a field holds, if it holds any: ``NotifySettings | None`` does, and a dict of them."""
    candidates = (field.annotation, *get_args(field.annotation))
    return next((one for one in candidates if isinstance(one, type) and issubclass(one, BaseModel)), None)
