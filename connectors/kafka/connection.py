"""Connections to a cluster: addresses, and clients made from them. Secrets stay in the properties file.

A `Connection` is part of Beam's job graph, and is printed and compared, so it holds the path of the properties file
and not its content.
"""

from __future__ import annotations

import logging
import os
import re
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition, errors
from kafka.errors import KafkaError

from opicflow.connectors.kafka.client import NetworkClient, causes, is_permanent, unpack_in_columns
from opicflow.connectors.kafka.properties import (
    KafkaRefused,
    Properties,
    RegistryAccess,
    is_this_machine,
    is_web_address,
    warn_once,
)
from opicflow.connectors.kafka.tokens import TokenRefused, TokenUnavailable
from opicflow.schemas.libraries import parts_of

BOOTSTRAP_TIMEOUT_SECONDS = 10.0
"""A cluster is unreachable when no broker answers for this time."""

MOST_BACKOFF_MS = 1000
"""Java's default. With kafka-python's 30 s, a broker that was away for ten seconds is reconnected after fifty."""

DEFAULT_PORT = 9092

_HOST = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\s/@?#,:\[\]]+)(?::([0-9]{1,5}))?")
_TOPIC = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")
_WRONG_HOST = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
_UNREACHABLE = (
    errors.KafkaTimeoutError,
    errors.KafkaConnectionError,
    errors.NodeNotReadyError,
    errors.RequestTimedOutError,
)
_ADVICE: tuple[tuple[type[KafkaError], str], ...] = (
    (
        errors.UnknownTopicOrPartitionError,
        "there is no such topic or partition: create it with opicflow topics create, or correct --prefix",
    ),
    (
        errors.TopicAuthorizationFailedError,
        "this user is not authorised: allow it to read, write or describe the topic",
    ),
    (errors.AuthorizationError, "this user is not authorised: allow it this operation on the cluster"),
    (errors.InvalidTopicError, "not a valid topic name: use letters, digits, '.', '_' and '-'"),
    (
        errors.MessageSizeTooLargeError,
        "a record is larger than the topic accepts: opicflow topics check shows what max.message.bytes should be",
    ),
    (
        errors.RecordListTooLargeError,
        "a record is larger than a segment of the topic: raise its segment.bytes",
    ),
    (
        errors.InvalidTimestampError,
        "the topic does not accept records of that time: opicflow topics check shows which setting prevents it",
    ),
    (
        errors.NotEnoughReplicasError,
        "fewer replicas are in sync than min.insync.replicas: bring the brokers back, and run again",
    ),
    (
        errors.NotEnoughReplicasAfterAppendError,
        "fewer replicas are in sync than min.insync.replicas: bring the brokers back, and run again",
    ),
)

_Client = TypeVar("_Client")
_OTHER_LISTENER = "a listener with TLS or a login needs its security.protocol in the file of --properties"


class _Unanswered(KafkaError):  # type: ignore[misc]
    """Brokers accepted connections, but did not answer."""


class Address(NamedTuple):
    """The parts of a `kafka://` address: comma-separated HOST:PORT, and the topic if one is named."""

    brokers: str
    topic: str | None


def parse_address(text: str) -> Address:
    """Parse `kafka://HOST:PORT,HOST:PORT/TOPIC`; the default port is 9092."""
    shown = _shown(text)
    if not text.startswith("kafka://"):
        raise KafkaRefused(f"{shown}: not an address of Kafka: give kafka://HOST:PORT/TOPIC")
    hosts, slash, topic = text.removeprefix("kafka://").partition("/")
    if "?" in text or "#" in text:
        raise KafkaRefused(f"{shown}: may not contain ? or #: settings belong in the file of --properties")
    brokers = normal_brokers(hosts)
    if slash and topic and not _TOPIC.fullmatch(topic):
        raise KafkaRefused(f"{shown}: {topic[:80]!r} is not a valid topic name: use letters, digits, '.', '_' and '-'")
    return Address(brokers, topic or None)


def normal_brokers(text: str) -> str:
    """Return comma-separated brokers as HOST:PORT, each with its port; raises `KafkaRefused` for other text."""
    if "@" in text:
        raise KafkaRefused(
            f"{_shown(text)}: contains a user name: names and passwords belong in the file of --properties"
        )
    found = []
    for one in text.split(","):
        match = _HOST.fullmatch(one.strip())
        port = int(match[2] or DEFAULT_PORT) if match else 0
        if match is None or not 0 < port < 1 << 16:
            raise KafkaRefused(f"brokers {_shown(text) or 'missing'}: give HOST:PORT, separated by commas")
        found.append(f"{match[1]}:{port}")
    return ",".join(dict.fromkeys(found))


