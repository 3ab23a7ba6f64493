"""Checks of the arguments that the library's functions take, made where they are called.

An argument of the wrong kind would otherwise fail somewhere inside with a message that does not name it, or be taken
for something else: a text where a list of names is expected would be a list of its characters.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from os import PathLike
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from lakeward.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

Given = ParamSpec("Given")
Result = TypeVar("Result")
_SHOWN_LENGTH = 100


@dataclass(frozen=True)
class Kind:
    """The type of an argument: its description, its test, and a hint of what was probably meant."""

    expected: str
    accepts: Callable[[Any], bool]
    hint: Callable[[Any], str | None] = lambda _: None

    def __or__(self, other: Kind) -> Kind:
        """Return the kind that accepts either."""
        return Kind(
            f"{self.expected} or {other.expected}",
            lambda value: self.accepts(value) or other.accepts(value),
            lambda value: self.hint(value) or other.hint(value),
        )


def instance(expected: str, *types: type) -> Kind:
    """Return the kind of all instances of some types."""
    return Kind(expected, lambda value: isinstance(value, types))


def mapping(expected: str, values: Kind) -> Kind:
    """Return the kind of mappings from texts to values of a kind."""
    return Kind(
        f"a mapping of {expected}",
        lambda given: (
            isinstance(given, Mapping)
            and all(isinstance(name, str) and values.accepts(value) for name, value in given.items())
        ),
    )


def _is_list(value: Any, inner: type) -> bool:
    is_list = isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
    return is_list and all(isinstance(item, inner) for item in value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


NONE = Kind("None", lambda value: value is None)
TEXT = instance("a text", str)
PATH = instance("a path", str, PathLike)
FLAG = instance("True or False", bool)
WHOLE = Kind("a whole number", _is_whole)
NUMBER = Kind("a number", lambda value: _is_whole(value) or isinstance(value, float))
LENGTH = instance("a timedelta", timedelta)
MAPPING = instance("a mapping", Mapping)
# A single item is easily passed where a list is expected.
TEXTS, MAPPINGS = (
    Kind(
        f"a list of {name}",
        functools.partial(_is_list, inner=inner),
        lambda value, inner=inner: f"[{value!r}]" if isinstance(value, inner) else None,  # type: ignore[misc]
    )
    for name, inner in (("texts", str), ("mappings", Mapping))
)
# Any of Spark's DataFrame classes, none of which this module imports.
FRAME = Kind("a DataFrame", lambda value: hasattr(value, "sparkSession") and hasattr(value, "schema"))


def at_least(minimum: int, kind: Kind) -> Kind:
    """Return the kind of the numbers of a kind that are not smaller than the minimum."""
    # A NaN is neither smaller nor larger than anything.
    return Kind(f"{kind.expected} of {minimum} or more", lambda value: kind.accepts(value) and value >= minimum)


COUNT, COUNT_OR_0, SPAN = at_least(1, WHOLE), at_least(0, WHOLE), at_least(0, NUMBER)
POSITIVE = Kind("a number greater than 0", lambda value: NUMBER.accepts(value) and value > 0)
SHARE = Kind("a number from 0 to 1", lambda value: NUMBER.accepts(value) and 0 <= value <= 1)
OPTIONAL_TEXT, OPTIONAL_WHOLE, OPTIONAL_NUMBER = TEXT | NONE, WHOLE | NONE, NUMBER | NONE


def checked(function: str, name: str, value: Any, kind: Kind) -> Any:
    """Return an argument that has the right type.

    Raises:
        ConfigurationError: it is of the wrong type; the message names it.
    """
    if isinstance(value, Iterator):
        # An iterator can be consumed only once.
        value = list(value)
    if kind.accepts(value):
        return value
    shown = repr(value)
    shown = shown if len(shown) <= _SHOWN_LENGTH else f"{shown[:_SHOWN_LENGTH]}…"
    msg = f"{function}: {name} must be {kind.expected}, found {shown} ({type(value).__name__})"
    meant = kind.hint(value)
    raise ConfigurationError(msg, hint=f"{name}={meant}" if meant else None)


def takes(**kinds: Kind) -> Callable[[Callable[Given, Result]], Callable[Given, Result]]:
    """Return a decorator that checks the named arguments of a function before it is called."""

    def decorate(function: Callable[Given, Result]) -> Callable[Given, Result]:
        signature, shown = inspect.signature(function), function.__qualname__.removesuffix(".__call__")
        assert kinds.keys() <= signature.parameters.keys(), function

        @functools.wraps(function)
        def call(*args: Given.args, **kwargs: Given.kwargs) -> Result:
            bound = signature.bind(*args, **kwargs)
            for name, kind in kinds.items():
                if name in bound.arguments:
                    bound.arguments[name] = checked(shown, name, bound.arguments[name], kind)
            return function(*bound.args, **bound.kwargs)

        return call

    return decorate


def check_fields(record: Any, **kinds: Kind) -> None:
    """Check the fields of a dataclass, at the end of its initialisation; an iterator is replaced by its list.

    Raises:
        ConfigurationError: a field is of the wrong type.
    """
    for name, kind in kinds.items():
        value = checked(type(record).__name__, name, getattr(record, name), kind)
        # The record may be frozen.
        object.__setattr__(record, name, value)
