"""Hooks of mkdocs: the pages beside docs/ become part of the site, and no page may load anything from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

# Files of the repository's root, where code hosts look for them, and their pages.
ROOT_PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "index.md",
    "SECURITY.md": "security.md",
}
_LINK_FROM_ROOT = re.compile(r"\]\((?:docs/)?([^):#]+)")
_LINK_TO_ROOT = re.compile(r"\]\(\.\./([A-Z]+\.md)")
_FOREIGN = re.compile(r"""<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=["']?(?:https?:)?//[^>]*>""")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages whose files lie in the root, with links as seen from docs/."""
    root = Path(config.config_file_path).parent
    for name, page in ROOT_PAGES.items():
        if page == "index.md":
            continue
        text = (root / name).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=_LINK_FROM_ROOT.sub(_from_root, text)))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Point links to files of the root at their pages."""
    return _LINK_TO_ROOT.sub(lambda link: f"]({ROOT_PAGES[link[1]]}", markdown)


def on_post_page(output: str, page: Page, **_: object) -> str:
    """Refuse a page that loads a script, a style or an image from another site."""
    if foreign := _FOREIGN.search(output):
        msg = f"{page.file.src_uri} loads from elsewhere: {foreign[0]}"
        raise PluginError(msg)
    return output


def _from_root(link: re.Match[str]) -> str:
    return f"]({ROOT_PAGES.get(link[1], link[1])}"
