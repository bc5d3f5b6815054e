"""How to reach a cluster: addresses, and clients made from them. Secrets stay in a properties file until they are used.

A `Connection` travels in Beam's job graph, is printed and compared, so it holds the path of the file and not what
stands in it.
"""

from __future__ import annotations

import logging
import os
import re
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, errors
from kafka.errors import KafkaError

from opicflow.connectors.kafka.fetched import quick
from opicflow.connectors.kafka.properties import KafkaRefused, Properties, RegistryAccess, is_web_address
from opicflow.connectors.kafka.reaching import ReachingClient, causes, is_final

# kafka-python tells every attempt, and at its lowest level what it sends, passwords too: all that matters is raised.
logging.getLogger("kafka").setLevel(logging.CRITICAL)

BOOTSTRAP_TIMEOUT_SECONDS = 10.0
"""A cluster of which no broker answers for so long is not there."""

MOST_BACKOFF_MS = 1000
"""As in Java. With kafka-python's own 30 s a broker that was away for ten seconds is found again after fifty."""

DEFAULT_PORT = 9092

_HOST = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\s/@?#,:\[\]]+)(?::([0-9]{1,5}))?")
_TOPIC = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")
_WRONG_HOST = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
_NOT_THERE = (
    errors.KafkaTimeoutError,
    errors.KafkaConnectionError,
    errors.NodeNotReadyError,
    errors.RequestTimedOutError,
)
_TABLE: tuple[tuple[type[KafkaError], str], ...] = (
    (
        errors.UnknownTopicOrPartitionError,
        "no such topic, or no such partition of it: make it with opicflow topics create, or see to --prefix",
    ),
    (errors.TopicAuthorizationFailedError, "this user may not: have it allowed to read, write or describe the topic"),
    (errors.AuthorizationError, "this user may not: have the operation allowed on the cluster"),
    (errors.InvalidTopicError, "no name for a topic: use letters, digits, '.', '_' and '-'"),
    (
        errors.MessageSizeTooLargeError,
        "a record is larger than the topic takes: opicflow topics check says what max.message.bytes should be",
    ),
    (
        errors.RecordListTooLargeError,
        "a record is larger than a segment of the topic: raise its segment.bytes",
    ),
    (
        errors.InvalidTimestampError,
        "the topic does not take records of that time: opicflow topics check says which setting is in the way",
    ),
    (
        errors.NotEnoughReplicasError,
        "fewer replicas are in step than min.insync.replicas: bring the brokers back, and run again",
    ),
    (
        errors.NotEnoughReplicasAfterAppendError,
        "fewer replicas are in step than min.insync.replicas: bring the brokers back, and run again",
    ),
)

_OTHER_LISTENER = "a listener with TLS or a login needs its security.protocol in the file of --properties"


class _Unanswered(KafkaError):  # type: ignore[misc]
    """Connections were made, and nothing came of them."""


class Address(NamedTuple):
    """What a `kafka://` address says: HOST:PORT with commas between, and a topic if there is one."""

    brokers: str
    topic: str | None


def parse_address(text: str) -> Address:
    """The parts of `kafka://HOST:PORT,HOST:PORT/TOPIC`; without a port it is Kafka's usual one."""
    shown = _shown(text)
    if not text.startswith("kafka://"):
        raise KafkaRefused(f"{shown}: no address of Kafka: give kafka://HOST:PORT/TOPIC")
    place, slash, topic = text.removeprefix("kafka://").partition("/")
    if "?" in text or "#" in text:
        raise KafkaRefused(f"{shown}: takes no ? or #: settings belong into the file of --properties")
    brokers = normal_brokers(place)
    if slash and topic and not _TOPIC.fullmatch(topic):
        raise KafkaRefused(f"{shown}: {topic[:80]!r} is no name of a topic: use letters, digits, '.', '_' and '-'")
    return Address(brokers, topic or None)


def normal_brokers(text: str) -> str:
    """HOST:PORT with commas between, each with its port. What is no such list is refused."""
    if "@" in text:
        raise KafkaRefused(
            f"{_shown(text)}: holds a user name: names and passwords belong into the file of --properties"
        )
    found = []
    for one in text.split(","):
        match = _HOST.fullmatch(one.strip())
        port = int(match[2] or DEFAULT_PORT) if match else 0
        if match is None or not 0 < port < 1 << 16:
            raise KafkaRefused(f"brokers {_shown(text) or 'missing'}: give HOST:PORT, several with commas between")
        found.append(f"{match[1]}:{port}")
    return ",".join(dict.fromkeys(found))


