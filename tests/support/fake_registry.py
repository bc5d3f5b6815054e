"""A schema registry in memory, over real HTTP: the part of Confluent's API that is used, as three products have it."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from threading import Barrier, Lock
from typing import Any

from support.http_server import HttpAnswer, HttpRequest, answering

KINDS = ("Confluent", "Karapace", "Apicurio")
"""Confluent's registry and Karapace return the id of a schema to each process that registers it: seen with Karapace
6.2, at one and at two instances. Apicurio returns 409 to those that come while another one registers the first version
of a subject, or sets its compatibility: seen with Apicurio 2.6.13. Here the first one has won when the others are
answered."""

Answer = tuple[int, str, bytes]


class FakeRegistry:
    """A registry of one kind. `instead` may answer first."""

    def __init__(self, kind: str = "Confluent", certificate: Path | None = None) -> None:
        self.kind = kind
        self.subjects: dict[str, list[int]] = {}
        self.schemas: list[dict[str, Any]] = []
        self.compatibility: dict[str, str] = {}
        self.requests: list[tuple[str, str]] = []
        self.credentials: list[str | None] = []
        self.instead: Callable[[str, str], Answer | None] = lambda method, path: None
        self.incompatible: list[str] | None = None
        self.racers = 0
        """So many requests for the versions of a subject are answered together: before any schema is there."""
        self.conflicts = 0
        self._lock, self._barrier = Lock(), Barrier(1)
        self._server = ExitStack()
        self.url = self._server.enter_context(answering(self._respond, certificate))

    def _respond(self, request: HttpRequest) -> HttpAnswer:
        self.requests.append((request.method, request.path))
        self.credentials.append(request.headers.get("Authorization"))
        status, kind, body = self.instead(request.method, request.path) or self.answer(*request[:2], request.body)
        return HttpAnswer(status, body, kind)

    def close(self) -> None:
        """Stop the server."""
        self._server.close()

    def put(self, subject: str, schema: dict[str, Any]) -> int:
        """Register a schema; return its id."""
        if schema not in self.schemas:
            self.schemas.append(schema)
        schema_id = self.schemas.index(schema) + 1
        if schema_id not in self.subjects.setdefault(subject, []):
            self.subjects[subject].append(schema_id)
        return schema_id

    def of(self, subject: str) -> list[dict[str, Any]]:
        """Return the versions of a subject, oldest first."""
        return [self.schemas[number - 1] for number in self.subjects.get(subject, [])]

    def answer(self, method: str, path: str, body: bytes) -> Answer:
        """Answer one request."""
        parts = path.partition("?")[0].strip("/").split("/")
        if self.racers and (method, parts[-1]) == ("GET", "versions"):
            with self._lock:
                if self._barrier.parties != self.racers:
                    self._barrier = Barrier(self.racers)
            self._barrier.wait(timeout=30)
            return _error(404, 40401)
        with self._lock:
            return self._answer(method, parts, json.loads(body) if body else {})

    def _answer(self, method: str, parts: list[str], body: dict[str, Any]) -> Answer:
        schema = json.loads(body["schema"]) if "schema" in body else None
        if parts[:2] == ["schemas", "ids"]:
            number = int(parts[2])
            if not 0 < number <= len(self.schemas):
                return _error(404, 40403)
            return answer_of({"schema": json.dumps(self.schemas[number - 1])})
        if parts == ["subjects"]:
            return answer_of(list(self.subjects))
        if parts[0] == "config":
            return self._set_compatibility(parts[1], body["compatibility"])
        subject = parts[2 if parts[0] == "compatibility" else 1]
        ids = self.subjects.get(subject, [])
        if method == "POST" and parts[0] == "compatibility":
            return answer_of({"is_compatible": self.incompatible is None, "messages": self.incompatible or []})
        if method == "POST" and parts[-1] == "versions":
            assert schema is not None
            if self.racers and self.kind == "Apicurio" and schema in self.of(subject):
                return self._conflict(409, f"An artifact with ID '{subject}' in group 'null' already exists.")
            return answer_of({"id": self.put(subject, schema)})
        if not ids:
            return _error(404, 40401)
        if method == "POST":
            found = schema in self.of(subject)
            return answer_of({"id": self.schemas.index(schema) + 1}) if found else _error(404, 40403)
        if parts[-1] == "latest":
            return answer_of({"version": len(ids), "id": ids[-1], "schema": json.dumps(self.schemas[ids[-1] - 1])})
        return answer_of(list(range(1, len(ids) + 1)))

    def _set_compatibility(self, subject: str, level: str) -> Answer:
        if self.kind == "Apicurio" and self.compatibility.get(subject) == level:
            return self._conflict(0, "A rule named 'COMPATIBILITY' already exists.")
        self.compatibility[subject] = level
        return answer_of({"compatibility": level})

    def _conflict(self, code: int, message: str) -> Answer:
        self.conflicts += 1
        return answer_of({"error_code": code, "message": message}, 409)


def answer_of(value: object, status: int = 200) -> Answer:
    """Return an answer of JSON."""
    return status, "application/json", json.dumps(value).encode()


def _error(status: int, code: int) -> Answer:
    return answer_of({"error_code": code, "message": "not found"}, status)
