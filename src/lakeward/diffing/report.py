"""The report of a comparison as one HTML page without network access or scripts, in a light and a dark style."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from lakeward import __version__
from lakeward.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from lakeward.diffing.examples import Example
    from lakeward.diffing.frames.alignment import Alignment
    from lakeward.diffing.frames.options import DiffOptions
    from lakeward.diffing.frames.pairs import Summary


# HTML from plain values: everything is escaped except what :func:`element` made.


class Html(str):
    """A piece of HTML that was made by :func:`element`, and is not escaped again."""

    __slots__ = ()


def element(tag: str, *content: str | None, **attributes: str | None) -> Html:
    """Return an element.

    Attributes that are None are left out, ``class_`` and ``aria_label`` get their names in HTML.
    """
    shown = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    return Html(f"<{tag}{shown}>{joined(*content)}</{tag}>")


def joined(*content: str | None) -> Html:
    """Return pieces one after the other."""
    return Html("".join(_safe(part) for part in content if part is not None))


def _safe(text: str) -> str:
    return text if isinstance(text, Html) else escape(text)


# Changes are marked by signs and lines too, not by colour alone.


STYLE = """
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --text: #1b1f24; --soft: #57606a; --line: #d8dee4;
  --add: #0f6b33; --add-back: #dcf5e3; --cut: #a11b23; --cut-back: #fde7e7;
  --mod: #8a4b00; --mod-back: #fdf0d5; --same: #57606a; --bar: #b86a06; --track: #eceff2;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #0f1318; --card: #181d24; --text: #e6eaf0; --soft: #a2acb9; --line: #333b46;
    --add: #6fdc94; --add-back: #123420; --cut: #ff9c9c; --cut-back: #43191d;
    --mod: #f5c069; --mod-back: #3b2a0c; --same: #a2acb9; --bar: #e0a043; --track: #262d36;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--text);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
