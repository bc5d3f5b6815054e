"""Connections: the properties file, addresses, errors of one line, and secrets that are never shown."""

from __future__ import annotations

import argparse
import logging
import pickle
import re
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka import TopicPartition, errors

from deploy.services.certificates import authority_and_server
from opicflow.connectors.kafka import connection as connection_module
from opicflow.connectors.kafka.client.network import NetworkClient
from opicflow.connectors.kafka.connection import Connection, KafkaRefused, RegistryAccess, parse_address
from opicflow.connectors.kafka.properties import Properties, parse, warn_once
from opicflow.pipelines.cli.options import connection_of
from support.services import LocalKafka

PASSWORD = "hush-4711 \\;\"'="
JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required"


@pytest.mark.parametrize(
    ("brokers", "settings", "words"),
    [
        ("broker.example:9092", "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n", "the password is sent"),
        (
            "broker.example:9092,localhost:9092",
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n",
            "all but the password is sent",
        ),
        ("broker.example:9092", "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n", ""),
        ("localhost:1,127.0.0.1:2,[::1]:3", "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n", ""),
    ],
)
def test_a_login_without_encryption_to_another_machine_is_warned_of_once(
    brokers: str,
    settings: str,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    warn_once.cache_clear()
    monkeypatch.setattr("opicflow.connectors.kafka.connection.KafkaAdminClient", lambda **_: object())
    file = tmp_path / "client.properties"
    file.write_text(settings + "sasl.username=alice\nsasl.password=sesame\n")
    for _ in range(2):
        Connection(brokers, str(file)).admin()
    out, lines = capsys.readouterr()
    assert (out, lines.count("\n")) == ("", int(bool(words)))
    assert words in lines and "sesame" not in lines


LOGIN = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\nsasl.username=alice\n"


def escaped(text: str, name: bool = False) -> str:
    """Return text as a name or value of a properties file, with all escapes that may be needed."""
    plain = "".join(
        {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}.get(one, one) for one in text.replace("\\", "\\\\")
    )
    return re.sub(r"([ =:#!])", r"\\\1", plain) if name else re.sub(r"^ ", r"\\ ", plain)


# -- the syntax of properties ------------------------------------------------------------------------------------------

CHARACTERS = st.characters(codec="utf-8")


@given(
    st.dictionaries(st.text(CHARACTERS, min_size=1), st.text(CHARACTERS)),
    st.sampled_from(["=", ":", " ", " = ", "\t:"]),
)
def test_escaped_text_is_read_back(values: dict[str, str], separator: str) -> None:
    lines = [f"{escaped(name, name=True)}{separator}{escaped(value)}" for name, value in values.items()]
    if separator == " ":  # a space at the start of a value would be part of the separator
        lines = [re.sub(r"(?<!\\) ([=:])", r" \\\1", line) for line in lines]
    assert parse("# a comment\n" + "\r\n".join(lines)) == values


@given(st.text(st.sampled_from("ab\\=: \t\n\r#!u0041")))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        values = parse(text)
    except KafkaRefused as problem:
        assert re.match(r"line \d+: ", str(problem))
    else:
        assert all(isinstance(part, str) for pair in values.items() for part in pair)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a = b", {"a": "b"}),
        ("  a:b  ", {"a": "b  "}),
        ("a b c", {"a": "b c"}),
        ("a=b=c:d", {"a": "b=c:d"}),
        ("a\n", {"a": ""}),
        ("a = one, \\\n    two", {"a": "one, two"}),
        ("a = one\\\\\nb = two", {"a": "one\\", "b": "two"}),
        ("a = one\\", {"a": "one"}),
        ("! no=1\n#no=2\\\na=b", {"a": "b"}),
        ("a=1\\\n#2", {"a": "1#2"}),
        ("a\\ b\\==\\u00e4\\ud83d\\ude00", {"a b=": "ä😀"}),
        ("a=1\na=2", {"a": "2"}),
        ('a=\\"b\\"', {"a": '"b"'}),
    ],
)
def test_lines_are_read_as_java_reads_them(text: str, values: dict[str, str]) -> None:
    assert parse(text) == values


@pytest.mark.parametrize("text", ["\na=\\u12g4", "\na=\\ud800x"])
def test_a_broken_escape_is_refused_by_its_line_and_not_shown(text: str) -> None:
    with pytest.raises(KafkaRefused, match=r"^line 2: ") as refused:
        parse(text)
    assert "12g4" not in str(refused.value)


