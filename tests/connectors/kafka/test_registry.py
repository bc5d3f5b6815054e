"""The schema registry: requests, published versions, refusals, and the framing of messages."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPResponse
from urllib3.exceptions import MaxRetryError

from deploy.services.certificates import authority_and_server
from opicflow.connectors.kafka import registry as _registry_module
from opicflow.connectors.kafka.client import FetchedRecords, message_batch
from opicflow.connectors.kafka.connection import Connection, KafkaRefused
from opicflow.connectors.kafka.messages import Framer, decode_messages, register_schemas, writer_of
from opicflow.connectors.kafka.properties import RegistryAccess, warn_once
from opicflow.connectors.kafka.registry import (
    COMPATIBILITY,
    MOST_RESPONSE_BYTES,
    MOST_UNKNOWN,
    UNKNOWN_SECONDS,
    SchemaRegistry,
)
from opicflow.schemas import published_schemas as published
from opicflow.schemas.framing import Decoder, Frame, FrameKind, FramingRefused
from opicflow.schemas.records import Policy, from_avro, to_avro
from support.fake_registry import KINDS, Answer, FakeRegistry, answer_of

STRANGER = {"type": "record", "name": "Policy", "fields": [{"name": "rules_version", "type": "string"}]}


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    registry = FakeRegistry()
    yield registry
    registry.close()


@pytest.fixture(params=KINDS)
def each_kind(request: pytest.FixtureRequest) -> Iterator[FakeRegistry]:
    """A registry of each kind."""
    registry = FakeRegistry(request.param)
    yield registry
    registry.close()


def client(fake: FakeRegistry, **more: Any) -> SchemaRegistry:
    return SchemaRegistry(RegistryAccess(fake.url, **more))


ALL_OF_POLICY = [
    {**published.schema("Policy"), "fields": [*published.schema("Policy")["fields"], *added]}
    for added in ([], [{"name": "added", "type": "int", "default": 0}])
]
"""The published version, and one after it."""


@pytest.fixture
def two_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Publish a second version of the schema."""
    monkeypatch.setattr(published, "versions", lambda name: (1, 2))
    monkeypatch.setattr(published, "schema", lambda name, version=2: ALL_OF_POLICY[version - 1])


@pytest.mark.usefixtures("two_versions")
def test_an_empty_subject_gets_all_published_versions_in_order(fake: FakeRegistry) -> None:
    schema_id = client(fake).publish("Policy", "a-value")
    assert fake.of("a-value") == ALL_OF_POLICY
    assert fake.schemas[schema_id - 1] == ALL_OF_POLICY[-1]


@pytest.mark.usefixtures("two_versions")
def test_publishing_again_writes_nothing(fake: FakeRegistry) -> None:
    first = client(fake).publish("Policy", "a-value")
    fake.requests.clear()
    assert client(fake).publish("Policy", "a-value") == first
    assert ("POST", "/subjects/a-value/versions") not in fake.requests


