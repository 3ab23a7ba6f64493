"""The report in a real browser, light and dark: readable, within the screen, and without a request to anywhere."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.diffing.report_sample import sample_report

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LEAST_CONTRAST = 4.5
NARROW, WIDE = 400, 1100

# Every text with its colour and the first background behind it that is not see-through.
_TEXTS = """() => {
  const parse = (text) => { const n = text.match(/[\\d.]+/g).map(Number); return n.length < 4 ? [...n, 1] : n; };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, element = node.parentElement;
    if (!node.data.trim() || element.closest('.hidden') || !element.getClientRects().length) continue;
    let back = element, colour = [0, 0, 0, 0];
    for (; back && colour[3] === 0; back = back.parentElement) colour = parse(getComputedStyle(back).backgroundColor);
    found.push([node.data.trim().slice(0, 40), parse(getComputedStyle(element).color), colour]);
  }
  return found;
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("there is no Chromium: apt-get install chromium, or run scripts/bootstrap.sh")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def page_file(tmp_path: Path) -> Path:
    file = tmp_path / "diff.html"
    file.write_text(sample_report(evil="<img src=http://192.0.2.1/x onerror=alert(1)> & co"), encoding="utf-8")
    return file


def opened(browser: Any, file: Path, scheme: str, width: int) -> tuple[Any, list[str]]:
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
    page = context.new_page()
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("dialog", lambda dialog: pytest.fail(f"a script ran: {dialog.message}"))
    page.goto(file.as_uri(), wait_until="networkidle")
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    return page, requests


def luminance(colour: list[float]) -> float:
    parts = [
        channel / 255 / 12.92 if channel / 255 <= 0.04045 else ((channel / 255 + 0.055) / 1.055) ** 2.4
        for channel in colour[:3]
    ]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def contrast(front: list[float], back: list[float]) -> float:
    high, low = sorted((luminance(front), luminance(back)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read(browser, page_file, scheme):
    page, _ = opened(browser, page_file, scheme, WIDE)
    texts = page.evaluate(_TEXTS)
    assert len(texts) > 80
    back = luminance(texts[0][2])
    assert back > 0.8 if scheme == "light" else back < 0.05
    faint = [
        (text, round(contrast(front, back), 2)) for text, front, back in texts if contrast(front, back) < LEAST_CONTRAST
    ]
    assert faint == []


@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_the_page_fits_the_screen(browser, page_file, width):
    page, _ = opened(browser, page_file, "light", width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    outside = page.evaluate(
        f"[...document.querySelectorAll('main *')].filter((one) => !one.closest('.scroll') && !one.closest('.hidden')"
        f" && one.getBoundingClientRect().right > {width} + 1).map((one) => one.outerHTML.slice(0, 80))"
    )
    assert outside == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_changed_cells_are_marked_by_more_than_colour(browser, page_file, scheme):
    page, _ = opened(browser, page_file, scheme, WIDE)
    assert page.locator("tr.changed td.past").count() == page.locator("tr.changed td.current").count() == 4
    marked = page.locator("tr.changed", has=page.get_by_text("price", exact=True)).first
    assert [cell.inner_text() for cell in marked.locator("td").all()] == ["12.50", "13.00"]
    signs = "(one) => getComputedStyle(one, '::before').content"
    assert marked.locator("td.past").evaluate(signs) != marked.locator("td.current").evaluate(signs) != "none"
    assert marked.locator("td.past .value").evaluate("(one) => getComputedStyle(one).fontWeight") == "700"
    plain = page.locator("article details td").first
    assert plain.evaluate(signs) == "none"


def test_no_request_leaves_the_page_and_no_script_runs(browser, page_file):
    _, requests = opened(browser, page_file, "light", WIDE)
    assert [request for request in requests if request not in (page_file.as_uri(), "data:,")] == []