# -- settings of the file ----------------------------------------------------------------------------------------------


def settings_of(path: str) -> dict[str, Any]:
    return Properties.read(path).client_settings()


@pytest.mark.parametrize("quote", ['"', "'"])
def test_a_password_of_odd_characters_is_read_from_jaas(properties: Callable[[str], str], quote: str) -> None:
    quoted = quote + PASSWORD.replace("\\", "\\\\").replace(quote, "\\" + quote) + quote
    jaas = f"{JAAS} username={quote}al;ice{quote} password={quoted};"
    path = properties(f"{LOGIN}sasl.jaas.config={escaped(jaas)}")
    settings = settings_of(path)
    assert (settings["sasl_plain_username"], settings["sasl_plain_password"]) == ("al;ice", PASSWORD)
    assert settings["sasl_mechanism"] == "SCRAM-SHA-256"


def test_names_of_librdkafka_are_accepted(properties: Callable[[str], str]) -> None:
    path = properties(LOGIN.replace("sasl.mechanism", "sasl.mechanisms") + f"sasl.password={escaped(PASSWORD)} ")
    settings = settings_of(path)
    assert (settings["sasl_plain_username"], settings["sasl_plain_password"]) == ("alice", PASSWORD + " ")


def test_names_of_other_clients_are_ignored(properties: Callable[[str], str]) -> None:
    path = properties(
        "group.id=g\nacks=all\nkey.deserializer=x\nssl.protocol=TLSv1.3\nsasl.login.class=x\nclient.id=me\n"
        "security.protocol=PLAINTEXT\nrequest.timeout.ms=4000\n"
    )
    assert settings_of(path) == {"security_protocol": "PLAINTEXT", "client_id": "me"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ssl.ca.locatoin=/x", "'ssl.ca.locatoin' is not known: did you mean ssl.ca.location?"),
        ("bootstrap.server=h:1", "did you mean bootstrap.servers?"),
        ("security.protocol=TLS", "security.protocol: 'TLS' does not work here: give one of PLAINTEXT, SSL"),
        ("sasl.mechanism=PLAIN", "sasl.mechanism: says how, but security.protocol is missing"),
        (LOGIN.replace("SCRAM-SHA-256", "GSSAPI") + "sasl.password=x", "sasl.mechanism: 'GSSAPI' does not work here"),
        (LOGIN, "sasl.username and sasl.password: no password"),
        (f"{LOGIN}sasl.jaas.config={JAAS} username=alice;", "sasl.jaas.config: no password"),
        (f'{LOGIN}sasl.jaas.config={JAAS} username=alice password="hush', "sasl.jaas.config: not understood"),
        (f"{LOGIN}sasl.jaas.config=a.Krb5LoginModule required password=hush;", "a.Krb5LoginModule does not work here"),
        ("security.protocol=SSL\nssl.truststore.location=/is/not/there", "/is/not/there: No such file"),
        ("security.protocol=SSL\nssl.truststore.certificates=hush", "not read: write PEM to a file"),
        ("security.protocol=SSL\nssl.endpoint.identification.algorithm=x", "give https, or nothing"),
        ("security.protocol=SSL\nssl.keystore.key=hush", "ssl.keystore.key is not read: write PEM to a file"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(properties: Callable[[str], str], text: str, message: str) -> None:
    path = properties(text)
    with pytest.raises(KafkaRefused) as refused:
        settings_of(path)
    words = str(refused.value)
    assert words.startswith(f"{path}: ") and message in words
    assert "\n" not in words and "hush" not in words


def test_an_unreadable_file_gives_one_line(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"sasl.password=\xe4")
    for path, message in (
        (tmp_path / "none", "No such file"),
        (tmp_path, "directory"),
        (tmp_path / "latin", "no UTF-8"),
    ):
        with pytest.raises(KafkaRefused, match=message) as refused:
            Properties.read(str(path))
        assert "\n" not in str(refused.value)


def test_a_java_store_is_refused_with_the_command_that_converts_it(
    properties: Callable[[str], str], tmp_path: Path
) -> None:
    store = tmp_path / "trust.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed")
    for kind in ("", "ssl.truststore.type=JKS\n"):
        path = properties(f"security.protocol=SSL\n{kind}ssl.truststore.location={store}")
        with pytest.raises(KafkaRefused, match=f"keytool -importkeystore -srckeystore {store} .*openssl pkcs12"):
            settings_of(path)


def test_a_pem_file_beside_the_java_store_is_used(properties: Callable[[str], str], tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    authority.write_bytes(authority_and_server("127.0.0.1")[0])
    path = properties(
        f"security.protocol=SSL\nssl.truststore.type=JKS\nssl.truststore.location=/x.jks\nssl.ca.location={authority}"
    )
    assert len(settings_of(path)["ssl_context"].get_ca_certs()) == 1


def test_the_certificate_and_the_key_of_the_client_are_in_one_file(
    properties: Callable[[str], str], tmp_path: Path
) -> None:
    authority, own = authority_and_server("127.0.0.1")
    (tmp_path / "ca.pem").write_bytes("Müller\n".encode() + authority)
    (tmp_path / "own.pem").write_bytes(own)
    path = properties(
        f"security.protocol=SSL\nssl.truststore.location={tmp_path / 'ca.pem'}\n"
        f"ssl.keystore.location={tmp_path / 'own.pem'}\nssl.endpoint.identification.algorithm=\n"
    )
    context = settings_of(path)["ssl_context"]
    assert len(context.get_ca_certs()) == 1
    assert (context.check_hostname, context.verify_mode) == (False, ssl.CERT_REQUIRED)


def test_a_key_of_another_certificate_is_refused(properties: Callable[[str], str], tmp_path: Path) -> None:
    certificate, (_, other) = authority_and_server("127.0.0.1")[0], authority_and_server("127.0.0.1")
    (tmp_path / "own.pem").write_bytes(certificate + other.partition(b"-----BEGIN CERT")[0])
    path = properties(f"security.protocol=SSL\nssl.certificate.location={tmp_path / 'own.pem'}\nssl.key.password=hush")
    with pytest.raises(KafkaRefused, match="its key does not open, or does not belong to its certificate") as refused:
        settings_of(path)
    assert "hush" not in str(refused.value)


# -- the registry ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "given_url", "access"),
    [
        ("", None, None),
        ("", "http://r:1", RegistryAccess("http://r:1")),
        ("schema.registry.url=http://r:1,http://s:1", None, RegistryAccess("http://r:1")),
        ("schema.registry.url=http://r:1", "https://s:2", RegistryAccess("https://s:2")),
        (
            "schema.registry.url=https://r:1\nbasic.auth.user.info=u:p:q\nssl.truststore.location=/ca",
            None,
            RegistryAccess("https://r:1", ("u", "p:q"), "/ca"),
        ),
        (
            "schema.registry.url=https://u:p%40@r:1/x\nssl.ca.location=/ca\nschema.registry.ssl.ca.location=/rca",
            None,
            RegistryAccess("https://r:1/x", ("u", "p@"), "/rca"),
        ),
    ],
)
def test_the_registry_is_that_of_the_option_or_the_file(
    properties: Callable[[str], str], text: str, given_url: str | None, access: RegistryAccess | None
) -> None:
    assert Connection("h:1", properties(text), given_url).registry_access() == access


@pytest.mark.parametrize("url", ["https://u:hush@r:1", "ftp://r:1", "r:1", "http://", "http://r:hush"])
def test_an_invalid_address_of_a_registry_is_refused(url: str) -> None:
    with pytest.raises(KafkaRefused) as refused:
        Connection("h:1", registry=url)
    assert "@" not in str(refused.value)


# -- addresses ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "brokers", "topic"),
    [
        ("kafka://h", "h:9092", None),
        ("kafka://h:1,i,[::1]:2/", "h:1,i:9092,[::1]:2", None),
        ("kafka://h:1/crawl-events", "h:1", "crawl-events"),
    ],
)
def test_an_address_has_brokers_and_an_optional_topic(text: str, brokers: str, topic: str | None) -> None:
    assert parse_address(text) == (brokers, topic)


