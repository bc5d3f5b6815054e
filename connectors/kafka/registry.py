"""A client of Confluent's schema registry API: schemas by their ids, and our published ones under their subjects."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from threading import Event
from typing import Any
from urllib.parse import quote, urlsplit

import requests
from requests.adapters import HTTPAdapter
from requests.utils import get_netrc_auth
from urllib3.exceptions import ReadTimeoutError
from urllib3.util.retry import Retry

from opicflow.connectors.kafka.properties import KafkaRefused, RegistryAccess, is_this_machine, warn_once
from opicflow.schemas import published_schemas as published
from opicflow.schemas.framing import FramingRefused
from opicflow.schemas.published_schemas import Schema

_CONFLICT = 409
_TRIES = 4
_TRIES_WHILE_BUSY = 7
"""Of a request that the registry answers with an error of its own: together 12 s, in which it elects a leader."""
_FIRST_PAUSE_SECONDS = 0.2
_TIMEOUT_SECONDS = 10.0
_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_MOST_WORDS = 300
_MOST_KEPT = 10_000
COMPATIBILITY = "FULL_TRANSITIVE"
"""The requirement of a new subject on later versions: each can be read as each other one. That is what we promise."""
MOST_UNKNOWN = 60
"""Ids that the registry does not know, and that are requested within `UNKNOWN_SECONDS`; further ones are not."""
UNKNOWN_SECONDS = 60.0
"""For so long an id that the registry does not know is not requested again."""

MOST_RESPONSE_BYTES = 16 << 20
"""A response of a registry has no more: lists of subjects are the longest."""
_PART_BYTES = 1 << 16


class _RegistryRefused(KafkaRefused):
    """The registry cannot be used: it refuses a request with this HTTP status, or 0: there is another reason."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class SchemaRegistry:
    """A schema registry. Schemas are requested once per id, because the schema of an id never changes.

    Whoever writes to a topic chooses the ids in its messages. So requests for ids that turn out to be unknown are few:
    at most `MOST_UNKNOWN` in `UNKNOWN_SECONDS`. The registry's own schemas are not among them, however many there are.
    """

    def __init__(
        self,
        access: RegistryAccess,
        timeout_seconds: float = _TIMEOUT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """The first request is made by the first call. `clock` counts seconds."""
        self._url = access.url.rstrip("/")
        self._shown = urlsplit(self._url)._replace(netloc=urlsplit(self._url).netloc.rpartition("@")[2]).geturl()
        self._timeout_seconds = timeout_seconds
        self._schemas: dict[int, Schema | None] = {}
        self._unknown: dict[int, float] = {}
        self._clock = clock
        self._session = requests.Session()
        self._session.headers["Accept"] = f"{_CONTENT_TYPE}, application/json"
        self._session.headers["Connection"] = "close"  # requests are rare, so no connection stays open
        if access.auth is not None:
            self._session.auth = access.auth
        self._ca = access.ca
        if access.auth is not None or "@" in urlsplit(self._url).netloc or get_netrc_auth(self._url):
            self._warn_without_tls()
        retry = Retry(
            total=None,
            connect=_TRIES - 1,
            read=_TRIES - 1,
            status=_TRIES_WHILE_BUSY - 1,
            other=0,
            backoff_factor=_FIRST_PAUSE_SECONDS,
            status_forcelist=(429, 500, 502, 503, 504),
            allowed_methods=None,  # all methods: every request here may be repeated
            raise_on_status=False,
        )
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, HTTPAdapter(max_retries=retry))

    def schema(self, schema_id: int) -> Schema | None:
        """Return the schema of an id; None if there is none, or it is not Avro.

        Raises `FramingRefused` for an id that was not requested, because too many unknown ones were.
        """
        if schema_id in self._schemas:
            return self._schemas[schema_id]
        now = self._clock()
        while self._unknown and now - next(iter(self._unknown.values())) >= UNKNOWN_SECONDS:
            del self._unknown[next(iter(self._unknown))]
        if schema_id in self._unknown:
            return None
        if len(self._unknown) >= MOST_UNKNOWN:
            raise FramingRefused(
                f"schema id {schema_id} was not looked up: {MOST_UNKNOWN} unknown ids arrived within "
                f"{UNKNOWN_SECONDS:.0f} s: if the registry has it, send the message again"
            )
        answer = self._request("GET", f"/schemas/ids/{schema_id}")
        if answer is None:
            self._unknown[schema_id] = now
            return None
        if len(self._schemas) >= _MOST_KEPT:
            self._schemas.clear()
        found = self._schemas[schema_id] = _schema_in(answer)
        return found

    def subjects(self) -> list[str]:
        """Return the names of all subjects."""
        return list(self._request("GET", "/subjects") or [])

    def versions(self, subject: str) -> list[int]:
        """Return the versions of a subject, oldest first; none if there is no such subject."""
        return sorted(self._request("GET", f"/subjects/{_quoted(subject)}/versions") or [])

    def publish(self, name: str, subject: str) -> int:
        """Register the latest version of a published schema under a subject, if needed; returns its id.

        An empty subject gets all versions, oldest first, so it has a schema for every message ever written; it also
        gets `COMPATIBILITY`. A subject with versions keeps its setting, and gets only the versions after the latest of
        ours that it has, so its latest version never becomes an older one. A schema that is incompatible with the
        latest one is refused before anything is registered. Many processes may do the same at once.
        """
        versions = published.versions(name)
        registered = self._id(name, versions[-1], subject)
        if registered is not None:
            return registered
        if not self.versions(subject):
            is_set = self._set_compatibility(subject)
            ids = [self._register(name, version, subject) for version in versions]
            if not is_set:
                self._set_compatibility(subject)
            return ids[-1]
        known = next((n for n in range(len(versions) - 1, 0, -1) if self._id(name, versions[n - 1], subject)), 0)
        self._check(name, subject)
        missing = versions[known:] if known else versions[-1:]  # beside schemas of others, only our latest version
        return [self._register(name, version, subject) for version in missing][-1]

    def _set_compatibility(self, subject: str) -> bool:
        """Set the compatibility of a subject, unless the registry has no settings for a subject without versions."""
        try:
            return self._request("PUT", f"/config/{_quoted(subject)}", {"compatibility": COMPATIBILITY}) is not None
        except _RegistryRefused as problem:
            if problem.status != _CONFLICT:  # Apicurio: another process sets it
                warn_once(f"{problem}; the compatibility of {subject} stays as it is: have it set to {COMPATIBILITY}")
            return True

    def _id(self, name: str, version: int, subject: str) -> int | None:
        """Return the id of one of our schemas in a subject, None if the subject does not have it."""
        answer = self._request("POST", f"/subjects/{_quoted(subject)}", _body(published.schema(name, version)))
        return None if answer is None else int(answer["id"])

    def _register(self, name: str, version: int, subject: str) -> int:
        """Register one of our schemas, and return its id.

        If another process registers it at the same time, Confluent's registry and Karapace return its id to both, and
        Apicurio returns 409 to one client. All three return 409 for an incompatible schema too: then it is not there.
        """
        path, body = f"/subjects/{_quoted(subject)}/versions", _body(published.schema(name, version))
        for attempt in range(1, _TRIES + 1):
            try:
                answer = self._request("POST", path, body)
            except _RegistryRefused as problem:
                if problem.status != _CONFLICT:
                    raise
                if (known := self._id(name, version, subject)) is not None:
                    return known
                if attempt == _TRIES:
                    raise
                Event().wait(_FIRST_PAUSE_SECONDS * 2**attempt)
            else:
                if answer is None:
                    break
                return int(answer["id"])
        raise self._refused(f"it accepts no schemas for {subject}: check that its API is Confluent's")

    def _check(self, name: str, subject: str) -> None:
        """Refuse our latest schema if it is incompatible with the latest of a subject."""
        ours = published.schema(name)
        latest = self._request("GET", f"/subjects/{_quoted(subject)}/versions/latest") or {}
        path = f"/compatibility/subjects/{_quoted(subject)}/versions/latest?verbose=true"
        answer = self._request("POST", path, _body(ours)) or {"is_compatible": True}
        reasons = list(answer.get("messages") or ["it gives no reason"]) if not answer.get("is_compatible") else []
        theirs = _schema_in(latest)
        if not reasons:  # a registry may accept everything; our readers do not
            reasons = ["it is not Avro"] if theirs is None else published.breaks(theirs, ours)
        if reasons:
            raise self._refused(
                f"{name} version {published.versions(name)[-1]} cannot follow version {latest.get('version')} of "
                f"subject {subject}: {_words(reasons[0])}: use another topic, or another registry"
            )

    def _request(self, method: str, path: str, body: dict[str, str] | None = None) -> Any:
        """Return the content of the response; None if the registry has no such subject, version or id."""
        headers = {"Content-Type": _CONTENT_TYPE} if body is not None else {}
        data = None if body is None else json.dumps(body).encode()
        try:
            answer = self._session.request(
                method,
                self._url + path,
                data=data,
                headers=headers,
                timeout=self._timeout_seconds,
                stream=True,
                allow_redirects=False,
                verify=self._ca,  # that of the session would be replaced by REQUESTS_CA_BUNDLE
            )
        except requests.exceptions.SSLError:
            raise self._refused("its certificate is not trusted: name its authority in the properties file") from None
        except (requests.Timeout, requests.ConnectionError) as problem:
            if _is_timeout(problem):
                reason = f"no answer in {self._timeout_seconds:g} s, {_TRIES} times: check that it runs"
            else:
                reason = "it cannot be reached: check that it runs, and its address"
            raise self._refused(reason) from None
        except (requests.RequestException, OSError, ValueError) as problem:  # a malformed URL, a missing file
            raise self._refused(f"the request failed ({type(problem).__name__}): check its address") from None
        if answer.status_code in (401, 403):
            answer.close()
            reason = "it refuses the login: check user name and password in the properties file"
            raise self._refused(reason, answer.status_code)
        if answer.is_redirect:
            answer.close()
            to = urlsplit(answer.headers["Location"]).netloc.rpartition("@")[2] or "another path"
            reason = f"it redirects to {_words(to)}, which is not followed: if the registry is there, give that address"
            raise self._refused(reason, answer.status_code)
        data = self._read_bytes(answer)
        try:
            content = json.loads(data)
        except (ValueError, RecursionError):
            code = answer.status_code
            if code >= 500:  # Karapace, while it elects a leader
                reason = f"it returns {code} (no reason): check its log"
            else:
                reason = f"not a schema registry, it returns {code} without JSON: give the URL of its API"
            raise self._refused(reason, code) from None
        if answer.status_code == 404 and isinstance(content, dict) and "error_code" in content:
            return None
        if not answer.ok:
            message = content.get("message") if isinstance(content, dict) else None
            reason = f"it returns {answer.status_code} ({_words(message or 'no reason')}): check its log"
            raise self._refused(reason, answer.status_code)
        return content

    def _read_bytes(self, answer: requests.Response) -> bytes:
        """Return the bytes of a response, decompressed, of which there may be so many."""
        data = bytearray()
        try:
            for part in answer.iter_content(_PART_BYTES):
                data += part
                if len(data) > MOST_RESPONSE_BYTES:
                    raise self._refused(
                        f"its response is longer than {MOST_RESPONSE_BYTES:,} bytes: check what runs at its address"
                    )
        except (requests.RequestException, OSError) as problem:
            raise self._refused(f"its response ended early ({type(problem).__name__}): check that it runs") from None
        finally:
            answer.close()
        return bytes(data)

    def _warn_without_tls(self) -> None:
        """Print one line if everybody on the way to another machine can read the password."""
        parts = urlsplit(self._url)
        if parts.scheme != "https" and not is_this_machine(parts.hostname or ""):
            warn_once(f"schema registry {self._shown}: the password is sent without encryption: use https")

    def _refused(self, reason: str, status: int = 0) -> _RegistryRefused:
        return _RegistryRefused(f"schema registry {self._shown}: {reason}", status)


def _is_timeout(problem: requests.RequestException) -> bool:
    """Whether no answer came in time: after its last try, requests has another exception for that."""
    last_try = problem.args[0] if problem.args else None
    return isinstance(problem, requests.Timeout) or isinstance(getattr(last_try, "reason", None), ReadTimeoutError)


def _quoted(subject: str) -> str:
    return quote(subject, safe="")


def _body(schema: Schema) -> dict[str, str]:
    """Return the body of a request with a schema."""
    return {"schema": json.dumps(schema)}


def _schema_in(answer: dict[str, Any]) -> Schema | None:
    if answer.get("schemaType", "AVRO") != "AVRO":
        return None
    try:
        schema = json.loads(answer["schema"])
    except (KeyError, TypeError, ValueError):
        return None
    # It may be the name of a type, which no record can have.
    return schema if isinstance(schema, dict) else None


def _words(text: object) -> str:
    return " ".join(str(text).split())[:_MOST_WORDS]
