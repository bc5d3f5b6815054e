"""A properties file of Kafka's, as Java clients read it, and its settings for opicflow.

People share one file between their Java clients and us, so names of no concern here are passed over. Of the families
that say how a cluster is reached, a name that is not known is refused: a misspelt `ssl.ca.location` must not become a
connection that trusts somebody else. No message shows a value, except for the few names that hold no secret.
"""

from __future__ import annotations

import re
import ssl
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import NoReturn
from urllib.parse import unquote, urlsplit, urlunsplit

from opicflow.connectors.kafka.tokens import client_tokens
from opicflow.schemas.errors import UserError, printable


class KafkaRefused(UserError, ValueError):
    """Something of a cluster cannot be used. One line: what, where, and what to do; never a secret."""


class Secret(str):
    """Text that is not shown by whoever prints the settings it is in."""

    def __repr__(self) -> str:
        """Nothing of the text."""
        return "'(secret)'"


@dataclass(frozen=True)
class RegistryAccess:
    """How to reach a schema registry: its URL, user name and password, and a file of authorities to trust."""

    url: str
    auth: tuple[str, str] | None = field(default=None, repr=False)
    ca: str | None = None


_ALIASES = {
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.certificate.location": "ssl.keystore.location",
    "sasl.oauthbearer.client.id": "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.secret": "sasl.oauthbearer.client.credentials.client.secret",
    "basic.auth.user.info": "schema.registry.basic.auth.user.info",
    "schema.registry.ssl.ca.location": "schema.registry.ssl.truststore.location",
}
"""librdkafka's names, and those of the registry's clients, by the ones that are used below."""

_EXACT = ("sasl.password", "ssl.key.password", "sasl.oauthbearer.client.credentials.client.secret")
"""In these values, blanks at the end count."""

_USED = {
    "bootstrap.servers",
    "security.protocol",
    "sasl.mechanism",
    "sasl.jaas.config",
    "sasl.username",
    "sasl.password",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.extensions",
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.keystore.type",
    "ssl.keystore.location",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
    "schema.registry.url",
    "schema.registry.basic.auth.user.info",
    "schema.registry.ssl.truststore.location",
}
_PASSED_OVER = re.compile(
    r"sasl\.(kerberos|login|oauthbearer)\..*|sasl\.(client|server|login)\..*class"
    r"|ssl\.(protocol|provider|cipher\.suites|enabled\.protocols|secure\.random\.implementation|engine\.factory\.class)"
    r"|ssl\.(keymanager|trustmanager)\.algorithm|(schema\.registry\.)?ssl\.(truststore|keystore)\.(password|type)"
    r"|security\.providers|schema\.registry\.(basic\.auth\.credentials\.source|request\.timeout\.ms)"
)
"""Kafka's own names of the families below that mean nothing to a client in Python."""

_PEM_ELSEWHERE = frozenset(
    [
        "ssl.truststore.certificates",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.key.location",
        "ssl.ca.pem",
        "ssl.certificate.pem",
        "ssl.key.pem",
    ]
)
"""Names of other clients for PEM that is not in one file."""
_FAMILIES = ("bootstrap", "security", "sasl", "ssl", "schema.registry")
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_OAUTH, _MSK = "OAUTHBEARER", "AWS_MSK_IAM"
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", _OAUTH, _MSK)
_LINE_ENDS = re.compile(r"\r\n|\r|\n")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_JAAS_OPTION = r"""\s+([\w.-]+)\s*=\s*("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^\s"';]+)"""
_JAAS = re.compile(
    rf"\s*(?P<module>[\w.$]+)\s+(?i:required|requisite|sufficient|optional)(?P<options>(?:{_JAAS_OPTION})*)\s*;\s*",
    re.DOTALL,
)
_JAAS_MODULES = ("PlainLoginModule", "ScramLoginModule")
_JAAS_MODULES_OF = {_OAUTH: ("OAuthBearerLoginModule",), _MSK: ("IAMLoginModule",)}
_EXTENSION = "extension_"
"""Options of OAuthBearerLoginModule that begin so are sent to the broker with a token."""
_PEM = b"-----BEGIN "


# -- the syntax --------------------------------------------------------------------------------------------------------


def parse(text: str) -> dict[str, str]:
    """The names and values of a file in the syntax of `java.util.Properties`. Of a name that comes twice, the last."""
    values: dict[str, str] = {}
    lines = enumerate(_LINE_ENDS.split(text), start=1)
    for number, line in lines:
        line = line.lstrip(" \t\f")
        if not line or line[0] in "#!":
            continue
        while _goes_on(line):
            line = line[:-1] + next(lines, (number, ""))[1].lstrip(" \t\f")
        name, value = _divided(line)
        values[_unescaped(name, number)] = _unescaped(value, number)
    return values