@pytest.mark.usefixtures("two_versions")
def test_processes_that_register_the_same_at_once_all_get_its_id(each_kind: FakeRegistry) -> None:
    each_kind.racers = 6
    found: list[int] = []
    threads = [Thread(target=lambda: found.append(client(each_kind).publish("Policy", "a-value"))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [2] * 6
    assert each_kind.of("a-value") == ALL_OF_POLICY
    assert each_kind.conflicts > 0 or each_kind.kind != "Apicurio"


def test_a_conflict_with_the_schema_of_another_program_is_tried_again(fake: FakeRegistry) -> None:
    """The other program registers its schema between the request for versions and ours."""
    other = {**published.schema("Policy"), "namespace": "others"}
    conflicts = iter([answer_of({"error_code": 409, "message": "already exists"}, 409)])

    def instead(method: str, path: str) -> Answer | None:
        if (method, path) == ("POST", "/subjects/a-value/versions") and not fake.subjects.get("a-value"):
            fake.put("a-value", other)
            return next(conflicts)
        return None

    fake.instead = instead
    client(fake).publish("Policy", "a-value")
    assert fake.of("a-value") == [other, published.schema("Policy")]


def test_a_conflict_that_stays_is_refused_with_the_words_of_the_registry(fake: FakeRegistry) -> None:
    refusal = answer_of({"error_code": 409, "message": "Incompatible schema"}, 409)
    fake.instead = lambda method, path: refusal if path == "/subjects/a-value/versions" and method == "POST" else None
    with pytest.raises(KafkaRefused, match=r"it returns 409 \(Incompatible schema\): check its log"):
        client(fake).publish("Policy", "a-value")
    assert fake.of("a-value") == []


def test_a_new_subject_requires_that_each_version_can_be_read_as_each_other(each_kind: FakeRegistry) -> None:
    client(each_kind).publish("Policy", "a-value")
    assert each_kind.compatibility == {"a-value": "FULL_TRANSITIVE"}


def test_a_subject_with_versions_keeps_its_compatibility(fake: FakeRegistry) -> None:
    fake.put("a-value", published.schema("Policy"))
    fake.put("b-value", {**published.schema("Policy"), "namespace": "others"})
    for subject in ("a-value", "b-value"):
        client(fake).publish("Policy", subject)
    assert fake.compatibility == {}


@pytest.mark.parametrize("status", [401, 403, 405, 422])
def test_a_registry_that_forbids_its_settings_gets_the_schemas_and_a_warning(
    fake: FakeRegistry, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    warn_once.cache_clear()
    refusal = answer_of({"error_code": status, "message": "User is denied operation"}, status)
    fake.instead = lambda method, path: refusal if path.startswith("/config") else None
    client(fake).publish("Policy", "a-value")
    assert fake.of("a-value") == [published.schema("Policy")]
    warning = capsys.readouterr().err
    assert warning.count("\n") == 1
    assert warning.endswith("the compatibility of a-value stays as it is: have it set to FULL_TRANSITIVE\n")


def test_what_is_registered_is_only_looked_up(fake: FakeRegistry) -> None:
    schemas = {"t-importance": "Importance", "t-rejects": "Reject"}
    connection = Connection("127.0.0.1:1", registry=fake.url)
    register_schemas(connection, schemas)
    assert {name: fake.of(name) for name in fake.subjects} == {
        f"{topic}-value": [published.schema(name)] for topic, name in schemas.items()
    }
    fake.requests.clear()
    for topic, name in schemas.items():
        assert Framer(connection, topic, name).prefix[:1] == b"\x00"
    assert fake.requests == [("POST", f"/subjects/{topic}-value") for topic in schemas]


def test_without_a_registry_nothing_is_registered() -> None:
    register_schemas(Connection("127.0.0.1:1"), {"t-importance": "Importance"})


@pytest.mark.usefixtures("two_versions")
def test_a_subject_with_an_older_version_gets_the_later_ones(fake: FakeRegistry) -> None:
    fake.put("a-value", ALL_OF_POLICY[0])
    client(fake).publish("Policy", "a-value")
    assert fake.of("a-value") == ALL_OF_POLICY


@pytest.mark.usefixtures("two_versions")
def test_a_subject_that_started_with_the_latest_version_keeps_it_as_its_latest(fake: FakeRegistry) -> None:
    fake.put("a-value", ALL_OF_POLICY[-1])
    client(fake).publish("Policy", "a-value")
    assert fake.of("a-value") == ALL_OF_POLICY[-1:]


@pytest.mark.usefixtures("two_versions")
def test_a_compatible_foreign_schema_is_followed_by_the_latest(fake: FakeRegistry) -> None:
    other = {**ALL_OF_POLICY[0], "namespace": "others"}
    fake.put("a-value", other)
    client(fake).publish("Policy", "a-value")
    assert fake.of("a-value") == [other, ALL_OF_POLICY[-1]]


@pytest.mark.usefixtures("two_versions")
def test_a_schema_that_the_registry_finds_incompatible_is_refused_with_its_first_reason(fake: FakeRegistry) -> None:
    fake.put("a-value", ALL_OF_POLICY[0])
    fake.incompatible = ["READER_FIELD_MISSING_DEFAULT_VALUE at /fields/3", "and more"]
    with pytest.raises(KafkaRefused, match=r"Policy version 2 cannot follow version 1 of subject a-value: READER_F"):
        client(fake).publish("Policy", "a-value")
    assert fake.of("a-value") == ALL_OF_POLICY[:1], "nothing may be written"


def test_a_schema_that_opicflow_cannot_read_is_refused_even_if_the_registry_accepts_it(fake: FakeRegistry) -> None:
    fake.put("a-value", STRANGER)
    with pytest.raises(KafkaRefused, match=r"version 1 of subject a-value: .*rules_version"):
        client(fake).publish("Policy", "a-value")
    assert fake.of("a-value") == [STRANGER]


def test_a_schema_is_requested_once(fake: FakeRegistry) -> None:
    number = fake.put("a-value", ALL_OF_POLICY[0])
    registry = client(fake)
    assert [registry.schema(number) for _ in range(3)] == [ALL_OF_POLICY[0]] * 3
    assert [registry.schema(99) for _ in range(3)] == [None] * 3
    assert len(fake.requests) == 2
    assert registry.subjects() == ["a-value"]


def test_only_so_many_schemas_are_kept(fake: FakeRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opicflow.connectors.kafka.registry._MOST_KEPT", 1)
    first, second = fake.put("a-value", ALL_OF_POLICY[0]), fake.put("a-value", ALL_OF_POLICY[1])
    registry = client(fake)
    assert [registry.schema(number) for number in (first, second, second, first)] == [
        ALL_OF_POLICY[0],
        ALL_OF_POLICY[1],
        ALL_OF_POLICY[1],
        ALL_OF_POLICY[0],
    ]
    assert len(fake.requests) == 3 and len(registry._schemas) == 1


@pytest.mark.parametrize("answer", [{"schema": '"string"'}, {"schema": "{}}", "schemaType": "PROTOBUF"}, {}])
def test_a_schema_that_is_not_an_avro_record_is_ignored(fake: FakeRegistry, answer: object) -> None:
    fake.instead = lambda method, path: answer_of(answer)
    assert client(fake).schema(1) is None


def test_ids_that_the_registry_does_not_know_make_few_requests(fake: FakeRegistry) -> None:
    known = [fake.put(f"s{number}", {**STRANGER, "name": f"Policy{number}"}) for number in range(200)]
    seconds = [0.0]
    registry = SchemaRegistry(RegistryAccess(fake.url), clock=lambda: seconds[0])
    assert all(registry.schema(one) is not None for one in known)  # those of the registry do not count
    before = len(fake.requests)
    refused = 0
    for number in range(10_000, 12_000):
        try:
            assert registry.schema(number) is None
        except FramingRefused as problem:
            refused += 1
            assert "send the message again" in str(problem) and "\n" not in str(problem)
    assert len(fake.requests) - before == MOST_UNKNOWN == 2000 - refused
    assert registry.schema(10_000) is None and registry.schema(known[0]) is not None
    assert len(fake.requests) - before == MOST_UNKNOWN
    seconds[0] = UNKNOWN_SECONDS
    assert registry.schema(11_999) is None
    assert len(fake.requests) - before == MOST_UNKNOWN + 1


def test_a_schema_that_is_published_later_is_found_after_a_minute(fake: FakeRegistry) -> None:
    seconds = [0.0]
    registry = SchemaRegistry(RegistryAccess(fake.url), clock=lambda: seconds[0])
    assert registry.schema(1) is None
    assert fake.put("s", STRANGER) == 1
    assert registry.schema(1) is None
    seconds[0] = UNKNOWN_SECONDS
    assert registry.schema(1) == STRANGER


def test_messages_with_ids_that_were_not_looked_up_are_rejects_with_their_reason(fake: FakeRegistry) -> None:
    connection = Connection("127.0.0.1:1", registry=fake.url)
    values = [b"\x00" + number.to_bytes(4, "big") + b"body" for number in range(5000, 5100)]
    records = [FetchedRecords.of(0, [(offset, 5, None, value) for offset, value in enumerate(values)])]
    decoded = decode_messages(message_batch(records, 0, 100), "kafka/t/0", writer_of(connection))
    reasons = [reject.detail for reject in decoded.rejects]
    assert len(reasons) == 100
    assert sum("was not looked up" in reason for reason in reasons) == 100 - MOST_UNKNOWN
    assert len(fake.requests) == MOST_UNKNOWN


def test_a_failed_request_is_repeated(fake: FakeRegistry) -> None:
    number = fake.put("a-value", ALL_OF_POLICY[0])
    stumbles = iter([answer_of({"message": "busy"}, 503), (502, "text/html", b"<html>")])
    fake.instead = lambda method, path: next(stumbles, None)
    assert client(fake).schema(number) == ALL_OF_POLICY[0]
    assert len(fake.requests) == 3


@pytest.mark.usefixtures("short_pauses")
def test_requests_that_fail_repeatedly_are_an_error(fake: FakeRegistry) -> None:
    fake.instead = lambda method, path: answer_of({"error_code": 50001, "message": "no\nstore"}, 500)
    with pytest.raises(KafkaRefused, match=r"^schema registry http://\S+: it returns 500 \(no store\): check its log$"):
        client(fake).schema(1)
    assert len(fake.requests) == 7


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the pauses between the tries of a request a hundred times as short."""
    monkeypatch.setattr(_registry_module, "_FIRST_PAUSE_SECONDS", _registry_module._FIRST_PAUSE_SECONDS / 100)


@pytest.mark.usefixtures("short_pauses")
def test_a_registry_that_elects_a_leader_gets_the_schema_when_it_has_one(fake: FakeRegistry) -> None:
    """The answers of Karapace between the loss of its leader and the election of another one."""
    no_leader = answer_of({"error_code": 50003, "message": "Error while forwarding the request to the master."}, 500)
    answers = iter([(500, "text/plain", b"Internal Server Error"), *[no_leader] * 5])
    fake.instead = lambda method, path: next(answers, None) if path.endswith("/versions") and method == "POST" else None
    assert client(fake).publish("Policy", "a-value") == 1
    assert fake.of("a-value") == [published.schema("Policy")]


def test_a_registry_has_ten_seconds_to_elect_a_leader(fake: FakeRegistry) -> None:
    """Karapace needed 5 s after its first answer."""
    adapter = client(fake)._session.get_adapter("http://")
    assert isinstance(adapter, HTTPAdapter)
    retry, seconds = adapter.max_retries, 0.0
    with suppress(MaxRetryError):
        while True:
            retry = retry.increment("GET", "/", response=HTTPResponse(status=500))
            seconds += retry.get_backoff_time()
    assert 10 <= seconds <= 20


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((200, "text/html", b"<html>welcome</html>"), "not a schema registry, it returns 200 without JSON"),
        ((404, "text/html", b"<html>nothing here</html>"), "not a schema registry"),
        ((404, "application/json", b'{"status": 404}'), "it returns 404"),
        ((501, "text/plain", b"Internal Server Error"), r"it returns 501 \(no reason\): check its log"),
        ((401, "application/json", b'{"error_code": 401}'), "it refuses the login"),
        ((403, "text/html", b""), "it refuses the login"),
        ((422, "application/json", b'{"error_code": 42201, "message": "Invalid schema"}'), "Invalid schema"),
    ],
)
def test_an_invalid_answer_gives_one_line_of_error(fake: FakeRegistry, answer: Answer, message: str) -> None:
    fake.instead = lambda method, path: answer
    with pytest.raises(KafkaRefused, match=message) as refused:
        client(fake, auth=("ada", "open sesame")).publish("Policy", "a-value")
    assert "\n" not in str(refused.value)
    assert "sesame" not in str(refused.value)
    assert fake.url in str(refused.value)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed_whoever_is_there(fake: FakeRegistry, status: int) -> None:
    """A registry, or whoever answers instead of it, could send requests, and passwords, to any service within reach."""
    other = FakeRegistry()
    try:
        address = other.url.removeprefix("http://")
        fake.instead = lambda method, path: (status, f"text/html\r\nLocation: http://ada:sesame@{address}{path}", b"")
        message = rf"it redirects to {address}, which is not followed: if the registry is there, give that address"
        for request in (client(fake).subjects, lambda: client(fake).publish("Policy", "a-value")):
            with pytest.raises(KafkaRefused, match=message) as refused:
                request()
            assert "\n" not in str(refused.value) and "sesame" not in str(refused.value)
        assert other.requests == []
        fake.instead = lambda method, path: (status, "text/html\r\nLocation: /elsewhere", b"")
        with pytest.raises(KafkaRefused, match="it redirects to another path"):
            client(fake).subjects()
    finally:
        other.close()


def test_an_unreachable_registry_is_refused_without_secrets(fake: FakeRegistry) -> None:
    fake.close()
    address = fake.url.replace("http://", "http://ada:sesame@")
    with pytest.raises(KafkaRefused, match=r"schema registry http://127\S+: it cannot be reached") as refused:
        SchemaRegistry(RegistryAccess(address, ("ada", "open sesame"))).schema(1)
    assert "sesame" not in str(refused.value)


def test_a_registry_that_does_not_answer_in_time_is_refused() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        registry = SchemaRegistry(RegistryAccess(f"http://127.0.0.1:{silent.getsockname()[1]}"), timeout_seconds=0.05)
        with pytest.raises(KafkaRefused, match=r"no answer in 0\.05 s, 4 times: check that it runs"):
            registry.schema(1)


def test_name_and_password_are_sent_and_not_shown(fake: FakeRegistry) -> None:
    registry = client(fake, auth=("ada", "open sesame"))
    registry.subjects()
    assert fake.credentials == ["Basic YWRhOm9wZW4gc2VzYW1l"]
    assert "sesame" not in repr(registry)


# -- whom it trusts, and who can read the password


@pytest.mark.parametrize("variable", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_only_the_authority_of_the_properties_file_is_trusted_whatever_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    names = ("pinned", "other")
    for name in names:
        authority, server = authority_and_server("127.0.0.1")
        (tmp_path / f"{name}-ca.pem").write_bytes(authority)
        (tmp_path / f"{name}.pem").write_bytes(server)
    pinned = str(tmp_path / "pinned-ca.pem")
    for name in names:
        monkeypatch.setenv(variable, str(tmp_path / f"{'other' if name == 'pinned' else name}-ca.pem"))
        fake = FakeRegistry(certificate=tmp_path / f"{name}.pem")
        try:
            if name == "pinned":
                assert client(fake, ca=pinned).subjects() == []
            else:
                with pytest.raises(KafkaRefused, match="its certificate is not trusted"):
                    client(fake, ca=pinned).subjects()
                assert fake.requests == []
        finally:
            fake.close()


@pytest.mark.parametrize(
    ("access", "warns"),
    [
        (RegistryAccess("http://registry.example:8081/x", ("ada", "sesame")), True),
        (RegistryAccess("http://ada:sesame@registry.example:8081/x"), True),
        (RegistryAccess("http://127.0.0.1.registry.example/x", ("ada", "sesame")), True),
        (RegistryAccess("https://registry.example:8081/x", ("ada", "sesame")), False),
        (RegistryAccess("http://registry.example:8081/x"), False),
        (RegistryAccess("http://localhost:8081/x", ("ada", "sesame")), False),
        (RegistryAccess("http://127.0.0.7:8081/x", ("ada", "sesame")), False),
        (RegistryAccess("http://[::1]:8081/x", ("ada", "sesame")), False),
    ],
)
def test_a_password_over_http_to_another_machine_is_warned_of_once_and_not_shown(
    access: RegistryAccess, warns: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    warn_once.cache_clear()
    for _ in range(2):
        SchemaRegistry(access)
    out, lines = capsys.readouterr()
    assert out == "" and lines.count("\n") == int(warns)
    if warns:
        assert "the password is sent without encryption: use https" in lines
        assert urlsplit(access.url).hostname in lines
        assert "sesame" not in lines and "ada" not in lines


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"[" * 200_000, "without JSON"),
        (b'["' + b"x" * (MOST_RESPONSE_BYTES + 1) + b'"]', "its response is longer than 16,777,216 bytes"),
    ],
)
def test_a_response_that_is_too_deep_or_too_long_is_refused_in_one_line(
    fake: FakeRegistry, body: bytes, message: str
) -> None:
    fake.instead = lambda method, path: (200, "application/json", body)
    with pytest.raises(KafkaRefused, match=message) as refused:
        SchemaRegistry(RegistryAccess(fake.url)).subjects()
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 300


# -- framing -----------------------------------------------------------------------------------------------------------


POLICY = Policy(url="https://example.org/", refresh_interval_seconds=3600.0)


def test_messages_have_the_id_of_the_registry_and_are_decoded_with_it(fake: FakeRegistry) -> None:
    connection = Connection("127.0.0.1:1", registry=fake.url)
    framer = Framer(connection, "t-policies", "Policy")
    message = framer.encode(to_avro(POLICY))
    assert message.startswith(framer.prefix)
    assert framer.prefix == b"\x00" + fake.put("t-policies-value", published.schema("Policy")).to_bytes(4, "big")
    fake.requests.clear()
    assert from_avro(Policy, Decoder("Policy", writer_of(connection)).decode(message)) == POLICY
    assert [path for _, path in fake.requests] == ["/schemas/ids/1"]


def test_messages_without_a_registry_are_single_objects() -> None:
    connection = Connection("127.0.0.1:1")
    framer = Framer(connection, "t-policies", "Policy")
    assert framer.prefix == b"\xc3\x01" + published.fingerprint("Policy").to_bytes(8, "little")
    message = framer.encode(to_avro(POLICY))
    assert message.startswith(framer.prefix)
    assert from_avro(Policy, Decoder("Policy", writer_of(connection)).decode(message)) == POLICY
    assert writer_of(connection)(Frame(FrameKind.CONFLUENT, 1)) is None


def test_single_objects_are_decoded_with_a_registry_too(fake: FakeRegistry) -> None:
    message = Framer(Connection("127.0.0.1:1"), "t-policies", "Policy").encode(to_avro(POLICY))
    decoder = Decoder("Policy", writer_of(Connection("127.0.0.1:1", registry=fake.url)))
    assert from_avro(Policy, decoder.decode(message)) == POLICY
    assert fake.requests == []


def test_a_pickled_framer_has_no_cached_ids(fake: FakeRegistry) -> None:
    framer = Framer(Connection("127.0.0.1:1", registry=fake.url), "t-policies", "Policy")
    prefix = framer.prefix
    fake.requests.clear()
    copy = pickle.loads(pickle.dumps(framer))
    assert fake.requests == []
    assert copy.prefix == prefix
    assert fake.requests


def test_a_real_registry(kafka: Any, topic_prefix: str) -> None:
    registry = SchemaRegistry(RegistryAccess(kafka.registry))
    subject = f"{topic_prefix}policies-value"
    schema_id = registry.publish("Policy", subject)
    assert registry.publish("Policy", subject) == schema_id
    assert subject in registry.subjects()
    assert registry.versions(subject) == [1]
    assert published.breaks(registry.schema(schema_id) or {}, published.schema("Policy")) == []
    assert (registry.schema(schema_id) or {})["fields"] == published.schema("Policy")["fields"]
    assert registry.schema(999_999) is None
    with pytest.raises(KafkaRefused, match=rf"CrawlEvent version \d cannot follow version \d of subject {subject}"):
        registry.publish("CrawlEvent", subject)
    assert registry.versions(subject) == [1]


def test_processes_that_register_at_once_at_a_real_registry_all_get_the_same_id(kafka: Any, topic_prefix: str) -> None:
    for number in range(5):
        subject, found = f"{topic_prefix}{number}-value", list[int]()
        registry = SchemaRegistry(RegistryAccess(kafka.registry))
        publish = [
            Thread(target=lambda s=subject, f=found: f.append(_registry(kafka).publish("Audit", s))) for _ in range(6)
        ]
        for thread in publish:
            thread.start()
        for thread in publish:
            thread.join()
        assert len(found) == 6 and len(set(found)) == 1
        assert registry.publish("Audit", subject) == found[0]
        level = requests.get(f"{kafka.registry}/config/{subject}", timeout=10).json()["compatibilityLevel"]
        assert level == COMPATIBILITY
        incompatible = {**published.schema("Audit"), "fields": published.schema("Audit")["fields"][1:]}
        answer = requests.post(
            f"{kafka.registry}/subjects/{subject}/versions", json={"schema": json.dumps(incompatible)}, timeout=10
        )
        assert answer.status_code == 409, "each version must be readable as each other one"


def _registry(kafka: Any) -> SchemaRegistry:
    return SchemaRegistry(RegistryAccess(kafka.registry))
