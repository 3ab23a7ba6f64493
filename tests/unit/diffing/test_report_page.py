"""The report as markup: whole, escaped, and without anything from elsewhere."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from tests.unit.diffing.report_sample import sample_report

from lakeward.diffing.report import require_replaceable
from lakeward.errors import ConfigurationError

_EMPTY = {"meta", "link"}


class _Outline(HTMLParser):
    """Checks that every element is closed where it must be, and collects what matters."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.tags: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "action")]
        if tag not in _EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.text.append(data)


def outline(page: str) -> _Outline:
    found = _Outline()
    found.feed(page)
    found.close()
    assert found.open == []
    return found


def test_the_page_is_whole_and_loads_nothing():
    page = sample_report()
    found = outline(page)
    assert found.addresses == ["data:,"]
    assert not {"script", "img", "iframe", "object"} & set(found.tags)
    assert not re.search(r"url\(|@import|https?:", page)


def test_values_names_and_labels_are_escaped():
    evil = "<script>alert('x')</script>&\"'"
    page = sample_report(evil=evil)
    assert "<script" not in page
    assert " ".join(outline(page).text).count("<script>") >= 4


def test_counts_shares_and_signs_are_there():
    text = " ".join(outline(sample_report()).text)
    for words in ("~ changed", "30,000", "0.1 % of the past", "+ inserted", "2,967,000", "less than 0.01 %"):
        assert words in text
    assert "the first 2 of 30,000, by key" in text
    assert "column 'supplier' is new (string)" in text
    assert "Not compared: loaded_at." in text


def test_sections_without_changes_are_not_shown():
    text = " ".join(outline(sample_report(empty=True)).text)
    assert "Changed rows" not in text and "Changed columns" not in text and "Inserted rows" not in text
    assert "0 rows" in text


def test_a_page_replaces_an_earlier_page_and_nothing_else(tmp_path):
    file = tmp_path / "report.html"
    require_replaceable(file)
    for content in (b"", sample_report().encode()):
        file.write_bytes(content)
        require_replaceable(file)
    for content in (b"mine", b"<!doctype html><html><head></head></html>", bytes(range(256))):
        file.write_bytes(content)
        with pytest.raises(ConfigurationError, match="it is not replaced"):
            require_replaceable(file)
    with pytest.raises(ConfigurationError, match="it is not replaced"):
        require_replaceable(tmp_path)
