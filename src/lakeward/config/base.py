"""What all settings share."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict

NameList = Annotated[tuple[str, ...], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]


class Settings(BaseModel):
    """Frozen, and strict about the keys it knows."""

    model_config = ConfigDict(frozen=True, extra="forbid")
