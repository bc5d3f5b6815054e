"""Tokens of an OAuth 2.0 server for logins by OAUTHBEARER: the client credentials grant."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping
from functools import cache

import requests
from kafka import errors
from kafka.net.sasl.oauth import AbstractTokenProvider

_TIMEOUT_SECONDS = 10.0
_USED_PART = 0.8
"""The share of a token's life after which the next login requests another one."""
_USUAL_LIFE_SECONDS = 300.0
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_ERROR_CODE = re.compile(r"[a-z_]{1,40}")


class TokenRefused(errors.SaslAuthenticationFailedError):  # type: ignore[misc]
    """The token server refuses the client. Another attempt would fail, too."""


class TokenUnavailable(errors.KafkaConnectionError):  # type: ignore[misc]
    """The token server does not answer, or not as it should."""


class ClientTokens(AbstractTokenProvider):  # type: ignore[misc]
    """Requests tokens for a client, and keeps each for most of its life. It shows no secret."""

    def __init__(self, url: str, client: str, secret: str, scope: str, extensions: Mapping[str, str]) -> None:
        """`url` is the token endpoint. `extensions` are sent to the broker with each token."""
        super().__init__()
        self._url, self._client, self._secret, self._scope = url, client, secret, scope
        self._extensions = dict(extensions)
        self._lock = threading.Lock()
        self._token, self._good_until = "", 0.0

    def __repr__(self) -> str:
        """Nothing of the secret."""
        return f"ClientTokens({self._url!r}, {self._client!r})"

    def extensions(self) -> dict[str, str]:
        """Return the fields sent to the broker beside the token."""
        return self._extensions

    def token(self) -> str:
        """Return a token that is valid; raises `TokenRefused` or `TokenUnavailable`."""
        with self._lock:
            if time.monotonic() >= self._good_until:
                self._token, life_seconds = self._request()
                self._good_until = time.monotonic() + _USED_PART * life_seconds
            return self._token

    def _request(self) -> tuple[str, float]:
        form = {"grant_type": "client_credentials", **({"scope": self._scope} if self._scope else {})}
        try:
            answer = requests.post(
                self._url,
                form,
                auth=(self._client.encode(), self._secret.encode()),  # type: ignore[arg-type]  # not as Latin-1
                headers={"Accept": "application/json"},
                timeout=_TIMEOUT_SECONDS,
                allow_redirects=False,
            )
        except requests.exceptions.SSLError:
            raise TokenUnavailable(f"{self._url}: its certificate is not trusted: see REQUESTS_CA_BUNDLE") from None
        except requests.RequestException as problem:
            kind = type(problem).__name__
            raise TokenUnavailable(
                f"{self._url}: the token server does not answer ({kind}): check that it runs"
            ) from None
        try:
            content = answer.json()
        except ValueError:
            content = {}
        content = content if isinstance(content, dict) else {}
        if 400 <= answer.status_code < 500 and answer.status_code != 429:
            code = str(content.get("error", ""))
            why = code if _ERROR_CODE.fullmatch(code) else "no reason given"
            raise TokenRefused(
                f"{self._url}: the token server refuses client {self._client!r} ({answer.status_code}, {why}): "
                "correct the client, its secret or the scope"
            )
        token, life = content.get("access_token"), content.get("expires_in", _USUAL_LIFE_SECONDS)
        if answer.status_code != 200 or not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise TokenUnavailable(f"{self._url}: the token server returns {answer.status_code} and no token: check it")
        return token, float(life) if isinstance(life, int | float) and life > 0 else _USUAL_LIFE_SECONDS


@cache
def client_tokens(
    url: str, client: str, secret: str, scope: str, extensions: tuple[tuple[str, str], ...]
) -> ClientTokens:
    """Return the tokens of a client, which all connections of this process share."""
    return ClientTokens(url, client, secret, scope, dict(extensions))