main { max-width: 64rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0 0 1rem; letter-spacing: -.01em; }
h2 { font-size: 1.15rem; margin: 2.25rem 0 .75rem; }
h2 small { font-weight: 400; color: var(--soft); font-size: .875rem; margin-left: .5rem; }
p { margin: .5rem 0; }
code, .value, .name {
  font-family: ui-monospace, "SF Mono", Menlo, Consolas, "Liberation Mono", monospace; font-size: .875em;
}
code, .value, .name, dd { overflow-wrap: anywhere; }
.soft { color: var(--soft); }
.card { background: var(--card); border: 1px solid var(--line); border-radius: .625rem; padding: .875rem 1rem; }
.sides {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(min(18rem, 100%), 1fr)); gap: .75rem;
  margin: 0;
}
.sides dt { color: var(--soft); font-size: .8125rem; }
.sides dd { margin: .125rem 0 0; }
.sides .rows { color: var(--soft); font-size: .875rem; }
.counts {
  list-style: none; display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .75rem;
  margin: .75rem 0 0; padding: 0;
}
.counts li { border-left: .3125rem solid var(--tone); }
.counts b { display: block; font-size: 1.6rem; line-height: 1.2; font-variant-numeric: tabular-nums; }
.counts span { color: var(--tone); font-weight: 600; }
.counts small { display: block; color: var(--soft); }
.add { --tone: var(--add); } .cut { --tone: var(--cut); } .mod { --tone: var(--mod); } .same { --tone: var(--same); }
.bars {
  list-style: none; margin: 0; padding: 0; display: grid;
  grid-template-columns: fit-content(16rem) minmax(0, 1fr) auto; gap: .625rem .875rem;
}
.bars li { display: grid; grid-column: 1 / -1; grid-template-columns: subgrid; align-items: center; }
.bars + p { margin-bottom: 0; }
.track { height: .75rem; border-radius: .375rem; background: var(--track); overflow: hidden; }
.track i { display: block; height: 100%; min-width: 3px; border-radius: .375rem; background: var(--bar); }
.bars .number { font-variant-numeric: tabular-nums; text-align: right; }
.row { margin: 0 0 .875rem; padding: 0; overflow: hidden; }
.row > h3 {
  margin: 0; padding: .625rem 1rem; font-size: .9375rem; font-weight: 600;
  border-bottom: 1px solid var(--line); border-left: .3125rem solid var(--tone); overflow-wrap: anywhere;
}
.row > h3 .sign { color: var(--tone); margin-right: .375rem; }
table { width: 100%; border-collapse: collapse; }
.row table { table-layout: fixed; }
th, td { text-align: left; vertical-align: top; padding: .375rem .75rem; border-top: 1px solid var(--line); }
thead th { border-top: 0; color: var(--soft); font-weight: 500; font-size: .8125rem; }
tbody th { font-weight: 500; overflow-wrap: anywhere; }
td .value { white-space: pre-wrap; }
tr.changed th { font-weight: 700; }
tr.changed th::before { content: "\\2260\\00a0"; color: var(--mod); }
td.past { background: var(--cut-back); box-shadow: inset .1875rem 0 var(--cut); }
td.current { background: var(--add-back); box-shadow: inset .1875rem 0 var(--add); }
td.past .value, td.current .value { font-weight: 700; }
td.past::before { content: "\\2212\\00a0"; color: var(--cut); font-weight: 700; }
td.current::before { content: "+\\00a0"; color: var(--add); font-weight: 700; }
.none { font-style: italic; color: var(--soft); }
td.past .none, td.current .none { color: inherit; }
details > summary { cursor: pointer; padding: .5rem 1rem; color: var(--soft); border-top: 1px solid var(--line); }
.scroll { overflow-x: auto; padding: 0; border-left: .3125rem solid var(--tone); }
.scroll table { width: max-content; min-width: 100%; }
.scroll th, .scroll td { max-width: 20rem; overflow-wrap: anywhere; }
.scroll tbody th { font-weight: 700; }
.hidden { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
:focus-visible { outline: 3px solid var(--bar); outline-offset: 2px; }
footer { margin-top: 2.5rem; color: var(--soft); font-size: .875rem; }
@media (max-width: 34rem) {
  main { padding: 1rem .75rem 3rem; }
  .bars li { grid-template-columns: minmax(0, 1fr) auto; row-gap: .25rem; }
  .bars .track { grid-column: 1 / -1; grid-row: 2; }
  .row thead { position: absolute; clip-path: inset(50%); }
  .row tr { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); border-top: 1px solid var(--line); }
  .row tbody th { grid-column: 1 / -1; padding-bottom: 0; }
  .row th, .row td { border-top: 0; }
}
@media print { body { background: none; } .card { break-inside: avoid; } }
"""

# With this policy a browser loads nothing, whatever a value holds.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_KINDS = (
    ("C", "mod", "~", "Changed"),
    ("I", "add", "+", "Inserted"),
    ("D", "cut", "−", "Deleted"),  # noqa: RUF001 - the sign for minus
)
_Row = dict[str, str | None]
# Identifies a page that this program wrote, which a later report may replace.
_GENERATOR = '<meta name="generator" content="Lakeward diff report">'
_HEAD_BYTES = 4096


def render_report(
    summary: Summary,
    alignment: Alignment,
    examples: Sequence[Example],
    *,
    past: str,
    current: str,
    plan: str,
    reason: str,
    options: DiffOptions,
) -> str:
    """Return the page: both sides, counts, changed rows per column, and the examples side by side.

    ``past`` and ``current`` are the names of the sides, ``plan`` and ``reason`` how they were compared.
    """
    body = element(
        "main",
        element("h1", "What changed"),
        _sides(summary, past, current),
        _counts(summary),
        _differences(alignment),
        _bars(summary, alignment),
        *[_section(kind, summary, alignment, examples) for kind in _KINDS],
        _footer(alignment, plan, reason, options),
    )
    head = joined(
        Html('<meta charset="utf-8">'),
        Html(_GENERATOR),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
        Html('<link rel="icon" href="data:,">'),
        element("title", f"What changed: {_last_part(past)} → {_last_part(current)}"),
        element("style", Html(STYLE)),
    )
    return f'<!doctype html>\n<html lang="en">\n<head>{head}</head>\n<body>{body}</body>\n</html>\n'


def require_replaceable(file: Path) -> None:
    """Refuse to write a page over a file that is not one.

    Raises:
        ConfigurationError: there is something else.
    """
    if not file.exists() or (file.is_file() and not file.stat().st_size):
        return
    if file.is_file():
        with file.open("rb") as content:
            if _GENERATOR.encode() in content.read(_HEAD_BYTES):
                return
    msg = f"{file} exists and is not a report of an earlier comparison: it is not replaced"
    raise ConfigurationError(msg, hint="--report OTHER_FILE, or move that one elsewhere")


def _last_part(label: str) -> str:
    return label.rstrip("/").rpartition("/")[2] or label


def _sides(summary: Summary, past: str, current: str) -> Html:
    def side(title: str, label: str, rows: int) -> Html:
        return element(
            "div",
            element("dt", title),
            element("dd", element("code", label)),
            element("dd", f"{rows:,} rows", class_="rows"),
            class_="card",
        )

    return element(
        "dl", side("Past", past, summary.past_rows), side("Current", current, summary.current_rows), class_="sides"
    )


def _counts(summary: Summary) -> Html:
    facts = (
        ("mod", "~", "changed", summary.changed, _share(summary.changed, summary.past_rows, "of the past")),
        ("add", "+", "inserted", summary.inserted, _share(summary.inserted, summary.current_rows, "of the current")),
        ("cut", "−", "deleted", summary.deleted, _share(summary.deleted, summary.past_rows, "of the past")),  # noqa: RUF001
        ("same", "=", "unchanged", summary.unchanged, _share(summary.unchanged, summary.past_rows, "of the past")),
    )
    items = [
        element(
            "li",
            element("span", f"{sign} {word}"),
            element("b", f"{number:,}"),
            element("small", share),
            class_=f"card {tone}",
        )
        for tone, sign, word, number, share in facts
    ]
    surplus = summary.duplicates
    note = f"{surplus:,} rows have a key that came before them on their side." if surplus else None
    return joined(element("ul", *items, class_="counts"), element("p", note, class_="soft") if note else None)


def _share(number: int, whole: int, of: str) -> str:
    if not whole:
        return "–"  # noqa: RUF001 - a dash
    return f"{_percent(number, whole)} {of}"


def _percent(number: int, whole: int) -> str:
    share = 100 * number / whole
    shown = "less than 0.01" if 0 < share < 0.01 else f"{share:.2f}".rstrip("0").rstrip(".")
    return f"{shown} %"


def _differences(alignment: Alignment) -> Html | None:
    if not alignment.differences:
        return None
    items = [element("li", difference) for difference in alignment.differences]
    return joined(element("h2", "Columns that differ"), element("ul", *items))


def _bars(summary: Summary, alignment: Alignment) -> Html | None:
    """Return the number of changed rows that differ in each column, the most frequent first."""
    if not summary.changed:
        return None
    order = {column.name: at for at, column in enumerate(alignment.columns)}
    found = {name: number for name, number in summary.columns.items() if number}
    names = sorted(found, key=lambda name: (-found[name], order.get(name, len(order))))
    items = [_bar(name, found[name], summary.changed) for name in names]
    silent = len(alignment.compared) - len(names)
    note = element("p", f"{silent} other compared columns did not change.", class_="soft") if silent > 0 else None
    title = element("h2", "Changed columns", element("small", f"of {summary.changed:,} changed rows"))
    return joined(title, element("div", element("ul", *items, class_="bars"), note, class_="card"))


def _bar(name: str, number: int, whole: int) -> Html:
    share = element("span", f"({_percent(number, whole)})", class_="soft")
    return element(
        "li",
        element("span", name, class_="name"),
        element("div", element("i", style=f"width:{100 * number / whole:.2f}%"), class_="track", aria_hidden="true"),
        element("span", f"{number:,} ", share, class_="number"),
    )


def _section(
    kind: tuple[str, str, str, str], summary: Summary, alignment: Alignment, examples: Iterable[Example]
) -> Html | None:
    """Return the first rows of one kind as HTML."""
    action, tone, sign, title = kind
    shown = [example for example in examples if example.action == action]
    if not shown:
        return None
    whole = {"C": summary.changed, "I": summary.inserted, "D": summary.deleted}[action]
    part = f"the first {len(shown):,} of {whole:,}, by key" if len(shown) < whole else f"all {whole:,}"
    heading = element("h2", f"{title} rows", element("small", part))
    if action == "C":
        return joined(heading, *[_changed_row(example, tone, sign) for example in shown])
    return joined(heading, _listed_rows(shown, alignment, tone, f"{title} rows"))


def _changed_row(example: Example, tone: str, sign: str) -> Html:
    left, right = example.left or {}, example.right or {}
    names = list(dict.fromkeys((*left, *right)))
    changed = [name for name in names if name in example.changed]
    rest = [name for name in names if name not in example.changed]
    titles = [element("th", title, scope="col") for title in ("Column", "Past", "Current")]
    rows = [_cells(name, left, right, is_changed=True) for name in changed]
    others = [_cells(name, left, right, is_changed=False) for name in rest]
    title = element("h3", element("span", sign, class_="sign", aria_hidden="true"), *_key(example.key))
    word = "column" if len(rest) == 1 else "columns"
    folded = element(
        "details",
        element("summary", f"{len(rest)} unchanged {word}"),
        element("table", element("tbody", *others)),
    )
    return element(
        "article",
        title,
        element("table", element("thead", element("tr", *titles)), element("tbody", *rows)),
        folded if rest else None,
        class_=f"card row {tone}",
    )


def _key(key: _Row) -> list[Html]:
    parts: list[Html] = []
    for name, value in key.items():
        parts += [Html(", ")] if parts else []
        parts.append(joined(element("span", f"{name} ", class_="soft"), _value(value)))
    return parts


def _cells(name: str, left: _Row, right: _Row, *, is_changed: bool) -> Html:
    mark = element("span", " (changed)", class_="hidden") if is_changed else None
    return element(
        "tr",
        element("th", element("span", name, class_="name"), mark, scope="row"),
        element("td", _value(left.get(name)), class_="past" if is_changed else None),
        element("td", _value(right.get(name)), class_="current" if is_changed else None),
        class_="changed" if is_changed else None,
    )


def _listed_rows(shown: Sequence[Example], alignment: Alignment, tone: str, label: str) -> Html:
    """Return rows that only one side has as a table."""
    keys = [key.name for key in alignment.keys]
    rows = [example.right if example.right is not None else example.left or {} for example in shown]
    names = [value.name for value in alignment.values if any(value.name in row for row in rows)]
    titles = [element("th", element("span", name, class_="name"), scope="col") for name in (*keys, *names)]
    body = [
        element(
            "tr",
            *[element("th", _value(example.key.get(name)), scope="row") for name in keys],
            *[element("td", _value(row.get(name))) for name in names],
        )
        for example, row in zip(shown, rows, strict=True)
    ]
    table = element("table", element("thead", element("tr", *titles)), element("tbody", *body))
    return element("div", table, class_=f"card scroll {tone}", role="region", aria_label=label, tabindex="0")


def _value(value: str | None) -> Html:
    """Return a value as HTML; a null and an empty text are marked as such."""
    if value is None:
        return element("span", "null", class_="none")
    return element("span", "empty text", class_="none") if value == "" else element("span", value, class_="value")


def _footer(alignment: Alignment, plan: str, reason: str, options: DiffOptions) -> Html:
    keys = ", ".join(key.name for key in alignment.keys)
    ignored = f" Not compared: {', '.join(options.ignore_columns)}." if options.ignore_columns else ""
    return element(
        "footer",
        element("p", "Rows are identified by ", element("code", keys), f".{ignored}"),
        element("p", f"Compared by the plan “{plan}”: {reason}"),
        element("p", f"Lakeward {__version__}"),
    )