@dataclass(frozen=True)
class Connection:
    """A cluster: `brokers` are comma-separated addresses, `properties` is the path of a file of Kafka's settings.

    `registry` is the URL of a schema registry and overrides the one in the file. Without either, values are framed as
    Avro single objects.
    """

    brokers: str
    properties: str | None = None
    registry: str | None = None

    def __post_init__(self) -> None:
        """Refuse malformed addresses, and addresses that contain a secret."""
        object.__setattr__(self, "brokers", normal_brokers(self.brokers))
        if self.registry is not None:
            _check_registry(self.registry)

    def registry_access(self) -> RegistryAccess | None:
        """Return URL and credentials of the schema registry, if there is one."""
        if self.properties is None:
            return RegistryAccess(self.registry) if self.registry else None
        return Properties.read(self.properties).registry(self.registry)

    def consumer(self, **more: object) -> KafkaConsumer:
        """Make a consumer without a group, whose caller assigns partitions and keeps offsets.

        It returns `FetchedRecords`, which have `records`.
        """
        settings = {"group_id": None, "enable_auto_commit": False, **more}
        return unpack_in_columns(self._client(KafkaConsumer, settings))

    def producer(self, **more: object) -> KafkaProducer:
        """Make an idempotent producer."""
        return self._client(KafkaProducer, {"enable_idempotence": True, "acks": "all", **more})

    def admin(self, **more: object) -> KafkaAdminClient:
        """Make a client for topics and their settings."""
        return self._client(KafkaAdminClient, more)

    def refused(self, problem: BaseException, action: str) -> KafkaRefused:
        """Return an error with one line for people. `action` is what failed, such as "reading crawl-events"."""
        return KafkaRefused(f"{self.brokers}: {action}: {self._describe(problem)}")

    @contextmanager
    def doing(self, action: str) -> Iterator[None]:
        """Turn errors of a client into `KafkaRefused`."""
        try:
            yield
        except KafkaError as problem:
            raise self.refused(problem, action) from None
        except KeyError as problem:  # kafka-python's own, for a partition that the brokers do not have
            partition = problem.args[0] if problem.args else None
            if not isinstance(partition, TopicPartition):
                raise
            raise KafkaRefused(
                f"{self.brokers}: {action}: {partition.topic} has no partition {partition.partition}: if the topic was "
                "deleted, create it with opicflow topics create; if it is new, try again"
            ) from None

    @parts_of("kafka-python", "kafka")
    def _client(self, make: Callable[..., _Client], settings: dict[str, object]) -> _Client:
        """Make a client that has connected to the cluster. Its requests never create topics."""
        # kafka-python logs every attempt, and at its lowest level all requests with passwords. All errors are raised.
        log = logging.getLogger("kafka")
        if log.level == logging.NOTSET:
            log.setLevel(logging.CRITICAL)
        with self.doing("logging in"):
            given = Properties.read(self.properties).client_settings() if self.properties else {}
        if given.get("security_protocol") == "SASL_PLAINTEXT":
            self._warn_without_tls(str(given["sasl_mechanism"]))
        networks: list[NetworkClient] = []

        def network(**configs: object) -> NetworkClient:
            networks.append(NetworkClient(**configs))
            return networks[-1]

        try:
            return make(
                **{
                    "bootstrap_servers": self.brokers.split(","),
                    "bootstrap_timeout_ms": BOOTSTRAP_TIMEOUT_SECONDS * 1000,
                    "client_id": "opicflow",
                    "reconnect_backoff_max_ms": MOST_BACKOFF_MS,
                    "kafka_client": network,
                    **given,
                    **settings,
                }
            )
        except BaseException as problem:
            failures = [pair for one in networks for pair in one.failures.items()]
            for one in networks:
                one.close()
            if not isinstance(problem, (KafkaError, OSError)):
                raise
            if isinstance(problem, errors.KafkaTimeoutError) and not failures:
                problem = _Unanswered()
            address_note = ""
            for address, failure in failures:
                if failure is problem or isinstance(problem, errors.KafkaTimeoutError):
                    problem = failure
                    is_given = address in self.brokers.split(",")
                    address_note = "" if is_given else f" to {address}, an address that the cluster advertises"
            raise self.refused(problem, f"connecting{address_note}") from None

    def _warn_without_tls(self, mechanism: str) -> None:
        """Print one line, once, if others on the way to another machine can read what logs in."""
        hosts = (address.rpartition(":")[0] for address in self.brokers.split(","))
        if all(is_this_machine(host) for host in hosts):
            return
        sent = {"PLAIN": "the password is", "OAUTHBEARER": "the token is"}.get(mechanism, "all but the password is")
        warn_once(f"{self.brokers}: {sent} sent without encryption (SASL_PLAINTEXT): use SASL_SSL")

    def _describe(self, problem: BaseException) -> str:
        chain = list(causes(problem))
        for cause in chain:
            if isinstance(cause, ssl.SSLCertVerificationError):
                return _describe_certificate(cause)
            if isinstance(cause, ssl.SSLError) and is_permanent(cause):
                return _describe_tls(cause)
            if isinstance(cause, TokenRefused | TokenUnavailable):
                return _line(cause)
            if isinstance(cause, errors.SaslAuthenticationFailedError):
                return self._describe_login() or (
                    f"the broker refuses the login of {self._user()}: correct the name, the password or sasl.mechanism"
                )
            if isinstance(cause, errors.UnsupportedSaslMechanismError):
                return "the listener does not support the sasl.mechanism of the file: give one that it supports"
            if isinstance(cause, errors.IllegalSaslStateError):
                return "the listener supports no login, or requires one: give its own security.protocol"
            if isinstance(cause, errors.InvalidReceiveError) and _is_tls_alert(str(cause)):
                return "the listener uses TLS: give its security.protocol in the file of --properties"
            if isinstance(cause, errors.KafkaProtocolError):
                return f"something other than Kafka answers ({_line(cause)}): {_OTHER_LISTENER}"
            if isinstance(cause, _Unanswered):
                return f"a broker accepts connections, but does not answer: {_OTHER_LISTENER}"
            for kind, advice in _ADVICE:
                if isinstance(cause, kind):
                    return advice
        if any(isinstance(cause, _UNREACHABLE) for cause in chain):
            why = f"no broker answers ({_plain(chain)}): check that it runs, and that this is its address"
            return f"{why}; {_OTHER_LISTENER}"
        return _line(problem)

    def _describe_login(self) -> str:
        """Return why a token may be refused; empty for logins with a password."""
        try:
            properties = Properties.read(self.properties) if self.properties else None
            if properties is None or not properties.uses_tokens:
                return ""
            client = properties.user()
        except KafkaRefused:  # the file was removed meanwhile
            return ""
        return f"the broker refuses the token of client {client!r}: check its issuer, audience and scope"

    def _user(self) -> str:
        try:
            user = Properties.read(self.properties).user() if self.properties else None
        except KafkaRefused:  # the file was removed meanwhile
            user = None
        return f"user {user!r}" if user else "this user"


