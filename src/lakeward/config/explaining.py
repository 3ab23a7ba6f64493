"""What is wrong with a configuration, in words."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from lakeward.config.base import inner_model
from lakeward.config.whole import Config

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError


def explain_settings(error: ValidationError, source: str) -> str:
    """Say what is wrong with one table's settings."""
    return explain(error, source, within=("tables", "table"))


def explain(error: ValidationError, source: str, *, within: tuple[str, ...] = ()) -> str:
    """Say what is wrong, key by key, with the nearest known key for an unknown one."""
    lines = [f"{source} is not valid:"]
    for problem in error.errors():
        where = ".".join(str(part) for part in problem["loc"]) or "(top)"
        text = problem["msg"]
        if problem["type"] == "extra_forbidden":
            text = f"unknown key{_suggestion((*within, *problem['loc']))}"
        lines.append(f"  {where}: {text}")
    return "\n".join(lines)


def _suggestion(location: tuple[int | str, ...]) -> str:
    model = _model_at(location[:-1])
    known = [field.alias or name for name, field in model.model_fields.items() if name != "base"]
    nearest = difflib.get_close_matches(str(location[-1]), known, n=1)
    return f"; did you mean {nearest[0]!r}?" if nearest else f"; known: {', '.join(known)}"


def _model_at(location: tuple[int | str, ...]) -> type[BaseModel]:
    """Follow an error's path to the model whose key is wrong; numbers and table names lead no deeper."""
    model: type[BaseModel] = Config
    for part in location:
        field = model.model_fields.get(str(part))
        model = (inner_model(field) if field else None) or model
    return model
