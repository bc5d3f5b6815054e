"""Access to the pages: without a token only from this machine."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
from collections.abc import Mapping
from pathlib import Path

from opicflow.connectors.kafka.properties import Secret
from opicflow.schemas.errors import UserError

TOKEN_VARIABLE = "OPICFLOW_TOKEN"
COOKIE = "opicflow"
FEWEST_CHARACTERS = 16
_MOST_TOKEN_BYTES = 1 << 12


class ServeRefused(UserError, ValueError):
    """The pages cannot be served. One line: what, and what to do; never a secret."""


def read_token(file: Path | None, variables: Mapping[str, str] = os.environ) -> Secret | None:
    """Return the token of a file, or of the environment; None if there is none."""
    if file is None:
        token, where = variables.get(TOKEN_VARIABLE, ""), f"variable {TOKEN_VARIABLE}"
        if not token:
            return None
    else:
        where = str(file)
        try:
            with open(file, "rb") as opened:
                token = opened.read(_MOST_TOKEN_BYTES).decode("utf-8").strip()
        except OSError as problem:
            raise ServeRefused(f"{file}: cannot be read ({problem.strerror}): name a file with the token") from None
        except UnicodeDecodeError:
            raise ServeRefused(f"{file}: no UTF-8: write the token as text") from None
    if len(token) < FEWEST_CHARACTERS or not token.isascii() or not token.isprintable():
        raise ServeRefused(
            f"{where}: no token: give {FEWEST_CHARACTERS} or more letters and digits (openssl rand -hex 24)"
        )
    return Secret(token)


def is_this_machine(host: str) -> bool:
    """Whether a host is reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_token(given: str, token: str) -> bool:
    """Whether this is the token; the time taken does not depend on how many characters agree."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())


def cookie_of(token: str) -> str:
    """Return the value of the cookie that a browser sends instead of the token."""
    return hmac.new(token.encode(), b"opicflow serve", hashlib.sha256).hexdigest()