def _is_tls_alert(message: str) -> bool:
    """Whether the reported message length consists of the first bytes of a TLS alert, 15 03."""
    number = re.search(r"[0-9]+", message)
    return number is not None and int(number[0]) >> 16 == 0x1503


def _describe_certificate(problem: ssl.SSLCertVerificationError) -> str:
    why = problem.verify_message.rstrip(".")
    if problem.verify_code in _WRONG_HOST:
        return (
            f"the broker's certificate is for another host ({why}): use a name that it contains, or empty "
            "ssl.endpoint.identification.algorithm"
        )
    return (
        f"the broker's certificate is not trusted ({why}): name its issuer's "
        "certificate in ssl.truststore.location, as PEM with "
        "ssl.truststore.type=PEM"
    )


def _describe_tls(problem: ssl.SSLError) -> str:
    reason = (problem.reason or "no reason given").replace("_", " ").lower()
    if "alert" in reason:
        return f"the broker ends TLS ({reason}): it may require a client certificate, in ssl.keystore.location"
    return f"TLS fails ({reason}): the listener may use plain text: give its own security.protocol"


def _check_registry(url: str) -> None:
    if "@" in url.partition("//")[2].partition("/")[0]:
        raise KafkaRefused(
            "--registry contains a user name: give schema.registry.basic.auth.user.info in the file of --properties"
        )
    if not is_web_address(url):
        raise KafkaRefused(f"--registry {_shown(url)}: not an address: give http://HOST:PORT or https://HOST:PORT")


def _plain(chain: list[BaseException]) -> str:
    """Return the message of the innermost cause, with words for an error number."""
    if any(isinstance(cause, ssl.SSLError) for cause in chain):
        return "TLS ends early: the listener may use plain text"
    text = _line(chain[-1])
    number = re.search(r"\b([0-9]+) E[A-Z]+\b", text)
    return os.strerror(int(number[1])) if number else re.sub(r"^(\[Error -?[0-9]+\] )?\w+Error: ", "", text)


def _line(problem: object) -> str:
    text = " ".join((str(problem) or type(problem).__name__).split())
    return text if len(text) <= 200 else text[:197] + "..."


def _shown(text: str) -> str:
    """Return an address for a message, without a user name or password."""
    return _line("kafka://…" if "@" in text else text)


__all__ = [
    "BOOTSTRAP_TIMEOUT_SECONDS",
    "Address",
    "Connection",
    "KafkaRefused",
    "RegistryAccess",
    "normal_brokers",
    "parse_address",
]
