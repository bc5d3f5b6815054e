"""Kafka brokers, each also a controller, with a plain listener and one that requires TLS and a password."""

from __future__ import annotations

import secrets
import socket
import ssl
import struct
import subprocess
from base64 import urlsafe_b64encode
from pathlib import Path

from deploy.services.artifacts import ServicesRefused
from deploy.services.certificates import authority_and_server
from deploy.services.instance import HOST, Instance, connect, write_secret

USER = "opicflow"
LISTENERS = ("plain", "secured", "controller")
LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"

# Small, with short intervals, and as strict as a real cluster: topics are not created automatically.
SERVER = """\
process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
listeners=PLAINTEXT://{plain},SECURED://{secured},CONTROLLER://{controller}
advertised.listeners=PLAINTEXT://{plain},SECURED://{secured}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SECURED:SASL_SSL,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.name.secured.ssl.keystore.type=PEM
listener.name.secured.ssl.keystore.location={folder}/server.pem
listener.name.secured.sasl.enabled.mechanisms=SCRAM-SHA-256
listener.name.secured.scram-sha-256.sasl.jaas.config={login} required;
log.dirs={folder}/data{suffix}
auto.create.topics.enable=false
message.max.bytes=35651584
replica.fetch.max.bytes=35651584
offsets.topic.num.partitions=1
offsets.topic.replication.factor={replicas}
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor={replicas}
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=2000
broker.heartbeat.interval.ms=500
log.cleaner.backoff.ms=200
log.cleaner.dedupe.buffer.size=16777216
log.retention.check.interval.ms=1000
log.initial.task.delay.ms=1000
"""

CLIENT = """\
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-256
sasl.jaas.config={login} required username="{user}" password="{password}";
ssl.truststore.type=PEM
ssl.truststore.location={folder}/ca.pem
"""

# A metadata request (type 3, version 1, number 0, no client name, no topics), preceded by its size in bytes. The
# response begins with its size, the number of the request, and the number of brokers. A client library would log
# errors, retry and leave sockets open while there is no broker.
WHICH_BROKERS = struct.pack(">ihhihi", 14, 3, 1, 0, -1, 0)


class Kafka:
    """The brokers. The port `secured` of each is a second listener, for clients only."""

    name = "kafka"
    title = "Apache Kafka 4.1.1"
    usual_ports = (("plain", 9092),)

    def __init__(self, brokers: int = 1) -> None:
        self.ports = tuple(f"{kind}{_suffix(node)}" for node in range(1, brokers + 1) for kind in LISTENERS)

    def prepare(self, instance: Instance) -> None:
        """Write the keys, the user, and the settings and an empty storage of each broker."""
        folder, password = instance.folder, secrets.token_urlsafe(18)
        authority, certified = authority_and_server(HOST)
        (folder / "ca.pem").write_bytes(authority)
        write_secret(folder / "server.pem", certified)
        write_secret(folder / "password", password.encode())
        client = CLIENT.format(folder=folder, login=LOGIN, user=USER, password=password)
        write_secret(self.client_properties(instance), client.encode())
        cluster = urlsafe_b64encode(b"opicflow" + secrets.token_bytes(8)).decode().rstrip("=")
        user = f"SCRAM-SHA-256=[name={USER},password={password}]"
        nodes = _nodes(instance)
        voters = ",".join(f"{node}@{instance.address(f'controller{_suffix(node)}')}" for node in nodes)
        for node in nodes:
            settings = _settings(instance, node)
            addresses = {kind: instance.address(f"{kind}{_suffix(node)}") for kind in LISTENERS}
            text = SERVER.format(
                folder=folder,
                login=LOGIN,
                node=node,
                suffix=_suffix(node),
                voters=voters,
                replicas=min(3, len(nodes)),
                **addresses,
            )
            settings.write_text(text, encoding="utf-8")
            arguments = ["format", "-t", cluster, "-c", str(settings), "--add-scram", user]
            # Every user of the machine can read the arguments of a process; "@file" hides the password.
            hidden = write_secret(folder / "format.arguments", "\n".join(arguments).encode())
            tool = instance.jvm(
                ["kafka.tools.StorageTool", f"@{hidden}"], "-cp", f"{instance.jars}/*", "-XX:TieredStopAtLevel=1"
            )
            done = subprocess.run(tool, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            hidden.unlink()
            if done.returncode:
                output = done.stdout.replace(password, "***").splitlines()[-5:]
                raise ServicesRefused("\n".join([f"{self.title}: the storage in {folder} cannot be created:", *output]))

    def commands(self, instance: Instance) -> dict[str, list[str]]:
        """Return a command for each broker. Their processes are `kafka`, `kafka-2`, `kafka-3`."""
        logger = [f"-Dorg.slf4j.simpleLogger.{name}" for name in ("showDateTime=true", "dateTimeFormat=HH:mm:ss.SSS")]
        nodes = _nodes(instance)
        memory = ("-Xms256m", "-Xmx640m") if len(nodes) == 1 else ("-Xms128m", "-Xmx400m")
        return {
            f"{self.name}{_suffix(node)}": instance.jvm(
                ["kafka.Kafka", str(_settings(instance, node))], *memory, *logger, "-cp", f"{instance.jars}/*"
            )
            for node in nodes
        }

    def check(self, instance: Instance) -> None:
        """Check that each broker lists all brokers, and that its other listener has a certificate of our authority."""
        nodes = _nodes(instance)
        trusting = ssl.create_default_context(cafile=str(instance.folder / "ca.pem"))
        for node in nodes:
            with connect(instance.ports[f"plain{_suffix(node)}"]) as plain:
                plain.sendall(WHICH_BROKERS)
                _size, _request, brokers = struct.unpack(">iii", _receive(plain, 12))
            if brokers < len(nodes):
                raise ConnectionError("not all brokers have registered with their controller yet")
            with (
                connect(instance.ports[f"secured{_suffix(node)}"]) as raw,
                trusting.wrap_socket(raw, server_hostname=HOST),
            ):
                pass

    def usage(self, instance: Instance) -> list[str]:
        """Return the options for both listeners."""
        secured = f"--brokers {self.brokers(instance, 'secured')} --properties {self.client_properties(instance)}"
        return [f"--brokers {self.brokers(instance)}", f"{secured}   (TLS and a password)"]

    def brokers(self, instance: Instance, listener: str = "plain") -> str:
        """Return host and port of a listener of each broker, as `--brokers` takes them."""
        return ",".join(instance.address(f"{listener}{_suffix(node)}") for node in _nodes(instance))

    def client_properties(self, instance: Instance) -> Path:
        """Return the properties file of a client of the secured listener."""
        return instance.folder / "client.properties"

    def password(self, instance: Instance) -> str:
        """Return the password of the user of the secured listener."""
        return (instance.folder / "password").read_text(encoding="utf-8")


def _nodes(instance: Instance) -> range:
    """Return the numbers of the brokers of an instance."""
    return range(1, len(instance.ports) // len(LISTENERS) + 1)


def _suffix(node: int) -> str:
    """Return what follows the names of ports, files and process of a broker: nothing for the first."""
    return "" if node == 1 else f"-{node}"


def _settings(instance: Instance, node: int) -> Path:
    return instance.folder / f"server{_suffix(node)}.properties"


def _receive(source: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = source.recv(size - len(data))
        if not more:
            raise ConnectionError("the broker has closed the connection")
        data += more
    return data
