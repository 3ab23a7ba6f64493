"""What the documentation names is there: files, folders, modules, make targets and links."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from tests.unit.pages import CODE_SPAN, PAGES, PRESENT, ROOT, Mention, code

SOURCE = ROOT / "src/lakeward"
# Pages on the tree itself: a name that ends in a slash is one of our folders there, elsewhere it may be a user's.
ON_THE_TREE = [ROOT / "CONTRIBUTING.md", ROOT / "docs/architecture.md"]

OURS = re.compile(r"(?<![\w./<-])(?:src|tests|docs|scripts|benchmarks|\.ci)/[\w./*-]*[\w*/]")
PYTHON_FILE = re.compile(r"(?<![\w./<*-])[\w*][\w/*-]*\.py\b")
FOLDER = re.compile(r"(?<![\w./<-])(?:\w+/)+(?![\w*.])")
MODULE = re.compile(
    r"(?<![\w./-])(?:lakeward(?:\.[a-z_]\w*)+(?:\.[A-Z]\w+)?|benchmarks(?:\.\w+)?|tests(?:\.\w+)+)\b(?![-(/.])"
)
TARGET = re.compile(r"(?:^|\$ |&& )make ([a-z][a-z0-9-]*)")
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
# Names of other things that look like modules: a file, stamps of commits, a setting of Spark.
NO_MODULES = re.compile(r"lakeward\.(?:yaml|db|op|log)\b|lakeward\.(?:applied|against)\b.*")
# Written by make package.
MADE = {"dist/lakeward_job.py", "core/sources.py"}


def mentions(pages: list[Path], pattern: re.Pattern[str]) -> Iterator[Mention]:
    for page in pages:
        for number, text in code(page):
            yield from (Mention(page, number, found[found.re.groups]) for found in pattern.finditer(text))


def exists(name: str) -> bool:
    """Whether a path exists below the root or the package, or a bare name anywhere below the package or the tests."""
    if any(any(folder.glob(name)) for folder in (ROOT, SOURCE)):
        return True
    return any(any(folder.rglob(name)) for folder in (SOURCE, ROOT / "tests", ROOT / "scripts"))


def require_files(found: Iterator[Mention]) -> None:
    refuse(str(mention) for mention in found if mention.name not in MADE and not exists(mention.name.rstrip("/")))


def refuse(found: Iterable[str]) -> None:
    """Fail with one line per finding."""
    if lines := list(found):
        pytest.fail("\n".join(["named in the documentation, and not there or not allowed:", *lines]), pytrace=False)


def test_every_path_of_the_repository_exists() -> None:
    require_files(mentions(PRESENT, OURS))


def test_every_python_file_exists() -> None:
    require_files(mentions(PRESENT, PYTHON_FILE))


def test_every_folder_that_the_pages_on_the_tree_name_exists() -> None:
    folders = [folder for folder in (ROOT, *SOURCE.rglob("*"), SOURCE) if folder.is_dir()]
    found = mentions(ON_THE_TREE, FOLDER)
    refuse(str(mention) for mention in found if not any((folder / mention.name).is_dir() for folder in folders))


def is_importable(name: str) -> bool:
    module, _, rest = name.partition(".")
    found = importlib.import_module(module)
    for part in rest.split(".") if rest else ():
        module = f"{module}.{part}"
        if hasattr(found, part):
            found = getattr(found, part)
            continue
        try:
            found = importlib.import_module(module)
        except ModuleNotFoundError:
            return False
    return True


def test_every_module_and_its_names_can_be_imported() -> None:
    found = [mention for mention in mentions(PRESENT, MODULE) if not NO_MODULES.fullmatch(mention.name)]
    refuse(str(mention) for mention in found if not is_importable(mention.name))


def test_every_make_target_exists() -> None:
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    refuse(str(mention) for mention in mentions(PRESENT, TARGET) if mention.name not in targets)


def test_every_relative_link_leads_to_a_file() -> None:
    found = (
        Mention(page, number, target)
        for page in PAGES
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1)
        for target in LINK.findall(CODE_SPAN.sub("", line))
    )
    refuse(str(mention) for mention in found if not (mention.page.parent / mention.name).exists())


def test_prose_is_at_most_120_characters_wide() -> None:
    wide = []
    for page in PAGES:
        fenced = False
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
            fenced ^= line.lstrip().startswith("```")
            if not fenced and len(line) > 120 and not line.lstrip().startswith("|"):
                wide.append(f"{page.relative_to(ROOT)}:{number}: {len(line)} characters")
    refuse(wide)


def test_every_decision_is_listed() -> None:
    folder = ROOT / "docs/decisions"
    listed = re.findall(r"\((0\d{3}-[^)]+\.md)\)", (folder / "README.md").read_text(encoding="utf-8"))
    assert listed == sorted(file.name for file in folder.glob("0*.md"))


def test_a_batch_passes_at_most_25_files():
    """A step may be added to the walk only after checking whether two of its files are one idea."""
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    walk = page[page.index("## A walk") : page.index("## One op")]
    files = re.findall(r"^(\d+)\. `([\w/]+\.py)`", walk, re.MULTILINE)
    assert [int(number) for number, _ in files] == list(range(1, len(files) + 1))
    assert 15 <= len(files) <= 25
    assert [file for _, file in files if not (SOURCE / file).is_file()] == []
