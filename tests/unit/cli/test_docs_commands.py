"""Every command that a page names exists, with the options that stand beside it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click
import pytest
from tests.unit.pages import PRESENT, ROOT, Mention, code

from lakeward.cli.main import cli

COMMAND = re.compile(r"(?:^\s*|\$ |&& |then )lakeward (?P<rest>[^`|;&#>]*)")
WORD = re.compile(r"[a-z][a-z0-9-]*")
OPTION = re.compile(r"--[a-z][a-z0-9-]*")
# Code in other languages in which a line begins with the program's name.
NO_COMMANDS = {"lakeward import", "lakeward as"}


def named() -> Iterator[tuple[Mention, list[str]]]:
    """Yield each command line on a page as words."""
    for page in PRESENT:
        for number, text in code(page):
            for match in COMMAND.finditer(text):
                words = _words(match["rest"])
                if words and f"lakeward {words[0]}" not in NO_COMMANDS:
                    yield Mention(page, number, match[0].strip()), words


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # a line that goes on in the next, inside quotes
        return text.split()


def mistake(words: list[str]) -> str | None:
    """Return what is wrong with a command line; placeholders and values are not looked at."""
    command: click.Command = cli
    rest = list(words)
    while isinstance(command, click.Group) and rest and WORD.fullmatch(rest[0]):
        name = rest.pop(0)
        if name not in command.commands:
            return f"there is no command {name!r}"
        command = command.commands[name]
    parameters = [*command.get_params(click.Context(command)), *cli.params]
    known = {option for parameter in parameters for option in (*parameter.opts, *parameter.secondary_opts)}
    if isinstance(command, click.Group) and not known.issuperset(rest):
        return None  # the command is a placeholder
    options = [match[0] for word in rest if (match := OPTION.match(word))]
    unknown = [option for option in options if option not in known]
    return f"there is no option {unknown[0]} of {command.name}" if unknown else None


def test_every_command_on_a_page_exists_with_its_options() -> None:
    found = [*named()]
    assert len(found) > 300
    wrong = [f"{mention}   ({why})" for mention, words in found if (why := mistake(words)) is not None]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["run", "sales.product", "--wait"], None),
        (["tables", "set", "T", "--set", "x=1"], None),
        (["runn"], "there is no command 'runn'"),
        (["tables", "sett"], "there is no command 'sett'"),
        (["run", "--wait-long"], "there is no option --wait-long of run"),
    ],
)
def test_what_is_wrong_is_found(words: list[str], wrong: str | None) -> None:
    assert mistake(words) == wrong


def test_the_page_for_users_of_other_systems_names_the_commands_of_each() -> None:
    page = ROOT / "docs/coming-from.md"
    commands = {words[0] if words[0] not in cli.commands or len(words) < 2 else f"{words[0]} {words[1]}"
                for mention, words in named() if mention.page == page}  # fmt: skip
    assert {"tables import", "snapshot adopt", "cassandra export", "cassandra sync"} <= commands