@pytest.mark.parametrize(
    "text",
    [
        "h:1/t",
        "kafka://",
        "kafka:///t",
        "kafka://h:0",
        "kafka://h:65536",
        "kafka://h:x",
        "kafka://h,,i",
        "kafka://h/t/u",
        "kafka://h/t t",
        "kafka://h/..",
        "kafka://h/t?acks=1",
        "kafka://alice:hush@h:1/t",
    ],
)
def test_an_invalid_address_is_refused(text: str) -> None:
    with pytest.raises(KafkaRefused) as refused:
        parse_address(text)
    assert "hush" not in str(refused.value) and "\n" not in str(refused.value)


def options(**given_: str | None) -> argparse.Namespace:
    return argparse.Namespace(**{"brokers": None, "properties": None, "registry": None, **given_})


def test_brokers_are_those_of_the_option_or_of_the_file(properties: Callable[[str], str]) -> None:
    path = properties("bootstrap.servers = a:1, b:2")
    assert connection_of(options(properties=path)).brokers == "a:1,b:2"
    assert connection_of(options(properties=path, brokers="kafka://c:3")).brokers == "c:3"
    for wrong in (options(), options(brokers="kafka://c:3/t"), options(brokers="u:hush@c:3")):
        with pytest.raises(KafkaRefused) as refused:
            connection_of(wrong)
        assert "hush" not in str(refused.value)


