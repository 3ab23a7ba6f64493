"""HTML from plain values: everything is escaped unless it was made here."""

from __future__ import annotations

from html import escape


class Html(str):
    """A piece of HTML that was made by :func:`element`, and is not escaped again."""

    __slots__ = ()


def element(tag: str, *content: str | None, **attributes: str | None) -> Html:
    """Give an element; attributes that are None are left out, ``class_`` and ``aria_label`` get their names in HTML."""
    shown = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    return Html(f"<{tag}{shown}>{joined(*content)}</{tag}>")


def joined(*content: str | None) -> Html:
    """Give pieces one after the other."""
    return Html("".join(_safe(one) for one in content if one is not None))


def _safe(one: str) -> str:
    return one if isinstance(one, Html) else escape(one)
