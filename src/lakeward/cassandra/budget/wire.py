"""How tasks reach the budget: lines of JSON over TCP, after each side has shown that it knows the job's token."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import secrets
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

NONCE_BYTES, _PROOF_BYTES = 16, 32
GREETING_SECONDS = 10.0


@dataclass(frozen=True)
class BudgetAddress:
    """Where tasks find the budget of their job; the token is not shown."""

    host: str
    port: int
    token: bytes = field(repr=False)


class Line:
    """One connection, which carries documents in both directions."""

    def __init__(self, connection: socket.socket) -> None:
        """Take over a connection."""
        self._connection = connection
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = connection.makefile("rb")

    def send(self, document: Mapping[str, Any]) -> None:
        """Send a document."""
        self._connection.sendall(json.dumps(document).encode() + b"\n")

    def receive(self) -> dict[str, Any] | None:
        """Wait for a document; None: the other side has gone."""
        line = self._reader.readline()
        if not line.endswith(b"\n"):
            return None
        document: dict[str, Any] = json.loads(line)
        return document

    def has_ended(self) -> bool:
        """Tell whether the other side has gone, without waiting. It says nothing while it waits for an answer."""
        self._connection.setblocking(False)
        try:
            return self._connection.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True
        finally:
            self._connection.settimeout(None)

    def hang_up(self) -> None:
        """Wake whoever waits on either side of the connection: it has ended."""
        # The other side may have been faster.
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the connection; not while another thread waits on it."""
        self.hang_up()
        self._reader.close()
        self._connection.close()


def greet_as_server(connection: socket.socket, token: bytes) -> bool:
    """Let a client show that it knows the token, without it going over the line; then show it the same."""
    connection.settimeout(GREETING_SECONDS)
    nonce = secrets.token_bytes(NONCE_BYTES)
    connection.sendall(nonce)
    answer = _exactly(connection, _PROOF_BYTES + NONCE_BYTES)
    if not hmac.compare_digest(answer[:_PROOF_BYTES], _proof(token, b"client", nonce)):
        return False
    connection.sendall(_proof(token, b"server", answer[_PROOF_BYTES:]))
    connection.settimeout(None)
    return True


def greet_as_client(connection: socket.socket, token: bytes) -> bool:
    """Show the server that this task belongs to the job, and see that it is the job's server."""
    connection.settimeout(GREETING_SECONDS)
    nonce = _exactly(connection, NONCE_BYTES)
    own = secrets.token_bytes(NONCE_BYTES)
    connection.sendall(_proof(token, b"client", nonce) + own)
    is_known = hmac.compare_digest(_exactly(connection, _PROOF_BYTES), _proof(token, b"server", own))
    connection.settimeout(None)
    return is_known


def _proof(token: bytes, role: bytes, nonce: bytes) -> bytes:
    return hmac.new(token, role + nonce, hashlib.sha256).digest()


def _exactly(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        part = connection.recv(count - len(found))
        if not part:
            msg = "the other side hung up"
            raise ConnectionError(msg)
        found += part
    return found