@dataclass(frozen=True)
class Connection:
    """A cluster. `brokers` are addresses with commas between, `properties` is the path of a file with Kafka's settings.

    `registry` is the URL of a schema registry, and wins over the one that the file names; without either, values are
    framed as Avro single objects.
    """

    brokers: str
    properties: str | None = None
    registry: str | None = None

    def __post_init__(self) -> None:
        """Take only what holds no secret, and no nonsense."""
        object.__setattr__(self, "brokers", normal_brokers(self.brokers))
        if self.registry is not None:
            _check_registry(self.registry)

    @property
    def registry_url(self) -> str | None:
        """The URL of the schema registry; None = there is none."""
        access = self.registry_access()
        return access.url if access else None

    def registry_access(self) -> RegistryAccess | None:
        """How to reach the schema registry; None = there is none."""
        if self.properties is None:
            return RegistryAccess(self.registry) if self.registry else None
        return Properties.read(self.properties).registry(self.registry)

    def consumer(self, **more: Any) -> Any:
        """A consumer that belongs to no group: partitions are assigned, and offsets kept by who reads.

        It gives records as `fetched.Record`.
        """
        return quick(self._client(KafkaConsumer, {"group_id": None, "enable_auto_commit": False, **more}))

    def producer(self, **more: Any) -> Any:
        """A producer that keeps the order and sends nothing twice by itself."""
        return self._client(KafkaProducer, {"enable_idempotence": True, "acks": "all", **more})

    def admin(self, **more: Any) -> Any:
        """A client for topics and their settings."""
        return self._client(KafkaAdminClient, more)

    def refused(self, problem: BaseException, what: str) -> KafkaRefused:
        """What a client says, in one line for people. `what` is what was being done, such as "reading crawl-events"."""
        return KafkaRefused(f"{self.brokers}: {what}: {self._words(problem)}")

    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """What a client raises within becomes `KafkaRefused`."""
        try:
            yield
        except KafkaError as problem:
            raise self.refused(problem, what) from None

    def _client(self, make: Callable[..., Any], settings: dict[str, Any]) -> Any:
        """A client that has found the cluster. None is allowed to have topics made by asking for them."""
        given = Properties.read(self.properties).client_settings() if self.properties else {}
        networks: list[ReachingClient] = []

        def network(**configs: Any) -> ReachingClient:
            networks.append(ReachingClient(**configs))
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
            told = ""
            for address, failure in failures:
                if failure is problem or isinstance(problem, errors.KafkaTimeoutError):
                    problem = failure
                    told = "" if address in self.brokers.split(",") else f" to {address}, as the cluster calls a broker"
            raise self.refused(problem, f"connecting{told}") from None

    def _words(self, problem: BaseException) -> str:
        chain = list(causes(problem))
        for cause in chain:
            if isinstance(cause, ssl.SSLCertVerificationError):
                return _certificate_words(cause)
            if isinstance(cause, ssl.SSLError) and is_final(cause):
                return _tls_words(cause)
            if isinstance(cause, errors.SaslAuthenticationFailedError):
                return f"the broker does not let {self._user()} in: correct the name, the password or sasl.mechanism"
            if isinstance(cause, errors.UnsupportedSaslMechanismError):
                return "the listener does not take the sasl.mechanism of the file: give one that it takes"
            if isinstance(cause, errors.IllegalSaslStateError):
                return "the listener takes no login, or wants one: give its own security.protocol"
            if isinstance(cause, errors.InvalidReceiveError) and _is_tls_alert(str(cause)):
                return "the listener speaks TLS: give its security.protocol in the file of --properties"
            if isinstance(cause, errors.KafkaProtocolError):
                return f"something other than Kafka answers ({_line(cause)}): {_OTHER_LISTENER}"
            if isinstance(cause, _Unanswered):
                return f"a broker is there, but does not say who the cluster is: {_OTHER_LISTENER}"
            for kind, words in _TABLE:
                if isinstance(cause, kind):
                    return words
        if any(isinstance(cause, _NOT_THERE) for cause in chain):
            why = f"no broker answers ({_plain(chain)}): see that it runs, and that this is its address"
            return f"{why}; {_OTHER_LISTENER}"
        return _line(problem)

    def _user(self) -> str:
        try:
            user = Properties.read(self.properties).user() if self.properties else None
        except KafkaRefused:  # the file has gone since
            user = None
        return f"user {user!r}" if user else "this user"


def _is_tls_alert(words: str) -> bool:
    """Whether what was taken for the length of a message are the first bytes of an alert: 15 03."""
    number = re.search(r"[0-9]+", words)
    return number is not None and int(number[0]) >> 16 == 0x1503


def _certificate_words(problem: ssl.SSLCertVerificationError) -> str:
    why = problem.verify_message.rstrip(".")
    if problem.verify_code in _WRONG_HOST:
        return (
            f"the broker's certificate is for another host ({why}): reach it by a name that stands in it, or empty "
            "ssl.endpoint.identification.algorithm"
        )
    return (
        f"the broker's certificate is not trusted ({why}): name who signed it in ssl.truststore.location, as PEM with "
        "ssl.truststore.type=PEM"
    )


def _tls_words(problem: ssl.SSLError) -> str:
    reason = (problem.reason or "no reason given").replace("_", " ").lower()
    if "alert" in reason:
        return f"the broker breaks off TLS ({reason}): it may want a certificate of ours, in ssl.keystore.location"
    return f"TLS fails ({reason}): the listener may speak plain text: give its own security.protocol"


def _check_registry(url: str) -> None:
    if "@" in url.partition("//")[2].partition("/")[0]:
        raise KafkaRefused(
            "--registry holds a user name: give schema.registry.basic.auth.user.info in the file of --properties"
        )
    if not is_web_address(url):
        raise KafkaRefused(f"--registry {_shown(url)}: no address: give http://HOST:PORT or https://HOST:PORT")


def _plain(chain: list[BaseException]) -> str:
    """What the innermost of the causes says, in words where kafka-python has a number."""
    if any(isinstance(cause, ssl.SSLError) for cause in chain):
        return "TLS breaks off: the listener may speak plain text"
    text = _line(chain[-1])
    number = re.search(r"\b([0-9]+) E[A-Z]+\b", text)
    return os.strerror(int(number[1])) if number else re.sub(r"^(\[Error -?[0-9]+\] )?\w+Error: ", "", text)


def _line(problem: object) -> str:
    text = " ".join((str(problem) or type(problem).__name__).split())
    return text if len(text) <= 200 else text[:197] + "..."


def _shown(text: str) -> str:
    """As much of an address as may be shown: nothing before an @."""
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
