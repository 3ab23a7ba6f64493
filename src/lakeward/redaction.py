"""Hiding secrets in what is printed, logged, stored as an error or sent to someone.

:func:`redact` is for any text, :func:`redact_address` for a value that should be an address, however mistyped, and
:func:`redact_values` for documents. Every error, log line and command output of Lakeward passes through here; data that
a user requested does not.
"""

from __future__ import annotations

import re
from typing import Any

MASK = "***"

_NAMES = r"passw(?:or)?d|passphrase|pwd|secret|credential|api[_-]?key|access[_-]?key|signature|authorization"
# References to secrets and placeholders are not secrets themselves.
_HARMLESS = r"(?!env:|secret:|…|\*\*\*|['\"]?(?:env:|secret:|…|\*\*\*))"

_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    # scheme://user:password@host. Up to the last @: a password may hold / : ? # and @ without encoding.
    (re.compile(r"(//[^\s/?#:]*:)\S*@"), rf"\1{MASK}@"),
    # The same with a mistyped scheme, and user/password@ as Oracle has it.
    (
        re.compile(
            r"(?i)\b((?:jdbc:)?(?:postgres|mysql|mariadb|oracle|sqlserver|mssql|mongodb|redis|cassandra|https?|s3)"
            r"[\w+]*(?::/?(?!/)|:?\\+))\S*[:/]\S*@"
        ),
        rf"\1{MASK}@",
    ),
    # https://token@host.
    (re.compile(r"(?i)(https?://)[^\s/?#@:]+@"), rf"\1{MASK}@"),
    # The path of a chat tool's webhook is its secret.
    (
        re.compile(
            r"(?i)(https?://(?:hooks\.slack\.com|(?:\w+\.)?discord(?:app)?\.com|[\w.-]*webhook\.office\.com"
            r"|[\w.-]*\.logic\.azure\.com)[^\s/]*/)\S+"
        ),
        rf"\1{MASK}",
    ),
    # name=value, in the options of an address and elsewhere.
    (
        re.compile(rf"(?i)((?:{_NAMES})[\w.-]{{0,40}}\s*=\s*){_HARMLESS}(?:'[^']*'|\"[^\"]*\"|{{[^}}]*}}|[^\s&;]+)"),
        rf"\1{MASK}",
    ),
    (re.compile(rf"(?i)([?&;](?:[\w.-]{{0,40}}token|sig|key|code|user_?info)=){_HARMLESS}[^\s&;#'\"]+"), rf"\1{MASK}"),
    (re.compile(r"(?i)(authorization\W{1,4}\w{1,20}\s+|\bbearer\s+(?=\S*\d))[\w.~+/=-]{8,}"), rf"\1{MASK}"),
)
_WITH_LOGIN = re.compile(r"[A-Za-z][\w+.-]*://[^/?#@]*:[^/?#]*@")
_ADDRESS = re.compile(r"(?P<scheme>[A-Za-z][\w+.-]*:?//)(?P<user>[^\s/?#:]*)")
# What follows a host's colon and is not a port.
_NO_PORT = re.compile(r"(//[^\s/?#:@\[\]]*:)(?!\d{1,5}(?:[/?#,]|$))[^/?#@]+")


def redact(text: str) -> str:
    """Return a text with the passwords, keys and tokens in it hidden."""
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text


def redact_address(address: str) -> str:
    """Return what may be shown of an address, even of a malformed one.

    Before the last ``@``, only a scheme and a user name in their usual form are shown.
    """
    before, at, host = address.rpartition("@")
    if not at:
        return redact(_NO_PORT.sub(rf"\1{MASK}", address))
    found = _ADDRESS.match(before)
    if found is None:
        return redact(f"{MASK}@{host}")
    hidden = "" if found.end() == len(before) else f":{MASK}"
    return redact(f"{found[0]}{hidden}@{host}")


def holds_login(address: str) -> bool:
    """Whether an address holds a user name and a password before its host."""
    return _WITH_LOGIN.match(address) is not None


def redact_values(document: Any) -> Any:
    """Return a document of dicts and lists with the secrets in its texts hidden."""
    if isinstance(document, str):
        return redact(document)
    if isinstance(document, dict):
        return {name: redact_values(value) for name, value in document.items()}
    if isinstance(document, list | tuple):
        return [redact_values(value) for value in document]
    return document