def _goes_on(line: str) -> bool:
    """Whether an odd number of backslashes is at the end."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _divided(line: str) -> tuple[str, str]:
    found = re.match(r"((?:\\.|[^\\ \t\f=:])*)[ \t\f]*[=:]?[ \t\f]*", line, re.DOTALL)
    assert found  # every part may be empty
    return found[1], line[found.end() :]


def _unescaped(text: str, line: int) -> str:
    def one(found: re.Match[str]) -> str:
        escape = found[1]
        if escape == "u":
            raise KafkaRefused(f"line {line}: \\u without four hexadecimal digits: write a backslash as \\\\")
        return chr(int(escape[1:], 16)) if len(escape) > 1 else _ESCAPED.get(escape, escape)

    plain = _ESCAPE.sub(one, text)
    try:
        return plain.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise KafkaRefused(f"line {line}: half of a character (\\ud800 to \\udfff): write both halves") from None


# -- the file ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Properties:
    """The content of a properties file. It lives while a client is being made, is never pickled, and shows no value."""

    path: str
    values: Mapping[str, str] = field(repr=False)

    @staticmethod
    def read(path: str) -> Properties:
        """The properties of a file, all names known or of no concern."""
        try:
            text = Path(path).read_bytes().decode("utf-8-sig")
        except UnicodeDecodeError:
            raise KafkaRefused(f"{path}: no UTF-8: write it as UTF-8, or other characters as \\uXXXX") from None
        except (OSError, ValueError) as problem:
            why = getattr(problem, "strerror", None) or "no path of a file"
            raise KafkaRefused(f"{path}: {why}: name a properties file that is there wherever this runs") from None
        try:
            values = parse(text)
        except KafkaRefused as problem:
            raise KafkaRefused(f"{path}: {problem}") from None
        for name in values:
            _check_name(path, name)
        return Properties(path, _by_one_name(values))

    def __reduce__(self) -> NoReturn:
        """Refuse: secrets do not travel."""
        raise TypeError("properties hold secrets, and are read where they are used")

    def get(self, name: str) -> str | None:
        """The value of a name, None where it is missing or empty."""
        return self.values.get(name) or None

    def client_settings(self) -> dict[str, object]:
        """The settings of a client of kafka-python, without the brokers."""
        protocol = self._protocol()
        settings: dict[str, object] = {"security_protocol": protocol}
        if self.get("client.id"):
            settings["client_id"] = self.get("client.id")
        if protocol.startswith("SASL"):
            mechanism = self._one_of("sasl.mechanism", _MECHANISMS)
            settings |= {"sasl_mechanism": mechanism, **self._login(mechanism, protocol)}
        if protocol.endswith("SSL"):
            settings["ssl_context"] = self.ssl_context()
        return settings

    def registry(self, url: str | None) -> RegistryAccess | None:
        """How to reach the schema registry at `url`, or at the one that the file names."""
        auth = self.get("schema.registry.basic.auth.user.info")
        if url is None:
            # Clients in Java take several, for when one is away.
            url = (self.get("schema.registry.url") or "").split(",")[0].strip()
            if not url:
                return None
            if not is_web_address(url):
                self._refuse("schema.registry.url", "no address: give http://HOST:PORT or https://HOST:PORT")
            parts = urlsplit(url)
            user_info, at, host = parts.netloc.rpartition("@")
            if at:
                auth = auth or unquote(user_info)
                url = urlunsplit(parts._replace(netloc=host))
        if auth is not None and ":" not in auth:
            self._refuse("schema.registry.basic.auth.user.info", "no password in it: give NAME:PASSWORD")
        user, _, password = (auth or "").partition(":")
        ca = self.get("schema.registry.ssl.truststore.location") or self.get("ssl.truststore.location")
        return RegistryAccess(url, (user, Secret(password)) if auth else None, ca)

    def user(self) -> str | None:
        """The user name, or the client of a token server, for messages."""
        if not self._protocol().startswith("SASL"):
            return None
        mechanism = self._mechanism()
        if mechanism == _OAUTH:
            return self._client()[0]
        return None if mechanism == _MSK else self._credentials()[0]

    @property
    def uses_tokens(self) -> bool:
        """Whether logins are by tokens."""
        return self._mechanism() == _OAUTH

    def _mechanism(self) -> str:
        return (self.get("sasl.mechanism") or "").upper()

    def _login(self, mechanism: str, protocol: str) -> dict[str, object]:
        """The settings of a login."""
        if mechanism == _OAUTH:
            client, secret, scope, extensions = self._client()
            tokens = client_tokens(self._token_url(), client, Secret(secret), scope, extensions)
            tokens.token()  # a wrong client is refused here, by name
            return {"sasl_oauth_token_provider": tokens}
        if mechanism == _MSK:
            self._check_aws(protocol)
            return {}
        user, password = self._credentials()
        return {"sasl_plain_username": user, "sasl_plain_password": Secret(password)}

    def _client(self) -> tuple[str, str, str, tuple[tuple[str, str], ...]]:
        """The client of a token server: its name, its secret, the scope, and the fields sent beside the token."""
        jaas = self.get("sasl.jaas.config")
        options = self._jaas_options(jaas, _OAUTH) if jaas else {}
        names = "sasl.oauthbearer.client.credentials.client"
        client = self.get(f"{names}.id") or options.get("clientId")
        secret = self.get(f"{names}.secret") or options.get("clientSecret")
        if not client or not secret:
            self._refuse(
                f"{names}.id and {names}.secret",
                f'no client {"secret" if client else "id"}: give both, or clientId="…" clientSecret="…" in '
                "sasl.jaas.config",
            )
        pairs = (one.partition("=") for one in (self.get("sasl.oauthbearer.extensions") or "").split(","))
        extensions = {name.strip(): value for name, _, value in pairs if name.strip()}
        extensions |= {
            name.removeprefix(_EXTENSION): value for name, value in options.items() if name.startswith(_EXTENSION)
        }
        scope = self.get("sasl.oauthbearer.scope") or options.get("scope", "")
        return client, secret, scope, tuple(sorted(extensions.items()))

    def _token_url(self) -> str:
        name = "sasl.oauthbearer.token.endpoint.url"
        url = self.get(name)
        if url is None:
            self._refuse(name, "missing: give the address of the token server")
        if not is_web_address(url) or "@" in urlsplit(url).netloc:
            self._refuse(name, "no address: give https://HOST/PATH")
        parts = urlsplit(url)
        if parts.scheme == "http" and not is_this_machine(parts.hostname or ""):
            self._refuse(name, "give https://…: the secret would be sent without encryption")
        return url

    def _check_aws(self, protocol: str) -> None:
        """Refuse a login at Amazon MSK that cannot be signed. The client reads the credentials where AWS's tools do."""
        jaas = self.get("sasl.jaas.config")
        for option in self._jaas_options(jaas, _MSK) if jaas else {}:
            self._refuse("sasl.jaas.config", f"{option[:40]} does not work here: set AWS_PROFILE where this runs")
        if protocol != "SASL_SSL":
            self._refuse("sasl.mechanism", f"{_MSK} needs SASL_SSL: give it as security.protocol")
        try:
            from botocore.session import Session  # type: ignore[import-untyped]
        except ImportError:
            self._refuse("sasl.mechanism", f"{_MSK} needs botocore: pip install 'opicflow[msk]'")
        session = Session()
        if session.get_credentials() is None:
            self._refuse(
                "sasl.mechanism",
                "no credentials of AWS are found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or "
                "give the machine a role",
            )
        if not session.get_config_variable("region"):
            self._refuse("sasl.mechanism", "no region of AWS is set: set AWS_DEFAULT_REGION")

    def _protocol(self) -> str:
        if self.get("security.protocol") is None:
            left_out = next((name for name in self.values if name.startswith(("sasl.", "ssl."))), None)
            if left_out is not None:
                self._refuse(
                    left_out, f"says how, but security.protocol is missing: give one of {', '.join(_PROTOCOLS)}"
                )
            return "PLAINTEXT"
        return self._one_of("security.protocol", _PROTOCOLS)

    def _one_of(self, name: str, known: tuple[str, ...]) -> str:
        value = (self.get(name) or "").upper()
        if value not in known:
            what = f"{value[:40]!r} does not work here" if value else "missing"
            self._refuse(name, f"{what}: give one of {', '.join(known)}")
        return value

    def _credentials(self) -> tuple[str, str]:
        jaas = self.get("sasl.jaas.config")
        user, password = self._of_jaas(jaas) if jaas else (self.get("sasl.username"), self.get("sasl.password"))
        if not user or not password:
            missing = "password" if user else "user name"
            self._refuse(
                "sasl.jaas.config" if jaas else "sasl.username and sasl.password",
                f'no {missing}: give sasl.jaas.config with username="…" password="…", or both of sasl.username and '
                "sasl.password",
            )
        return user, password

    def _of_jaas(self, jaas: str) -> tuple[str | None, str | None]:
        options = self._jaas_options(jaas, self._mechanism())
        return options.get("username"), options.get("password")

    def _jaas_options(self, jaas: str, mechanism: str) -> dict[str, str]:
        modules = _JAAS_MODULES_OF.get(mechanism, _JAAS_MODULES)
        found = _JAAS.fullmatch(jaas)
        if found is None:
            self._refuse("sasl.jaas.config", 'not understood: give MODULE required username="…" password="…";')
        if found["module"].rpartition(".")[2] not in modules:
            self._refuse("sasl.jaas.config", f"{found['module'][:80]} does not work here: use {' or '.join(modules)}")
        return {name: _unquoted(value) for name, value in re.findall(_JAAS_OPTION, found["options"], re.DOTALL)}

    def ssl_context(self) -> ssl.SSLContext:
        """Whom to trust, and who we are."""
        context = ssl.create_default_context()
        algorithm = self.values.get("ssl.endpoint.identification.algorithm", "https")
        if algorithm.lower() not in ("", "https"):
            self._refuse("ssl.endpoint.identification.algorithm", "give https, or nothing to trust any host name")
        context.check_hostname = bool(algorithm)
        store = self.get("ssl.truststore.location")
        if store is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # trusts these and no others
            context.check_hostname = bool(algorithm)
            authorities = self._pem("truststore", store).decode("ascii", "ignore")  # there may be text between
            try:
                context.load_verify_locations(cadata=authorities)
            except (ssl.SSLError, ValueError):
                self._refuse("ssl.truststore.location", "holds no certificates: give PEM, as openssl x509 writes it")
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._load_identity(context)
        return context

    def _load_identity(self, context: ssl.SSLContext) -> None:
        """Load the client's own certificate and key, if the file names a store of them."""
        store = self.get("ssl.keystore.location")
        if store is None:
            return
        self._pem("keystore", store)
        password = Secret(self.get("ssl.key.password") or "")
        try:
            context.load_cert_chain(store, password=lambda: str(password))  # never prompts at the terminal
        except (ssl.SSLError, ValueError):
            self._refuse(
                "ssl.keystore",
                "its key does not open, or does not belong to its certificate: see to both, and to ssl.key.password",
            )

    def _pem(self, store: str, path: str) -> bytes:
        """The contents of a file in PEM. For a store of Java, the error has the command that converts it."""
        name = f"ssl.{store}.location"
        try:
            contents = Path(path).read_bytes()
        except OSError as problem:
            self._refuse(name, f"{path}: {problem.strerror}: name a file that is there wherever this runs")
        kind = (self.get(f"ssl.{store}.type") or "").upper()
        if kind not in ("", "PEM") or _PEM not in contents:
            to_pkcs12 = f"keytool -importkeystore -srckeystore {path} -destkeystore store.p12 -deststoretype PKCS12"
            to_pem = "openssl pkcs12 -in store.p12 " + ("-nokeys " if store == "truststore" else "") + "-out store.pem"
            beside = "ssl.ca.location" if store == "truststore" else "ssl.certificate.location"
            self._refuse(
                name,
                f"{path} is {'no PEM' if kind in ('', 'PEM') else f'of type {kind[:20]}'}: convert it ({to_pkcs12}; "
                f"{to_pem}), and give ssl.{store}.type=PEM or name it in {beside}",
            )
        return contents

    def _refuse(self, name: str, why: str) -> NoReturn:
        raise KafkaRefused(f"{self.path}: {name}: {why}") from None


