"""Reports and records as JSON documents, and back: the one way in which dataclasses are written and read.

A dataclass becomes an object of its fields in their order. A subclass of :class:`Document` may declare differences from
that with its bases::

    @dataclass(frozen=True)
    class Report(Document, keys=("table", "exit_code", "rows"), renamed={"table": "name"}):

Reading is done by pydantic, whose adapters are built at first use: writing a document, as tasks do, does not import it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydantic import GetCoreSchemaHandler, TypeAdapter
    from pydantic_core import CoreSchema, ErrorDetails

_T = TypeVar("_T")
Converters = Mapping[str, Callable[[Any], Any]]
_ADAPTERS: dict[Any, TypeAdapter[Any]] = {}


@dataclass(frozen=True)
class DocumentLayout:
    """How the document of a class differs from its fields; see :class:`Document`."""

    keys: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    if_set: frozenset[str] = frozenset()
    required: frozenset[str] = frozenset()
    write: Converters = field(default_factory=dict)
    read: Converters = field(default_factory=dict)
    ignores_unknown: bool = False


class Document:
    """A dataclass that is written as a JSON object.

    Declared with the bases, by the names of attributes:

    keys: fields and properties of the document, in order; by default all fields.
    also: further properties, after the fields.
    renamed: keys that differ from the attributes' names.
    if_set: attributes that are omitted where they are None; most are fields that earlier versions do not have.
    required: fields that a document must have although they have a default.
    write, read: conversions of values that JSON does not have.
    ignores_unknown: whether unknown keys are ignored; otherwise the document is damaged or of a later version.
    """

    _layout: ClassVar[DocumentLayout] = DocumentLayout()

    def __init_subclass__(
        cls,
        *,
        keys: Iterable[str] = (),
        also: Iterable[str] = (),
        renamed: Mapping[str, str] | None = None,
        if_set: Iterable[str] = (),
        required: Iterable[str] = (),
        write: Converters | None = None,
        read: Converters | None = None,
        ignores_unknown: bool = False,
    ) -> None:
        super().__init_subclass__()
        cls._layout = DocumentLayout(
            tuple(keys),
            tuple(also),
            renamed or {},
            frozenset(if_set),
            frozenset(required),
            write or {},
            read or {},
            ignores_unknown,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return _object(self)


class Record(Document):
    """A document that is also read: the types of its fields are available at run time."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """Read what :meth:`to_dict` returned, possibly by way of JSON.

        Raises:
            ValueError: the document is damaged, or of a later version.
        """
        return from_document(cls, document)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema

        return core_schema.no_info_before_validator_function(cls._field_values, handler(source))

    @classmethod
    def _field_values(cls, document: Any) -> Any:
        """Return a document's values by the names of fields, as pydantic takes them."""
        if isinstance(document, cls):
            return document
        if not isinstance(document, Mapping):
            msg = f"expected an object, found {document!r:.40}"
            raise ValueError(msg)  # noqa: TRY004 - pydantic collects errors of this type
        layout, names = cls._layout, _field_names(cls)
        missing = [name for name in layout.required if layout.renamed.get(name, name) not in document]
        if missing:
            msg = f"{', '.join(sorted(missing))} missing"
            raise ValueError(msg)
        attributes = {key: name for name, key in layout.renamed.items()}
        found: dict[str, Any] = {attributes.get(str(key), str(key)): value for key, value in document.items()}
        ignored = () if not layout.ignores_unknown else found.keys()
        computed = {*layout.keys, *layout.also, *ignored} - names
        return {
            name: layout.read[name](value) if name in layout.read else value
            for name, value in found.items()
            if name not in computed
        }


def to_document(value: Any) -> Any:
    """Return a value as JSON has it: objects of dataclasses, lists of tuples, values of enums; others as they are."""
    if is_dataclass(value) and not isinstance(value, type):
        return _object(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {key: to_document(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_document(item) for item in value]
    return value


def to_compact_json(value: Any) -> str:
    """Return a value as JSON without blanks, as columns and properties of tables hold it."""
    return json.dumps(to_document(value), ensure_ascii=False, separators=(",", ":"))


def from_document(kind: type[_T], document: Any) -> _T:
    """Read a dataclass from what :func:`to_document` returned, possibly by way of JSON.

    Raises:
        ValueError: the document is damaged, or of a later version.
    """
    from pydantic import ValidationError

    try:
        found: _T = _adapter(kind).validate_python(document)
    except ValidationError as error:
        raise ValueError(_problems(error.errors(include_url=False, include_input=False))) from error
    return found


def _object(value: Any) -> dict[str, Any]:
    layout: DocumentLayout = getattr(type(value), "_layout", DocumentLayout())
    found = {}
    for name in _keys(type(value)):
        item = getattr(value, name)
        if item is not None or name not in layout.if_set:
            written = layout.write[name](item) if name in layout.write else item
            found[layout.renamed.get(name, name)] = to_document(written)
    return found


def _keys(kind: Any) -> tuple[str, ...]:
    layout: DocumentLayout = getattr(kind, "_layout", DocumentLayout())
    return layout.keys or (*(attribute.name for attribute in fields(kind)), *layout.also)


def _field_names(kind: Any) -> frozenset[str]:
    return frozenset(attribute.name for attribute in fields(kind))


def _adapter(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def _problems(errors: Iterable[ErrorDetails]) -> str:
    """Return what pydantic found, in one line and without the values."""
    return "; ".join(
        f"{'.'.join(str(part) for part in error['loc'])}: {error['msg']}" if error["loc"] else error["msg"]
        for error in errors
    )
