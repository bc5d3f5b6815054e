"""Logins by tokens: a token server, a broker that accepts its tokens, and the signatures of AWS."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from kafka.net.sasl.msk import SaslMechanismAwsMskIam

from deploy.services import kafka as kafka_service
from opicflow.connectors.kafka import tokens
from opicflow.connectors.kafka.connection import Connection, KafkaRefused
from opicflow.connectors.kafka.properties import Properties
from opicflow.connectors.kafka.tokens import client_tokens
from opicflow.connectors.kafka.topics import make, specs
from support.http_server import HttpAnswer, HttpRequest, answering
from support.services import LocalKafka, running

SECRET = 'hu"sh: π\\'
CLIENT = "craw-ler"
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


@dataclass
class TokenServer:
    """A token endpoint over real HTTP, for one client. `answer` replaces its next answers."""

    url: str = ""
    life_seconds: float = 3600
    requests: list[dict[str, list[str]]] = field(default_factory=list)
    answer: tuple[int, bytes] | None = None

    def respond(self, authorization: str, form: dict[str, list[str]]) -> tuple[int, bytes]:
        self.requests.append(form)
        if self.answer is not None:
            return self.answer
        expected = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        if authorization != f"Basic {expected}" or form.get("grant_type") != ["client_credentials"]:
            return 401, b'{"error": "invalid_client", "error_description": "secret hush was wrong"}'
        token = unsecured_token(CLIENT, len(self.requests))
        answer = {"access_token": token, "token_type": "Bearer", "expires_in": self.life_seconds}
        return 200, json.dumps(answer).encode()


def unsecured_token(subject: str, number: int) -> str:
    """Return a token without a signature, which brokers in development accept."""

    def part(values: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip("=")

    return f"{part({'alg': 'none'})}.{part({'sub': subject, 'iat': 1.6e9, 'exp': 4e9, 'jti': str(number)})}."


@pytest.fixture
def server() -> Iterator[TokenServer]:
    found = TokenServer()

    def answer(request: HttpRequest) -> HttpAnswer:
        form = parse_qs(request.body.decode())
        return HttpAnswer(*found.respond(request.headers.get("Authorization", ""), form))

    client_tokens.cache_clear()
    with answering(answer) as address:
        found.url = f"{address}/token"
        yield found


def java_escaped(text: str) -> str:
    return text.replace("\\", "\\\\")


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def of_java(url: str) -> str:
    jaas = (
        f'{MODULE} required clientId="{CLIENT}" clientSecret={quoted(SECRET)} scope="a b" '
        'extension_logicalCluster="lkc-1";'
    )
    return (
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        "sasl.login.callback.handler.class=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler\n"
        f"sasl.oauthbearer.token.endpoint.url={url}\nsasl.jaas.config={java_escaped(jaas)}\n"
    )


def of_kafka_4(url: str) -> str:
    return (
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.jaas.config={MODULE} required extension_logicalCluster=lkc-1;\n"
        f"sasl.oauthbearer.token.endpoint.url={url}\n"
        f"sasl.oauthbearer.client.credentials.client.id={CLIENT}\nsasl.oauthbearer.scope=a b\n"
        f"sasl.oauthbearer.client.credentials.client.secret={java_escaped(SECRET)}\n"
    )


def of_librdkafka(url: str) -> str:
    return (
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanisms=OAUTHBEARER\nsasl.oauthbearer.method=oidc\n"
        f"sasl.oauthbearer.token.endpoint.url={url}\nsasl.oauthbearer.client.id={CLIENT}\n"
        f"sasl.oauthbearer.client.secret={java_escaped(SECRET)}\nsasl.oauthbearer.scope=a b\n"
        "sasl.oauthbearer.extensions=logicalCluster=lkc-1\n"
    )


@pytest.mark.parametrize("text", [of_java, of_kafka_4, of_librdkafka])
def test_tokens_are_requested_with_the_names_of_every_client(
    server: TokenServer, properties: Callable[[str], str], text: Callable[[str], str]
) -> None:
    settings = Properties.read(properties(text(server.url))).client_settings()
    provider = settings["sasl_oauth_token_provider"]
    assert settings["sasl_mechanism"] == "OAUTHBEARER"
    assert provider.token() == unsecured_token(CLIENT, 1) and provider.extensions() == {"logicalCluster": "lkc-1"}
    assert server.requests == [{"grant_type": ["client_credentials"], "scope": ["a b"]}]
    assert SECRET not in repr(settings) and "hu" not in repr(provider)


def test_a_token_is_shared_by_all_clients_and_renewed_before_it_ends(
    server: TokenServer, properties: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server.life_seconds = 100
    now = [1000.0]
    monkeypatch.setattr(tokens.time, "monotonic", lambda: now[0])
    path = properties(of_java(server.url))
    providers = [Properties.read(path).client_settings()["sasl_oauth_token_provider"] for _ in range(3)]
    assert {provider.token() for provider in providers} == {unsecured_token(CLIENT, 1)}
    now[0] += 79
    assert providers[0].token() == unsecured_token(CLIENT, 1)
    now[0] += 2
    assert {provider.token() for provider in providers} == {unsecured_token(CLIENT, 2)}


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((401, b'{"error": "invalid_client"}'), "the token server refuses client 'craw-ler' (401, invalid_client): "),
        ((400, b'{"error": "hush hush"}'), "(400, no reason given): correct the client, its secret or the scope"),
        ((503, b"busy"), "the token server returns 503 and no token: check it"),
        ((200, b'{"access_token": "a\\r\\nb"}'), "the token server returns 200 and no token: check it"),
        ((302, b""), "the token server returns 302 and no token: check it"),
    ],
)
def test_what_the_token_server_refuses_is_one_line_without_a_secret(
    server: TokenServer, properties: Callable[[str], str], answer: tuple[int, bytes], message: str
) -> None:
    server.answer = answer
    connection = Connection("127.0.0.1:1", properties(of_java(server.url)))
    with pytest.raises(KafkaRefused) as refused:
        connection.consumer()
    words = str(refused.value)
    assert message in words and server.url in words and "\n" not in words and "hu" not in words


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (of_java("http://login.example/token"), "give https://…: the secret would be sent without encryption"),
        (of_java("file:///token"), "sasl.oauthbearer.token.endpoint.url: no address: give https://HOST/PATH"),
        (of_java(""), "sasl.oauthbearer.token.endpoint.url: missing: give the address of the token server"),
        (of_kafka_4("https://h/t").replace("client.secret", "client.x"), "no client secret: give "),
        ("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=AWS_MSK_IAM", "sasl.mechanism: AWS_MSK_IAM needs SASL_SSL"),
        (
            "security.protocol=SASL_SSL\nsasl.mechanism=AWS_MSK_IAM\nsasl.jaas.config="
            'software.amazon.msk.auth.iam.IAMLoginModule required awsProfileName="x";',
            "awsProfileName does not work here: set AWS_PROFILE where this runs",
        ),
    ],
)
def test_a_setting_that_cannot_work_is_refused_by_name(
    properties: Callable[[str], str], text: str, message: str
) -> None:
    with pytest.raises(KafkaRefused) as refused:
        Properties.read(properties(text)).client_settings()
    assert message in str(refused.value) and "hu" not in str(refused.value)


# -- AWS ---------------------------------------------------------------------------------------------------------------

MSK = (
    "security.protocol=SASL_SSL\nsasl.mechanism=AWS_MSK_IAM\n"
    "sasl.jaas.config=software.amazon.msk.auth.iam.IAMLoginModule required;\n"
    "sasl.client.callback.handler.class=software.amazon.msk.auth.iam.IAMClientCallbackHandler\n"
)


@pytest.fixture
def no_aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return monkeypatch


def test_a_login_at_msk_is_signed_with_the_credentials_of_the_environment(
    no_aws: pytest.MonkeyPatch, properties: Callable[[str], str]
) -> None:
    path = properties(MSK)
    with pytest.raises(KafkaRefused, match="no credentials of AWS are found: set AWS_ACCESS_KEY_ID and AWS_SECRET"):
        Properties.read(path).client_settings()
    no_aws.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    no_aws.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    with pytest.raises(KafkaRefused, match="no region of AWS is set: set AWS_DEFAULT_REGION"):
        Properties.read(path).client_settings()
    no_aws.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    settings = Properties.read(path).client_settings()
    assert settings["sasl_mechanism"] == "AWS_MSK_IAM" and "hush" not in repr(settings)
    message = json.loads(SaslMechanismAwsMskIam(host="b-1.example", **settings).auth_bytes())
    assert message["host"] == "b-1.example" and message["action"] == "kafka-cluster:Connect"
    assert message["x-amz-credential"].startswith("AKIDEXAMPLE/") and "/eu-central-1/" in message["x-amz-credential"]
    assert "hush" not in json.dumps(message)


def test_without_botocore_the_extra_is_named(no_aws: pytest.MonkeyPatch, properties: Callable[[str], str]) -> None:
    no_aws.setitem(sys.modules, "botocore.session", None)
    with pytest.raises(KafkaRefused, match=r"AWS_MSK_IAM needs botocore: pip install 'opicflow\[msk\]'"):
        Properties.read(properties(MSK)).client_settings()


# -- a broker that accepts tokens --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def token_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """A broker whose secured listener accepts tokens without a signature."""
    accepts = (
        "listener.name.secured.sasl.enabled.mechanisms=SCRAM-SHA-256,OAUTHBEARER\n"
        f"listener.name.secured.oauthbearer.sasl.jaas.config={MODULE} required "
        'unsecuredLoginStringClaim_sub="broker";'
    )
    with pytest.MonkeyPatch.context() as patch:
        changed = kafka_service.SERVER.replace("listener.name.secured.sasl.enabled.mechanisms=SCRAM-SHA-256", accepts)
        assert changed != kafka_service.SERVER
        patch.setattr(kafka_service, "SERVER", changed)
        with running(tmp_path_factory.mktemp("tokens"), "kafka") as started:
            yield started


@pytest.mark.slow  # it starts a broker of its own
def test_a_broker_accepts_the_token_and_refuses_another_one_in_one_line(
    token_kafka: LocalKafka, server: TokenServer, properties: Callable[[str], str]
) -> None:
    secured = token_kafka.secured
    tls = f"ssl.truststore.type=PEM\nssl.truststore.location={secured.ca}\n"
    text = of_java(server.url).replace("SASL_PLAINTEXT", "SASL_SSL").replace('extension_logicalCluster="lkc-1"', "")
    connection = Connection(secured.brokers, properties(text + tls))
    made = make(connection, specs("tokens-", 1, 1, 1))
    assert len(made.new) == 10 and len(server.requests) == 1
    client_tokens.cache_clear()
    server.answer = (200, b'{"access_token": "soup"}')
    with pytest.raises(KafkaRefused) as refused:
        connection.consumer()
    assert "the broker refuses the token of client 'craw-ler'" in str(refused.value)