# -- secrets -----------------------------------------------------------------------------------------------------------


def test_a_partition_that_the_brokers_do_not_have_is_named_in_one_line() -> None:
    connection = Connection("b:9092")
    with (
        pytest.raises(
            KafkaRefused, match=r"^b:9092: reading audit: audit has no partition 7: if the topic was deleted, "
        ),
        connection.doing("reading audit"),
    ):
        raise KeyError(TopicPartition("audit", 7))
    with pytest.raises(KeyError, match="a bug"), connection.doing("reading audit"):
        raise KeyError("a bug")


def test_a_secret_is_in_no_repr_and_no_pickle(properties: Callable[[str], str]) -> None:
    path = properties(f"{LOGIN}sasl.password=hush\nschema.registry.url=http://r\nbasic.auth.user.info=u:hush")
    found = Connection("h:1", path)
    found.registry_access()
    assert pickle.loads(pickle.dumps(found)) == found
    assert b"hush" not in pickle.dumps(found)
    for shown in (found, found.registry_access(), Properties.read(path), settings_of(path)):
        assert "hush" not in repr(shown) and "hush" not in str(shown)
    with pytest.raises(TypeError, match="secrets"):
        pickle.dumps(Properties.read(path))


def test_a_secret_is_in_no_log(
    properties: Callable[[str], str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "BOOTSTRAP_TIMEOUT_SECONDS", 0.3)
    caplog.set_level(logging.DEBUG)
    found = Connection("127.0.0.1:1", properties(f"{LOGIN}sasl.password=hush"))
    for make in (found.admin, found.consumer, found.producer):
        with pytest.raises(KafkaRefused) as refused:
            make()
        assert "hush" not in str(refused.value)
    assert "hush" not in caplog.text
    assert not [record for record in caplog.records if record.name.startswith("kafka")]


@pytest.mark.parametrize(("before", "after"), [(logging.NOTSET, logging.CRITICAL), (logging.INFO, logging.INFO)])
def test_the_log_of_kafka_python_is_off_where_nobody_has_set_its_level(
    monkeypatch: pytest.MonkeyPatch, before: int, after: int
) -> None:
    monkeypatch.setattr(connection_module, "BOOTSTRAP_TIMEOUT_SECONDS", 0.1)
    log = logging.getLogger("kafka")
    log.setLevel(before)
    try:
        with pytest.raises(KafkaRefused):
            Connection("127.0.0.1:1").admin()
        assert log.level == after
    finally:
        log.setLevel(logging.NOTSET)


# -- errors of a cluster that cannot be reached ------------------------------------------------------------------------


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield "{}:{}".format(*server.getsockname())


@pytest.mark.parametrize("text", ["", "security.protocol=SSL"])
def test_a_client_stops_waiting_for_a_server_that_never_answers(
    properties: Callable[[str], str], silent: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "BOOTSTRAP_TIMEOUT_SECONDS", 0.5)
    for make in (Connection(silent, properties(text)).admin, Connection(silent, properties(text)).producer):
        with pytest.raises(KafkaRefused, match=f"^{silent}: connecting: no broker answers ") as refused:
            make()
        assert "security.protocol" in str(refused.value)


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (errors.UnknownTopicOrPartitionError(), "opicflow topics create"),
        (errors.TopicAuthorizationFailedError(), "this user is not authorised"),
        (errors.MessageSizeTooLargeError(), "larger than the topic accepts"),
        (errors.InvalidTimestampError(), "opicflow topics check"),
        (errors.NotEnoughReplicasError(), "min.insync.replicas"),
        (errors.KafkaConnectionError("111 ECONNREFUSED"), "no broker answers (Connection refused)"),
        (errors.KafkaTimeoutError("a\nb"), "no broker answers (a b)"),
        (errors.KafkaConnectionError(ssl.SSLEOFError(8, "EOF")), "no broker answers (TLS ends early"),
        (errors.OffsetOutOfRangeError("x"), "OffsetOutOfRangeError: x"),
    ],
)
def test_an_error_of_the_client_becomes_one_line_with_advice(problem: errors.KafkaError, message: str) -> None:
    words = str(Connection("h:1").refused(problem, "reading t"))
    assert words.startswith("h:1: reading t: ") and message in words and "\n" not in words


