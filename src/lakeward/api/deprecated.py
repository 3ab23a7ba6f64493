"""Method names of earlier versions, which still work with a warning."""

from __future__ import annotations

import functools
import warnings
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Given = ParamSpec("Given")
Result = TypeVar("Result")


def former_spellings(**methods: str) -> Callable[[Callable[Given, Result]], Callable[Given, Result]]:
    """Return a decorator that keeps ``owner.method.<former>(…)`` working for what is now ``owner.<name>(…)``.

    Args:
        methods: former name → name of the method that took its place.
    """

    def decorate(method: Callable[Given, Result]) -> Callable[Given, Result]:
        # Type checkers see the method alone, so that they report a former spelling.
        return _Method(method, methods)  # type: ignore[return-value]

    return decorate


class _Method(Generic[Given, Result]):
    """A method whose bound form also accepts former spellings."""

    def __init__(self, method: Callable[Given, Result], former: Mapping[str, str]) -> None:
        self.__doc__ = method.__doc__
        self._method, self._former = method, former

    def __get__(self, owner: object | None, _type: type | None = None) -> Callable[..., Result]:
        return self._method if owner is None else _BoundMethod(self._method, owner, self._former)


class _BoundMethod(functools.partial[Result]):
    """A bound method; asking it for a former spelling warns and returns the method that took its place."""

    owner: object
    former: Mapping[str, str]

    def __new__(cls, method: Callable[..., Result], owner: object, former: Mapping[str, str]) -> _BoundMethod[Result]:
        """Bind a method to its owner."""
        bound = super().__new__(cls, method, owner)
        bound.owner, bound.former = owner, former
        return bound

    def __getattr__(self, name: str) -> Any:
        if name not in self.former:
            msg = f"{self.func.__qualname__} has no attribute {name!r}"
            raise AttributeError(msg)
        now = self.former[name]
        message = f"{self.func.__name__}.{name}() is now {now}()"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return getattr(self.owner, now)