def _by_one_name(values: Mapping[str, str]) -> dict[str, str]:
    """The values without aliases. An alias wins, so that a file for Java can name PEM beside Java's own store."""
    named = {name: value if name in _EXACT else value.strip() for name, value in values.items()}
    found = {name: value for name, value in named.items() if name not in _ALIASES}
    for alias, name in _ALIASES.items():
        if alias in named:
            found[name] = named[alias]
            if name.endswith(".location"):
                found.pop(name.removesuffix("location") + "type", None)
    return found


def is_web_address(url: str) -> bool:
    """Whether this is an address of http or https with a host in it."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def is_this_machine(host: str) -> bool:
    """Whether a host is this machine, by its name or address alone."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:  # a name
        return host == "localhost" or host.endswith(".localhost")


@cache
def warn_once(line: str) -> None:
    """Print a warning to standard error, unless the process has printed it before."""
    print(printable(f"opicflow: {line}"), file=sys.stderr)


def _check_name(path: str, name: str) -> None:
    if not name.startswith(tuple(f"{family}." for family in _FAMILIES)):
        return
    if name in _PEM_ELSEWHERE:
        raise KafkaRefused(
            f"{path}: {name} is not read: write PEM to a file, a key below its certificate, and name the file in "
            "ssl.truststore.location or ssl.keystore.location"
        )
    known = _USED | set(_ALIASES)
    if name in known or _PASSED_OVER.fullmatch(name):
        return
    near = get_close_matches(name, sorted(known), n=1)
    raise KafkaRefused(
        f"{path}: {name[:80]!r} is not known: "
        + (f"did you mean {near[0]}?" if near else "correct it, or leave it out")
    )


def _unquoted(value: str) -> str:
    if value[0] not in "\"'":
        return value
    return re.sub(r"\\(.)", lambda found: _ESCAPED.get(found[1], found[1]), value[1:-1], flags=re.DOTALL)