def test_an_error_in_the_context_is_refused() -> None:
    with (
        pytest.raises(KafkaRefused, match=r"^h:1: reading t: there is no such topic"),
        Connection("h:1").doing("reading t"),
    ):
        raise errors.UnknownTopicOrPartitionError()


def test_a_client_closed_while_writing_leaves_no_open_socket(kafka: LocalKafka) -> None:
    consumer = Connection(kafka.brokers).consumer()
    consumer.topics()
    (connection,) = [one for one in consumer._client._manager._conns.values() if one.connected]
    transport = connection.transport
    transport._write_buffer.append(b"never sent")
    consumer.close()
    assert transport._sock is None


# -- the secured listener ----------------------------------------------------------------------------------------------


def test_with_the_right_password_a_record_is_sent_and_read(kafka: LocalKafka, topic_prefix: str) -> None:
    secured = Connection(kafka.secured.brokers, str(kafka.secured.properties))
    topic = f"{topic_prefix}secured"
    with secured.admin() as admin:
        admin.create_topics({topic: {"num_partitions": 1, "replication_factor": 1}}, wait_for_metadata=True)
    with secured.producer() as producer:
        producer.send(topic, b"a secret record").get(timeout=30)
    with secured.consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        (part,) = consumer.poll(20_000)[TopicPartition(topic, 0)]
        assert part.record(0).value == b"a secret record"


def test_no_client_creates_topics_by_requesting_their_metadata() -> None:
    network = NetworkClient(bootstrap_servers=["127.0.0.1:1"])
    try:
        assert not network.cluster.metadata_request().allow_auto_topic_creation
    finally:
        network.close()


def test_the_metadata_of_a_topic_wait_for_20_ms_after_those_that_name_none() -> None:
    network = NetworkClient(bootstrap_servers=["127.0.0.1:1"])
    try:
        network.cluster.failed_update(errors.KafkaTimeoutError())
        assert 0 < network.cluster.ttl() <= 20
    finally:
        network.close()


@pytest.mark.parametrize("make", ["admin", "consumer", "producer"])
@pytest.mark.parametrize(
    ("over", "message"),
    [
        (
            f'sasl.jaas.config={JAAS} username="opicflow" password="not-it";',
            "the broker refuses the login of user 'opicflow'",
        ),
        ("sasl.mechanism=PLAIN", "the listener does not support the sasl.mechanism"),
        ("ssl.truststore.location={other}", "the broker's certificate is not trusted"),
        ("ssl.truststore.location=\nssl.truststore.type=", "the broker's certificate is not trusted"),
        ("brokers=localhost", "the broker's certificate is for another host"),
    ],
)
def test_each_wrong_setting_is_named_in_one_line(
    kafka: LocalKafka, tmp_path: Path, properties: Callable[[str], str], make: str, over: str, message: str
) -> None:
    other = tmp_path / "other.pem"
    other.write_bytes(authority_and_server("127.0.0.1")[0])
    secured = kafka.secured
    brokers = secured.brokers
    if over.startswith("brokers="):
        brokers, over = brokers.replace("127.0.0.1", "localhost"), ""
    path = properties(secured.properties.read_text(encoding="utf-8") + "\n" + over.format(other=other))
    with pytest.raises(KafkaRefused) as refused:
        getattr(Connection(brokers, path), make)()
    words = str(refused.value)
    assert words.startswith(f"{brokers}: connecting: ") and message in words
    assert "\n" not in words and secured.password not in words and "not-it" not in words


def test_plain_text_to_a_tls_listener_is_reported(kafka: LocalKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "BOOTSTRAP_TIMEOUT_SECONDS", 2.0)
    with pytest.raises(KafkaRefused, match=r"TLS.*security\.protocol"):
        Connection(kafka.secured.brokers).admin()


def test_tls_to_a_plain_text_listener_is_reported(
    kafka: LocalKafka, properties: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "BOOTSTRAP_TIMEOUT_SECONDS", 1.0)
    with pytest.raises(KafkaRefused, match="TLS ends early: the listener may use plain text"):
        Connection(kafka.brokers, properties("security.protocol=SSL")).admin()
