"""A client of Confluent's schema registry API: schemas by their ids, and our published ones under their subjects."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote, urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

from opicflow.connectors.kafka.properties import KafkaRefused, RegistryAccess
from opicflow.schemas import registry as published
from opicflow.schemas.registry import Schema

_TRIES = 4
_FIRST_PAUSE_SECONDS = 0.2
_TIMEOUT_SECONDS = 10.0
_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_MOST_WORDS = 300
_MOST_KEPT = 10_000


class SchemaRegistry:
    """A schema registry. What it says of an id is asked once: a schema of an id never changes."""

    def __init__(self, access: RegistryAccess, timeout_seconds: float = _TIMEOUT_SECONDS) -> None:
        """Nothing is asked yet."""
        self._url = access.url.rstrip("/")
        self._shown = urlsplit(self._url)._replace(netloc=urlsplit(self._url).netloc.rpartition("@")[2]).geturl()
        self._timeout_seconds = timeout_seconds
        self._schemas: dict[int, Schema | None] = {}
        self._session = requests.Session()
        self._session.headers["Accept"] = f"{_CONTENT_TYPE}, application/json"
        self._session.headers["Connection"] = "close"  # it is asked so rarely that nothing need stay open
        if access.auth is not None:
            self._session.auth = access.auth
        if access.ca is not None:
            self._session.verify = access.ca
        again = Retry(
            total=_TRIES - 1,
            backoff_factor=_FIRST_PAUSE_SECONDS,
            status_forcelist=(500, 502, 503, 504),
            allowed_methods=None,  # all: nothing that is asked here does more when it is asked twice
            raise_on_status=False,
        )
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, HTTPAdapter(max_retries=again))

    def schema(self, schema_id: int) -> Schema | None:
        """The schema of an id; None if there is none, or it is not Avro."""
        if schema_id not in self._schemas:
            if len(self._schemas) >= _MOST_KEPT:  # ids out of damaged messages
                self._schemas.clear()
            answer = self._asked("GET", f"/schemas/ids/{schema_id}")
            self._schemas[schema_id] = None if answer is None else _schema_in(answer)
        return self._schemas[schema_id]

    def subjects(self) -> list[str]:
        """The names of all subjects."""
        return list(self._asked("GET", "/subjects") or [])

    def versions(self, subject: str) -> list[int]:
        """The versions of a subject, oldest first; none if there is no such subject."""
        return sorted(self._asked("GET", f"/subjects/{quote(subject, safe='')}/versions") or [])

    def publish(self, name: str, subject: str) -> int:
        """See to it that the subject knows the latest version of a published schema: the id that it has there.

        An empty subject gets all versions, oldest first: whoever looks there finds a schema of every message ever
        written. One that has versions only gets those after the latest of ours that it knows, so that its latest never
        goes back. A schema that cannot follow what is there is refused before anything is written.
        """
        versions = published.versions(name)
        known = 0  # versions, counted from the oldest
        if self.versions(subject):
            known = next((n for n in range(len(versions), 0, -1) if self._id(name, versions[n - 1], subject)), 0)
            if known < len(versions):
                self._check(name, subject)
                known = known or len(versions) - 1  # others' schemas: ours follow with the latest
        for version in versions[known:]:
            self._register(name, version, subject)
        schema_id = self._id(name, versions[-1], subject)
        if schema_id is None:
            raise self._refused(f"it does not know the schema of {subject} that it was just given: see to it")
        return schema_id

    def _id(self, name: str, version: int, subject: str) -> int | None:
        """The id of one of our schemas in a subject, if that has it."""
        answer = self._asked("POST", f"/subjects/{quote(subject, safe='')}", _body(published.schema(name, version)))
        return None if answer is None else int(answer["id"])

    def _register(self, name: str, version: int, subject: str) -> None:
        path = f"/subjects/{quote(subject, safe='')}/versions"
        if self._asked("POST", path, _body(published.schema(name, version))) is None:
            raise self._refused(f"it takes no schemas for {subject}: see to it that its API is Confluent's")

    def _check(self, name: str, subject: str) -> None:
        """Refuse our latest schema where it cannot follow the latest of a subject."""
        ours = published.schema(name)
        latest = self._asked("GET", f"/subjects/{quote(subject, safe='')}/versions/latest") or {}
        path = f"/compatibility/subjects/{quote(subject, safe='')}/versions/latest?verbose=true"
        answer = self._asked("POST", path, _body(ours)) or {"is_compatible": True}
        reasons = list(answer.get("messages") or ["it gives no reason"]) if not answer.get("is_compatible") else []
        theirs = _schema_in(latest)
        if not reasons:  # a registry may be told to let everything pass; our readers do not
            reasons = ["it is not Avro"] if theirs is None else published.breaks(theirs, ours)
        if reasons:
            raise self._refused(
                f"{name} version {published.versions(name)[-1]} cannot follow version {latest.get('version')} of "
                f"subject {subject}: {_words(reasons[0])}: use another topic, or another registry"
            )

    def _asked(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """What the registry answers; None if it has no such thing."""
        headers = {"Content-Type": _CONTENT_TYPE} if body is not None else {}
        data = None if body is None else json.dumps(body).encode()
        try:
            answer = self._session.request(
                method, self._url + path, data=data, headers=headers, timeout=self._timeout_seconds
            )
        except requests.exceptions.SSLError:
            raise self._refused("its certificate is not trusted: name its authority in the properties file") from None
        except requests.Timeout:
            raise self._refused(f"no answer in {self._timeout_seconds:g} s: see whether it runs") from None
        except requests.ConnectionError:
            raise self._refused("it cannot be reached: see whether it runs, and check its address") from None
        except (requests.RequestException, OSError, ValueError) as problem:  # a URL that is none, a file that is none
            raise self._refused(f"it cannot be asked ({type(problem).__name__}): check its address") from None
        if answer.status_code in (401, 403):
            raise self._refused("it does not let us in: check its user name and password in the properties file")
        try:
            content = answer.json()
        except ValueError:
            raise self._refused(
                f"not a schema registry, it answers {answer.status_code} without JSON: give the URL of its API"
            ) from None
        if answer.status_code == 404 and isinstance(content, dict) and "error_code" in content:
            return None
        if not answer.ok:
            said = content.get("message") if isinstance(content, dict) else None
            raise self._refused(f"it answers {answer.status_code} ({_words(said or 'no reason')}): see to it")
        return content

    def _refused(self, what: str) -> KafkaRefused:
        return KafkaRefused(f"schema registry {self._shown}: {what}")


def _body(schema: Schema) -> dict[str, Any]:
    """A schema as its file says, docs and all."""
    return {"schema": json.dumps(schema)}


def _schema_in(answer: dict[str, Any]) -> Schema | None:
    if answer.get("schemaType", "AVRO") != "AVRO":
        return None
    try:
        schema = json.loads(answer["schema"])
    except (KeyError, TypeError, ValueError):
        return None
    # A type may stand there by its name alone: no record can be that.
    return schema if isinstance(schema, dict) else None


def _words(text: object) -> str:
    return " ".join(str(text).split())[:_MOST_WORDS]
